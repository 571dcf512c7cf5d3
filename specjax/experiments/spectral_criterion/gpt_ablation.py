"""Table 2 in a small GPT: the share of Muon's gain over AdamW that Muon on W_out brings.

It is measured with and without a gate. All arms of a seed have the same weights and batches. Each
is judged at one learning rate, fixed before; some seeds have others too, and show whether it is
inside its grid. The fractions are ratios of mean gains without a cap.
"""

from collections.abc import Callable

import numpy as np
import xarray as xr
from jaxtyping import Array, Key
from matplotlib.figure import Figure

from specjax import lab, sizes, sweep
from specjax.experiments.ledgers import ledger
from specjax.experiments.spectral_criterion import gpt_runs
from specjax.experiments.spectral_criterion.gpt_runs import Cell
from specjax.lab.drawing import draw_beside

KINDS = {"non-gated": ("relu_squared", 3), "gated": ("swiglu", 2)}
"""Activations, and hidden units over d: both have 2·3 = 3·2 times d² weights."""
TABLE_2 = {"non-gated": (3.9242, 3.7023, 3.5654), "gated": (3.8837, 3.7843, 3.5125)}
"""Validation losses of Adam, Muon on W_out and Muon on all, as quoted in the paper."""
TUNED = ("adamw", "muon")
"""Muon has the same rate in all of its arms; AdamW beside it has that of its own arm."""
ARMS = ("adamw", "out", "muon")
Data = dict[str, xr.Dataset]


class Config(gpt_runs.Training):
    """Sizes, and a grid of rates for each arm, judged at the middle one."""

    width: int = lab.config.integer(48, help="residual stream d")
    steps: int = lab.config.integer(200, most=lab.config.MOST_COUNT, help="steps")
    records: int = lab.config.integer(
        2,
        least=2,
        most=lab.config.MOST_COUNT,
        help="equally long parts of a training, each of which ends with a record",
    )
    cooldown: int = lab.config.integer(
        30,
        least=1,
        most=lab.config.MOST_COUNT,
        help="further steps before a record in which the rates fall to zero",
    )
    stretches: int = lab.config.integer(
        128, most=lab.config.MOST_COUNT, help="sequences of the validation text"
    )
    adamw_rates: tuple[float, ...] = lab.config.grid(
        0.0012, 0.006, 0.03, count=3, help="of AdamW on the blocks"
    )
    muon_rates: tuple[float, ...] = lab.config.grid(
        0.002, 0.01, 0.05, count=3, help="of Muon, in all of its arms"
    )
    seeds: int = lab.config.seeds(2, help="samples at each rate")
    seed: int = lab.config.root_seed(
        3, help="root of all randomness; smaller ones were seen while sizes were chosen"
    )
    parts: int = lab.config.integer(
        6,
        most=lab.config.MOST_COUNT,
        help="times as many samples at the middle rate, which is judged",
    )

    def cell(self, arm: str, place: int, part: int) -> Cell:
        """A training with the rate of AdamW or of Muon at an index of its grid."""
        if arm == "adamw":
            return Cell(arm, self.adamw_rates[place], 0.0, part)
        return Cell(arm, self.adamw_rates[1], self.muon_rates[place], part)


def run(config: Config, key: Key[Array, ""]) -> Data:
    """By kind of perceptron, the judged losses, and the grids of rates as "…, grid"."""
    found = {}
    for kind, architecture in KINDS.items():
        arms = ARMS if kind == "gated" else (*ARMS, "embedded")
        judged = [config.cell(arm, 1, part) for arm in arms for part in range(config.parts)]
        ends = [config.cell(arm, place, 0) for arm in TUNED for place in (0, 2)]
        stream = sizes.stream(key, kind)
        runs = gpt_runs.run(
            config, stream, config.architecture(*architecture), [*judged, *ends], lambda *_: {}
        )
        trained = runs["loss"].transpose("cell", "seed", "step").values
        middle = trained[: len(judged)].reshape(len(arms), -1, config.records)
        outer = trained[len(judged) :].reshape(len(TUNED), 2, -1, config.records)
        inner = middle[[arms.index(arm) for arm in TUNED], : config.seeds]
        grid = np.stack([outer[:, 0], inner, outer[:, 1]], 1)
        found[kind] = xr.Dataset(
            {"loss": (("arm", "seed", "step"), middle)}, {"arm": list(arms), "step": runs["step"]}
        )
        found[f"{kind}, grid"] = xr.Dataset(
            {"loss": (("arm", "place", "seed", "step"), grid)},
            {"arm": list(TUNED), "step": runs["step"]},
        )
    return found


def stack_kinds(found: list[xr.DataArray], kinds: tuple[str, ...] = tuple(KINDS)) -> xr.DataArray:
    return xr.concat(found, xr.DataArray(list(kinds), dims="perceptron", name="perceptron"))


def losses(data: Data, arm: str) -> xr.DataArray:
    return stack_kinds([data[kind]["loss"].sel(arm=arm, drop=True) for kind in KINDS]).rename(arm)


