"""Rhee, Simon and Karkada 2026, arXiv 2606.30509: what Muon conserves in a matrix factorization, and in which order it learns modes.

The full text has ½‖M - P Qᵀ‖_F², as here. The abstract as listed has Pᵀ Q, where PᵀP is the Gram matrix of the other side.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import xarray as xr
from jaxtyping import Array, Key
from matplotlib.figure import Figure

from specjax import lab, sizes, sweep
from specjax.experiments.field.controls import exchanged
from specjax.experiments.field.dynamics import N, OPTIMIZERS, descend, first_above, gaussian, spectrum, values
from specjax.experiments.ledgers import ledger
from specjax.lab.drawing import COLORS, draw_curves, log_axes
from specjax.models.deep_linear import Params
from specjax.models.factorization_spectra import orthonormal

LEAST, TIME, START = 0.2, 0.5, 0.03
RATES = {"Muon": 0.003, "gradient descent": 0.05}
TIMES = {"Muon": 1.2, "gradient descent": 80.0}
ROUNDING = 1e-9
DRIFTS = ["√PᵀP - √QᵀQ", "of the other side", "not aligned", "PᵀP - QᵀQ", "PᵀP - QᵀQ, gradient descent"]
Data = dict[str, xr.Dataset]


class Config(lab.Config):
    """Numbers of steps and draws."""

    steps: tuple[int, ...] = lab.sizes(20, 40, 80, 160, 320, points=2, help="steps that one length of time is cut into")
    seeds: int = lab.seeds(48, help="draws of the start")


def drifts(key: Key[Array, ""], steps: int) -> dict[str, Array]:
    """How far differences of Gram matrices come from where they start, relative to that, from a common frame and from none."""
    modes, rates = spectrum(LEAST), jnp.full(steps, TIME / steps)
    frame, rotation = (orthonormal(sizes.stream(key, name), N, N).astype(modes.dtype) for name in ("frame", "side"))
    # In the basis of the target P = diag(p) Fᵀ and Q = diag(q) Fᵀ; W₂ = P and W₁ = Qᵀ.
    p, q = (0.1 + 0.3 * jax.random.uniform(sizes.stream(key, name), (N, 1), modes.dtype) for name in ("p", "q"))
    aligned, other = ((q * frame.T).T, p * frame.T), gaussian(sizes.stream(key, "start"), 2, 0.3)

    def inner(weights: Params, power: int) -> Array:
        return gram(weights[1], power) - gram(weights[0].T, power)

    def outer(weights: Params, power: int) -> Array:
        # For a target U diag(m) Vᵀ with U ≠ V, one of whose sides is turned.
        return gram(weights[1].T, power) - rotation @ gram(weights[0], power) @ rotation.T

    cases = [
        (aligned, "Muon", inner, 1),
        (aligned, "Muon", outer, 1),
        (other, "Muon", inner, 1),
        (aligned, "Muon", inner, 2),
        (aligned, "gradient descent", inner, 2),
    ]
    found = []
    for start, optimizer, difference, power in cases:
        end = jax.tree.map(lambda path: path[-1], descend(start, modes, rates, optimizer))
        before = difference(start, power)
        found.append(jnp.linalg.norm(difference(end, power) - before) / jnp.linalg.norm(before))
    return {"drift": jnp.stack(found)}


def gram(x: Array, power: int) -> Array:
    """(XᵀX)^(power/2)."""
    _, s, vt = jnp.linalg.svd(x)
    return (vt.T * s[None, :] ** power) @ vt


def learning(key: Key[Array, ""], start: Array) -> dict[str, Array]:
    """For every mode the time at which it is half learned, and the growth of the root of its value from a quarter to there."""
    modes, found = spectrum(LEAST), []
    for name in OPTIMIZERS:
        rates = jnp.full(round(TIMES[name] / RATES[name]), RATES[name])
        value = values(descend(gaussian(key, 2, 1.0 * start), modes, rates, name))
        quarter, half = (first_above(value, share * modes) for share in (0.25, 0.5))
        roots = [jnp.sqrt(jnp.maximum(value[at - 1, jnp.arange(N)], 0)) for at in (quarter, half)]
        found.append(
            jnp.stack([half, (roots[1] - roots[0]) / jnp.maximum(half - quarter, 1)])
            * rates[0] ** jnp.array([[1], [-1]])
        )
    time, speed = jnp.stack(found, axis=1)
    return {"time": time, "speed": speed}


def run(config: Config, key: Key[Array, ""]) -> Data:
    """Drifts over the number of steps, and the learning of all modes; in float64."""
    with jax.enable_x64(True):
        over = {"steps": sweep.widths(*config.steps)}
        drift = sweep.run(drifts, over, seeds=config.seeds, key=sizes.stream(key, "aligned"), plan="exact")
        small = {"start": sweep.values(START)}
        modes = sweep.run(learning, small, seeds=config.seeds, key=sizes.stream(key, "small"), plan="exact")
    return {
        "drift": sweep.labelled(drift, "of", of=DRIFTS),
        "modes": sweep.labelled(modes.isel(start=0), "optimizer", "mode", optimizer=list(OPTIMIZERS)),
    }


states = lab.Statements()
EXCHANGED = exchanged("optimizer", "Muon", "gradient descent", of="modes")


def instead(place: int) -> Callable[[Any, Any], Any]:
    """A control: another drift in the place of Muon's."""
    return lab.replacing("drift", lambda data: data["drift"].roll(of=-place), of="drift")


