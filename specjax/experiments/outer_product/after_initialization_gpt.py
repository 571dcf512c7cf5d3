"""A small GPT after initialization, on the bytes of a text: embedding, head, and every kind of matrix in its blocks.

The questions are those of `after_initialization`. Deng et al. (2026) report of GPT-2 and LLaMA that the diagonal of V Vᵀ outgrows its other
entries with the size of the model, and take that as the reason why normalized rows train as well as Muon. A matrix of Gaussian noise
does the same, and is measured beside.
"""

from dataclasses import dataclass, field

import jax
import numpy as np
from jaxtyping import Array
from matplotlib.figure import Figure

from specjax import sweep
from specjax.experiments.contract import Check, Data, Experiment, Table
from specjax.experiments.outer_product import after_initialization_analysis as analysis
from specjax.experiments.outer_product.after_initialization_problems import GPT_KINDS, GPT_TABLES, Texts, gpt
from specjax.experiments.outer_product.after_initialization_training import train
from specjax.experiments.validation import check_root_seed, check_sizes
from specjax.sizes import AnySize
from specjax.sweep.axes import Over
from specjax.training import text

SHOWN = ("value", "up")
"""The matrices that are drawn; the table has all of them."""
LIMIT = 50.0
"""A run has diverged where its loss is above this, in nats; bytes at random have 5.5."""


@dataclass(frozen=True)
class Config:
    """The text, the model, its widths, and the training runs."""

    text: str = field(default="", metadata={"help": "a text file; Python's own help if empty"})
    widths: tuple[int, ...] = field(default=(4, 8, 16, 24), metadata={"help": "residual stream d"})
    blocks: int = field(default=1, metadata={"help": "blocks"})
    context: int = field(default=16, metadata={"help": "bytes in a sequence"})
    batch: int = field(default=4, metadata={"help": "sequences of a step"})
    stretches: int = field(default=2, metadata={"help": "sequences of the validation text"})
    seeds: int = field(default=11, metadata={"help": "draws of weights and batches"})
    choosing: int = field(default=1, metadata={"help": "draws, of these, that choose the step sizes; the others judge"})
    records: tuple[int, ...] = field(default=(1, 32), metadata={"help": "steps after which V is measured"})
    momentum: float = field(default=0.95, metadata={"help": "β of the moving average V"})
    rates: tuple[float, ...] = field(
        default=(0.2, 0.1, 0.1, 0.1), metadata={"help": "step sizes of gd, adam, muon and rows, to be multiplied"}
    )
    factors: tuple[float, ...] = field(default=(0.0625, 0.25, 1.0, 4.0), metadata={"help": "their factors, ascending"})
    seed: int = field(default=0, metadata={"help": "seed of all draws"})

    def __post_init__(self) -> None:
        check_sizes("widths", self.widths, least=2, points=4)
        if min(self.blocks, self.context, self.stretches) < 1:
            raise ValueError(
                f"blocks, context and stretches must be at least 1, got {self.blocks}, {self.context} and {self.stretches}."
            )
        analysis.check_training(self)
        check_root_seed(self.seed)


def matrices(config: Config) -> list[str]:
    """The names of what is measured, in the order of the runs."""
    return [*(f"{kind} block {b}" for kind in GPT_KINDS for b in range(1, config.blocks + 1)), *GPT_TABLES]


def run(config: Config) -> Data:
    """Losses, ratios and errors of the four optimizers by width, step size, draw and record."""
    contents = text.load(config.text or None)
    held_out = text.stretches(contents.validation, config.stretches, config.context)
    texts = Texts(contents.train, held_out, config.context, config.batch)

    def measure(key: Array, width: AnySize, factor: Array) -> dict[str, Array]:
        problem = gpt(key, width, texts, blocks=config.blocks)
        rates = [rate * factor for rate in config.rates]
        return train(problem, rates, records=config.records, decay=config.momentum, limit=LIMIT)._asdict()

    over: Over = {"width": sweep.widths(*config.widths), "factor": sweep.values(*config.factors)}
    data = sweep.run(measure, over, seeds=config.seeds, key=jax.random.key(config.seed))
    labelled = analysis.labelled(data, config.records, matrices(config))
    return {"gpt": labelled.assign(entropy=((), np.asarray(text.unigram_entropy(contents.validation))))}


def checks(config: Config, data: Data) -> list[Check]:
    """Do ratio and distance vanish, at the first step and under each optimizer."""
    runs = analysis.judged(data["gpt"], config.choosing)
    return [
        *analysis.momentum_checks("gpt", "GPT", runs, GPT_KINDS),
        *analysis.distance_checks("gpt", "GPT", runs, GPT_KINDS),
    ]


def tables(config: Config, data: Data) -> list[Table]:
    """The momentum of every kind of matrix, and the losses."""
    runs = analysis.judged(data["gpt"], config.choosing)
    return [
        analysis.momentum_table("V of a GPT", runs),
        analysis.loss_table(
            f"Validation loss after {config.records[-1]} steps, in nats; {float(data['gpt']['entropy']):.2f} without context",
            runs,
        ),
    ]


def plot(config: Config, data: Data) -> Figure:
    """Ratio and distance of two kinds of matrices against the width, and the loss along training."""
    figure = Figure(figsize=(13, 7.5), layout="constrained")
    grid = figure.subplots(2, 3)
    runs = analysis.judged(data["gpt"], config.choosing)
    for row, kind in zip(grid, SHOWN, strict=True):
        for axes, quantity in zip(row, ("ratio", "error"), strict=False):
            analysis.draw_against_width(axes, runs, quantity, kind)
            axes.set_title(f"GPT: {kind}", fontsize="medium")
    analysis.draw_loss(grid[0][2], runs)
    grid[0][2].set_title("GPT: validation loss", fontsize="medium")
    analysis.draw_kinds(grid[1][2], runs, "error", "muon")
    grid[1][2].set_title(f"GPT, width {runs.widths[-1]:g}: under Muon", fontsize="medium")
    grid[0][0].legend(fontsize="x-small")
    return figure


EXPERIMENT = Experiment(
    name="after-initialization-gpt",
    paper="outer-product",
    source="outer-product, Appendix D (left open)",
    title="V Vᵀ and row normalization after initialization: a small GPT, four optimizers",
    summary=(
        "In the matrices of the blocks normalized rows move away from the polar factor as the model widens, after training by any of four "
        "optimizers as at the first step, and stay farther from it than those of Gaussian noise. The ratio does not fall in every "
        "matrix as that of independent rows."
    ),
    scales={
        "smoke": Config(factors=(1.0, 4.0)),
        "quick": Config(),
        "paper": Config(
            widths=(32, 64, 128, 256),
            blocks=2,
            context=128,
            batch=16,
            stretches=64,
            records=(1, 10, 30, 100, 300, 1000),
            factors=(0.25, 0.5, 1.0, 2.0, 4.0),
        ),
    },
    run=run,
    checks=checks,
    plot=plot,
    tables=tables,
    refuted=frozenset({f"gpt-{name}" for name in analysis.REFUTED}),
)