def inside(relation: lab.Relation, data: Data, *kinds: str) -> lab.Relation:
    """The relation, unless a best rate is an end of its grid, for some or all kinds."""
    kinds = kinds or tuple(KINDS)
    grids = [data[f"{kind}, grid"]["loss"].mean("seed").argmin("place") for kind in kinds]
    return lab.within_grid(relation, stack_kinds(grids, kinds), 3)


def exchanging(first: str, second: str) -> Callable[[Config, Data], Data]:
    names = {first: second, second: first}

    def exchange_arms(found: xr.Dataset) -> xr.Dataset:
        return (
            lab.controls.at_labels(found, "arm", names)
            if set(names) <= set(found["arm"].values.tolist())
            else found
        )

    return lambda config, data: {name: exchange_arms(found) for name, found in data.items()}


def _toward(data: Data, other: dict[str, str], share: float, *kinds: str) -> Data:
    return data | {kind: lab.controls.toward(data[kind], "arm", other, share) for kind in kinds}


def _replaced(data: Data, arm: str, other: str) -> Data:
    """The losses of another arm in the place of one, where there is one."""
    return data | {
        kind: lab.controls.at_labels(data[kind], "arm", {arm: other})
        for kind in KINDS
        if arm in data[kind]["arm"]
    }


def _noise(_: Config, data: Data) -> Data:
    """Judged losses in random order, over arms, samples and lengths."""
    return data | {kind: lab.controls.shuffling("loss")(_, data[kind]) for kind in KINDS}


def _last(data: Data) -> Data:
    return {name: found.isel(step=-1, drop=True) for name, found in data.items()}


states = lab.Statements()
NOISE = {"noise of the same mean": _noise}
OTHER_WAY = {
    "the kinds exchanged": (
        lambda _, data: data | {"gated": data["non-gated"], "non-gated": data["gated"]}
    )
}
WHOLE = {
    "Muon on all": lab.controls.changing(
        lambda found: lab.controls.at_labels(found, "arm", {"out": "muon"}), of="non-gated"
    )
}
HALFWAY = {
    "W_out half of the way to Muon on all": lambda _, data: _toward(
        data, {"out": "muon"}, 0.5, *KINDS
    )
}
AS_IN_TABLE_2 = {
    "fractions of 0.4 and 0": lambda _, data: _toward(
        _replaced(data, "out", "adamw"), {"out": "muon"}, 0.4, "non-gated"
    )
}
EMBEDDED = {
    "AdamW on all": exchanging("adamw", "embedded"),
    "a change of 3/5 of Muon's gain": lambda _, data: _toward(
        _replaced(data, "embedded", "muon"), {"embedded": "adamw"}, 0.6, "non-gated"
    ),
}
MINOR = (
    "Stated after a run of another seed that left open whether W_out alone gains, and which"
    " fraction is larger."
)
CHANGED = (
    "Sizes, samples and the grids of rates were changed after runs that decided nothing; judged on"
    " a fresh seed."
)


@states(
    "section-1-3-muon",
    along="step",
    controls={"the two exchanged": exchanging("adamw", "muon")} | NOISE,
    post_hoc=CHANGED,
)
def muon_is_ahead(config: Config, data: Data) -> lab.Relation:
    """At this size too Muon on the blocks comes to a lower validation loss than AdamW, each at its
    best rate, at both lengths.
    """
    return inside(lab.ahead(losses(data, "adamw"), losses(data, "muon"), least=0), data)


@states(
    "table-2",
    holds=None,
    controls={"the two exchanged": exchanging("adamw", "out")} | NOISE,
    post_hoc=CHANGED,
)
def out_gains(config: Config, data: Data) -> lab.Relation:
    """Muon on W_out alone, AdamW on the other matrices, comes to a lower validation loss than AdamW
    on all, with and without a gate.
    """
    last = _last(data)
    return inside(lab.ahead(losses(last, "adamw"), losses(last, "out"), least=0), last)


def fraction(data: Data, kind: str) -> xr.DataArray:
    """The share of Muon's final gain that W_out alone brings, linearized by seed."""
    last = data[kind]["loss"].isel(step=-1, drop=True)
    adamw, out, muon = (last.sel(arm=arm, drop=True) for arm in ARMS)
    whole = (adamw - muon).mean("seed")
    ratio = (adamw - out).mean("seed") / whole
    return (ratio + (adamw - out - ratio * (adamw - muon)) / whole).rename(f"fraction, {kind}")


@states("table-2", holds=None, controls=OTHER_WAY | NOISE, post_hoc=CHANGED)
def fractions(config: Config, data: Data) -> lab.Relation:
    """Of what Muon on all matrices gains, W_out alone brings a larger fraction without a gate than
    with one.
    """
    return inside(
        lab.ahead(fraction(data, "non-gated"), fraction(data, "gated"), least=0), _last(data)
    )


@states(
    "table-2",
    elsewhere=True,
    controls={"AdamW and Muon exchanged": exchanging("adamw", "muon")} | HALFWAY,
    post_hoc=MINOR,
)
def out_brings_less(config: Config, data: Data) -> lab.Relation:
    """At this size W_out alone brings less than half of what Muon on all matrices gains, without a
    gate too, where Table 2 has more.
    """
    both = stack_kinds([fraction(data, kind).rename("fraction") for kind in KINDS])
    return inside(lab.below(both, 0.5, "half"), _last(data))


