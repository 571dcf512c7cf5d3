"""Three-layer perceptrons y = W₃ σ(W₂ σ(W₁ x)), with parametrizations of known exponents.

A parametrization gives the start of the last layer and the rate factor of each layer as functions
of the width: standard, with weights N(0, 1/fan_in) and one rate, or μP without multipliers (Yang et
al. 2022, arXiv 2203.03466, table 3), with a last layer smaller by 1/√width and rates of its own for
each layer. At `BASE` hidden units both are the same network. The scales of Muon are such factors
too, so that all settings of one optimizer are one program with other numbers.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, ArrayLike, Float, Key

from specjax import optim
from specjax.optim import SCALES
from specjax.scaling.sweep_setup import Problem

INPUTS, OUTPUTS, SAMPLES, BASE = 8, 8, 256, 32
LAYERS = ("first", "hidden", "last")
DECAY = 0.1
Params = dict[str, Float[Array, "_ _"]]
Batch = tuple[Float[Array, "n d"], Float[Array, "n p"]]
Exponents = tuple[float | int, float | int, float | int]
Factors = Callable[[int], Float[Array, "3"]]
Step = Callable[[ArrayLike], optax.GradientTransformation]


class Setting(NamedTuple):
    """An optimizer in a parametrization, and its theoretical exponents.

    Attributes:
        optimizer: Its name in `OPTIMIZERS`.
        rate: A rate near the best at `BASE` hidden units.
        last: The power of the width by which the last layer starts smaller than in standard
            parametrization.
        factors: The factors of the layers' rates at a width.
        updates: The exponents in the width of ΔW x of the layers after a step, x the layer's input.
        best: The exponent of the best rate: the largest of those of the updates, negative.
    """

    optimizer: str
    rate: float
    last: float | int
    factors: Factors
    updates: Exponents
    best: float | int


def _muon(rate: ArrayLike, factor: Array) -> optax.GradientTransformation:
    return optim.jordan_muon(
        rate,
        scale=lambda *_: factor,
        weight_decay=DECAY,
        muon_weight_dimension_numbers=optim.OUT_IN,
    )


def _hyperball(rate: ArrayLike, factor: Array) -> optax.GradientTransformation:
    return optax.chain(
        optim.momentum(0.95, nesterov=True),
        optim.orthogonalize(dimension_numbers=optim.OUT_IN),
        optim.hyperball(rate * factor, dimension_numbers=optim.OUT_IN),
    )


OPTIMIZERS: Mapping[str, Callable[[ArrayLike, Array], optax.GradientTransformation]] = {
    "gradient descent": lambda rate, factor: optax.sgd(rate * factor),
    "Adam": lambda rate, factor: optax.adam(rate * factor),
    "Muon": _muon,
    "Hyperball": _hyperball,
}
"""The optimizer of a layer, as a function of the rate and the layer's factor."""


def _powers(*powers: float | int) -> Factors:
    return lambda width: jnp.asarray([(width / BASE) ** power for power in powers], jnp.float32)


def _scale(name: str) -> Factors:
    def factors(width: int) -> Float[Array, "3"]:
        return jnp.stack(
            [
                jnp.asarray(SCALES[name](*map(jnp.float32, fans)), jnp.float32)
                for fans in _fans(width)
            ]
        )

    return factors


def _fans(width: int) -> tuple[tuple[int, int], ...]:
    """Inputs and outputs of each layer."""
    return (INPUTS, width), (width, width), (width, OUTPUTS)


