"""Drift of the best rate with width under μP, and remedies (Qiu et al. 2025, arXiv 2512.05620v2).

The hidden layer is trained by a preconditioned direction U, the first and the last by Adam in μP.
Where U has the size of an elementwise optimizer's step, RMS 1, its rate in μP is 1/width, which
makes ΔW x of order 1 if the stable rank of U does not depend on the width. A preconditioner
inflates small singular values, so that with batches larger than the width the stable rank grows
with it: the spectral norm of the step falls, and the best rate rises (Section 3.2 and Appendix
E.1). The paper's remedies are a fixed spectral norm instead of the Frobenius norm, and blocks of a
fixed size.
"""

from collections.abc import Callable, Mapping

import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Key
from matplotlib import colormaps
from matplotlib.figure import Figure

from specjax import lab, sweep
from specjax.experiments.ledgers import ledger
from specjax.experiments.scaling import best_rates
from specjax.experiments.scaling.perceptron import SAMPLES
from specjax.experiments.scaling.preconditioned_steps import (
    ADAMUON,
    ADAMUON_SPECTRAL,
    BLOCK,
    BLOCKS,
    GRAFTED,
    SETTINGS,
    SPECTRAL,
    TUNED,
    problem,
    trained,
)
from specjax.experiments.scaling.scaling_cli import slopes
from specjax.lab import Control
from specjax.lab.drawing import COLORS, MARKERS, draw_sweep

DRIFT = 0.125
"""Smallest exponent of step size or best rate that counts: a quarter of a growing rank's."""
HALFWAY = 0.5
"""Between a stable rank that does not depend on the width and one that follows it."""


Data = Mapping[str, xr.Dataset]