@states(
    "conserved",
    "From weights with one common frame and the target's Muon conserves √PᵀP - √QᵀQ to rounding, however long its steps are.",
    controls={name: instead(place) for place, name in enumerate(DRIFTS) if place},
)
def conserved(config: Config, data: Data) -> lab.Relation:
    """Both P and Q move by the sign of what is left of a mode, in the same frame."""
    return lab.identity(data["drift"]["drift"].sel(of=DRIFTS[0], drop=True), tolerance=ROUNDING)


@states(
    "conserved-by-descent",
    "Gradient descent conserves PᵀP - QᵀQ in the limit of short steps alone: its drift falls as their length, to 0.1 in the exponent.",
    rivals={"its square": -2.0, "none": 0.0},
    controls={"of Muon": instead(4)},
)
def descent_drifts(config: Config, data: Data) -> lab.Relation:
    drift = data["drift"]["drift"].sel(of=DRIFTS[-1], drop=True)
    # Rounding, the drift of another quantity, has a logarithm too.
    slope = sweep.slopes(xr.ufuncs.log(drift + 1e-16), "steps").rename("exponent in the number of steps")
    return lab.near(slope, -1.0, 0.1, "0.1")


@states(
    "one-rate",
    "Between a quarter and a half of its value the root of every mode grows by the length of the steps, to 2 %.",
    rivals={"gradient descent's, m": lambda config, data: spectrum_of(data)},
    controls=EXCHANGED,
)
def one_rate(config: Config, data: Data) -> lab.Relation:
    return lab.near(data["modes"]["speed"].sel(optimizer="Muon", drop=True), 1.0, 0.02, "2 %")


def spectrum_of(data: Data) -> xr.DataArray:
    """The modes themselves."""
    return LEAST ** (data["modes"]["mode"] / (N - 1))


def in_order(data: Data, optimizer: str, smaller_first: bool) -> lab.Relation:
    """Each mode is half learned before, or after, the next larger one."""
    time = data["modes"]["time"].sel(optimizer=optimizer, drop=True)
    larger, smaller = time.isel(mode=slice(None, -1)), time.isel(mode=slice(1, None)).assign_coords(mode=time.mode[:-1])
    first, last = (smaller, larger) if smaller_first else (larger, smaller)
    return lab.ahead(last.rename("the later"), first.rename("the earlier"), least=0)


@states("one-rate", "Muon half learns every smaller mode before the next larger one.", controls=EXCHANGED)
def smaller_first(config: Config, data: Data) -> lab.Relation:
    return in_order(data, "Muon", True)


@states("one-rate", "Gradient descent learns them in the other order.", controls=EXCHANGED)
def larger_first(config: Config, data: Data) -> lab.Relation:
    return in_order(data, "gradient descent", False)


def figure(config: Config, data: Data) -> Figure:
    """Drifts over the number of steps, and the times at which modes are learned."""
    drawn = Figure(figsize=(9.5, 3.8), layout="constrained")
    drift, order = drawn.subplots(1, 2)
    draw_curves(drift, data["drift"]["drift"] + 1e-16, "steps", "of", str)
    log_axes(drift, config.steps)
    drift.set(xlabel="steps in one length of time", ylabel="relative drift", title="what is conserved")
    time = data["modes"]["time"].mean("seed")
    for name, color in zip(OPTIMIZERS, COLORS, strict=False):
        curve = time.sel(optimizer=name)
        order.plot(spectrum_of(data), curve / curve.max(), "o-", color=color, label=name)
    order.set(
        xlabel="singular value of the target", ylabel="time to half of it / the longest", title="who is learned first"
    )
    for axes in (drift, order):
        axes.legend(fontsize="small")
    return drawn


EXPERIMENT = lab.Experiment(
    "field-balance",
    ledger("field"),
    title="Muon conserves √PᵀP - √QᵀQ at any step length, and learns all modes at one rate, the smaller ones first",
    summary="Matrix factorization P Qᵀ. From aligned weights the difference is conserved to rounding, not in the limit of a flow alone; the "
    "Gram matrices of the other side, and weights that are not aligned, have no such law. From a small start the root of every mode grows "
    "by the length of the steps.",
    config=Config,
    measure=run,
    statements=states,
    scales={"smoke": {"steps": (20, 40, 80), "seeds": 6}, "paper": {"seeds": 1000}},
    figure=figure,
)
