"""Quantities at the start of a training that may predict whether spectral steps will be ahead.

Steps of both kinds have the guaranteed lengths in every block: G_ℓ/L_F and ‖G_ℓ‖_* polar(G_ℓ)/L_op,
L_F = 2‖A‖_op²/n and L_op = 2‖A‖_F²/n of its inputs A (spectral-criterion, Section 1.2), for the
loss ‖Ŷ - Y‖_F²/n. A quantity is the logarithm of a ratio, and positive if it favours spectral
steps. The list was chosen on other seeds.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from specjax.models import mlp
from specjax.spectral.gram_power_norm import squared_norm
from specjax.theory.one_step import spectral_direction

Stack = tuple[Float[Array, "points _ _"], ...]
"""The weights of several points, or steps from them."""
QUANTITIES = {
    "nr/st": "ratio of the guaranteed decreases, summed over blocks: nr(G)/st(A) of a single one",
    "mean nr/st": "its logarithm in the mean over blocks",
    "guaranteed steps": "ratio of the decreases by steps of the guarantee, (nr/st)(2 - τ)/(2 - ρ)",
    "best steps": "ratio by steps of the best lengths, were blocks apart: (nr/st)(ρ/τ)",
    "measured curvature": (
        "ratio by steps of the best lengths, with the curvature of the loss by Hessian-vector"
        " products"
    ),
    "slowness": "curvature for its length along the gradient step over that along the spectral one",
    "path": "measured curvature, summed over the first steps of gradient descent",
    "race": "log L(0)/L(k) after the first k steps of either, each of the best length",
}
"""Descriptions by name; both steps start from the same point, except in the last."""
FIRST = 2
"""Steps of "path" and "race"."""
SHRINKING = 0.5 ** np.arange(-1.0, 7.0)
"""Candidate lengths of a step, in units of the best one by the Gauss-Newton matrix."""


class Problem(NamedTuple):
    """Weights, inputs and targets with n sample rows, then zeros; activation "linear" for none."""

    params: mlp.Params
    x: Float[Array, "rows d"]
    y: Float[Array, "rows m"]
    n: Float[Array, ""]
    activation: str


def inputs(problem: Problem, params: mlp.Params) -> list[Float[Array, "rows _"]]:
    """The inputs of each block."""
    if problem.activation != "linear":
        return mlp.layer_inputs(params, problem.x, problem.activation)
    found = [problem.x]
    for weight in params[:-1]:
        found.append(found[-1] @ weight.T)
    return found


def outputs(problem: Problem, params: mlp.Params) -> Float[Array, "rows m"]:
    """The outputs of the network."""
    return inputs(problem, params)[-1] @ params[-1].T


def loss(problem: Problem, params: mlp.Params) -> Float[Array, ""]:
    """‖Ŷ - Y‖_F²/n."""
    return jnp.sum((outputs(problem, params) - problem.y) ** 2) / problem.n


class Slope(NamedTuple):
    """The loss and gradient at a point, and the inputs of each block."""

    loss: Float[Array, ""]
    gradient: mlp.Params
    inputs: list[Float[Array, "rows _"]]


def slope(problem: Problem, params: mlp.Params) -> Slope:
    """Compute the loss, gradient and inputs in one pass through the network."""

    def both(params: mlp.Params) -> tuple[Array, list[Array]]:
        fed = inputs(problem, params)
        return jnp.sum((fed[-1] @ params[-1].T - problem.y) ** 2) / problem.n, fed

    (value, fed), gradient = jax.value_and_grad(both, has_aux=True)(params)
    return Slope(value, gradient, fed)


def gradient_step(problem: Problem, at: Slope) -> mlp.Params:
    """G_ℓ/L_F of every block."""
    return tuple(
        g / (2 * squared_norm(a) / problem.n) for g, a in zip(at.gradient, at.inputs, strict=True)
    )


def spectral_step(problem: Problem, at: Slope) -> mlp.Params:
    """‖G_ℓ‖_* polar(G_ℓ)/L_op of every block."""
    return tuple(
        spectral_direction(g) / (2 * jnp.sum(a**2) / problem.n)
        for g, a in zip(at.gradient, at.inputs, strict=True)
    )


def dot(first: mlp.Params, second: mlp.Params) -> Float[Array, ""]:
    """The inner product of all weights."""
    return jnp.sum(jnp.stack([jnp.sum(a * b) for a, b in zip(first, second, strict=True)]))


class Along(NamedTuple):
    """A step D at a point: ⟨G, D⟩, Gauss-Newton matrix and Hessian along D, and terms by block.

    `promised` is ⟨G_ℓ, D_ℓ⟩, `own` is 2‖D_ℓ A‖_F²/n, and `length` is Σ L_F ‖D_ℓ‖_F².
    """

    falls: Float[Array, ""]
    gauss_newton: Float[Array, ""]
    hessian: Float[Array, ""]
    promised: Float[Array, " blocks"]
    own: Float[Array, " blocks"]
    length: Float[Array, ""]

    @property
    def curvature(self) -> Float[Array, ""]:
        """The Hessian along D, or a tenth of the Gauss-Newton term if that is larger."""
        return jnp.maximum(self.hessian, self.gauss_newton / 10)


def along(problem: Problem, params: mlp.Params, step: mlp.Params) -> Along:
    """Expand the loss along a step."""
    gradient = jax.grad(lambda p: loss(problem, p))
    g, hessian = jax.jvp(gradient, (params,), (step,))
    moved = jax.jvp(lambda p: outputs(problem, p), (params,), (step,))[1]
    of_blocks = list(zip(g, step, inputs(problem, params), strict=True))
    return Along(
        dot(g, step),
        2 * jnp.sum(moved**2) / problem.n,
        dot(step, hessian),
        jnp.stack([jnp.sum(g * d) for g, d, _ in of_blocks]),
        jnp.stack([2 * jnp.sum((a @ d.T) ** 2) / problem.n for _, d, a in of_blocks]),
        jnp.sum(
            jnp.stack([2 * squared_norm(a) / problem.n * jnp.sum(d**2) for _, d, a in of_blocks])
        ),
    )


def compare(gradient: Along, spectral: Along) -> dict[str, Float[Array, ""]]:
    """The quantities of one point; both steps' `own` over `promised` are the stretches ρ and τ."""

    def numerators(step: Along) -> dict[str, Array]:
        promised = jnp.sum(step.promised)
        return {
            "nr/st": promised,
            "guaranteed steps": 2 * promised - jnp.sum(step.own),
            "best steps": promised**2 / jnp.sum(step.own),
            "measured curvature": step.falls**2 / step.curvature,
            "slowness": step.length / step.gauss_newton,
        }

    found = {
        name: jnp.log(top / below)
        for (name, top), below in zip(
            numerators(spectral).items(), numerators(gradient).values(), strict=True
        )
    }
    return found | {"mean nr/st": jnp.mean(jnp.log(spectral.promised / gradient.promised))}


