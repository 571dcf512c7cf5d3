"""Polynomial iterations for the polar factor: matrix products only.

One step applies an odd quintic to every singular value: X ← (a + b XXᵀ + c (XXᵀ)²) X. Where m is much smaller than n the steps
run on the m×m Gram matrix XXᵀ and are applied to X at the end of a block of two or three; on an ill-conditioned float32 matrix
longer blocks would lose the small singular values, whose squares drown in the rounding of the Gram matrix.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from specjax.spectral.methods.contract import AbstractPolar
from specjax.spectral.minimax import MUON, Quintic, best_composition
from specjax.spectral.products import product


class NewtonSchulz(AbstractPolar):
    """`steps` odd polynomial steps from x / ‖x‖_F, matrix products only; zero padding stays zero exactly.

    With the default coefficients it is what Muon runs: singular values from 1e-2 ‖x‖_F up end in [0.681, 1.135], none ends above
    1.21, and those far below 1e-3 ‖x‖_F only grow 485-fold, so the result is not the polar factor but a matrix near it. With
    `CUBIC` it converges to the polar factor, with about log(‖x‖_F / s_min) / log(1.5) steps to start and quadratically then.
    `band(method.polynomials(), lower)` is where singular values from lower ‖x‖_F up end. Derivatives are those of the
    polynomials, which for an unconverged iteration are not those of the polar factor.

    `coefficients` is one polynomial for all steps, or one for each step. `gram` chooses the Gram form; by default it is taken
    where it needs fewer operations, which for five steps is n > 1.5 m.
    """

    steps: int = eqx.field(static=True, default=5)
    coefficients: Quintic | tuple[Quintic, ...] = eqx.field(static=True, default=MUON)
    gram: bool | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"NewtonSchulz needs steps >= 1, got steps={self.steps}.")
        if not isinstance(self.coefficients, Quintic) and len(self.coefficients) != self.steps:
            raise ValueError(
                f"NewtonSchulz needs one polynomial or one for each of its {self.steps} steps, got {len(self.coefficients)}; "
                f"set steps={len(self.coefficients)}."
            )

    def polynomials(self) -> tuple[Quintic, ...]:
        """The polynomial of each step."""
        return (self.coefficients,) * self.steps if isinstance(self.coefficients, Quintic) else self.coefficients

    def __call__(self, x: Float[Array, "m n"]) -> Float[Array, "m n"]:
        """See the class."""
        return _composed(self.polynomials(), x, self.gram)


class PolarExpress(AbstractPolar):
    """The `steps` odd quintics whose composition is the best for singular values in [lower, 1] ‖x‖_F; products only.

    Computed at construction for the bound and number of steps given (Amsel, Persson, Musco and Gower, The Polar Express, 2025).
    With the defaults singular values from 1e-3 ‖x‖_F up end at 1 to rounding, after five steps in [0.869, 1.131], and smaller
    ones fall short: those from 1e-4 ‖x‖_F end in [0.587, 1]. `band(method.polynomials(), lower)` says so for any choice. Zero
    padding stays zero exactly. Take `lower` near the smallest singular value that matters, relative to ‖x‖_F, and more steps for
    a smaller one. `safety` and `cushion` are the paper's guards against rounding, explained in `best_composition`; `gram` and
    derivatives are as in `NewtonSchulz`.
    """

    steps: int = eqx.field(static=True, default=8)
    lower: float = eqx.field(static=True, default=1e-3)
    safety: float = eqx.field(static=True, default=1.01)
    cushion: float = eqx.field(static=True, default=0.02)
    gram: bool | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"PolarExpress needs steps >= 1, got steps={self.steps}.")
        if not 0 < self.lower < 1:
            raise ValueError(f"PolarExpress needs 0 < lower < 1, got lower={self.lower}.")
        if not self.safety >= 1:
            raise ValueError(f"PolarExpress needs safety >= 1, got safety={self.safety}; 1 means none.")
        if not 0 <= self.cushion < 1:
            raise ValueError(f"PolarExpress needs 0 <= cushion < 1, got cushion={self.cushion}; 0 means none.")

    def polynomials(self) -> tuple[Quintic, ...]:
        """The polynomial of each step."""
        return best_composition(self.steps, self.lower, self.safety, self.cushion)

    def __call__(self, x: Float[Array, "m n"]) -> Float[Array, "m n"]:
        """See the class."""
        return _composed(self.polynomials(), x, self.gram)


def _composed(polynomials: tuple[Quintic, ...], x: Array, gram: bool | None) -> Array:
    """The polynomials in turn on the singular values of x / ‖x‖_F."""
    squares = jnp.sum(x**2)
    # The square root has no derivative at a zero matrix, which is left as it is.
    x = x / jnp.sqrt(jnp.where(squares != 0, squares, 1))
    if gram_is_cheaper(x.shape, len(polynomials)) if gram is None else gram:
        for block in blocks(polynomials):
            x = product(_on_gram(block, product(x, x.T)), x)
        return x
    for p in polynomials:
        x = p.a * x + product(_without_a(p, product(x, x.T)), x)
    return x


def _on_gram(polynomials: tuple[Quintic, ...], gram: Array) -> Array:
    """The m×m matrix that takes X with X Xᵀ = gram to the composed polynomials of X."""
    whole = step = _on_identity(polynomials[0], gram)
    for p in polynomials[1:]:
        gram = product(step, product(gram, step))
        step = _on_identity(p, gram)
        whole = product(step, whole)
    return whole


def _on_identity(p: Quintic, gram: Array) -> Array:
    """What one step multiplies X by: a + b XXᵀ + c (XXᵀ)²."""
    return p.a * jnp.eye(gram.shape[0], dtype=gram.dtype) + _without_a(p, gram)


def _without_a(p: Quintic, gram: Array) -> Array:
    return p.b * gram + p.c * product(gram, gram) if p.c else p.b * gram


def blocks(polynomials: tuple[Quintic, ...]) -> list[tuple[Quintic, ...]]:
    """The steps between two returns to X: two first, where singular values are smallest, then three at a time."""
    starts = [0, *range(2, len(polynomials), 3)]
    return [polynomials[i:j] for i, j in zip(starts, [*starts[1:], len(polynomials)], strict=True)]


def gram_is_cheaper(shape: tuple[int, ...], steps: int) -> bool:
    """Whether the Gram form needs fewer operations than the standard one for an (m, n) matrix.

    In units of 2m² operations the standard form takes 2n + m for a step. The Gram form takes 2n for a block, to form the Gram
    matrix and to return to X, and on the m×m matrices 4m for a step but only m for the first of a block.
    """
    m, n = shape
    count = len(range(2, steps, 3)) + 1
    return 2 * n * count + m * (4 * steps - 3 * count) < (2 * n + m) * steps