@states("table-2", elsewhere=True, holds=None, controls=WHOLE | AS_IN_TABLE_2, post_hoc=MINOR)
def fractions_are_nearer(config: Config, data: Data) -> lab.Relation:
    """At this size the fraction without a gate is larger than that with one by less than in Table
    2, where it is 0.35.
    """
    apart = (fraction(data, "non-gated") - fraction(data, "gated")).rename(
        "fraction without a gate less with one"
    )
    return inside(lab.below(apart, 0.35, "Table 2's 0.35"), _last(data))


@states(
    "section-1-2-1-embedding-muon", along="step", holds=None, controls=EMBEDDED, post_hoc=CHANGED
)
def embedding_changes_little(config: Config, data: Data) -> lab.Relation:
    """Muon on the embedding as well changes the validation loss only slightly, by less than half of
    what Muon on the blocks gains over AdamW, at both lengths.
    """
    adamw, muon, embedded = (
        data["non-gated"]["loss"].sel(arm=arm, drop=True) for arm in ("adamw", "muon", "embedded")
    )
    either = xr.DataArray([1.0, -1.0], {"direction": ["up", "down"]}, "direction")
    beyond = either * (embedded - muon) - (adamw - muon) / 2
    return inside(
        lab.below(beyond.rename("change less half of Muon's gain"), 0, "0"), data, "non-gated"
    )


def tables(config: Config, data: Data) -> list[lab.Table]:
    """Tabulate the paper's columns of Table 2 beside ours."""
    rows = []
    for kind, quoted in TABLE_2.items():
        ours = (
            f"{float(loss):.3f}"
            for loss in _last(data)[kind]["loss"].sel(arm=list(ARMS)).mean("seed")
        )
        mean, stderr = map(float, sweep.mean_and_stderr(fraction(data, kind)))
        paper = (quoted[0] - quoted[1]) / (quoted[0] - quoted[2])
        share = f"{mean:.2f} ± {4 * stderr:.2f}"
        rows.append((kind, *ours, share, *(f"{loss:.4f}" for loss in quoted), f"{paper:.2f}"))
    heads = ("AdamW", "Muon on W_out", "Muon on all", "fraction")
    title = (
        f"Table 2: validation loss after {config.steps} steps, nats a byte,"
        f" {config.seeds * config.parts} samples"
    )
    return [
        lab.Table(
            title, ("perceptrons", *heads, *(f"{head}, paper" for head in heads)), tuple(rows)
        )
    ]


SHOWN = {"out": "W_out", "muon": "all matrices", "embedded": "embedding too"}


def figure(config: Config, data: Data) -> Figure:
    """Plot the gain over AdamW of Muon's arms, with bars of four standard errors."""
    drawn = Figure(figsize=(10, 4.0), layout="constrained")
    for axes, kind in zip(drawn.subplots(1, 2, sharey=True), KINDS, strict=True):
        loss = data[kind]["loss"]
        arms = [arm for arm in SHOWN if arm in loss["arm"]]
        gains = loss.sel(arm="adamw", drop=True) - loss.sel(arm=arms)
        gains = gains.assign_coords(arm=[SHOWN[arm] for arm in arms])
        draw_beside(axes, gains, "arm", "step", "after {} steps".format)
        axes.axhline(0, color="black", linewidth=0.8, label="AdamW on all")
        axes.set(title=f"{kind} perceptrons", xlabel="matrices that Muon updates")
        axes.label_outer()
    drawn.axes[0].set_ylabel("validation loss below AdamW's, nats a byte")
    drawn.axes[0].legend(fontsize="small")
    return drawn


EXPERIMENT = lab.Experiment(
    "gpt-ablation",
    ledger("spectral-criterion"),
    title=(
        "Muon on W_out alone, on all matrices and on the embedding, in a GPT with and without a"
        " gate"
    ),
    summary=(
        "At this size Muon gains over AdamW, and W_out alone brings less than a tenth of it, with a"
        " gate and without."
    ),
    config=Config,
    measure=run,
    statements=states,
    tables=tables,
    figure=figure,
    scales={
        # Sizes, rates and seeds were chosen by runs with smaller seeds; 12 seeds left the effect of
        # Muon on the embedding open.
        "quick": {"seed": 10, "parts": 8},
        "smoke": {
            "width": 16,
            "blocks": 1,
            "heads": 1,
            "context": 16,
            "batch": 4,
            "steps": 40,
            "cooldown": 10,
            "stretches": 32,
        },
        "paper": {
            "seed": 8,
            "width": 256,
            "blocks": 4,
            "heads": 4,
            "context": 256,
            "batch": 32,
            "steps": 2000,
            "cooldown": 500,
            "adamw_rates": (0.0006, 0.003, 0.015),
            "muon_rates": (0.0012, 0.006, 0.03),
            "seeds": 4,
            "parts": 8,
        },
    },
)
