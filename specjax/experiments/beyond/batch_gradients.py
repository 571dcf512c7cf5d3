"""Gradients of batches, and the moments of their examples, in the networks of the outer-product
paper: at the start, and after steps of Muon on the loss of the population.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float, Key

from specjax import lab, sizes, spectral, sweep
from specjax.models import deep_linear, relu_network

MODELS = {"linear": deep_linear, "relu": relu_network}
LAYERS = {"linear": 3, "relu": 2}
MOMENTS = ("signal", "left", "right")
"""Names of M, S_δ and S_h in the data, before the number of a layer."""
TARGET, LENGTH = 3.0, 0.5
"""The standard deviation of the target's entries (outer-product, Table C.7), and the length of the
first of Muon's falling steps.
"""
Layer = tuple[Float[Array, "m N"], Float[Array, "n N"]]
polar = partial(spectral.polar, method=spectral.SVD())


def train(config: Any, key: Key[Array, ""], kind: str) -> tuple[Any, Any, Array]:
    """Weights at the start and after Muon's steps on the loss of the population, its gradients
    there, and the target.
    """
    d0, d1, d2 = (times * config.unit for times in (5, 4, 3))
    target = TARGET * sizes.normal(sizes.stream(key, "target"), (d2, d0))
    start = (
        deep_linear.init(key, (d0, d1, d1, d2))
        if kind == "linear"
        else relu_network.init(key, d0, d1, d2)
    )
    gradient = partial(MODELS[kind].gradient, target=target)

    def step(params: Any, length: Array) -> tuple[Any, None]:
        factors = jax.tree.map(polar, gradient(params))
        return jax.tree.map(lambda w, factor: w - length * factor, params, factors), None

    lengths = LENGTH * (1 - jnp.arange(config.steps) / config.steps)
    end = jax.lax.scan(step, start, lengths)[0]
    params = jax.tree.map(lambda *both: jnp.stack(both), start, end)
    return tuple(params), tuple(jax.vmap(gradient)(params)), target


def layers(kind: str, params: Any, target: Array, x: Float[Array, "d0 N"]) -> list[Layer]:
    """(δ, h) of each layer, a column for each example."""
    into, slopes = [x], []
    for weight in params[:-1]:
        before = weight @ into[-1]
        slopes.append(jnp.where(before > 0, 1.0, 0.0) if kind == "relu" else jnp.ones_like(before))
        into.append(slopes[-1] * before)
    back = [params[-1] @ into[-1] - target @ x]
    for weight, slope in zip(params[:0:-1], slopes[::-1], strict=True):
        back.append(slope * (weight.T @ back[-1]))
    return list(zip(back[::-1], into, strict=True))


def run(config: Any, key: Key[Array, ""], kind: str) -> xr.Dataset:
    """⟨polar(G), M⟩/‖M‖_* of batches, by layer and examples, and the moments of each layer."""
    params, signals, target = train(config, sizes.stream(key, kind), kind)
    d0 = target.shape[1]
    # Of a linear map of x with E[x xᵀ] = I the columns of I have the moments of the population.
    # Near a minimum the gradient of sampled inputs is not that of the population, which is exact.
    many = sizes.normal(sizes.stream(key, "inputs"), (d0, config.inputs))
    inputs = jnp.eye(d0) if kind == "linear" else many / config.inputs**0.5

    def moments(own: Any) -> list[tuple[Array, Array]]:
        return [(back @ back.T, into @ into.T) for back, into in layers(kind, own, target, inputs)]

    of_layers = jax.vmap(moments)(params)

    def measure(key: Array, trained: Array) -> dict[str, Array]:
        own, own_signals = ([each[trained] for each in both] for both in (params, signals))

        def kept(examples: int) -> Array:
            x = sizes.normal(sizes.stream(key, f"batch of {examples}"), (d0, examples))
            gradients = (back @ into.T for back, into in layers(kind, own, target, x))
            shares = [
                jnp.sum(polar(gradient) * signal) / spectral.nuclear_norm(signal)
                for gradient, signal in zip(gradients, own_signals, strict=True)
            ]
            return jnp.stack(shares)

        return {"kept": jnp.stack([kept(examples) for examples in config.examples], axis=1)}

    over = {"trained": sweep.values(0, 1)}
    data = lab.seeded_sweep(key, f"{kind} batches", measure, config.seeds, **over)
    data = sweep.labelled(data, "layer", "examples", examples=list(config.examples))
    for layer, (signal, (left, right)) in enumerate(zip(signals, of_layers, strict=True)):
        for name, matrix in zip(MOMENTS, (signal, left, right), strict=True):
            axes = ("trained", f"{name} row {layer}", f"{name} column {layer}")
            data[f"{name} {layer}"] = axes, np.asarray(matrix)
    return data