def best_step(problem: Problem, params: mlp.Params, step: mlp.Params, found: Along) -> mlp.Params:
    """The weights after a step of the best candidate length."""
    lengths = found.falls / found.gauss_newton * jnp.asarray(SHRINKING, found.falls.dtype)
    tried = jax.vmap(lambda t: tuple(w - t * d for w, d in zip(params, step, strict=True)))(lengths)
    best = jnp.argmin(jax.vmap(lambda p: loss(problem, p))(tried))
    return tuple(w[best] for w in tried)


def quantities(problem: Problem) -> dict[str, Float[Array, ""]]:
    """Compute all `QUANTITIES` at the weights of the problem."""

    def stacked(*points: mlp.Params) -> Stack:
        return tuple(jnp.stack(rows) for rows in zip(*points, strict=True))

    def one(points: Stack, _: None) -> tuple[Stack, dict[str, Array]]:
        """Take both steps on the path of gradient descent, and a spectral step on its own."""
        slopes = jax.vmap(lambda p: slope(problem, p))(points)
        descent, spectral = (jax.tree.map(lambda v, row=row: v[row], slopes) for row in range(2))
        here = tuple(w[jnp.asarray([0, 0, 1])] for w in points)
        steps = stacked(
            gradient_step(problem, descent),
            spectral_step(problem, descent),
            spectral_step(problem, spectral),
        )
        found = jax.vmap(lambda p, d: along(problem, p, d))(here, steps)
        moved = jax.vmap(lambda *of: best_step(problem, *of))(here, steps, found)
        return tuple(w[::2] for w in moved), compare(
            *(jax.tree.map(lambda v, i=i: v[i], found) for i in range(2))
        )

    last, along_path = jax.lax.scan(one, stacked(problem.params, problem.params), length=FIRST)
    fallen = jnp.log(loss(problem, problem.params) / jax.vmap(lambda p: loss(problem, p))(last))
    return {name: values[0] for name, values in along_path.items()} | {
        "path": jnp.sum(along_path["measured curvature"]),
        "race": jnp.log(fallen[1] / fallen[0]),
    }
