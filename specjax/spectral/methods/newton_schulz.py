"""Polynomial iterations for the polar factor, which use only matrix products.

One step applies an odd quintic to every singular value: X ← S X, S = a + b G + c G², G = XXᴴ. Where
m is much smaller than n the steps run on the m×m matrices alone, G ← S G S, and the product of all
S is applied to X once, at the end of a block of steps (the Gram form). Rounding moves the
eigenvalues of G by u, the unit roundoff, relative to the largest; a block multiplies the smallest
ones by Π a², and `gram_blocks` ends it, for a new Gram matrix, before Π a² exceeds `GRAM_GROWTH`.
Five steps of Muon are blocks of three and two, and the errors of both forms are alike.

Half precision. Products of operands rounded to bfloat16 or float16, accumulated in float32, run at
up to twice the speed on a CPU. Results between products stay in float32, so that only operands are
rounded, and of square operands only the difference from their mean eigenvalue (`centred_product`):
near the end singular values are near 1, and G and S near multiples of the identity.
"""

import math
from dataclasses import dataclass
from functools import cache
from typing import Literal, get_args

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Inexact, Int

from specjax.arguments import check_fields, shown
from specjax.linalg import eigvalsh
from specjax.spectral.methods.base import AbstractPolar
from specjax.spectral.polynomials import MUON, Quintic, best_composition
from specjax.spectral.products import centred_product, commuting_product, diagonal_of, rounded_gram

GRAM_GROWTH = 2.0**12
"""The factor by which a block may magnify rounding in the Gram matrix before a new one is formed.

Chosen by measurement on spectra from flat to k⁻². In float32 three steps of Muon, where Π a² =
2^10.7, have at most six times the error of the standard form, four steps 50 times, five, at 2^17.8,
180 times. With operands in half precision the errors of three are up to 5e-2, of the standard form
up to 2e-2, of five up to 1e-1.
"""


Scaling = Literal["frobenius", "schatten-4", "aol", "spectral"]
"""The divisor of x before the first step, which brings all singular values to 1 or below: a norm,
or one number for each row.
"""


class _Composition(AbstractPolar):
    """Odd quintics, one after the other, on the singular values of x over its norm.

    The subclasses are dataclasses with the fields named here.
    """

    gram: bool | None
    restart: int | None
    operands: DTypeLike | None
    scaling: Scaling = "frobenius"

    @property
    def uses_lapack(self) -> bool:
        """Whether x is divided by its spectral norm, which is an eigenvalue of the Gram matrix."""
        return self.scaling == "spectral"

    def polynomials(self) -> tuple[Quintic, ...]:
        """The polynomial of each step."""
        raise NotImplementedError

    def __call__(self, x: Inexact[Array, "m n"]) -> Inexact[Array, "m n"]:
        """See the class."""
        if jnp.iscomplexobj(x) and self.operands is not None:
            raise ValueError(
                f"operands={jnp.dtype(self.operands)} is for real matrices, got {x.dtype}; leave it"
                " out."
            )
        y, rounded = _widened(x, self.operands)
        steps, restart = self.polynomials(), self.restart
        if restart is None:
            blocks = gram_blocks(steps, GRAM_GROWTH)
        else:
            blocks = tuple(steps[i : i + restart] for i in range(0, len(steps), restart))
        first, reciprocal = _scaled_gram(rounded_gram(y, rounded), self.scaling)
        if self.gram or (self.gram is None and gram_is_cheaper(x.shape, len(steps), len(blocks))):
            return _in_gram_form(blocks, y, first, reciprocal, rounded).astype(x.dtype)
        return _in_standard_form(steps, y, first, reciprocal, rounded).astype(x.dtype)


