"""Trainings over width × rate: the power of the best rate, and the cost of the narrowest's.

The trainings are short, so that the first steps decide the best rate, and also the effect of a step
on each layer (`updates.py`): where some ΔW x grows as a power of the width, the best rate falls as
that power. An exponent has an interval over groups of seeds: the best rate is that of the mean over
a group, as in tuning.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Key
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from specjax import lab, sizes, sweep
from specjax.experiments.ledgers import ledger
from specjax.experiments.scaling import perceptron
from specjax.experiments.scaling.best_rates import (
    GROUP,
    HALVED,
    LARGEST,
    OTHER_POWERS,
    best,
    cost,
    exchange_settings,
    exponents,
    inside,
    moved,
    replace_setting,
)
from specjax.experiments.scaling.perceptron import SETTINGS
from specjax.experiments.scaling.scaling_cli import HALFWAY
from specjax.lab import Control


class Config(lab.Config):
    """Widths, rates and trainings."""

    widths: tuple[int, ...] = lab.config.sizes(
        16, 40, 96, least=2, points=2, help="hidden units of both layers"
    )
    below: int = lab.config.integer(5, help="rates below the setting's own, each half of the next")
    above: int = lab.config.integer(3, help="rates above it")
    steps: int = lab.config.integer(8, most=lab.config.MOST_COUNT, help="steps of a training")
    seeds: int = lab.config.seeds(
        72, least=4 * GROUP, help=f"trainings at every width and rate, in groups of {GROUP}"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.seeds % GROUP:
            raise ValueError(f"seeds needs to be a multiple of {GROUP}, got {self.seeds}.")


def run(config: Config, key: Key[Array, ""]) -> xr.Dataset:
    """The loss of every setting on a fresh batch after the last step; one program per width."""

    def measure(key: Array, width: int, factor: Array) -> dict[str, Array]:
        final = perceptron.measure_settings(
            lambda problem, rate: problem.final_loss(key, width, rate * factor, config.steps), width
        )
        return {"loss": jnp.minimum(jnp.nan_to_num(final, nan=LARGEST), LARGEST)}

    factors = [2.0**k for k in range(-config.below, config.above + 1)]
    data = sweep.run(
        measure,
        {"width": sweep.widths(*config.widths), "factor": sweep.values(*factors)},
        num_seeds=config.seeds,
        key=sizes.stream(key, "third trainings"),
    )
    return sweep.labelled(data, "setting", setting=list(SETTINGS))


states = lab.Statements()


def follows(name: str, cites: str, says: str, setting: str, power: float, **options: Any) -> None:
    """State that the best rate of a setting follows a power of the width, not one 1/2 away."""

    def relation(config: Config, data: xr.Dataset) -> lab.Relation:
        off = exponents(data, setting) - power
        sides = xr.concat([off, -off], xr.Variable("side", ["above", "below"]))
        sides = sides.rename("exponent of the best rate, off")
        near = lab.below(sides, HALFWAY, "half of the distance to the next exponent")
        return inside(near, data, setting)

    states(cites, says, name=name, controls=OTHER_POWERS, **options)(relation)


def falls(
    name: str, cites: str, says: str, setting: str, at_most: float, instead: str, **options: Any
) -> None:
    """State that the exponent of a setting's best rate is below a number, unlike another's and
    unlike half of it.
    """

    def relation(config: Config, data: xr.Dataset) -> lab.Relation:
        return inside(lab.below(exponents(data, setting), at_most, f"{at_most:g}"), data, setting)

    number = HALVED if options.get("holds", True) else {"another fall as 1/√width": moved(-0.5)}
    controls = {instead: replace_setting(setting, instead)} | number
    states(cites, says, name=name, controls=controls, **options)(relation)


def moves_less(
    name: str,
    cites: str,
    says: str,
    setting: str,
    than: str,
    least: float,
    *,
    number: dict[str, Control] = HALVED,
    **options: Any,
) -> None:
    """State that the exponent of a setting's best rate is smaller in size than another's."""

    def relation(config: Config, data: xr.Dataset) -> lab.Relation:
        more, less = (abs(exponents(data, each)) for each in (than, setting))
        return inside(inside(lab.ahead(more, less, least=least), data, setting), data, than)

    control = lab.controls.changing(lambda data: exchange_settings(data, setting, than))
    controls = {"the two exchanged": control} | number
    states(cites, says, name=name, controls=controls, **options)(relation)


def costs_little(
    name: str, cites: str, says: str, setting: str, instead: str, **options: Any
) -> None:
    """State that the narrowest width's rate costs less than a quarter of the loss at the widest."""

    def relation(config: Config, data: xr.Dataset) -> lab.Relation:
        return inside(lab.below(cost(data, setting), 0.25, "a quarter of the loss"), data, setting)

    # Half of standard parametrization's power. Rates that are as much too small cost less than this
    # too.
    number = {"best rates that fall as 1/√width": moved(-0.5)}
    controls = {instead: replace_setting(setting, instead)} | number
    states(cites, says, name=name, controls=controls, **options)(relation)


