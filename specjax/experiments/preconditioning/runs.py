"""Iterations to an accuracy: a problem, an optimizer and one loop that a sweep maps over condition numbers, step sizes and seeds.

Under `vmap` the loop runs until the last of them has arrived, and those that have arrived keep their state: early finishers do not stop
the others.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

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
Transform: TypeAlias = optax.GradientTransformationExtraArgs


class Problem(NamedTuple):
    """A start, exact gradient and loss, and what should vanish, relative to its target.

    `length` is the distance that has to be covered, the unit for steps of a fixed length; `curvature` the largest eigenvalue of the
    Hessian at the target, whose inverse is the unit for gradient descent. `project` is applied to every iterate.
    """

    start: Float[Array, "m n"]
    gradient: Map
    loss: Map
    residual: Map
    length: Array
    curvature: Array
    project: Map = lambda x: x

    def error(self, x: Array) -> Array:
        """The Frobenius norm of the residual, at least the operator norm, in which the theorems are."""
        return jnp.linalg.norm(self.residual(x))


def factorization(key: Array, kappa: Array, d: int, r: int, k: int, scale: Array | float) -> Problem:
    """M of eigenvalues from 1 to 1/κ, log-spaced, in a Haar basis; start scale · V with V Haar."""
    basis_key, start_key = jax.random.split(key)
    m = factorization_spectra.target(basis_key, d, factorization_spectra.logarithmic_spectrum(r, kappa)).matrix
    return Problem(
        matrix_factorization.orthonormal_init(start_key, d, k, scale),
        gradient=lambda x: matrix_factorization.gradient(x, m),
        loss=lambda x: matrix_factorization.loss(x, m),
        residual=lambda x: x @ x.T - m,
        length=jnp.ones_like(kappa),
        curvature=2 * jnp.ones_like(kappa),
    )


def wide_factorization(key: Array, kappa: Array, d: int, r: int, k: AnySize, scale: float) -> Problem:
    """As `factorization`, from a start of independent N(0, scale²/d) entries, so that one program serves every number of columns."""
    start = scale * matrix_factorization.init(jax.random.fold_in(key, 1), d, k) / jnp.sqrt(jnp.asarray(float(d)))
    return factorization(key, kappa, d, r, d, scale)._replace(start=start)


def in_context(key: Array, kappa: Array, d: int, *, rotated: bool = True) -> Problem:
    """Eigenvalues of S from 1 to 1/κ, log-spaced, in a Haar basis; Q_0 = 0; the residual is relative to ‖S⁻¹‖.

    With `rotated=False` S is diagonal. Then rounding has no part off the diagonal either, and the matrices are the scalar sequences.

    Iterates are symmetrized: S and S⁻¹ are symmetric, in exact arithmetic so is every Q of Muon and gradient descent, and the
    antisymmetric part of rounding grows.
    """
    spectrum = factorization_spectra.logarithmic_spectrum(d, kappa)
    basis = factorization_spectra.orthonormal(key, d, d) if rotated else jnp.eye(d)
    s, inverse = (symmetric(factorization_spectra.composed(basis, v, basis)) for v in (spectrum, 1 / spectrum))
    return Problem(
        in_context_regression.init(d),
        gradient=lambda q: in_context_regression.gradient(q, s),
        loss=lambda q: in_context_regression.loss(q, s),
        residual=lambda q: (q - inverse) / kappa,
        length=kappa,
        curvature=jnp.ones_like(kappa),
        project=symmetric,
    )


def regression(key: Array, kappa: Array, rows: int, d: int) -> Problem:
    """½ ‖W A - Y‖_F² with A Aᵀ of condition number κ and Y = W* A, W* of norm 1; W_0 = 0."""
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
        curvature=jnp.ones_like(kappa),
    )


class Optimizer(NamedTuple):
    """A direction, the unit of its step size, and whether the step size is "constant", follows a "plateau", or has "random" prefactors."""

    label: str
    direction: Callable[[], optax.GradientTransformation]
    unit: str = "length"
    schedule: str = "plateau"


def _polar() -> optax.GradientTransformation:
    return optim.orthogonalize(spectral.SVD())


OPTIMIZERS: dict[str, Optimizer] = {
    "muon": Optimizer("simplified Muon", _polar, schedule="random"),
    "muon-plateau": Optimizer("simplified Muon", _polar),
    "muon-momentum": Optimizer("Muon with momentum 0.9", lambda: optax.chain(optim.momentum(0.9), _polar())),
    "muon-newton-schulz": Optimizer("Muon with 5 Newton-Schulz steps", optim.orthogonalize),
    "gradient-descent": Optimizer("gradient descent", optax.identity, "curvature", "constant"),
    "sign": Optimizer("SignGD", optax.scale_by_sign),
    "adam": Optimizer("Adam", optax.scale_by_adam),
    "scaled": Optimizer("ScaledGD", scale_by_factor_gram, "none", "constant"),
}


def transformation(
    name: str,
    key: Array,
    rate: Array,
    problem: Problem,
    rho: float = 0.0,
    length: int = 0,
    plateau: tuple[float, int] = (0.5, 10),
) -> Transform:
    """The optimizer with step size `rate` in its unit.

    The geometric schedules decay by `rho`, have prefactors uniform in [rate, 2 rate] and are drawn for `length` steps. The plateau
    schedule has the factor and the patience of `plateau`.
    """
    _, direction, unit, kind = OPTIMIZERS[name]
    size = rate * {"length": problem.length, "curvature": 1 / problem.curvature, "none": jnp.ones_like(rate)}[unit]
    if kind == "random":
        schedule = random_geometric(key, size, 2 * size, rho, each_step=True)
        # All draws in one call before the loop: within it they would be most of what is compiled.
        rates = jax.vmap(schedule)(jnp.arange(length))
        steps = optax.scale_by_schedule(lambda count: rates[count])
    else:
        steps = optax.stateless(lambda updates, _: jax.tree.map(lambda u: size * u, updates))
    decay = [decay_on_plateau(*plateau)] if kind == "plateau" else []
    return optax.with_extra_args_support(optax.chain(direction(), steps, optax.scale(-1.0), *decay))


class Run(NamedTuple):
    """The number of steps, and the last error."""

    steps: Array
    error: Array


def steps_to(problem: Problem, transform: Transform, accuracy: float | Array, limit: int) -> Run:
    """The first t with error(x_t) <= accuracy, or `limit`; a run whose error is NaN stops, with that error."""

    def unfinished(state: Any) -> Array:
        _, _, t, error = state
        return (t < limit) & (error > accuracy)

    def advance(state: Any) -> Any:
        x, memory = step(problem, transform, *state[:2])
        return x, memory, state[2] + 1, problem.error(x)

    initial = problem.start, transform.init(problem.start), jnp.zeros((), int), problem.error(problem.start)
    _, _, t, error = jax.lax.while_loop(unfinished, advance, initial)
    return Run(t, error)


def along(problem: Problem, transform: Transform, steps: int, what: Map) -> Float[Array, "times ..."]:
    """`what` of x_0, ..., x_steps."""

    def advance(state: Any, _: None) -> Any:
        x, memory = step(problem, transform, *state)
        return (x, memory), what(x)

    _, values = jax.lax.scan(advance, (problem.start, transform.init(problem.start)), length=steps)
    return jnp.concatenate([what(problem.start)[None], values])


def step(problem: Problem, transform: Transform, x: Array, memory: Any) -> tuple[Array, Any]:
    """One step of an optimizer on a problem."""
    # Adam raises a Python float to an integer count, which strict promotion refuses.
    with jax.numpy_dtype_promotion("standard"):
        updates, memory = transform.update(problem.gradient(x), memory, x, value=problem.loss(x))
    return problem.project(x + updates), memory


def muon(start: Array, rates: Array, gradient: Map, project: Map = lambda x: x) -> Float[Array, "steps m n"]:
    """The iterates x_1, x_2, ... of simplified Muon with a rate for each step."""

    def advance(x: Array, rate: Array) -> tuple[Array, Array]:
        x = project(x - rate * spectral.polar(gradient(x)))
        return x, x

    return jax.lax.scan(advance, start, rates)[1]


def prefactors(key: Array, rho: Array | float, length: int) -> tuple[Array, Array]:
    """Steps ρ^t times one prefactor from [1/2, 1], and times a new one in each step."""
    u = jax.random.uniform(key, (length,))
    decay = rho ** jnp.arange(length).astype(u.dtype)
    return (1 + u[0]) / 2 * decay, (1 + u) / 2 * decay


def symmetric(x: Array) -> Array:
    """The symmetric part."""
    return (x + x.T) / 2