_ONE, _NONE = _powers(0, 0, 0), (0.0, 0.0, 0.0)
# Gradient descent and Adam: Yang and Hu 2021, arXiv 2011.14522, and table 3 above. Muon: a polar
# factor has norm 1 and, with its input in its row space, passes on the norm of that; so the RMS of
# ΔW x is that of x times √(in/out) times the scale. Hyperball: ΔW has the Frobenius norm of W times
# the rate; a polar factor of full rank r has norm √r, so that of ΔW x follows.
SETTINGS: Mapping[str, Setting] = {
    "gradient descent": Setting("gradient descent", 0.4, 0, _ONE, (-0.5, 0.5, 1), -1),
    "gradient descent, μP": Setting("gradient descent", 0.4, -0.5, _powers(1, 0, -1), _NONE, 0),
    "Adam": Setting("Adam", 0.02, 0, _ONE, (0, 1, 1), -1),
    "Adam, μP": Setting("Adam", 0.02, -0.5, _powers(0, -1, -1), _NONE, 0),
    "Muon, none": Setting("Muon", 0.1, -0.5, _scale("none"), (-0.5, 0, 0.5), -0.5),
    "Muon, √max(1, out/in)": Setting(
        "Muon", 0.1, -0.5, _scale("sqrt_max_1_out_over_in"), (0, 0, 0.5), -0.5
    ),
    "Muon, √(out/in)": Setting("Muon", 0.1, -0.5, _scale("sqrt_out_over_in"), _NONE, 0),
    "Muon, 0.2 √max": Setting("Muon", 0.1, -0.5, _scale("point_two_sqrt_max"), (0, 0.5, 1), -1),
    "Muon, fixed norms": Setting("Hyperball", 0.1, -0.5, _ONE, _NONE, 0),
}


def problem(optimizer: str, last: ArrayLike, factors: Float[Array, "3"]) -> Problem:
    """Trainings by an optimizer, with last layer (width / BASE)^last and rates by layer."""

    def step(factor: Array) -> Step:
        return lambda rate: OPTIMIZERS[optimizer](rate, factor)

    return trained_by(
        {name: step(factor) for name, factor in zip(LAYERS, factors, strict=True)}, last
    )


def trained_by(steps: Mapping[str, Step], last: ArrayLike) -> Problem:
    """Trainings by an optimizer for each layer, with last layer (width / BASE)^last of standard."""

    def build(key: Key[Array, ""], width: int) -> Params:
        starts = (1.0, 1.0, (width / BASE) ** last)
        return {
            name: (
                jax.random.normal(jax.random.fold_in(key, place), (out, into))
                * (start * into**-0.5)
            )
            for place, (name, (into, out), start) in enumerate(
                zip(LAYERS, _fans(width), starts, strict=True)
            )
        }

    def partition_rates(rate: ArrayLike) -> optax.GradientTransformation:
        return optax.partition(
            {name: step(rate) for name, step in steps.items()}, {name: name for name in LAYERS}
        )

    return Problem(build, loss, partition_rates, draw)


def measure_settings(
    measure: Callable[[Problem, Array], Array],
    width: int,
    settings: Sequence[str] = tuple(SETTINGS),
) -> Float[Array, "settings ..."]:
    """Apply `measure(problem, rate)` to settings; those of one optimizer are one program."""
    found: dict[str, Array] = {}
    for optimizer in dict.fromkeys(SETTINGS[name].optimizer for name in settings):
        those = {name: SETTINGS[name] for name in settings if SETTINGS[name].optimizer == optimizer}
        numbers = (
            jnp.asarray([setting.last for setting in those.values()], jnp.float32),
            jnp.stack([setting.factors(width) for setting in those.values()]),
            jnp.asarray([setting.rate for setting in those.values()], jnp.float32),
        )
        measured = jax.vmap(
            lambda last, factors, rate, by=optimizer: measure(problem(by, last, factors), rate)
        )(*numbers)
        found |= dict(zip(those, measured, strict=True))
    return jnp.stack([found[name] for name in settings])


def loss(params: Params, batch: Batch) -> Float[Array, ""]:
    """The mean squared error of a batch (x, y), samples in rows."""
    x, y = batch
    return jnp.mean((layer_inputs(params, x)["last"] @ params["last"].T - y) ** 2)


def layer_inputs(params: Params, x: Float[Array, "n d"]) -> dict[str, Float[Array, "n _"]]:
    """The inputs of each layer, samples in rows."""
    first = jax.nn.relu(x @ params["first"].T)
    return {"first": x, "hidden": first, "last": jax.nn.relu(first @ params["hidden"].T)}


def draw(key: Key[Array, ""]) -> Batch:
    """Gaussian inputs, and a target far from every linear function.

    Its mean exceeds the initial outputs, which also have a mean and fall with the width in μP.
    Otherwise the gradient's size would fall too, and exponents would reach theory only at very
    large widths.
    """
    x = jax.random.normal(key, (SAMPLES, INPUTS))
    return x, 2 + 2 * jnp.sin(x + jnp.roll(x, 1, axis=1) * jnp.roll(x, 2, axis=1))
