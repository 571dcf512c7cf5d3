"""Li et al. 2026, arXiv 2606.03899: momentum before against after the polar factor."""

import jax
import jax.numpy as jnp
import xarray as xr
from jaxtyping import Array, Float, Key
from matplotlib.figure import Figure

from specjax import lab, sizes, spectral, sweep
from specjax.experiments.field.controls import exchange, part_way
from specjax.experiments.ledgers import ledger
from specjax.lab.drawing import COLORS, draw_sweep
from specjax.models import spiked
from specjax.sweep.axes import Over

BETA, STEPS, RANK = 0.9, 40, 2
ORDERS = ["before", "after", "none", "after and again"]
"""polar(average of G), average of polar(G), polar(G), and polar(average of polar(G))."""


class Config(lab.Config):
    """Sizes, signal strengths and seeds."""

    widths: tuple[int, ...] = lab.config.sizes(
        16, 32, 64, least=4, points=2, help="rows and columns of the gradients"
    )
    strengths: tuple[float, ...] = lab.config.numbers(
        0.5, 1, 2, 4, above=0, help="singular values of the signal"
    )
    seeds: int = lab.config.seeds(32, help="samples of signal and noise")


def run(config: Config, key: Key[Array, ""]) -> xr.Dataset:
    """Inner product and cosine of the step with the signal's factor, by order and strength."""

    def measure(key: Key[Array, ""], width: int, strength: Array) -> dict[str, Array]:
        u, v = (
            spiked.directions(sizes.stream(key, side), width, RANK) for side in ("left", "right")
        )
        signal: Float[Array, "n n"] = u @ v.T
        # The noise has entries N(0, 1/n), and so the norm 2 at every width.
        noise = jax.random.normal(sizes.stream(key, "noise"), (STEPS, width, width)) / width**0.5
        gradients = strength * signal[None] + noise
        weights = BETA ** jnp.arange(STEPS - 1.0, -1.0, -1.0)
        weights /= jnp.sum(weights)
        factors = spectral.polar(gradients)
        after = jnp.tensordot(weights, factors, 1)
        again = spectral.polar(jnp.stack([jnp.tensordot(weights, gradients, 1), after]))
        steps = jnp.stack([again[0], after, factors[-1], again[1]])
        inner = jnp.sum(steps * signal[None], axis=(1, 2)) / RANK
        return {"inner": inner, "cosine": inner * RANK**0.5 / jnp.linalg.norm(steps, axis=(1, 2))}

    over: Over = {
        "width": sweep.widths(*config.widths),
        "strength": sweep.values(*config.strengths),
    }
    found = lab.seeded_sweep(key, "gradients", measure, config.seeds, **over)
    return sweep.labelled(found, "order", order=ORDERS)


states = lab.Statements()


def select(order: str, data: xr.Dataset, quantity: str = "inner") -> xr.DataArray:
    """A quantity of one order."""
    return data[quantity].sel(order=order, drop=True).rename(f"{quantity}, {order}")


@states(
    "order",
    "The step with momentum before the polar factor has a larger inner product with the signal's"
    " than the one with momentum after it, at every strength and width.",
    controls=exchange("order", "before", "after")
    | lab.controls.without_lead("order", "before", "after"),
)
def before_is_ahead(config: Config, data: xr.Dataset) -> lab.Relation:
    return lab.ahead(select("before", data), select("after", data), least=0)


@states(
    "no-momentum",
    "It has a larger one than the step without momentum.",
    controls=exchange("order", "before", "none")
    | lab.controls.without_lead("order", "before", "none"),
)
def momentum_helps(config: Config, data: xr.Dataset) -> lab.Relation:
    return lab.ahead(select("before", data), select("none", data), least=0)


@states(
    "order-cosine",
    "The step with momentum before the polar factor has a larger cosine with the signal's, at every"
    " strength and width.",
    holds=False,
    controls=exchange("order", "before", "after"),
)
def before_is_ahead_in_cosine(config: Config, data: xr.Dataset) -> lab.Relation:
    """The polar factor blows what is left of the noise up to singular values of 1; an average of
    factors lets it fall.
    """
    return lab.ahead(select("before", data, "cosine"), select("after", data, "cosine"), least=0)


@states(
    "order-again",
    "The polar factor of momentum after the polar factor has at least 4/5 of what momentum before"
    " it gains.",
    controls=exchange("order", "after and again", "after")
    | part_way("order", {"after and again": "after"}, share=0.25),
)
def again_is_nearly_as_good(config: Config, data: xr.Dataset) -> lab.Relation:
    share = 0.8 * select("before", data) + 0.2 * select("after", data)
    return lab.ahead(select("after and again", data), share.rename("4/5 of the gain"), least=0)


def figure(config: Config, data: xr.Dataset) -> Figure:
    """Plot both measures by strength, at the largest width."""
    drawn = Figure(figsize=(9.5, 3.8), layout="constrained")
    panels = drawn.subplots(1, 2)
    for axes, quantity, label in zip(
        panels, ("inner", "cosine"), ("inner product", "cosine"), strict=True
    ):
        for order, color in zip(ORDERS, COLORS, strict=False):
            values = select(order, data, quantity).isel(width=-1)
            draw_sweep(axes, values, "strength", label=order, color=color, line=True)
        axes.set(
            xlabel="strength of the signal (the noise has norm 2)",
            ylabel=f"{label} with the signal's polar factor",
        )
    panels[0].set_title("at equal spectral norm: before is better")
    panels[1].set_title("at equal Frobenius norm: after is better")
    panels[0].legend(title="momentum", fontsize="small")
    return drawn


EXPERIMENT = lab.Experiment(
    "field-momentum",
    ledger("field"),
    title=(
        "Momentum before the polar factor aligns better per spectral norm, worse per Frobenius norm"
    ),
    summary=(
        "Spiked gradients in fresh noise. By the inner product with the signal's polar factor"
        " momentum helps before the polar factor and does nothing after it; by the cosine the order"
        " is reversed at every strength and width. A second polar factor makes up for the wrong"
        " order."
    ),
    config=Config,
    measure=run,
    statements=states,
    scales={
        "smoke": {"widths": (8, 16), "seeds": 12},
        "paper": {"widths": (16, 32, 64, 128), "seeds": 200},
    },
    figure=figure,
)
