"""Problems of a given condition number κ for comparing optimizers.

Symmetric factorization, in-context regression and matrix regression, each with a log-spaced
spectrum from 1 down to 1/κ. Each is a function of a key and κ, both possibly traced, so that a
sweep maps over both. `steps_to` counts the iterations of an optax optimizer to an accuracy, `along`
records its path. Under `vmap` the loop of `steps_to` runs until the last run has arrived; the
others keep their state.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from specjax.models import (
    factorization_spectra,
    in_context_regression,
    matrix_factorization,
    matrix_regression,
)
from specjax.sizes import AnySize
from specjax.theory.preconditioning.conditions import check_ranks

if TYPE_CHECKING:
    import optax

Map = Callable[[Array], Array]


class Problem(NamedTuple):
    """A start, an exact gradient and loss, and a residual relative to the target.

    `length` is the distance from start to target, the unit for steps of a fixed length. `curvature`
    is the largest eigenvalue of the Hessian at the target; its inverse is the unit for gradient
    descent. `project` is applied to every iterate.
    """

    start: Float[Array, "m n"]
    gradient: Map
    loss: Map
    residual: Map
    length: Float[Array, ""]
    curvature: Float[Array, ""]
    project: Map = lambda x: x

    def error(self, x: Float[Array, "m n"]) -> Float[Array, ""]:
        """The Frobenius norm of the residual, a bound on the operator norm of the theorems."""
        return jnp.linalg.norm(self.residual(x))


def factorization(
    key: Key[Array, ""],
    kappa: Float[Array, ""] | float,
    d: int,
    r: int,
    k: int,
    scale: Float[Array, ""] | float,
) -> Problem:
    """¼ ‖X Xᵀ - M‖² with M of rank r in a Haar basis, and the start scale · V ∈ R^{d×k} with V
    Haar.

    Raises ValueError for a concrete κ below 1, a rank above d, or fewer columns than the rank.
    """
    check_ranks(d, k, r)
    basis_key, start_key = jax.random.split(key)
    kappa = jnp.asarray(kappa, jnp.result_type(float))
    m = factorization_spectra.target(
        basis_key, d, factorization_spectra.logarithmic_spectrum(r, kappa)
    ).matrix
    return Problem(
        matrix_factorization.orthonormal_init(start_key, d, k, scale),
        gradient=lambda x: matrix_factorization.gradient(x, m),
        loss=lambda x: matrix_factorization.loss(x, m),
        residual=lambda x: x @ x.T - m,
        length=jnp.ones_like(kappa),
        curvature=2 * jnp.ones_like(kappa),
    )


def wide_factorization(
    key: Key[Array, ""], kappa: Float[Array, ""] | float, d: int, r: int, k: AnySize, scale: float
) -> Problem:
    """`factorization` from independent N(0, scale²/d) entries: one program for all k."""
    start = (
        scale
        * matrix_factorization.init(jax.random.fold_in(key, 1), d, k)
        / jnp.sqrt(jnp.asarray(float(d)))
    )
    return factorization(key, kappa, d, r, d, scale)._replace(start=start)


def in_context(
    key: Key[Array, ""], kappa: Float[Array, ""] | float, d: int, *, rotated: bool = True
) -> Problem:
    """½ ‖(S Q - I) S^{1/2}‖² with S in a Haar basis, from Q_0 = 0; the residual is relative to
    ‖S⁻¹‖.

    With `rotated=False` S is diagonal. Then rounding stays on the diagonal too, and the matrices
    are the scalar sequences.

    Iterates are symmetrized: in exact arithmetic every Q of Muon and gradient descent is symmetric,
    but the antisymmetric part of rounding grows. Raises ValueError for a concrete κ below 1.
    """
    kappa = jnp.asarray(kappa, jnp.result_type(float))
    spectrum = factorization_spectra.logarithmic_spectrum(d, kappa)
    basis = factorization_spectra.orthonormal(key, d, d) if rotated else jnp.eye(d)
    s, inverse = (
        symmetric(factorization_spectra.composed(basis, v, basis)) for v in (spectrum, 1 / spectrum)
    )
    return Problem(
        in_context_regression.init(d),
        gradient=lambda q: in_context_regression.gradient(q, s),
        loss=lambda q: in_context_regression.loss(q, s),
        residual=lambda q: (q - inverse) / kappa,
        length=kappa,
        curvature=jnp.ones_like(kappa),
        project=symmetric,
    )


def regression(key: Key[Array, ""], kappa: Float[Array, ""] | float, rows: int, d: int) -> Problem:
    """½ ‖W A - Y‖² with A Aᵀ of condition number κ and Y = W* A of norm 1, from W_0 = 0; the
    residual is relative to ‖W*‖.

    Raises ValueError for a concrete κ below 1.
    """
    input_key, output_key = jax.random.split(key)
    inputs = matrix_regression.conditioned_inputs(input_key, d, d, kappa)
    outputs = matrix_regression.linear_outputs(output_key, inputs, rows)
    outputs = outputs / jnp.linalg.norm(outputs)
    best = jnp.linalg.solve(inputs @ inputs.T, inputs @ outputs.T).T
    size = jnp.linalg.norm(best)
    return Problem(
        matrix_regression.init(rows, d),
        gradient=lambda w: matrix_regression.gradient(w, inputs, outputs),
        loss=lambda w: matrix_regression.loss(w, inputs, outputs),
        residual=lambda w: (w - best) / size,
        length=size,
        curvature=jnp.ones_like(size),
    )


class Run(NamedTuple):
    """The number of steps, and the last error."""

    steps: Array
    error: Array


def steps_to(
    problem: Problem, transform: "optax.GradientTransformation", accuracy: float | Array, limit: int
) -> Run:
    """The first t with error(x_t) <= accuracy, or `limit`; a run stops at a NaN error.

    A run also stops when a step leaves its iterate unchanged to the last bit: then step sizes that
    fall with the loss are below rounding.
    """

    def unfinished(state: Any) -> Array:
        _, _, t, error, moves = state
        return (t < limit) & (error > accuracy) & moves

    def advance(state: Any) -> Any:
        before, memory, t, *_ = state
        x, memory = step(problem, transform, before, memory)
        return x, memory, t + 1, problem.error(x), jnp.any(x != before)

    initial = (
        problem.start,
        transform.init(problem.start),
        jnp.zeros((), int),
        problem.error(problem.start),
    )
    _, _, t, error, _ = jax.lax.while_loop(unfinished, advance, (*initial, jnp.ones((), bool)))
    return Run(t, error)


def along(
    problem: Problem, transform: "optax.GradientTransformation", steps: int, what: Map
) -> Float[Array, "times ..."]:
    """Record `what` of x_0, ..., x_steps."""

    def advance(state: Any, _: None) -> Any:
        x, memory = step(problem, transform, *state)
        return (x, memory), what(x)

    _, values = jax.lax.scan(advance, (problem.start, transform.init(problem.start)), length=steps)
    return jnp.concatenate([what(problem.start)[None], values])


def step(
    problem: Problem, transform: "optax.GradientTransformation", x: Array, memory: Any
) -> tuple[Array, Any]:
    """One optimizer step, which also receives the loss: the new iterate and optimizer state."""
    # Imported here, so that the models load without optax.
    import optax

    # Adam raises a Python float to an integer count, which strict promotion rejects.
    with jax.numpy_dtype_promotion("standard"):
        update = optax.with_extra_args_support(transform).update
        updates, memory = update(problem.gradient(x), memory, x, value=problem.loss(x))
    return problem.project(x + updates), memory


def symmetric(x: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """The symmetric part of a matrix."""
    return (x + x.T) / 2
