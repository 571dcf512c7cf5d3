"""Deep ReLU networks after initialization: how far V Vᵀ is from diagonal, and normalized rows from the polar factor of V.

The paper proves its statements at initialization and leaves training and depth open; Deng et al. (2026) report that the equivalence holds
throughout training because the diagonal of V Vᵀ outgrows its other entries with the size of the model. Here four optimizers train networks
of four layers on the same batches, with inputs and outputs of fixed sizes and with sizes that grow with the width.
"""

from dataclasses import dataclass, field

import jax
from jaxtyping import Array
from matplotlib.figure import Figure

from specjax import sweep
from specjax.experiments.contract import Check, Data, Experiment, Table
from specjax.experiments.outer_product import after_initialization_analysis as analysis
from specjax.experiments.outer_product.after_initialization_problems import RELU_MATRICES, relu_network
from specjax.experiments.outer_product.after_initialization_training import train
from specjax.experiments.outer_product.layers import D_IN, D_OUT
from specjax.experiments.validation import check_root_seed, check_sizes
from specjax.sizes import AnySize
from specjax.sweep.axes import Over

REGIMES = {"fixed": f"{D_IN} inputs and {D_OUT} outputs", "growing": "as many inputs and outputs as half the width"}
SHOWN = "hidden 2"
"""The matrix that is drawn; the table has all of them."""
COMPARED = "growing"
"""The regime whose losses are judged: in the other, those of Muon and of normalized rows are too close to be told apart or called equal."""
SAME = 1.2
"""Losses no further apart than this factor count as the same."""
HIDDEN = ("hidden 1", "hidden 2")
LIMIT = 10.0
"""A run has diverged where its loss is above this; a network that is zero has 1/2."""


@dataclass(frozen=True)
class Config:
    """Widths, draws, and the training runs."""

    widths: tuple[int, ...] = field(default=(8, 16, 32, 64), metadata={"help": "hidden units of every layer, even"})
    seeds: int = field(default=18, metadata={"help": "draws of weights, target and data"})
    choosing: int = field(default=3, metadata={"help": "draws, of these, that choose the step sizes; the others judge"})
    records: tuple[int, ...] = field(default=(1, 16, 64), metadata={"help": "steps after which V is measured"})
    batch: int = field(default=64, metadata={"help": "inputs of a step"})
    momentum: float = field(default=0.95, metadata={"help": "β of the moving average V"})
    rates: tuple[float, ...] = field(
        default=(12.0, 0.15, 0.1, 0.06), metadata={"help": "step sizes of gd, adam, muon and rows, to be multiplied"}
    )
    factors: tuple[float, ...] = field(default=(0.25, 0.5, 1.0, 2.0), metadata={"help": "their factors, ascending"})
    seed: int = field(default=0, metadata={"help": "seed of all draws"})

    def __post_init__(self) -> None:
        check_sizes("widths", self.widths, least=max(D_IN, D_OUT), points=4)
        if any(width % 2 for width in self.widths):
            raise ValueError(f"widths must be even, since half of them are inputs, got {self.widths}.")
        analysis.check_training(self)
        check_root_seed(self.seed)


def run(config: Config) -> Data:
    """Losses, ratios and errors of the four optimizers by size, step size, draw and record; both regimes in one sweep."""

    def measure(key: Array, width: AnySize, d_in: AnySize, d_out: AnySize, factor: Array) -> dict[str, Array]:
        problem = relu_network(key, width, d_in, d_out, batch=config.batch, steps=config.records[-1])
        rates = [rate * factor for rate in config.rates]
        return train(problem, rates, records=config.records, decay=config.momentum, limit=LIMIT)._asdict()

    widths, count = config.widths, len(config.widths)
    halves = [width // 2 for width in widths]
    points = sweep.zipped(
        width=sweep.widths(*widths, *widths),
        d_in=sweep.widths(*[D_IN] * count, *halves),
        d_out=sweep.widths(*[D_OUT] * count, *halves),
    )
    over: Over = {"point": points, "factor": sweep.values(*config.factors)}
    data = sweep.run(measure, over, seeds=config.seeds, key=jax.random.key(config.seed))
    data = analysis.labelled(data, config.records, RELU_MATRICES)
    return {
        regime: data.isel(point=slice(i * count, (i + 1) * count)).swap_dims(point="width")
        for i, regime in enumerate(REGIMES)
    }


def checks(config: Config, data: Data) -> list[Check]:
    """Per regime: do ratio and distance vanish, at the first step and under each optimizer; who ends with the lower loss."""
    results = []
    for regime, words in REGIMES.items():
        runs = analysis.judged(data[regime], config.choosing)
        results += analysis.momentum_checks(regime, f"ReLU networks of {words}", runs, HIDDEN)
        results += analysis.distance_checks(regime, f"ReLU networks of {words}", runs, HIDDEN)
        results.append(analysis.nearer_check(regime, f"ReLU networks of {words}", runs, HIDDEN))
        if regime == COMPARED:
            where = f"ReLU networks of {words}, {config.records[-1]} steps"
            results.append(analysis.loss_check(regime, where, runs, same=SAME))
    return results


def tables(config: Config, data: Data) -> list[Table]:
    """The momentum of every layer, and the losses, per regime."""
    found = []
    for regime, words in REGIMES.items():
        runs = analysis.judged(data[regime], config.choosing)
        found += [
            analysis.momentum_table(f"V of ReLU networks, {words}", runs),
            analysis.loss_table(f"Held-out loss after {config.records[-1]} steps, {words}", runs),
        ]
    return found


def plot(config: Config, data: Data) -> Figure:
    """A row for each regime: ratio and distance of the second hidden matrix against the width, and the loss along training."""
    figure = Figure(figsize=(13, 7.5), layout="constrained")
    rows = figure.subplots(len(REGIMES), 3)
    for row, (regime, words) in zip(rows, REGIMES.items(), strict=True):
        runs = analysis.judged(data[regime], config.choosing)
        for axes, quantity in zip(row, ("ratio", "error"), strict=False):
            analysis.draw_against_width(axes, runs, quantity, SHOWN)
            axes.set_title(f"{words}: {SHOWN}", fontsize="medium")
        analysis.draw_loss(row[2], runs)
        row[2].set_title(f"{words}: loss", fontsize="medium")
    rows[0][0].legend(fontsize="x-small")
    return figure


EXPERIMENT = Experiment(
    name="after-initialization",
    paper="outer-product",
    source="outer-product, Appendix D (left open)",
    title="V Vᵀ and row normalization after initialization: deep ReLU networks, four optimizers",
    summary=(
        "The ratio does not fall with the width as that of independent rows, neither at the first step nor after training by any of "
        "four optimizers, and in hidden layers normalized rows move away from the polar factor as the width grows. Training brings "
        "them nearer, but they stay farther from it than those of Gaussian noise, whose ratio does vanish: a small ratio is no sign of "
        "a small distance. Normalized rows train nearly as well as Muon where inputs and outputs stay few, for another reason "
        "then, and less well where these grow."
    ),
    scales={
        "smoke": Config(widths=(8, 12, 16, 24), seeds=21, choosing=1, records=(1, 24), batch=16, factors=(0.5, 1.0)),
        "quick": Config(),
        "paper": Config(widths=(16, 32, 64, 128, 256), seeds=40, choosing=8, records=(1, 10, 30, 100, 300, 1000)),
    },
    run=run,
    checks=checks,
    plot=plot,
    tables=tables,
    refuted=frozenset(
        {f"{regime}-{name}" for regime in REGIMES for name in analysis.REFUTED} | {"growing-rows-train-like-muon"}
    ),
)
