"""The networks of `what-decides`, of random scales, and their training at every rate."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from specjax import sizes
from specjax.experiments.beyond.what_decides import quantities as deciding
from specjax.experiments.beyond.what_decides.quantities import Problem
from specjax.linalg import svd
from specjax.models import mlp

NETWORKS = {
    "tanh, 2 blocks": ("tanh", 2, 48),
    "linear, 1 block": ("linear", 1, 12),
    "linear, 2 blocks": ("linear", 2, 16),
    "ReLU, 2 blocks": ("relu", 2, 64),
    "ReLU, 4 blocks": ("relu", 4, 12),
    "SwiGLU, 3 blocks": ("swiglu", 3, 8),
}
"""Activation, blocks and width of each class."""
ONE_BLOCK = "linear, 1 block"
"""The class for which the criterion was derived."""
INPUTS, OUTPUTS, FEWEST, MOST = 12, 6, 8, 48
"""d and m, and the range of samples n."""
RATES = 2.0 ** np.arange(-10, 6)
"""Step sizes, in units of the guarantee's."""
SMALL_RATE = 2.0**-4
"""A step size at which the criterion should be right; see
`specjax.theory.one_step.Comparison.ratio_at`.
"""
FRESH, ORDINARY, BEST = "fresh", ("4 steps", "16 steps"), ("4 best steps", "16 best steps")
STARTS = {
    FRESH: (0, False),
    ORDINARY[0]: (4, False),
    ORDINARY[1]: (16, False),
    BEST[0]: (4, True),
    BEST[1]: (16, True),
}
"""Gradient steps before the start, and whether they have the best lengths or the guarantee's."""
MOST_WARMUP = 16
HALVINGS = 0.5 ** np.arange(16.0)
"""Lengths of a step of the guarantee's length that is halved until the loss falls."""
LIMIT = 1e3
"""A loss above this is a run that diverged; the targets have mean square 1."""


def draw(
    key: Key[Array, ""], activation: str, blocks: int, width: int, warmup: Array, longest: Array
) -> Problem:
    """A network, its samples and a linear target, of random scales (see the page), after `warmup`
    gradient steps, of the best lengths if `longest` or else of the guarantee's.

    Each start has networks of its own.
    """
    key = jax.random.fold_in(key, 2 * jnp.asarray(warmup, int) + jnp.asarray(longest, int))
    share = jax.random.uniform(sizes.stream(key, "scales"), (5,))
    n = jnp.floor(FEWEST * (MOST / FEWEST) ** share[0])
    rows = (jnp.arange(float(MOST)) < n)[:, None]
    # Half of the inputs are isotropic.
    decay = jnp.maximum(3 * share[1] - 1.5, 0)
    x = jnp.where(rows, jax.random.normal(sizes.stream(key, "inputs"), (MOST, INPUTS)), 0)
    x = unit(x * jnp.arange(1.0, INPUTS + 1)[None] ** -decay, n)
    u, _, v = svd(jax.random.normal(sizes.stream(key, "target"), (INPUTS, OUTPUTS)))
    # The spectrum ranges from equal singular values to a single dominant one.
    y = unit(x @ ((u * jnp.arange(1.0, OUTPUTS + 1)[None] ** (-8 * share[2])) @ v), n)
    dims = (INPUTS, *(width,) * (blocks - 1), OUTPUTS)
    weights = mlp.init(
        sizes.stream(key, "weights"), dims, "relu" if activation == "linear" else activation
    )
    # The product of all blocks is 0.03 to 2 times that of the usual weights.
    gain = (0.03 * (2 / 0.03) ** share[3]) ** (1 / blocks)
    problem = Problem(tuple(gain * w for w in weights), x, y, n, activation)
    return problem._replace(params=warmed(problem, warmup, longest))


def unit(values: Float[Array, "rows k"], n: Array) -> Float[Array, "rows k"]:
    """Scale values to mean square 1 over n rows."""
    return values / jnp.sqrt(jnp.sum(values**2) / (n * values.shape[1]))


def warmed(problem: Problem, steps: Array, longest: Array) -> mlp.Params:
    """The weights after `steps` gradient steps, of the best lengths or of the guarantee's.

    The guarantee is of one block; where all together raise the loss, the step is halved.
    """

    def one(params: mlp.Params, i: Array) -> tuple[mlp.Params, None]:
        step = deciding.gradient_step(problem, deciding.slope(problem, params))
        best = deciding.best_step(problem, params, step, deciding.along(problem, params, step))
        tried = jax.vmap(lambda c: tuple(w - c * d for w, d in zip(params, step, strict=True)))(
            jnp.asarray(HALVINGS, problem.x.dtype)
        )
        falls = jax.vmap(lambda p: deciding.loss(problem, p))(tried)
        first = jnp.argmax(falls < deciding.loss(problem, params))
        moved = (
            jnp.where(i < steps, jnp.where(longest, far, near[first]), w)
            for w, near, far in zip(params, tried, best, strict=True)
        )
        return tuple(moved), None

    return jax.lax.scan(one, problem.params, jnp.arange(MOST_WARMUP))[0]


def trained(problem: Problem, lengths: tuple[int, ...]) -> Float[Array, "methods rates lengths"]:
    """log10 of the loss at the start and after each length, for both methods at every rate."""

    def train_at(rate: Array) -> Array:
        def one(
            state: tuple[deciding.Stack, Array], _: None
        ) -> tuple[tuple[deciding.Stack, Array], Array]:
            points, alive = state
            points = tuple(jnp.where(alive[:, None, None], w, 0) for w in points)
            slopes = jax.vmap(lambda p: deciding.slope(problem, p))(points)
            alive = alive & (slopes.loss <= LIMIT)  # also False for NaN
            # Diverged values must not reach a decomposition.
            gradient = tuple(jnp.where(alive[:, None, None], g, 0) for g in slopes.gradient)
            slopes = slopes._replace(gradient=gradient)
            steps = zip(
                deciding.gradient_step(problem, jax.tree.map(lambda v: v[0], slopes)),
                deciding.spectral_step(problem, jax.tree.map(lambda v: v[1], slopes)),
                strict=True,
            )
            moved = tuple(w - rate * jnp.stack(both) for w, both in zip(points, steps, strict=True))
            return (moved, alive), jnp.where(alive, slopes.loss, LIMIT)

        start = tuple(jnp.stack([w, w]) for w in problem.params)
        left = jax.lax.scan(one, (start, jnp.asarray([True, True])), length=lengths[-1] + 1)[1]
        return jnp.log10(left[jnp.asarray((0, *lengths))]).T

    return jnp.swapaxes(jax.vmap(train_at)(jnp.asarray(RATES, problem.x.dtype)), 0, 1)