@jax.tree_util.register_static
@dataclass(frozen=True)
class NewtonSchulz(_Composition):
    """`steps` odd polynomial steps from x / ‖x‖_F, matrix products only; zero padding stays zero
    exactly.

    The default coefficients are those of Muon: singular values from 1e-2 ‖x‖_F up end in [0.681,
    1.135], none ends above 1.21, and those far below 1e-3 ‖x‖_F only grow 485-fold, so the result
    is not the polar factor but a matrix near it. With `CUBIC` it converges to the polar factor,
    with about log(‖x‖_F / s_min) / log(1.5) steps to start and quadratically then.
    `band(method.polynomials(), lower)` gives the interval in which singular values from lower ‖x‖_F
    up end. Derivatives are those of the polynomials, which for an unconverged iteration are not
    those of the polar factor.

    `coefficients` is one polynomial for all steps, or one for each step.

    `gram` chooses the Gram form; by default it is taken where it needs fewer operations, which for
    five steps is n > 1.5 m. `restart` is the number of its steps between two Gram matrices; by
    default as many as keep its error near that of the standard form, for Muon's polynomials three.
    `restart=5` saves up to a third of the time of a wide matrix, with errors up to 4e-3 in float32,
    and of half-precision operands up to 0.5.

    `operands` is the dtype that operands of products are rounded to, with sums and everything in
    between in float32: `jnp.bfloat16` for float32 matrices at up to twice the speed. By default it
    is the dtype of x. Errors of five steps against exact arithmetic, relative in the Frobenius
    norm: in float32 4e-7 (a flat spectrum) to 3e-5; with bfloat16 operands 1e-3 to 1e-2, in the
    Gram form up to 5e-2 (sixteen rows, singular values that fall as e^(-k/2)).

    `scaling` names the divisor of x before the first step, in place of ‖x‖_F. "schatten-4", ‖x
    xᴴ‖_F^(1/2), is smaller, so that flat spectra need fewer steps, and as cheap (Grishina, Smirnov
    and Rakhuba 2025); "spectral", ‖x‖_op, is the smallest and needs the eigenvalues of x xᴴ. "aol"
    divides row i of a wide x, and column i of a tall one, by (Σ_j |x xᴴ|_ij)^(1/2) (Boissin et al.
    2025, Turbo-Muon); the steps then go towards the polar factor of that other matrix.

    Examples:
        >>> import jax.numpy as jnp
        >>> from specjax import spectral
        >>> x = jnp.diag(jnp.array([3.0, 4.0]))
        >>> muon = spectral.NewtonSchulz()
        >>> cubic = spectral.NewtonSchulz(20, spectral.polynomials.CUBIC)
        >>> bool(jnp.allclose(spectral.polar(x, muon), jnp.eye(2), atol=0.35))
        True
        >>> bool(jnp.allclose(spectral.polar(x, cubic), jnp.eye(2), atol=1e-5))
        True
    """

    steps: int = 5
    coefficients: Quintic | tuple[Quintic, ...] = MUON
    gram: bool | None = None
    restart: int | None = None
    operands: DTypeLike | None = None
    scaling: Scaling = "frobenius"

    def __post_init__(self) -> None:
        if not isinstance(self.scaling, str) or self.scaling not in get_args(Scaling):
            raise ValueError(
                f"Unknown scaling {shown(self.scaling)}; choose one of"
                f" {', '.join(get_args(Scaling))}."
            )
        check_fields(self)
        if self.steps < 1:
            raise ValueError(f"NewtonSchulz needs steps >= 1, got steps={self.steps}.")
        if not isinstance(self.coefficients, Quintic) and len(self.coefficients) != self.steps:
            raise ValueError(
                f"NewtonSchulz needs one polynomial or one for each of its {self.steps} steps, got"
                f" {len(self.coefficients)}; set steps={len(self.coefficients)}."
            )
        _check_form(self.restart, self.operands)

    def polynomials(self) -> tuple[Quintic, ...]:
        """The polynomial of each step."""
        return (
            (self.coefficients,) * self.steps
            if isinstance(self.coefficients, Quintic)
            else self.coefficients
        )