class Config(lab.Config):
    """Widths, rates and trainings."""

    widths: tuple[int, ...] = lab.config.sizes(
        16, 40, 96, least=2 * BLOCK, points=2, help="hidden units of both layers"
    )
    below: int = lab.config.integer(4, help="rates below the setting's own, each half of the next")
    above: int = lab.config.integer(4, help="rates above it")
    steps: int = lab.config.integer(8, most=lab.config.MOST_COUNT, help="steps of a training")
    seeds: int = lab.config.seeds(
        40,
        least=4 * best_rates.GROUP,
        help=f"trainings at every width and rate, in groups of {best_rates.GROUP}",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.seeds % best_rates.GROUP:
            raise ValueError(
                f"seeds needs to be a multiple of {best_rates.GROUP}, got {self.seeds}."
            )
        if wrong := [width for width in self.widths if width % BLOCK]:
            raise ValueError(
                f"widths needs to be multiples of {BLOCK}, the size of a block, got {wrong[0]}."
            )
        if self.widths[-1] > SAMPLES // 2:
            raise ValueError(
                f"widths must be at most {SAMPLES // 2}, half of a batch, since stable ranks grow"
                f" where batches are larger, got {self.widths[-1]}."
            )


def run(config: Config, key: Key[Array, ""]) -> dict[str, xr.Dataset]:
    """The last step of the hidden layer at the settings' own rates, and losses by rate."""

    def measure_step(key: Array, width: int) -> dict[str, Array]:
        found = [
            trained(problem(each, width), key, width, 1.0, config.steps)
            for each in SETTINGS.values()
        ]
        return {name: jnp.stack([each[name] for each in found]) for name in ("stable_rank", "size")}

    def measure_loss(key: Array, width: int, factor: Array) -> dict[str, Array]:
        found = [
            problem(SETTINGS[name], width).final_loss(key, width, factor, config.steps)
            for name in TUNED
        ]
        return {
            "loss": jnp.minimum(
                jnp.nan_to_num(jnp.stack(found), nan=best_rates.LARGEST), best_rates.LARGEST
            )
        }

    widths = sweep.widths(*config.widths)
    factors = sweep.values(*(2.0**k for k in range(-config.below, config.above + 1)))
    grid, seeds = {"width": widths, "factor": factors}, config.seeds
    steps = lab.seeded_sweep(key, "steps", measure_step, seeds, width=widths)
    losses = lab.seeded_sweep(key, "trainings", measure_loss, seeds, **grid)
    return {
        "steps": sweep.labelled(steps, "setting", setting=list(SETTINGS)),
        "losses": sweep.labelled(losses, "setting", setting=list(TUNED)),
    }


def exponents(data: Data, part: str, setting: str) -> xr.DataArray:
    """The exponent in the width of a setting's "stable_rank" or "size", or best "rate", by seed."""
    if part == "rate":
        return best_rates.exponents(data["losses"], setting)
    return slopes(data["steps"][part].sel(setting=setting, drop=True)).rename(
        f"exponent of the {_TOLD[part]}"
    )


_TOLD = {"stable_rank": "stable rank", "size": "size of ΔW x"}
states = lab.Statements()


def _instead(setting: str, other: str) -> Control:
    """A control with the steps of another setting in the place of one's."""
    return lab.controls.changing(
        lambda steps: steps.where(steps["setting"] != setting, steps.sel(setting=other, drop=True)),
        of="steps",
    )


def beyond(
    relation: Callable[[xr.DataArray, float, str], lab.Relation],
    name: str,
    cites: str,
    says: str,
    part: str,
    setting: str,
    limit: float,
    instead: str,
    holds: bool | None = True,
    post_hoc: str = "",
) -> None:
    """State that an exponent is above or below a number, by `lab.above` or `lab.below`."""

    def judge_exponent(config: Config, data: Data) -> lab.Relation:
        return relation(exponents(data, part, setting), limit, f"{limit:g}")

    controls = {instead: _instead(setting, instead)}
    states(cites, says, name=name, controls=controls, holds=holds, post_hoc=post_hoc)(
        judge_exponent
    )


def stays(name: str, says: str, setting: str, instead: str) -> None:
    """State that the exponent of the step's size is smaller in size than what counts."""

    def relation(config: Config, data: Data) -> lab.Relation:
        found = exponents(data, "size", setting)
        sides = xr.concat([found, -found], xr.Variable("side", ["grows", "falls"])).rename(
            found.name
        )
        return lab.below(sides, DRIFT, f"{DRIFT:g}")

    states("drift-mended", says, name=name, controls={instead: _instead(setting, instead)})(
        relation
    )


beyond(
    lab.above,
    "rank-of-adamuon",
    "stable-rank-grows",
    "The stable rank of AdaMuon's step grows faster than √width.",
    "stable_rank",
    ADAMUON,
    HALFWAY,
    BLOCKS,
)
beyond(
    lab.above,
    "rank-of-shampoo",
    "stable-rank-grows",
    "The stable rank of Shampoo's step grows faster than √width.",
    "stable_rank",
    GRAFTED,
    HALFWAY,
    BLOCKS,
)
beyond(
    lab.below,
    "rank-in-blocks",
    "drift-mended",
    f"In blocks of {BLOCK} the stable rank of Shampoo's step grows more slowly than √width.",
    "stable_rank",
    BLOCKS,
    HALFWAY,
    GRAFTED,
)
beyond(
    lab.below,
    "step-of-adamuon",
    "updates-fall",
    "At the rate of μP the hidden layer's ΔW x falls faster than width^-1/8 under AdaMuon.",
    "size",
    ADAMUON,
    -DRIFT,
    ADAMUON_SPECTRAL,
)
beyond(
    lab.below,
    "step-of-shampoo",
    "updates-fall",
    "At the rate of μP the hidden layer's ΔW x falls faster than width^-1/8 under Shampoo with"
    " Adam's norm.",
    "size",
    GRAFTED,
    -DRIFT,
    SPECTRAL,
    holds=None,
    post_hoc="It was expected until runs of 16 steps left it open.",
)
stays(
    "spectral-adamuon",
    "With a spectral norm of 1 the size of ΔW x under AdaMuon follows no power of the width beyond"
    " ±1/8.",
    ADAMUON_SPECTRAL,
    ADAMUON,
)
stays(
    "spectral-shampoo",
    "With a spectral norm of 1 the size of ΔW x under Shampoo follows no power of the width beyond"
    " ±1/8.",
    SPECTRAL,
    GRAFTED,
)


@states(
    "finite-width-drift",
    "The best rate of AdaMuon in μP rises faster than width^1/8.",
    controls={"best rates that fall by √width": best_rates.moved(-0.5, of="losses")},
    holds=None,
)
def rate_rises(config: Config, data: Data) -> lab.Relation:
    """Of all layers together."""
    return best_rates.inside(
        lab.above(exponents(data, "rate", ADAMUON), DRIFT, f"{DRIFT:g}"), data["losses"], ADAMUON
    )


@states(
    "finite-width-drift",
    "The best rate of AdaMuon moves less with the width where its step has a spectral norm of 1.",
    controls={
        "the two exchanged": lab.controls.changing(
            lambda losses: best_rates.exchange_settings(losses, *TUNED), of="losses"
        )
    },
    holds=None,
)
def rate_moves_less(config: Config, data: Data) -> lab.Relation:
    """Of all layers together."""
    more, less = (abs(exponents(data, "rate", setting)) for setting in TUNED)
    relation: lab.Relation = lab.ahead(more, less, least=0.0)
    for setting in TUNED:
        relation = best_rates.inside(relation, data["losses"], setting)
    return relation


def table(config: Config, data: Data) -> list[lab.Table]:
    """Tabulate exponents of every setting, with two standard errors."""
    rows = []
    for name in SETTINGS:
        parts = ["stable_rank", "size", *(["rate"] if name in TUNED else [])]
        found = [exponents(data, part, name) for part in parts]
        told = [
            f"{float(e.mean()):.2f} ±"
            f" {2 * float(e.std('seed', ddof=1)) / e.sizes['seed'] ** 0.5:.2f}"
            for e in found
        ]
        rows.append((name, *told, *(["–"] if len(told) < 3 else [])))
    header = ("hidden layer", "stable rank of the step", "size of ΔW x", "best rate")
    return [lab.Table("Exponents in the width", header, tuple(rows))]


def figure(config: Config, data: Data) -> Figure:
    """Plot stable ranks and sizes of the last step by width, and tuned losses by rate."""
    drawn = Figure(figsize=(13.0, 4.4), layout="constrained")
    ranks, size, losses = drawn.subplots(1, 3)
    for place, name in enumerate(SETTINGS):
        of, color, marker = (
            data["steps"].sel(setting=name, drop=True),
            COLORS[place],
            MARKERS[place],
        )
        relative = of["size"] / of["size"].isel(width=0).mean("seed")
        for axes, values in ((ranks, of["stable_rank"]), (size, relative)):
            draw_sweep(axes, values, "width", label=name, color=color, marker=marker, line=True)
    ranks.set(title="stable rank of the last step", xlabel="width")
    size.set(title=f"RMS of ΔW x over that at width {config.widths[0]}", xlabel="width")
    ranks.legend(fontsize="small")
    shades = colormaps["viridis"](np.linspace(0, 0.88, len(config.widths)))
    means = data["losses"]["loss"].mean("seed")
    for name, line in zip(TUNED, ("-", "--"), strict=True):
        for width, color in zip(config.widths, shades, strict=True):
            curve, factors = means.sel(setting=name, width=width).values, means["factor"].values
            least = int(np.argmin(curve))
            losses.plot(factors, curve, line, color=color, linewidth=1, label=f"{name}, {width}")
            losses.plot(factors[least], curve[least], "o", color=color, markersize=6)
    losses.set(xscale="log", yscale="log", title="loss", xlabel="rate over the setting's own")
    losses.set_ylim(float(means.min()) / 1.2, 4 * float(means.isel(factor=0).max()))
    losses.legend(fontsize="small")
    return drawn


EXPERIMENT = lab.Experiment(
    "rate-drift",
    ledger("scaling"),
    title="Best rates drift in μP where a preconditioned step has a fixed Frobenius norm",
    summary=(
        "A perceptron of three layers after a few steps, over the width. The stable rank of"
        " AdaMuon's and Shampoo's steps grows with the width, so that at the rate of μP what they"
        " do to the hidden layer falls; a spectral norm that is fixed instead, and blocks of a"
        " fixed size, mend it."
    ),
    config=Config,
    measure=run,
    statements=states,
    scales={
        "quick": {"widths": (16, 40, 96), "below": 2, "above": 3, "seeds": 24},
        "smoke": {"widths": (16, 32), "below": 3, "above": 3, "steps": 2, "seeds": 16},
        # A run at widths up to 256, the batch itself, preceded these: they are judged on another
        # seed.
        "paper": {"widths": (16, 32, 64, 128), "steps": 16, "seed": 1},
    },
    figure=figure,
    tables=table,
)
