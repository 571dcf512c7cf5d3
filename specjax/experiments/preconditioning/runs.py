"""Iterations to an accuracy: a problem, an optimizer and one loop that a sweep maps over condition numbers, step sizes and seeds.

Under `vmap` the loop runs until the last of them has arrived, and those that have arrived keep their state: early finishers do not stop
the others.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from specjax import optim, spectral
from specjax.models import factorization_spectra, in_context_regression, matrix_factorization, matrix_regression
from specjax.optim.scaled import scale_by_factor_gram
from specjax.optim.schedules import decay_on_plateau, random_geometric
from specjax.sizes import AnySize

Map = Callable[[Array], Array]


class Problem(NamedTuple):
    """What a run needs: its start, exact gradient and loss, an error relative to the target, and the units of step sizes.

    `length` is the distance that has to be covered, the unit for steps of a fixed length; `curvature` the largest eigenvalue of the
    Hessian at the target, whose inverse is the unit for gradient descent. `residual` is what should vanish, relative to its target,
    `error` a norm of it, and `project` is applied to every iterate.
    """

    start: Float[Array, "m n"]
    gradient: Map
    loss: Map
    residual: Map
    error: Map
    length: Array
    curvature: Array
    project: Map


class Run(NamedTuple):
    """The number of steps, the last error, and the errors after each step where they were asked for."""

    steps: Array
    error: Array


def factorization(key: Array, kappa: Array, d: int, r: int, k: int, scale: Array | float) -> Problem:
    """M of eigenvalues from 1 to 1/κ, log-spaced, in a Haar basis; start scale · V with V Haar; error ‖X Xᵀ - M‖_F / ‖M‖.

    The Frobenius norm is an upper bound of the operator norm, in which the theorems are, and ‖M‖ = 1.
    """
    basis_key, start_key = jax.random.split(key)
    at = factorization_spectra.target(basis_key, d, factorization_spectra.logarithmic_spectrum(r, kappa))
    return Problem(
        start=matrix_factorization.orthonormal_init(start_key, d, k, scale),
        gradient=lambda x: matrix_factorization.gradient(x, at.matrix),
        loss=lambda x: matrix_factorization.loss(x, at.matrix),
        residual=lambda x: x @ x.T - at.matrix,
        error=lambda x: jnp.linalg.norm(x @ x.T - at.matrix),
        length=jnp.ones_like(kappa),
        curvature=2 * jnp.ones_like(kappa),
        project=lambda x: x,
    )


def wide_factorization(key: Array, kappa: Array, d: int, r: int, k: AnySize, scale: float) -> Problem:
    """As `factorization`, from a start of independent N(0, scale²/d) entries, so that one program serves every number of columns."""
    problem = factorization(key, kappa, d, r, d, scale)
    start = scale * matrix_factorization.init(jax.random.fold_in(key, 1), d, k) / jnp.sqrt(jnp.asarray(float(d)))
    return problem._replace(start=start)


def in_context(key: Array, kappa: Array, d: int, *, rotated: bool = True) -> Problem:
    """Eigenvalues of S from 1 to 1/κ, log-spaced, in a Haar basis; Q_0 = 0; error ‖Q - S⁻¹‖_F / ‖S⁻¹‖.

    With `rotated=False` S is diagonal. Then rounding has no part off the diagonal either, and the matrices are the scalar sequences.

    Iterates are symmetrized: S and S⁻¹ are symmetric, in exact arithmetic so is every Q of Muon and gradient descent, and the
    antisymmetric part of rounding grows.
    """
    spectrum = factorization_spectra.logarithmic_spectrum(d, kappa)
    basis = factorization_spectra.orthonormal(key, d, d) if rotated else jnp.eye(d)
    s, inverse = (
        _symmetric(factorization_spectra.composed(basis, values, basis)) for values in (spectrum, 1 / spectrum)
    )
    return Problem(
        start=in_context_regression.init(d),
        gradient=lambda q: in_context_regression.gradient(q, s),
        loss=lambda q: in_context_regression.loss(q, s),
        residual=lambda q: (q - inverse) / kappa,
        error=lambda q: jnp.linalg.norm(q - inverse) / kappa,
        length=kappa,
        curvature=jnp.ones_like(kappa),
        project=_symmetric,
    )


def regression(key: Array, kappa: Array, rows: int, d: int) -> Problem:
    """½ ‖W A - Y‖_F² with A Aᵀ of condition number κ and Y = W* A, W* of norm 1; W_0 = 0; error ‖W - W*‖_F."""
    input_key, output_key = jax.random.split(key)
    inputs = matrix_regression.conditioned_inputs(input_key, d, d, kappa)
    outputs = matrix_regression.linear_outputs(output_key, inputs, rows)
    outputs = outputs / jnp.linalg.norm(outputs)
    best = jnp.linalg.solve(inputs @ inputs.T, inputs @ outputs.T).T
    size = jnp.linalg.norm(best)
    return Problem(
        start=matrix_regression.init(rows, d),
        gradient=lambda w: matrix_regression.gradient(w, inputs, outputs),
        loss=lambda w: matrix_regression.loss(w, inputs, outputs),
        residual=lambda w: (w - best) / size,
        error=lambda w: jnp.linalg.norm(w - best) / size,
        length=size,
        curvature=jnp.ones_like(kappa),
        project=lambda w: w,
    )


class Optimizer(NamedTuple):
    """A direction, the unit of its step size, and what the step size does.

    "constant", "plateau", or geometric with prefactors that are "random", new in each step.
    """

    label: str
    direction: Callable[[], optax.GradientTransformation]
    unit: str
    schedule: str


OPTIMIZERS: dict[str, Optimizer] = {
    "muon": Optimizer("simplified Muon", lambda: optim.orthogonalize(spectral.SVD()), "length", "random"),
    "muon-plateau": Optimizer(
        "simplified Muon, plateau", lambda: optim.orthogonalize(spectral.SVD()), "length", "plateau"
    ),
    "muon-momentum": Optimizer(
        "Muon with momentum 0.9, plateau",
        lambda: optax.chain(optim.momentum(0.9), optim.orthogonalize(spectral.SVD())),
        "length",
        "plateau",
    ),
    "muon-newton-schulz": Optimizer(
        "Muon with 5 Newton-Schulz steps, plateau", lambda: optim.orthogonalize(), "length", "plateau"
    ),
    "gradient-descent": Optimizer("gradient descent", optax.identity, "curvature", "constant"),
    "sign": Optimizer("SignGD, plateau", optax.scale_by_sign, "length", "plateau"),
    "adam": Optimizer("Adam, plateau", optax.scale_by_adam, "length", "plateau"),
    "scaled": Optimizer("ScaledGD", scale_by_factor_gram, "none", "constant"),
}
"""Every optimizer by the name that configurations use."""


def transformation(
    name: str,
    key: Array,
    rate: Array,
    problem: Problem,
    rho: float = 0.0,
    length: int = 0,
    plateau: tuple[float, int] = (0.5, 10),
) -> optax.GradientTransformationExtraArgs:
    """The optimizer with step size `rate` in its unit.

    The geometric schedules decay by `rho`, have prefactors uniform in [rate, 2 rate] and are drawn for `length` steps. The plateau
    schedule has the factor and the patience of `plateau`.
    """
    chosen = OPTIMIZERS[name]
    size = (
        rate * {"length": problem.length, "curvature": 1 / problem.curvature, "none": jnp.ones_like(rate)}[chosen.unit]
    )
    if chosen.schedule == "random":
        schedule = random_geometric(key, size, 2 * size, rho, each_step=True)
        # All draws in one call before the loop: within it they would be most of what is compiled.
        rates = jax.vmap(schedule)(jnp.arange(length))
        steps = optax.scale_by_schedule(lambda count: rates[count])
    else:
        steps = optax.stateless(lambda updates, _: jax.tree.map(lambda u: size * u, updates))
    decay = [decay_on_plateau(*plateau)] if chosen.schedule == "plateau" else []
    return optax.with_extra_args_support(optax.chain(chosen.direction(), steps, optax.scale(-1.0), *decay))


def steps_to(
    problem: Problem, transform: optax.GradientTransformationExtraArgs, accuracy: float | Array, limit: int
) -> Run:
    """The first t with error(x_t) <= accuracy, or `limit`; a run whose error is NaN stops, with that error."""

    def unfinished(state: tuple[Array, optax.OptState, Array, Array]) -> Array:
        _, _, t, error = state
        return (t < limit) & (error > accuracy)

    def advance(state: tuple[Array, optax.OptState, Array, Array]) -> tuple[Array, optax.OptState, Array, Array]:
        x, memory, t, _ = state
        x, memory = step(problem, transform, x, memory)
        return x, memory, t + 1, problem.error(x)

    initial = problem.start, transform.init(problem.start), jnp.zeros((), int), problem.error(problem.start)
    _, _, t, error = jax.lax.while_loop(unfinished, advance, initial)
    return Run(t, error)


def errors_along(
    problem: Problem, transform: optax.GradientTransformationExtraArgs, steps: int
) -> Float[Array, " times"]:
    """The errors of x_0, ..., x_steps."""

    def advance(state: tuple[Array, optax.OptState], _: None) -> tuple[tuple[Array, optax.OptState], Array]:
        x, memory = step(problem, transform, *state)
        return (x, memory), problem.error(x)

    _, errors = jax.lax.scan(advance, (problem.start, transform.init(problem.start)), length=steps)
    return jnp.concatenate([problem.error(problem.start)[None], errors])


def step(
    problem: Problem, transform: optax.GradientTransformationExtraArgs, x: Array, memory: optax.OptState
) -> tuple[Array, optax.OptState]:
    """One step of an optimizer on a problem."""
    # Adam raises a Python float to an integer count, which strict promotion refuses.
    with jax.numpy_dtype_promotion("standard"):
        updates, memory = transform.update(problem.gradient(x), memory, x, value=problem.loss(x))
    return problem.project(x + updates), memory


def _symmetric(x: Array) -> Array:
    return (x + x.T) / 2
