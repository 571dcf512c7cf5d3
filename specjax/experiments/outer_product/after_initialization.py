"""ReLU networks after initialization: V Vᵀ against diagonal, normalized rows against polar factor.

The paper proves its statements at initialization and leaves training and depth open; Deng et al.
(2026, RMNP) report for language models that orthogonalization and row normalization stay equivalent
throughout training, that the diagonal of V Vᵀ outgrows its other entries with the size of the
model, and that momentum with normalized rows matches Muon. Here four optimizers train networks of
three layers, all of whose sizes grow in proportion, on the same batches. A matrix of Gaussian noise
of the same sizes stands beside V, since two independent rows of n entries have a cosine of the
order 1/√n whatever they are. Step sizes are chosen on other seeds than those that judge.

Statements, thresholds, the grid and the number of seeds were chosen in trial runs on other seeds.
"""

from collections.abc import Callable

import numpy as np
import xarray as xr
from jaxtyping import Array, Key

from specjax import lab, sizes, sweep
from specjax.experiments.ledgers import ledger
from specjax.experiments.outer_product.after_initialization_training import (
    MATRICES,
    RULES,
    WATCHED,
    train,
)
from specjax.sizes import AnySize

RATES = {"gd": 40.0, "adam": 0.3, "muon": 0.2, "rows": 0.12}
"""Step sizes near the best at the widths of `quick`, which the factors of the grid multiply."""
SAME = 1.2
"""Losses within this factor count as equal: neighbours on the grid differ by about as much."""
LEARNED = 0.25
"""A network has learned below this share of its first loss; a zero network keeps about half."""

QUANTITIES = ("ratio", "distance")


