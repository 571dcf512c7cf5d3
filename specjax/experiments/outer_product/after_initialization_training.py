"""Training of a ReLU network by four optimizers on the same batches, and V Vᵀ of their momentum.

All four average the gradients, V ← β V + (1 - β) G, and move W (out × in) in step t = 1, 2, … by
-rate/√t times

    gd      (out/in) V
    adam    r V/√(second moment), both bias-corrected
    muon    √(out/in) orthogonalized V (five quintic steps)
    rows    √(min(out, in)/in) V with normalized rows

where r = √(out/in)/√max(out, in) is the root mean square of an entry of Muon's step: the steps of
the last three have one Frobenius norm and differ in direction alone. Steps that fall as 1/√t need
no last step to be known, so that the start of a training is a training. The networks of the four
lie along one axis, so that gradients compile once.
"""

from collections.abc import Sequence
from itertools import pairwise

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from specjax import sizes, spectral
from specjax.experiments.outer_product.statistics import gram
from specjax.models import mlp
from specjax.sizes import AnySize

RULES = ("gd", "adam", "muon", "rows")
WATCHED = ("muon", "rows")
"""The rules that treat V as a matrix, and whose V is measured."""
WATCHED_AT = slice(RULES.index(WATCHED[0]), RULES.index(WATCHED[-1]) + 1)
MATRICES = ("input", "hidden", "output")
HELD_OUT = 256
"""Inputs on which losses are measured."""
SECOND_DECAY = 0.99
"""The decay of Adam's second moment."""
LIMIT = 10.0
"""Loss of a batch above which a network does not move, about twenty times a zero network's."""

Weights = tuple[Float[Array, "..."], ...]
State = tuple[Weights, Weights, Weights]
"""Weights and V of the four rules, and Adam's second moment."""


def train(
    key: Key[Array, ""],
    width: AnySize,
    ends: AnySize,
    rates: Sequence[Float[Array, ""]],
    *,
    stretches: int,
    steps: int,
    batch: int,
    decay: float,
) -> dict[str, Array]:
    """Train three layers with two hidden ones of `width` units on y = Φ x, from N(0, 1/fan_in).

    There are `ends` inputs and outputs. The loss is half the mean squared error of an output, 1/2
    at f = 0; every step has new inputs.

    Args:
        key: Key of all samples, the same at every step size.
        width: Hidden units.
        ends: Inputs, and outputs, at most `width`.
        rates: The step size of each of `RULES` in the first step.
        stretches: The number of measurements of losses and V.
        steps: Steps between two measurements.
        batch: Inputs of a step.
        decay: β, in [0, 1).

    Returns:
        loss, (stretches, 4), and start, its value before training; ratio and distance of V,
        (stretches, 2, 3); first_ratio, first_distance of the first gradient, (3,); noise_ratio,
        noise_distance of Gaussian noise of the same sizes, (3,).
    """
    dims = (ends, width, width, ends)
    fans = [
        (jnp.asarray(sizes.active(i), float), jnp.asarray(sizes.active(o), float))
        for i, o in pairwise(dims)
    ]
    *weights, target = _matrices(sizes.stream(key, "weights and target"), (*dims, ends))
    *noise, _ = _matrices(sizes.stream(key, "noise"), (*dims, ends))
    x = sizes.normal(sizes.stream(key, "inputs"), (HELD_OUT + batch * steps * stretches, ends))
    samples = x, x @ target.T
    held_out = jax.tree.map(lambda a: a[:HELD_OUT], samples)

    def loss(weights: Weights, samples: tuple[Array, Array]) -> Array:
        return mlp.loss(weights, samples) / fans[-1][1]

    def sample_batch(t: int | Int[Array, ""]) -> tuple[Array, Array]:
        return jax.tree.map(
            lambda a: jax.lax.dynamic_slice_in_dim(a, HELD_OUT + t * batch, batch), samples
        )

    def step(state: State, t: Int[Array, ""]) -> tuple[State, None]:
        weights, average, square = state
        losses, gradients = jax.vmap(jax.value_and_grad(loss), (0, None))(weights, sample_batch(t))
        count = t.astype(losses.dtype) + 1
        moves = jnp.where(losses < LIMIT, jnp.stack(list(rates)) / jnp.sqrt(count), 0)
        average = jax.tree.map(lambda v, g: decay * v + (1 - decay) * g, average, gradients)
        square = jax.tree.map(
            lambda s, g: SECOND_DECAY * s + (1 - SECOND_DECAY) * g[1] ** 2, square, gradients
        )
        correction = jnp.sqrt(1 - SECOND_DECAY**count) / (1 - decay**count)
        weights = tuple(
            w - moves[:, None, None] * _directions(v, s, correction, *fan)
            for w, v, s, fan in zip(weights, average, square, fans, strict=True)
        )
        return (weights, average, square), None

    def stretch(state: State, start: Int[Array, ""]) -> tuple[State, tuple[Array, Weights]]:
        state, _ = jax.lax.scan(step, state, start + jnp.arange(steps))
        losses = jax.vmap(loss, (0, None))(state[0], held_out)
        return state, (
            jnp.where(losses < LIMIT, losses, LIMIT),
            tuple(v[WATCHED_AT] for v in state[1]),
        )

    start = tuple(jnp.broadcast_to(w, (len(RULES), *w.shape)) for w in weights)
    state = (
        start,
        jax.tree.map(jnp.zeros_like, start),
        jax.tree.map(jnp.zeros_like, tuple(weights)),
    )
    _, (losses, watched) = jax.lax.scan(stretch, state, steps * jnp.arange(stretches))
    first = jax.grad(loss)(tuple(weights), sample_batch(0))
    found = {"loss": losses, "start": loss(tuple(weights), held_out)}
    count = stretches * len(WATCHED)
    # All at once, since decompositions compile slowly.
    stacks = [
        jnp.concatenate([v.reshape(count, *g.shape), g[None], z[None]])
        for v, g, z in zip(watched, first, noise, strict=True)
    ]
    for quantity, values in _measured(stacks, dims[1:]).items():
        found[quantity] = values[:count].reshape(stretches, len(WATCHED), len(MATRICES))
        found |= {f"first_{quantity}": values[count], f"noise_{quantity}": values[count + 1]}
    return found