follows(
    "mup-gradient-descent",
    "mup-transfer",
    "In μP the best rate of gradient descent does not depend on the width.",
    "gradient descent, μP",
    0.0,
)
costs_little(
    "mup-adam",
    "mup-transfer",
    "In μP Adam's best rate at the narrowest width costs less than a quarter of the loss at the"
    " widest.",
    "Adam, μP",
    "Adam",
    post_hoc=(
        "It was first stated of the exponent, which the flat valley of Adam's losses left open."
    ),
)
falls(
    "gradient-descent",
    "standard-transfer",
    "In standard parametrization the best rate of gradient descent falls faster than width^-1/4.",
    "gradient descent",
    -0.25,
    "gradient descent, μP",
    post_hoc=(
        "First stated as a fall as 1/width, the power of the largest stable rate, which the best"
        " rate of eight steps does not follow."
    ),
)
falls(
    "adam",
    "standard-transfer",
    "In standard parametrization the best rate of Adam falls faster than 1/√width.",
    "Adam",
    -0.5,
    "Adam, μP",
)
follows(
    "muon-spectral",
    "muon-transfer",
    "The best rate of Muon with √(out/in) does not depend on the width.",
    "Muon, √(out/in)",
    0.0,
)
falls(
    "muon-adamw-rms",
    "muon-no-transfer",
    "The best rate of Muon with 0.2 √max(out, in) falls faster than width^-1/4.",
    "Muon, 0.2 √max",
    -0.25,
    "Muon, √(out/in)",
    post_hoc="The threshold was -1/2, half of theory's exponent, and the exponent found was -0.53.",
)
falls(
    "muon-original",
    "muon-no-transfer",
    "The best rate of Muon with √max(1, out/in) falls faster than width^-1/8.",
    "Muon, √max(1, out/in)",
    -0.125,
    "Muon, √(out/in)",
    post_hoc=(
        "The threshold was -1/4, half of theory's exponent, and the exponent found first was -0.27."
    ),
)
falls(
    "muon-none",
    "muon-no-transfer",
    "The best rate of Muon without a scale falls faster than width^-1/4.",
    "Muon, none",
    -0.25,
    "Muon, 0.2 √max",
    holds=False,
)
follows(
    "muon-none-stays",
    "muon-no-transfer",
    "The best rate of Muon without a scale does not depend on the width: the first layer's ΔW x"
    " falls as the last layer's grows.",
    "Muon, none",
    0.0,
    corrected=True,
    post_hoc="It was stated after the first run had contradicted the fall.",
)
moves_less(
    "mup-improves-adam",
    "mup-improves",
    "Adam's best rate moves less with the width in μP than in standard parametrization.",
    "Adam, μP",
    "Adam",
    0.1,
    # A sign, which half of the lead has too.
    number=lab.controls.without_lead("setting", "Adam, μP", "Adam"),
    post_hoc="The least lead that counts was 1/4, which the first run left open.",
)
moves_less(
    "mup-improves-muon",
    "mup-improves",
    "Muon's best rate moves less with the width at the scale of μP, √(out/in), than at that of"
    " AdamW's steps, 0.2 √max(out, in).",
    "Muon, √(out/in)",
    "Muon, 0.2 √max",
    HALFWAY,
)
moves_less(
    "fixed-norms",
    "fixed-norms",
    "In short trainings with the start of μP Muon's best rate moves less with the width under fixed"
    " norms (Hyperball) than with decoupled weight decay at the scale of AdamW's steps, 0.2"
    " √max(out, in).",
    "Muon, fixed norms",
    "Muon, 0.2 √max",
    HALFWAY,
)