def newton_schulz_steps(
    x: Inexact[Array, "m n"], polynomial: Quintic, steps: Int[Array, ""], scaling: Scaling
) -> Inexact[Array, "m n"]:
    """`NewtonSchulz` in its standard form with a traced number of steps, in a loop.

    JAX cannot differentiate it in reverse mode, since the loop has an unknown length.
    """
    y, rounded = _widened(x, None)
    _, reciprocal = _scaled_gram(rounded_gram(y, rounded), scaling)
    one = jnp.ones((), y.dtype)

    def step(_: Array, y: Array) -> Array:
        return _in_standard_form((polynomial,), y, rounded_gram(y, rounded), one, rounded)

    return jax.lax.fori_loop(0, steps, step, reciprocal.T * y).astype(x.dtype)


@jax.tree_util.register_static
@dataclass(frozen=True)
class PolarExpress(_Composition):
    """The `steps` odd quintics whose composition is the best for singular values in [lower, 1]
    ‖x‖_F; products only.

    The polynomials are computed at construction for the given bound and number of steps (Amsel,
    Persson, Musco and Gower, The Polar Express, 2025). With the defaults singular values from 1e-3
    ‖x‖_F up end at 1 to rounding, after five steps in [0.869, 1.131], and smaller ones fall short:
    those from 1e-4 ‖x‖_F end in [0.587, 1]. `band(method.polynomials(), lower)` gives these
    intervals for any choice. Zero padding stays zero exactly. Take `lower` near the smallest
    singular value that matters, relative to ‖x‖_F, and more steps for a smaller one. `safety` and
    `cushion` are the paper's guards against rounding, explained in `best_composition`; `gram`,
    `restart`, `operands` and derivatives are as in `NewtonSchulz`.

    Examples:
        >>> import jax.numpy as jnp
        >>> from specjax import spectral
        >>> x = jnp.diag(jnp.array([3.0, 0.1]))
        >>> method = spectral.PolarExpress(steps=8)
        >>> bool(jnp.allclose(spectral.polar(x, method), jnp.eye(2), atol=1e-4))
        True
    """

    steps: int = 8
    lower: float = 1e-3
    safety: float = 1.01
    cushion: float = 0.02
    gram: bool | None = None
    restart: int | None = None
    operands: DTypeLike | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.steps < 1:
            raise ValueError(f"PolarExpress needs steps >= 1, got steps={self.steps}.")
        if not 0 < self.lower < 1:
            raise ValueError(f"PolarExpress needs 0 < lower < 1, got lower={self.lower}.")
        if not self.safety >= 1:
            raise ValueError(
                f"PolarExpress needs safety >= 1, got safety={self.safety}; 1 means none."
            )
        if not 0 <= self.cushion < 1:
            raise ValueError(
                f"PolarExpress needs 0 <= cushion < 1, got cushion={self.cushion}; 0 means none."
            )
        _check_form(self.restart, self.operands)

    def polynomials(self) -> tuple[Quintic, ...]:
        """The polynomial of each step."""
        return best_composition(self.steps, self.lower, self.safety, self.cushion)


def _check_form(restart: int | None, operands: DTypeLike | None) -> None:
    if restart is not None and restart < 1:
        raise ValueError(
            f"restart needs at least one step between Gram matrices, got {restart}; None lets the"
            " method choose."
        )
    try:
        dtype = jnp.dtype(operands)
    except (TypeError, ValueError):
        dtype = None
    if operands is not None and dtype not in (jnp.bfloat16, jnp.float16):
        got = shown(operands) if dtype is None else dtype
        raise ValueError(
            f"operands must be jnp.bfloat16, jnp.float16 or None (the dtype of x), got {got}."
        )


@cache
def gram_blocks(polynomials: tuple[Quintic, ...], growth: float) -> tuple[tuple[Quintic, ...], ...]:
    """Divides the steps into blocks that share a Gram matrix: as few blocks as keep Π a² within
    `growth` in each, and among such divisions the one with the smallest maximum of Π a². A block
    has at least one step.
    """
    slopes = [2 * math.log(abs(p.a)) if p.a else 0.0 for p in polynomials]
    # The smallest bound on Σ log a² of a block, among all sums of consecutive steps, that admits
    # the fewest blocks.
    limit = max(math.log(growth), *slopes)
    sums = sorted(
        sum(slopes[i:j]) for i in range(len(slopes)) for j in range(i + 1, len(slopes) + 1)
    )
    fewest = len(_greedy(slopes, limit))
    ends = next(
        e for bound in sums if bound >= max(slopes) and len(e := _greedy(slopes, bound)) == fewest
    )
    return tuple(polynomials[i:j] for i, j in zip((0, *ends[:-1]), ends, strict=True))


