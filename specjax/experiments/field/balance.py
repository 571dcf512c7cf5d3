"""Rhee, Simon and Karkada 2026, arXiv 2606.30509: what Muon conserves in a matrix factorization.

The full text has ½‖M - P Qᵀ‖_F², as here. The abstract as listed has Pᵀ Q, where PᵀP is the Gram
matrix of the other side.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import xarray as xr
from jaxtyping import Array, Key
from matplotlib.figure import Figure

from specjax import fits, lab, sizes, sweep
from specjax.experiments.field.dynamics import N, descend, gaussian, spectrum
from specjax.experiments.ledgers import ledger
from specjax.lab.drawing import COLORS, MARKERS, log_axes
from specjax.models.deep_linear import Params
from specjax.models.factorization_spectra import orthonormal

LEAST, TIME = 0.2, 0.5
"""The smallest mode (the largest is 1), and the sum of all steps."""
ROUNDING = 1e-9
DRIFTS = [
    "√PᵀP - √QᵀQ",
    "of the other side",
    "not aligned",
    "PᵀP - QᵀQ",
    "PᵀP - QᵀQ, gradient descent",
]


class Config(lab.Config):
    """Step counts and seeds."""

    steps: tuple[int, ...] = lab.config.sizes(
        20,
        60,
        180,
        points=2,
        most=lab.config.MOST_COUNT,
        help="steps that one length of time is cut into",
    )
    seeds: int = lab.config.seeds(200, help="samples of the start")
    seed: int = lab.config.root_seed(
        1, help="root of all randomness; other samples showed where rounding is amplified"
    )


def drifts(key: Key[Array, ""], steps: int) -> dict[str, Array]:
    """Relative drift of differences of Gram matrices, from a common frame and from none."""
    modes, rates = spectrum(LEAST), jnp.full(steps, TIME / steps)
    frame, rotation = (orthonormal(sizes.stream(key, name), N, N) for name in ("frame", "side"))
    # In the basis of the target P = diag(p) Fᵀ and Q = diag(q) Fᵀ; W₂ = P and W₁ = Qᵀ.
    p, q = (
        0.1 + 0.3 * jax.random.uniform(sizes.stream(key, name), (N, 1), modes.dtype)
        for name in ("p", "q")
    )
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


def run(config: Config, key: Key[Array, ""]) -> xr.Dataset:
    """Drifts over the number of steps, in float64."""
    with jax.enable_x64(True):
        over = {"steps": sweep.widths(*config.steps)}
        found = lab.seeded_sweep(key, "aligned", drifts, config.seeds, **over)
    return sweep.labelled(found, "of", of=DRIFTS)


states = lab.Statements()


def replace_drift(place: int) -> Callable[[Any, Any], Any]:
    """A control with another drift in the place of Muon's."""
    return lab.controls.replacing("drift", lambda data: data["drift"].roll(of=-place))


@states(
    "conserved",
    "From weights with one common frame and the target's Muon conserves √PᵀP - √QᵀQ to rounding,"
    " however long its steps are, in more than nine samples of ten: where a mode meets its target"
    " to many digits, the polar factor amplifies rounding.",
    controls={name: replace_drift(place) for place, name in enumerate(DRIFTS) if place},
    post_hoc=(
        "First of all samples, of which six in five thousand have a mode within 1e-6 of its target;"
        " judged on fresh samples."
    ),
)
def conserved(config: Config, data: xr.Dataset) -> lab.Relation:
    """Both P and Q move by the sign of what is left of a mode, in the same frame."""
    return lab.fraction(data["drift"].sel(of=DRIFTS[0], drop=True) < ROUNDING, more_than=0.9)


@states(
    "conserved-by-descent",
    "Gradient descent conserves PᵀP - QᵀQ in the limit of short steps alone: its drift falls as"
    " their length, to 0.05 in the exponent.",
    rivals={"its square": -2.0, "none": 0.0, "length^1.1": -1.1, "length^0.9": -0.9},
    controls={"of Muon": replace_drift(4)},
    post_hoc=(
        "It asked for 0.1, which does not tell a power of 1.1; narrowed when the exponent was"
        " known, and judged on the same samples."
    ),
)
def descent_drifts(config: Config, data: xr.Dataset) -> lab.Relation:
    drift = data["drift"].sel(of=DRIFTS[-1], drop=True)
    # Rounding, the drift of another quantity, has a logarithm too.
    slope = fits.log_slopes(xr.ufuncs.log(drift + 1e-16), "steps").rename(
        "exponent in the number of steps"
    )
    return lab.near(slope, -1.0, 0.05, "0.05")


def figure(config: Config, data: xr.Dataset) -> Figure:
    """Plot median drifts by number of steps with 10 to 90 % ranges, and the rounding level."""
    drawn = Figure(figsize=(6.4, 5), layout="constrained")
    axes = drawn.subplots()
    # A mean would be dominated by the few seeds in which the polar factor amplifies rounding.
    spread = (data["drift"] + 1e-16).quantile([0.1, 0.5, 0.9], "seed")
    for name, color, marker in zip(DRIFTS, COLORS, MARKERS, strict=False):
        low, middle, high = spread.sel(of=name).values
        bars = [middle - low, high - middle]
        axes.errorbar(
            config.steps,
            middle,
            bars,
            fmt=marker + "-",
            color=color,
            label=name,
            capsize=2,
            markersize=4,
        )
    above = float((data["drift"].sel(of=DRIFTS[0]) >= ROUNDING).mean())
    label = f"limit of rounding: {above:.2%} of samples of {DRIFTS[0]} above"
    axes.axhline(ROUNDING, color="black", linewidth=1, linestyle="--", label=label)
    log_axes(axes, list(map(float, config.steps)))
    axes.set(xlabel=f"steps in a time of {TIME:g}", ylabel="drift / start, median and middle 80 %")
    axes.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2)
    return drawn


EXPERIMENT = lab.Experiment(
    "field-balance",
    ledger("field"),
    title="Muon conserves √PᵀP - √QᵀQ of aligned weights, at steps of any length",
    summary=(
        "Matrix factorization P Qᵀ. From aligned weights the difference is conserved to rounding,"
        " not in the limit of a flow alone; the Gram matrices of the other side, their squares, and"
        " weights that are not aligned have no such law."
    ),
    config=Config,
    measure=run,
    statements=states,
    headlines=("conserved",),
    scales={
        "smoke": {"steps": (20, 40), "seeds": 6},
        "paper": {"steps": (20, 40, 80, 160, 320), "seeds": 1000},
    },
    figure=figure,
)