def table(config: Config, data: xr.Dataset) -> list[lab.Table]:
    """Tabulate best rates, exponents beside theory's, and costs at the widest width."""
    rates = np.exp(xr.ufuncs.log(best(data)).mean("seed"))
    rows = []
    for name, setting in SETTINGS.items():
        found = exponents(data, name)
        half = 2 * float(found.std("seed", ddof=1)) / found.sizes["seed"] ** 0.5
        rows.append(
            (
                name,
                *(f"{setting.rate * float(rate):.2g}" for rate in rates.sel(setting=name)),
                f"{float(found.mean()):.2f} ± {half:.2f} ({setting.best:g})",
                f"{min(100 * float(cost(data, name).mean()), 999):.0f} %",
            )
        )
    header = (
        "setting",
        *(f"best rate at {width}" for width in config.widths),
        "exponent (theory's)",
        f"cost at {config.widths[-1]}",
    )
    return [lab.Table("Best rates, and what the narrowest's costs", header, tuple(rows))]


SHOWN = ("Adam", "Adam, μP", "Muon, 0.2 √max", "Muon, √(out/in)")


def figure(config: Config, data: xr.Dataset) -> Figure:
    """Plot the mean loss by rate and width, with the best point of the grid, for two settings in
    which the best rate moves (left) and two in which it stays.
    """
    drawn = Figure(figsize=(9.0, 6.5), layout="constrained")
    shades = colormaps["viridis"](np.linspace(0, 0.88, len(config.widths)))
    means = data["loss"].mean("seed")
    for axes, name in zip(drawn.subplots(2, 2, sharey=True).flat, SHOWN, strict=True):
        rates = SETTINGS[name].rate * data["factor"].values
        for width, color in zip(config.widths, shades, strict=True):
            curve = means.sel(setting=name, width=width).values
            least = int(np.argmin(curve))
            axes.plot(
                rates, curve, ".-", color=color, linewidth=1, markersize=4, label=f"width {width}"
            )
            axes.plot(rates[least], curve[least], "o", color=color, markersize=7)
        axes.set(xscale="log", yscale="log", title=name)
        # Larger losses are divergence.
        axes.set_ylim(float(means.min()) / 1.2, 4 * float(means.isel(factor=0).max()))
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    drawn.supxlabel("rate")
    drawn.supylabel("loss, mean over the seeds")
    axes.legend(fontsize="small")
    return drawn


EXPERIMENT = lab.Experiment(
    "rate-transfer",
    ledger("scaling"),
    title="Rates transfer between widths where no layer's update grows",
    summary=(
        "Losses of a perceptron of three layers after eight steps, over width × rate. In μP, at"
        " Muon's scale √(out/in) and with fixed norms the rate that is tuned at the narrowest width"
        " is right at the widest; in standard parametrization and at Muon's scale 0.2 √max(out, in)"
        " it is too large there, and costs half of the loss or more. Without a scale Muon's rate"
        " transfers too, against theory: the first layer's update falls as the last one's grows."
    ),
    config=Config,
    measure=run,
    statements=states,
    scales={
        "quick": {"seeds": 48},
        "smoke": {"widths": (8, 24), "below": 4, "above": 3, "steps": 2, "seeds": 16},
        "paper": {"widths": (16, 48, 144, 256)},
    },
    figure=figure,
    tables=table,
)
