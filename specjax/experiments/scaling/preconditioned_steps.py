"""Perceptrons whose hidden layer takes preconditioned steps."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, ArrayLike, Float, Key

from specjax import optim
from specjax.experiments.scaling import perceptron
from specjax.experiments.scaling.grafting import in_blocks, with_norm_of, with_spectral_norm
from specjax.experiments.scaling.perceptron import BASE
from specjax.scaling.sweep_setup import Problem
from specjax.spectral.gram_power_norm import stable_rank_above

BLOCK = 8
DECAYS = (0.9, 0.95)
"""Decays of momentum and second moment, from the paper's Appendix D.1."""
OTHERS = 0.02
"""The rate of the first and the last layer at `BASE` hidden units."""


class Setting(NamedTuple):
    """How the hidden layer is trained.

    Attributes:
        direction: The direction, which the rate multiplies.
        rate: A rate near the best at `BASE` hidden units.
        power: Power of the width with which the rate falls in μP.
    """

    direction: optax.GradientTransformation
    rate: float
    power: float


def _shampoo() -> optax.GradientTransformation:
    """Shampoo with exponents -1/4 and momentum."""
    scaled = optim.scale_by_shampoo(DECAYS[1], dimension_numbers=optim.OUT_IN)
    return optax.chain(scaled, optim.momentum(DECAYS[0], bias_correction=True))


def _adamuon() -> optax.GradientTransformation:
    """The entries of a polar factor over the root mean square of their past."""
    orthogonal = optim.orthogonalize(dimension_numbers=optim.OUT_IN)
    return optax.chain(
        optim.momentum(DECAYS[0], bias_correction=True),
        orthogonal,
        optax.scale_by_adam(0.0, DECAYS[1]),
    )


GRAFTED, BLOCKS, SPECTRAL = (
    "Shampoo, Adam's norm",
    "Shampoo, Adam's norm, blocks",
    "Shampoo, spectral norm",
)
ADAMUON, ADAMUON_SPECTRAL = "AdaMuon", "AdaMuon, spectral norm"
TUNED = (ADAMUON, ADAMUON_SPECTRAL)
"""Settings whose best rates are sought; the others decompose matrices in every step."""
_ADAM = optax.scale_by_adam(*DECAYS)
# A matrix of RMS 1 and stable rank 16 has the spectral norm 8 at `BASE`.
SETTINGS: Mapping[str, Setting] = {
    GRAFTED: Setting(with_norm_of(_shampoo(), _ADAM), 0.02, 1),
    BLOCKS: Setting(with_norm_of(in_blocks(_shampoo(), BLOCK), _ADAM), 0.02, 1),
    SPECTRAL: Setting(with_spectral_norm(_shampoo()), 0.16, 0),
    ADAMUON: Setting(_adamuon(), 0.02, 1),
    ADAMUON_SPECTRAL: Setting(with_spectral_norm(_adamuon()), 0.16, 0),
}


def problem(setting: Setting, width: int) -> Problem:
    """Trainings of a setting for a factor of all rates, with rates and last layer following μP."""
    wider = width / BASE

    def hidden(factor: ArrayLike) -> optax.GradientTransformation:
        rate = factor * (setting.rate * wider**-setting.power)
        return optax.chain(setting.direction, optax.scale_by_learning_rate(rate))

    steps = {
        "first": lambda factor: optax.adam(OTHERS * factor, *DECAYS),
        "hidden": hidden,
        "last": lambda factor: optax.adam(OTHERS / wider * factor, *DECAYS),
    }
    return perceptron.trained_by(steps, -0.5)


def trained(
    of: Problem, key: Key[Array, ""], width: int, factor: float, steps: int
) -> dict[str, Float[Array, ""]]:
    """Stable rank of the hidden layer's last step, and the RMS of ΔW x on a fresh batch."""
    params, transformation = of.model(key, width), of.transformation(factor, width)

    def advance(carry: tuple[Any, Any, Array], step: Array) -> tuple[tuple[Any, Any, Array], None]:
        params, state, _ = carry
        updates, state = transformation.update(
            jax.grad(of.loss)(params, of.at_step(key, step)), state, params
        )
        return (optax.apply_updates(params, updates), state, updates["hidden"]), None

    start = (params, transformation.init(params), params["hidden"])
    (params, _, last), _ = jax.lax.scan(advance, start, jnp.arange(steps))
    inputs = perceptron.layer_inputs(params, of.held_out(key)[0])["hidden"]
    return {
        "stable_rank": stable_rank_above(last),
        "size": jnp.sqrt(jnp.mean((inputs @ last.T) ** 2)),
    }
