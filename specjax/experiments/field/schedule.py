"""Rhee, Simon and Karkada 2026, arXiv 2606.30509: Muon above the sharpness threshold, and aligned in two steps."""

import jax
import jax.numpy as jnp
import xarray as xr
from jaxtyping import Array, Key
from matplotlib.figure import Figure

from specjax import lab, sizes, sweep
from specjax.experiments.field.controls import exchanged
from specjax.experiments.field.dynamics import N, OPTIMIZERS, descend, gaussian, product, spectrum
from specjax.experiments.ledgers import ledger
from specjax.lab.drawing import draw_curves
from specjax.models.factorization_spectra import orthonormal

LARGEST, LEAST, STEPS, DECAY, DIVERGED = 16.0, 0.2, 300, 0.95, 1e6
TINY, HALVINGS = 1e-4, 24
STARTS = ["orthogonal", "Gaussian", "orthogonal, first step × 3"]
Data = dict[str, xr.Dataset]


class Config(lab.Config):
    """Step lengths, conditions and draws."""

    over: tuple[float, ...] = lab.numbers(2, 4, 8, above=1, help="step lengths over the largest stable one")
    conditions: tuple[float, ...] = lab.numbers(10, 1000, above=1, help="condition numbers of the target")
    seeds: int = lab.seeds(48, help="draws of the start")


def stability(key: Key[Array, ""], over: Array) -> dict[str, Array]:
    """Losses over that of zero at the end of steps longer than 2/sharpness at the balanced solution, 1/(largest mode)."""
    modes, rates = LARGEST * spectrum(LEAST), jnp.full(STEPS, over / LARGEST)

    def last(rates: Array, optimizer: str) -> Array:
        end = product(descend(gaussian(key, 2, 0.1), modes, rates, optimizer))[-1]
        loss = jnp.sum((jnp.diag(modes) - end) ** 2) / jnp.sum(modes**2)
        # Also of what is not finite any more.
        return jnp.where(loss < DIVERGED, loss, DIVERGED)

    annealed = rates * DECAY ** jnp.arange(float(STEPS))
    return {
        name: jnp.stack([last(each, optimizer) for optimizer in OPTIMIZERS])
        for name, each in (("fixed", rates), ("annealed", annealed))
    }


def two_steps(key: Key[Array, ""], condition: Array) -> dict[str, Array]:
    """The part of ‖P Qᵀ‖² off the modes of the target after every step: one as long as the start, one of length 1, and halvings."""
    modes = spectrum(1 / condition)
    p, q = (TINY * orthonormal(sizes.stream(key, name), N, N).astype(modes.dtype) for name in ("p", "q"))
    starts = [(q, p), gaussian(sizes.stream(key, "Gaussian"), 2, TINY), (q, p)]
    rates = jnp.concatenate([jnp.full(1, TINY), 0.5 ** jnp.arange(float(HALVINGS))])
    off, loss = [], []
    for start, first in zip(starts, (1.0, 1.0, 3.0), strict=True):
        path = product(descend(start, modes, rates.at[0].multiply(first), "Muon"))
        squares = path**2
        off.append(1 - jnp.trace(squares, axis1=1, axis2=2) / jnp.sum(squares, axis=(1, 2)))
        loss.append(jnp.sum((jnp.diag(modes)[None] - path) ** 2, axis=(1, 2)) / jnp.sum(modes**2))
    return {"off": jnp.stack(off), "loss": jnp.log10(jnp.stack(loss))}


def run(config: Config, key: Key[Array, ""]) -> Data:
    """Losses of steps that are too long, and the schedule; in float64."""
    with jax.enable_x64(True):
        long = sweep.run(
            stability, {"over": sweep.values(*config.over)}, seeds=config.seeds, key=sizes.stream(key, "long steps")
        )
        conditions = {"condition": sweep.values(*config.conditions)}
        two = sweep.run(two_steps, conditions, seeds=config.seeds, key=sizes.stream(key, "two steps"))
    return {
        "long": sweep.labelled(long, "optimizer", optimizer=list(OPTIMIZERS)),
        "two": sweep.labelled(two, "start", "step", start=STARTS, step=range(1, HALVINGS + 2)),
    }