class Config(lab.Config):
    """Widths, seeds, and the trainings."""

    widths: tuple[int, ...] = lab.config.sizes(
        16, 32, 64, least=4, points=3, help="hidden units, even: half are inputs"
    )
    seeds: int = lab.config.seeds(24, help="samples of weights, target and data that judge")
    choosing: int = lab.config.integer(
        4, most=lab.config.MOST_COUNT, help="further samples, which choose the step sizes"
    )
    stretches: int = lab.config.integer(
        4,
        least=2,
        most=lab.config.MOST_COUNT,
        help="lengths of a training, in multiples of the first",
    )
    steps: int = lab.config.integer(
        64, most=lab.config.MOST_COUNT, help="steps of the first length"
    )
    batch: int = lab.config.integer(64, most=lab.config.MOST_COUNT, help="inputs of a step")
    momentum: float = lab.config.number(0.95, above=0, below=1, help="β of the moving average V")
    factors: tuple[float, ...] = lab.config.grid(
        0.25, 0.5, 1, 2, 4, help="factors of the step sizes"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if odd := [width for width in self.widths if width % 2]:
            raise ValueError(
                f"widths must be even, since half of the units are inputs, got {odd[0]}."
            )


states = lab.Statements()


def run(config: Config, key: Key[Array, ""]) -> xr.Dataset:
    """log10 of the remaining loss, ratios and distances at the chosen step sizes."""

    def measure(
        key: Key[Array, ""], width: AnySize, ends: AnySize, factor: Array
    ) -> dict[str, Array]:
        rates = [rate * factor for rate in RATES.values()]
        settings = {"stretches": config.stretches, "steps": config.steps, "batch": config.batch}
        return train(key, width, ends, rates, decay=config.momentum, **settings)

    halves = [width // 2 for width in config.widths]
    found = sweep.run(
        measure,
        {
            "width": sweep.zipped(width=sweep.widths(*config.widths), ends=sweep.widths(*halves)),
            "factor": sweep.values(*config.factors),
        },
        num_seeds=config.choosing + config.seeds,
        key=sizes.stream(key, "networks"),
        # Hundreds of steps magnify rounding; a test checks on a few steps that padding changes
        # nothing.
        check_padding=False,
    )
    lengths = [config.steps * (place + 1) for place in range(config.stretches)]
    once = [f"{kind}_{quantity}" for kind in ("first", "noise") for quantity in QUANTITIES]
    found = sweep.labelled(
        found, "length", "rule", outputs=["loss"], length=lengths, rule=list(RULES)
    )
    found = sweep.labelled(
        found, "length", "watched", "matrix", outputs=QUANTITIES, watched=list(WATCHED)
    )
    return judged(config, sweep.labelled(found, "matrix", outputs=once, matrix=list(MATRICES)))


def judged(config: Config, data: xr.Dataset) -> xr.Dataset:
    """Results of later seeds at the first seeds' best step size by width and length; grid ends."""
    left = xr.ufuncs.log10(data["loss"] / data["start"])
    best = left.isel(seed=slice(config.choosing)).mean("seed").argmin("factor")
    left, rest = (each.isel(seed=slice(config.choosing, None)) for each in (left, data))
    of_watched = best.sel(rule=list(WATCHED)).rename(rule="watched")
    chosen = {
        "left": left.isel(factor=best),
        "left_at_ends": left.isel(factor=[0, -1]).min("factor"),
        "factor_chosen": data["factor"].isel(factor=best),
    }
    for quantity in QUANTITIES:
        chosen[quantity] = xr.ufuncs.log2(rest[quantity].isel(factor=of_watched))
        # Quantities that no step size changes are equal at all of them.
        chosen |= {
            name: xr.ufuncs.log2(rest[name].isel(factor=0))
            for name in (f"first_{quantity}", f"noise_{quantity}")
        }
    return xr.Dataset(
        {name: values.drop_vars("factor", errors="ignore") for name, values in chosen.items()}
    )


def loss(data: xr.Dataset, rule: str) -> xr.DataArray:
    """log10 of the share of the first loss that a rule leaves at the largest width."""
    return data["left"].sel(rule=rule, drop=True).isel(width=-1).rename(f"log₁₀ loss, {rule}")


def gap(data: xr.Dataset) -> xr.DataArray:
    """log10 of the loss of normalized rows over that of Muon, at every width."""
    rows, muon = (data["left"].sel(rule=rule, drop=True) for rule in ("rows", "muon"))
    return (rows - muon).rename("gap to Muon")


def per_doubling(data: xr.Dataset, name: str) -> xr.DataArray:
    """The exponent of a quantity between the smallest and the largest width, by seed."""
    values = data[name]
    doublings = np.log2(data["width"].values[-1] / data["width"].values[0])
    exponent = (values.isel(width=-1) - values.isel(width=0)) / doublings
    return exponent.rename(f"exponent of the {name}")


def replace_rule(rule: str, other: str) -> Callable[[Config, xr.Dataset], xr.Dataset]:
    """A control with the losses of another rule in the place of a rule's."""
    return lab.controls.replacing(
        "left", lambda data: lab.controls.at_labels(data["left"], "rule", {rule: other})
    )


def select_widths(name: str, places: int | slice) -> Callable[[Config, xr.Dataset], xr.Dataset]:
    """A control with a quantity at other widths."""
    return lab.controls.replacing(
        name, lambda data: lab.controls.at_places(data[name], "width", places)
    )


@states(
    "section-2-row-momentum",
    "Every rule has learned something at every width and length: less than a quarter of the first"
    " loss is left.",
    controls={"step size 0": lab.controls.replacing("left", 0.0)},
    along="length",
)
def learned(config: Config, data: xr.Dataset) -> lab.Relation:
    """What is left of the loss, of which its first value is 1."""
    return lab.below(data["left"], float(np.log10(LEARNED)), "a quarter of the first loss")


@states(
    "section-2-row-momentum",
    "At every width and length both ends of each rule's grid of step sizes train worse than the"
    " step size that was chosen.",
    controls={"the better end, chosen": lab.controls.replacing("left", "left_at_ends")},
    along="length",
    post_hoc=(
        "At the paper scale the best step size was an end of the grid, or not told from it by 24"
        " samples: in gradient descent at width 128, and after 1024 steps at width 16. A larger and"
        " a smaller one and more samples were added, and judged on fresh samples."
    ),
)
def step_sizes_inside(config: Config, data: xr.Dataset) -> lab.Relation:
    """In the samples that did not choose."""
    return lab.ahead(data["left_at_ends"], data["left"], least=0)


def muon_of_other_samples(config: Config, data: xr.Dataset) -> xr.Dataset:
    """A control with Muon on other seeds as normalized rows: no gap, but unpaired noise."""
    changed = replace_rule("rows", "muon")(config, data)["left"]
    return data.assign(left=changed.where(data["rule"] != "rows", changed.roll(seed=1)))


@states(
    "section-2-row-momentum",
    "At the largest width momentum with normalized rows reaches Muon's loss, up to a factor of 1.2,"
    " at every length.",
    controls={
        "Adam in its place": replace_rule("rows", "adam"),
        "Muon of other samples in its place": muon_of_other_samples,
    },
    along="length",
    holds=None,
)
def rows_reach_muon(config: Config, data: xr.Dataset) -> lab.Relation:
    """Each at its best step size, on the same batches."""
    return lab.below(gap(data).isel(width=-1), float(np.log10(SAME)), f"a factor of {SAME:g}")


@states(
    "section-2-row-momentum",
    "The gap of normalized rows to Muon shrinks with the width, at every length, so that they could"
    " match at scale.",
    controls={
        "the largest width at all of them": select_widths("left", -1),
        "widths exchanged": select_widths("left", slice(None, None, -1)),
    },
    along="length",
    holds=None,
)
def gap_shrinks_with_width(config: Config, data: xr.Dataset) -> lab.Relation:
    """Between the smallest and the largest width."""
    return lab.ahead(gap(data).isel(width=0), gap(data).isel(width=-1), least=0)


@states(
    "section-1-outperforms-small",
    "At the largest width Muon's loss is below that of Adam, which works entry by entry, by a"
    " factor of more than 1.2 at every length.",
    controls={"Adam in its place": replace_rule("muon", "adam")},
    along="length",
)
def muon_ahead_of_adam(config: Config, data: xr.Dataset) -> lab.Relation:
    """By a margin that is no noise of the grid."""
    return lab.ahead(loss(data, "adam"), loss(data, "muon"), least=float(np.log10(SAME)))


@states(
    "appendix-d-model-size",
    "Along the trainings of Muon and of normalized rows the ratio of off-diagonal to diagonal of V"
    " Vᵀ, averaged over the matrices of a network, falls with the width.",
    controls={"the ratio of the smallest width at all of them": select_widths("ratio", 0)},
    along="length",
)
def ratio_falls(config: Config, data: xr.Dataset) -> lab.Relation:
    """The geometric mean over matrices."""
    return lab.below(per_doubling(data, "ratio").mean("matrix"), 0.0, "no change with the width")


@states(
    "appendix-d-model-size",
    "The ratio of Gaussian noise of the same sizes falls with the width as well, in every matrix.",
    corrected=True,
    controls={"the ratio of the smallest width at all of them": select_widths("noise_ratio", 0)},
)
def ratio_of_noise_falls(config: Config, data: xr.Dataset) -> lab.Relation:
    """As 1/√width, so that a falling ratio is no sign of anything learned."""
    return lab.below(per_doubling(data, "noise_ratio"), 0.0, "no change with the width")


@states(
    "appendix-d-past-initialization",
    "In every matrix V Vᵀ stays as diagonal as at the first step: its ratio is at most 1.2 times"
    " that of the first gradient, at every length.",
    controls={"V of equal rows": lab.controls.replacing("ratio", 0.0)},
    along="length",
    holds=None,
)
def as_diagonal_as_at_first(config: Config, data: xr.Dataset) -> lab.Relation:
    """At the largest width."""
    change = (data["ratio"] - data["first_ratio"]).isel(width=-1)
    change = change.rename("log₂ ratio less that of the first gradient")
    return lab.below(change, float(np.log2(SAME)), f"a factor of {SAME:g}")


@states(
    "appendix-d-past-initialization",
    "In every matrix V with normalized rows approaches the polar factor of V as the width grows, at"
    " every length.",
    controls={
        "the ratio of noise in its place": lab.controls.replacing(
            "distance", lambda data: data["noise_ratio"] + 0 * data["distance"]
        )
    },
    along="length",
    holds=False,
)
def distance_falls(config: Config, data: xr.Dataset) -> lab.Relation:
    """The distance √(1 - cos²), under Muon and under normalized rows."""
    return lab.below(per_doubling(data, "distance"), 0.0, "no change with the width")


@states(
    "appendix-d-past-initialization",
    "At the largest width V with normalized rows is nearer to the polar factor in every matrix than"
    " Gaussian noise is, at every length.",
    controls={
        "half the distance of noise": lab.controls.replacing(
            "distance", lambda data: data["noise_distance"] - 1 + 0 * data["distance"]
        )
    },
    along="length",
    holds=False,
)
def nearer_than_noise(config: Config, data: xr.Dataset) -> lab.Relation:
    """Noise has learned nothing, and its rows are as independent as rows can be."""
    lead = (data["distance"] - data["noise_distance"]).isel(width=-1)
    lead = lead.rename("log₂ distance less that of noise")
    return lab.below(lead, 0.0, "the distance of noise")


def tables(config: Config, data: xr.Dataset) -> list[lab.Table]:
    """Tabulate losses with the chosen step sizes by width and length."""
    body = []
    for width in data["width"].values:
        for length in data["length"].values:
            at = data.sel(width=width, length=length)
            mean, stderr = sweep.mean_and_stderr(at["left"])
            cells = [
                f"{10 ** float(m):.3g} ± {10 ** float(m) * np.log(10) * float(e):.1g}"
                f" (×{float(f):g})"
                for m, e, f in zip(mean, stderr, at["factor_chosen"], strict=True)
            ]
            body.append((str(width), str(length), *cells))
    title = (
        "Share of the first loss that is left: geometric mean over samples, and the chosen factor"
        " of the step size"
    )
    return [lab.Table(title, ("width", "steps", *RULES), tuple(body))]


EXPERIMENT = lab.Experiment(
    "after-initialization",
    ledger("outer-product"),
    title="V Vᵀ and row normalization after initialization: ReLU networks, four optimizers",
    summary=(
        "Trained at their best step sizes, networks with normalized rows keep up with Muon to"
        " within a factor of 1.2 at first and fall behind as training goes on, to 3.4 times its"
        " loss at width 128; Adam is left far behind. The ratio of off-diagonal to diagonal of V Vᵀ"
        " falls with the width on average over the matrices, but that of Gaussian noise falls"
        " faster. Normalized rows do not approach the polar factor: their distance grows with the"
        " width, and is larger than that of noise in every matrix at every length."
    ),
    config=Config,
    measure=run,
    statements=states,
    scales={
        "quick": {"stretches": 3, "seeds": 20},
        "smoke": {
            "widths": (4, 6, 8),
            "seeds": 6,
            "choosing": 2,
            "stretches": 2,
            "steps": 12,
            "batch": 16,
        },
        "paper": {
            "seed": 3,
            "widths": (16, 32, 64, 128),
            "seeds": 48,
            "choosing": 6,
            "stretches": 8,
            "steps": 128,
            "factors": (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0),
        },
    },
    tables=tables,
)
