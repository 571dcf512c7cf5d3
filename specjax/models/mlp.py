"""Multilayer perceptrons without biases, gated or not: x ↦ W_L σ(W_{L-1} ⋯ σ(W_1 x)).

Parameters are the tuple (W_1, …, W_L), W_ℓ ∈ R^{h_ℓ×d_{ℓ-1}}, h_ℓ = d_ℓ or, in a gated hidden
layer, 2 d_ℓ: the first half gates the second, A = SiLU(W' A') ∘ (W'' A') for "swiglu". Samples are
rows (spectral-criterion, eq. 1.2).
"""

from collections.abc import Sequence
from itertools import pairwise

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from specjax.sizes import AnySize, active, block_mask, normal, padded, uniform
from specjax.theory.activations import ACTIVATIONS

Params = tuple[Float[Array, "_ _"], ...]

GATED = {"swiglu": "silu"}
"""Gated activations by name, with the function of their gate."""


def init(
    key: Key[Array, ""],
    dims: Sequence[AnySize],
    activation: str = "relu",
    *,
    distribution: str = "normal",
) -> Params:
    """Weights for (d_0, …, d_L): "normal", N(0, 1/fan_in), or torch's "uniform", U(±1/√fan_in).

    Gated hidden layers need int sizes, since their weights are split into halves.

    Raises:
        ValueError: fewer than two sizes, or an unknown activation or distribution.

    """
    if len(dims) < 2:
        raise ValueError(
            f"A network needs at least an input and an output size, got dims={tuple(dims)}."
        )
    _check_activation(activation)
    if distribution not in ("normal", "uniform"):
        raise ValueError(f"The distribution is 'normal' or 'uniform', got {distribution!r}.")
    shapes = []
    for layer, (columns, rows) in enumerate(pairwise(dims)):
        if activation in GATED and layer < len(dims) - 2:
            if not isinstance(rows, int):
                raise ValueError(
                    "The hidden sizes of a gated network must be ints, got a Size; sweep them by"
                    " values."
                )
            rows = 2 * rows
        shapes.append((rows, columns))
    draw = normal if distribution == "normal" else uniform
    extents = [(padded(rows), padded(columns)) for rows, columns in shapes]
    samples: dict[int, Array] = {}
    # One generator serves all layers of one shape, since generators dominate the compile time of
    # networks with many layers.
    for extent in dict.fromkeys(extents):
        layers = [layer for layer, other in enumerate(extents) if other == extent]
        keys = jnp.stack([jax.random.fold_in(key, layer) for layer in layers])
        together = jax.vmap(lambda one, extent=extent: draw(one, extent))(keys)
        samples |= dict(zip(layers, together, strict=True))
    weights = []
    for layer, shape in enumerate(shapes):
        values = samples[layer] if distribution == "normal" else 2 * samples[layer] - 1
        values = jnp.where(block_mask(shape), values, 0)
        weights.append(values / jnp.sqrt(jnp.asarray(active(shape[1]), values.dtype)))
    return tuple(weights)


def layer_inputs(
    params: Params, x: Float[Array, "n d0"], activation: str = "relu"
) -> list[Float[Array, "n _"]]:
    """The inputs A_0 = x, …, A_{L-1} of W_1, …, W_L; ValueError for an unknown activation."""
    _check_activation(activation)
    inputs = [x]
    for weight in params[:-1]:
        inputs.append(activated(inputs[-1] @ weight.T, activation))
    return inputs


def forward(
    params: Params, x: Float[Array, "n d0"], activation: str = "relu"
) -> Float[Array, "n dL"]:
    """The outputs, samples in rows. Raises as `layer_inputs`."""
    return layer_inputs(params, x, activation)[-1] @ params[-1].T


def loss(
    params: Params,
    batch: tuple[Float[Array, "n d0"], Float[Array, "n dL"]],
    activation: str = "relu",
) -> Float[Array, ""]:
    """(1/2n) Σ_t ‖f(x_t) - y_t‖² of the batch (x, y). Raises as `layer_inputs`."""
    x, y = batch
    return jnp.sum((forward(params, x, activation) - y) ** 2) / (2 * x.shape[0])


def activated(x: Float[Array, "n h"], activation: str) -> Float[Array, "n k"]:
    """σ of pre-activations; the first half of the columns gates a gated activation."""
    if activation in GATED:
        gate, linear = jnp.split(x, 2, axis=-1)
        return ACTIVATIONS[GATED[activation]].function(gate) * linear
    return ACTIVATIONS[activation].function(x)


def _check_activation(activation: str) -> None:
    if activation not in ACTIVATIONS and activation not in GATED:
        raise ValueError(
            f"There is no activation {activation!r}; there are {', '.join([*ACTIVATIONS, *GATED])}."
        )