states = lab.Statements()
EXCHANGED = exchanged("optimizer", "Muon", "gradient descent", of="long")


@states(
    "above-threshold",
    "With fixed steps of 2 to 8 times the length at which the solution becomes unstable under gradient descent Muon's loss ends below a "
    "tenth of that of zero.",
    controls=EXCHANGED,
)
def stable(config: Config, data: Data) -> lab.Relation:
    return lab.below(data["long"]["fixed"].sel(optimizer="Muon", drop=True), 0.1, "a tenth of the loss of zero")


@states(
    "above-threshold",
    "Annealed by 5 % a step from there it ends below a millionth.",
    controls=EXCHANGED | {"fixed steps": lab.replacing("annealed", "fixed", of="long")},
)
def annealed(config: Config, data: Data) -> lab.Relation:
    return lab.below(data["long"]["annealed"].sel(optimizer="Muon", drop=True), 1e-6, "a millionth of the loss of zero")


def after_two(data: Data, start: str) -> lab.Relation:
    """Near-perfect alignment: less than a thousandth of ‖P Qᵀ‖² is off the modes of the target after two steps."""
    off = data["two"]["off"].sel(start=start, step=2, drop=True)
    return lab.below(off, 1e-3, "a thousandth")


@states(
    "two-steps",
    "From orthogonal starts a step as long as the start and one of length 1 leave less than a thousandth of ‖P Qᵀ‖² off the target's modes, "
    "at every condition number.",
    controls={
        "a Gaussian start": exchanged("start", *STARTS[:2], of="two")[f"{STARTS[0]} and {STARTS[1]} exchanged"],
        "a first step three times as long": exchanged("start", STARTS[0], STARTS[2], of="two")[
            f"{STARTS[0]} and {STARTS[2]} exchanged"
        ],
    },
)
def aligned_in_two(config: Config, data: Data) -> lab.Relation:
    return after_two(data, STARTS[0])


@states(
    "two-steps",
    "The halvings that follow bring the loss below 1e-9 of that of zero, at every condition number.",
    controls=exchanged("start", *STARTS[:2], of="two"),
)
def halvings_converge(config: Config, data: Data) -> lab.Relation:
    return lab.below(data["two"]["loss"].sel(start=STARTS[0], drop=True).isel(step=-1, drop=True), -9, "1e-9")


@states(
    "two-steps-gaussian",
    "So they do from Gaussian starts of the same size.",
    holds=False,
    controls=exchanged("start", *STARTS[:2], of="two"),
)
def aligned_from_gaussian(config: Config, data: Data) -> lab.Relation:
    return after_two(data, STARTS[1])


def figure(config: Config, data: Data) -> Figure:
    """What is off the modes, and the loss, after every step."""
    drawn = Figure(figsize=(9.5, 3.8), layout="constrained")
    panels = drawn.subplots(1, 2)
    two = data["two"].isel(condition=-1)
    draw_curves(panels[0], two["off"], "step", "start", str)
    draw_curves(panels[1], two["loss"], "step", "start", str)
    panels[0].set(xlabel="step", ylabel="part of ‖P Qᵀ‖² off the target's modes", title="alignment", xlim=(0.5, 12.5))
    panels[1].set(
        xlabel="step", ylabel="log₁₀ loss / loss of zero", title=f"condition number {config.conditions[-1]:g}"
    )
    panels[1].legend(fontsize="small")
    return drawn


EXPERIMENT = lab.Experiment(
    "field-schedule",
    ledger("field"),
    title="Muon is stable above the sharpness threshold and aligned in two steps, if the start is orthogonal and of known size",
    summary="Matrix factorization. Muon's steps may be eight times longer than those at which gradient descent diverges, and annealing them "
    "converges. A step as long as an orthogonal start and one of length 1 align the weights with the target whatever its condition; from "
    "Gaussian starts, or with another first step, they do not.",
    config=Config,
    measure=run,
    statements=states,
    scales={"smoke": {"seeds": 8}, "paper": {"seeds": 2000}},
    figure=figure,
)