def _matrices(key: Key[Array, ""], dims: Sequence[AnySize]) -> Weights:
    """N(0, 1/fan_in) matrices from each size to the next, all at most the second."""
    # One generator for all shapes, since generators dominate the compile time of a network of
    # several shapes.
    shapes = [(rows, columns) for columns, rows in pairwise(dims)]
    largest = sizes.padded(dims[1])
    squares = jax.vmap(lambda one: sizes.normal(one, (largest, largest)))(
        jax.random.split(key, len(shapes))
    )
    blocks = [
        square[: sizes.padded(m), : sizes.padded(n)]
        for square, (m, n) in zip(squares, shapes, strict=True)
    ]
    return tuple(
        jnp.where(sizes.block_mask(shape), block, 0)
        / jnp.sqrt(jnp.asarray(sizes.active(shape[1]), block.dtype))
        for block, shape in zip(blocks, shapes, strict=True)
    )


def _directions(v: Array, square: Array, correction: Array, fan_in: Array, fan_out: Array) -> Array:
    """The directions of all four rules, which the rates multiply, along the first axis."""
    muon = jnp.sqrt(fan_out / fan_in)
    entry = muon / jnp.sqrt(jnp.maximum(fan_out, fan_in))
    adaptive = jnp.where(square > 0, v[1] / jnp.sqrt(jnp.where(square > 0, square, 1)), 0)
    orthogonal = spectral.polar(v[2], spectral.NewtonSchulz())
    rows = jnp.sqrt(jnp.minimum(fan_out, fan_in) / fan_in) * spectral.normalize_rows(v[3])
    return jnp.stack(
        [fan_out / fan_in * v[0], entry * correction * adaptive, muon * orthogonal, rows]
    )


def _measured(
    stacks: Sequence[Float[Array, "n _ _"]], rows: Sequence[AnySize]
) -> dict[str, Float[Array, "n matrices"]]:
    """Mean |off-diagonal| over mean diagonal of V Vᵀ, and √(1 - cos²) of rows and polar factor."""
    ratio = [
        jax.vmap(lambda one, m=m: spectral.dominance_ratio(gram(one), m))(v)
        for v, m in zip(stacks, rows, strict=True)
    ]
    distance = [
        spectral.direction_error(spectral.normalize_rows(v), spectral.polar(v)) for v in stacks
    ]
    return {"ratio": jnp.stack(ratio, axis=-1), "distance": jnp.stack(distance, axis=-1)}
