"""A perceptron of three layers, y = W₃ σ(W₂ σ(W₁ x)), in the parametrizations and with the optimizers whose exponents are known.

A parametrization says how the layers start and what rate each has, as powers of the width: standard, with weights N(0, 1/fan_in) and one
rate for all, or μP without multipliers (Yang et al. 2022, arXiv 2203.03466, table 3), with a last layer smaller by 1/√width and rates of
its own for each layer. At `BASE` hidden units both are the same network.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, ArrayLike, Float, Key

from specjax import optim
from specjax.scaling.problem import Problem

INPUTS, SAMPLES, BASE = 8, 64, 32
LAYERS = ("first", "hidden", "last")
Params = dict[str, Float[Array, "_ _"]]
Batch = tuple[Float[Array, "n d"], Float[Array, "n 1"]]
Exponents = tuple[float, float, float]


class Setting(NamedTuple):
    """An optimizer in a parametrization.

    Attributes:
        transformation: The optimizer of a layer at a rate.
        rate: About the best one at `BASE` hidden units.
        last: The power of the width by which the last layer starts smaller than in standard parametrization.
        rates: The powers of the width that the rates of the layers follow.
        updates: The exponents in the width that theory gives ΔW x of the layers after a step, x the layer's input.
    """

    transformation: Callable[[ArrayLike], optax.GradientTransformation]
    rate: float
    last: float
    rates: Exponents
    updates: Exponents


def muon(scale: str) -> Callable[[ArrayLike], optax.GradientTransformation]:
    """Muon of a scale for weights stored as (out, in)."""
    return lambda rate: optim.muon(rate, scale=scale, dimension_numbers=optim.OUT_IN)


NONE: Exponents = (0.0, 0.0, 0.0)
# Gradient descent and Adam: Yang and Hu 2021, arXiv 2011.14522, and table 3 above. Muon: a polar factor has norm 1 and, with its input in
# its row space, passes on the norm of that; so the RMS of ΔW x is that of x times √(in/out) times the scale.
SETTINGS: Mapping[str, Setting] = {
    "gradient descent": Setting(optax.sgd, 0.1, 0.0, NONE, (-0.5, 0.5, 1.0)),
    "gradient descent, μP": Setting(optax.sgd, 0.1, -0.5, (1.0, 0.0, -1.0), NONE),
    "Adam": Setting(optax.adam, 0.03, 0.0, NONE, (0.0, 1.0, 1.0)),
    "Adam, μP": Setting(optax.adam, 0.03, -0.5, (0.0, -1.0, -1.0), NONE),
    "Muon, none": Setting(muon("none"), 0.1, -0.5, NONE, (-0.5, 0.0, 0.5)),
    "Muon, sqrt_max_1_out_over_in": Setting(muon("sqrt_max_1_out_over_in"), 0.05, -0.5, NONE, (0.0, 0.0, 0.5)),
    "Muon, sqrt_out_over_in": Setting(muon("sqrt_out_over_in"), 0.1, -0.5, NONE, NONE),
    "Muon, point_two_sqrt_max": Setting(muon("point_two_sqrt_max"), 0.05, -0.5, NONE, (0.0, 0.5, 1.0)),
}


def build(setting: Setting) -> Callable[[Key[Array, ""], int], Params]:
    """The weights of a setting as a function of key and width, stored as (out, in)."""

    def weights(key: Key[Array, ""], width: int) -> Params:
        shapes = ((width, INPUTS), (width, width), (1, width))
        starts = (1.0, 1.0, (width / BASE) ** setting.last)
        return {
            name: jax.random.normal(jax.random.fold_in(key, place), shape) * (start * shape[1] ** -0.5)
            for place, (name, shape, start) in enumerate(zip(LAYERS, shapes, starts, strict=True))
        }

    return weights


def loss(params: Params, batch: Batch) -> Float[Array, ""]:
    """The mean squared error of a batch (x, y), samples in rows."""
    x, y = batch
    return jnp.mean((layer_inputs(params, x)["last"] @ params["last"].T - y) ** 2)


def layer_inputs(params: Params, x: Float[Array, "n d"]) -> dict[str, Float[Array, "n _"]]:
    """What each layer acts on, samples in rows."""
    first = jax.nn.relu(x @ params["first"].T)
    return {"first": x, "hidden": first, "last": jax.nn.relu(first @ params["hidden"].T)}


def draw(key: Key[Array, ""]) -> Batch:
    """Gaussian inputs, and a target that no linear function comes near."""
    x = jax.random.normal(key, (SAMPLES, INPUTS))
    return x, jnp.sin(x[:, :1] + x[:, 1:2] * x[:, 2:3])


def by_layer(setting: Setting, rate: ArrayLike, width: int) -> dict[str, optax.GradientTransformation]:
    """The optimizer of each layer at a rate and a width."""
    powers = zip(LAYERS, setting.rates, strict=True)
    return {name: setting.transformation(rate * (width / BASE) ** power) for name, power in powers}


def problem(setting: Setting) -> Problem:
    """The trainings of a setting."""

    def optimizer(rate: ArrayLike, width: int) -> optax.GradientTransformation:
        return optax.partition(by_layer(setting, rate, width), {name: name for name in LAYERS})

    return Problem(build(setting), loss, optimizer, draw)