def _greedy(slopes: list[float], bound: float) -> list[int]:
    """The ends of the longest blocks from the left whose sums stay within the bound."""
    ends, total = [], 0.0
    for i, slope in enumerate(slopes):
        if total + slope > bound + 1e-12:
            ends.append(i)
            total = 0.0
        total += slope
    return [*ends, len(slopes)]


def gram_is_cheaper(shape: tuple[int, ...], steps: int, blocks: int) -> bool:
    """Whether the Gram form needs fewer operations than the standard one for an (m, n) matrix.

    In units of 2m² operations the standard form takes 2n + m for a step. The Gram form takes 2n for
    a block, to form the Gram matrix and to return to X, and on the m×m matrices 4m for a step but
    only m for the first of a block.
    """
    m, n = shape
    return 2 * n * blocks + m * (4 * steps - 3 * blocks) < (2 * n + m) * steps


def _widened(x: Array, operands: DTypeLike | None) -> tuple[Array, DTypeLike | None]:
    """x with sums in float32 at least, and the dtype to which operands of products are rounded."""
    rounded = x.dtype if jnp.finfo(x.dtype).bits < 32 else operands
    return x if rounded is None else x.astype(jnp.float32), rounded


def _in_gram_form(
    blocks: tuple[tuple[Quintic, ...], ...],
    x: Array,
    gram: Array,
    reciprocal: Array,
    operands: DTypeLike | None,
) -> Array:
    """The steps on m×m matrices alone; `gram` is that of reciprocal · x."""
    one = jnp.eye(gram.shape[0], dtype=gram.dtype)
    for number, block in enumerate(blocks):
        if number:
            gram = rounded_gram(x, operands)
        step = whole = one
        for place, p in enumerate(block):
            if place:
                gram = commuting_product(step, commuting_product(gram, step, operands), operands)
            step = p.b * gram
            if p.c:
                step += p.c * commuting_product(gram, gram, operands)
            step += p.a * one
            whole = commuting_product(step, whole, operands) if place else step
        x = centred_product(whole if number else reciprocal * whole, x, operands)
    return x


def _in_standard_form(
    polynomials: tuple[Quintic, ...],
    x: Array,
    gram: Array,
    reciprocal: Array,
    operands: DTypeLike | None,
) -> Array:
    """The steps on x itself; `gram` is that of reciprocal · x."""
    for number, p in enumerate(polynomials):
        if number:
            gram = rounded_gram(x, operands)
        factor = p.b * gram
        if p.c:
            factor += p.c * commuting_product(gram, gram, operands)
        # A number commutes with the step and is multiplied after it; a diagonal does not commute.
        y = x if number or reciprocal.ndim == 0 else reciprocal.T * x
        x = p.a * y + centred_product(factor, y, operands)
        if not number and reciprocal.ndim == 0:
            x = reciprocal * x
    return x


def _scaled_gram(gram: Array, scaling: Scaling) -> tuple[Array, Array]:
    """The Gram matrix D gram D of D x, and D: one number, or its diagonal as a row (1, m). It never
    divides by zero.
    """
    if scaling == "frobenius":
        squares = jnp.sum(diagonal_of(gram)).real
    elif scaling == "schatten-4":
        squares = jnp.sqrt(jnp.sum(jnp.abs(gram) ** 2))
    elif scaling == "spectral":
        squares = eigvalsh(gram)[-1]
    else:
        squares = jnp.sum(jnp.abs(gram), axis=0, keepdims=True)
    reciprocal = (1 / jnp.sqrt(jnp.where(squares <= 0, 1, squares))).astype(gram.dtype)
    return reciprocal.T * reciprocal * gram, reciprocal
