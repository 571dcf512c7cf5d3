"""Networks trained by steepest descent in a norm, and their sharpness in that norm (Islamov,
Crawshaw, Cohen and Gower 2026).

A step is -η ‖∇L‖_* d, where d maximizes ⟨∇L, d⟩ over the unit ball of the norm and ‖∇L‖_* = ⟨∇L, d⟩
is the dual norm; a fixed step is -η d. The generalized sharpness S is the maximum of ⟨d, ∇²L d⟩
over the same ball: the largest eigenvalue of ∇²L in the Euclidean one.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Key

from specjax import sizes, spectral
from specjax.models import mlp
from specjax.models.mlp import Params

CLASSES, INPUTS, HIDDEN, SAMPLES, ACTIVATION = 3, 8, 12, 48, "tanh"
NETWORK, LINEAR = (INPUTS, HIDDEN, HIDDEN, CLASSES), (INPUTS, CLASSES)
"""A network whose sharpness grows as it learns, and a model with a constant Hessian."""

RECORDS, STARTS, EIGEN_ITERATIONS = 12, 6, 60
"""Records of a training, starts of the search for a sharpness, and steps of the power method."""

Ball = Callable[[Params], Params]
"""The maximizer of ⟨g, d⟩ over the unit ball of a norm."""


def euclidean(g: Params) -> Params:
    """G/‖G‖ with the norm over all layers; zero for zero."""
    norm = jnp.sqrt(inner(g, g))
    return jax.tree.map(lambda x: x / jnp.where(norm > 0, norm, 1), g)


def spectral_norm(g: Params) -> Params:
    """Polar factors by layer: the norm is the largest ‖·‖_op, its dual the sum of nuclear norms."""
    return jax.tree.map(spectral.polar, g)


def largest_entry(g: Params) -> Params:
    """Signs: the norm is the largest absolute entry, its dual the sum of all absolute entries."""
    return jax.tree.map(jnp.sign, g)


class Found(NamedTuple):
    """Records of a training: S, the largest eigenvalue of ∇²L, the relative difference in S of two
    halves of the starts, ‖∇L‖_*, the loss, and the share of steps up to the next record that raise
    it.
    """

    sharpness: Array
    eigenvalue: Array
    doubt: Array
    dual: Array
    loss: Array
    rises: Array


def inner(a: Params, b: Params) -> Float[Array, ""]:
    """⟨a, b⟩ over all layers."""
    return jnp.sum(jnp.stack([jnp.sum(x * y) for x, y in zip(a, b, strict=True)]))


def ascend(
    hessian: Float[Array, "p p"],
    ball: Callable[[Array], Array],
    starts: Float[Array, "s p"],
    iterations: int,
) -> Float[Array, " s"]:
    """⟨d, H d⟩ after Frank–Wolfe steps from every start, each with an exact line search."""

    def climb(start: Array) -> Array:
        def step(d: Array, _: None) -> tuple[Array, None]:
            slope = hessian @ d
            line = ball(slope) - d
            bend = line @ (hessian @ line)
            # If the line is convex, its end is best. At a maximum the line is rounding, and its
            # slope may be negative.
            best = jnp.clip(line @ slope / jnp.where(bend < 0, -bend, 1), 0, 1)
            return d + jnp.where(bend < 0, best, 1) * line, None

        d = jax.lax.scan(step, ball(start), None, length=iterations)[0]
        return d @ (hessian @ d)

    return jax.vmap(climb)(starts)


def train(
    key: Key[Array, ""],
    dims: tuple[int, ...],
    ball: Ball,
    rate: Array,
    *,
    fixed: bool,
    every: int,
    records: int = RECORDS,
    starts: int = STARTS,
    iterations: int = 25,
) -> Found:
    """Full-batch descent on random classes ±1 of Gaussian inputs, with a record before every
    `every` steps.

    S is the largest value of ascents from the gradient and from random starts, in two halves, and
    the largest eigenvalue is found in the same way.
    """
    x = jax.random.normal(sizes.stream(key, "inputs"), (SAMPLES, INPUTS))
    y = 2 * jax.nn.one_hot(jnp.arange(SAMPLES) % CLASSES, CLASSES, dtype=x.dtype) - 1
    params = mlp.init(sizes.stream(key, "weights"), dims, ACTIVATION)
    flat, unravel = ravel_pytree(params)
    random = jax.random.normal(sizes.stream(key, "starts"), (starts - 1, flat.size))

    def loss(params: Params) -> Array:
        return mlp.loss(params, (x, y), ACTIVATION)

    def step(params: Params, _: None) -> tuple[Params, Array]:
        value, gradient = jax.value_and_grad(loss)(params)
        d = ball(gradient)
        length = rate if fixed else rate * inner(gradient, d)
        return jax.tree.map(lambda w, u: w - length * u, params, d), value

    def record(params: Params, _: None) -> tuple[Params, Found]:
        gradient = jax.grad(loss)(params)
        hessian = jax.hessian(lambda flat: loss(unravel(flat)))(ravel_pytree(params)[0])
        first = jnp.concatenate([ravel_pytree(gradient)[0][None], random])
        eigenvalue = jnp.max(
            ascend(hessian, lambda d: d / jnp.linalg.norm(d), first, EIGEN_ITERATIONS)
        )
        found = ascend(hessian, lambda d: ravel_pytree(ball(unravel(d)))[0], first, iterations)
        halves = jnp.max(found.reshape(2, -1), axis=1)
        params, losses = jax.lax.scan(step, params, None, length=every)
        rises = jnp.mean((losses[1:] > losses[:-1]).astype(x.dtype))
        best = jnp.max(halves)
        return params, Found(
            best,
            eigenvalue,
            1 - jnp.min(halves) / best,
            inner(gradient, ball(gradient)),
            losses[0],
            rises,
        )

    return jax.lax.scan(record, params, None, length=records)[1]
