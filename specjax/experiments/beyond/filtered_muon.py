"""Trainings of two transformers by Muon with filters of singular values, at tuned rates."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import xarray as xr
from jaxtyping import Array, Float, Int, Key

from specjax import lab, optim, sizes, sweep, training
from specjax.models import recall, transformer
from specjax.models.recall import Recall
from specjax.models.transformer import Architecture, Sequences, Transformer
from specjax.spectral.tikhonov import filtered
from specjax.training import text


class Filter(NamedTuple):
    """s (s² + ℓ²)^-p for singular values over their median, and rates over the polar factor's."""

    share: float
    power: float
    rate: float


FILTERS = {
    "polar": Filter(0.0, 0.5, 1.0),
    "ℓ = 0.25": Filter(0.25, 1.0, 2.0),
    "ℓ = 0.5": Filter(0.5, 1.0, 1.5),
    "ℓ = 1": Filter(1.0, 1.0, 1.25),
    "small only": Filter(1.0, 0.5, 0.8),
    "gradient": Filter(0.0, 0.0, 0.5),
}
"""The polar factor, `spectral.Tikhonov` of three shares, s/√(s² + ℓ²), and no filter (large ℓ)."""
RIDGES = list(FILTERS)[1:4]
STRONG = RIDGES[
    1:
]  # With a quarter of the median, few seeds show no gain of the larger transformer.
LARGEST = 2 * float(np.log(text.VOCABULARY))
"""Losses are capped here, including those of diverged runs."""
Data = dict[str, xr.Dataset]


class Config(lab.Config):
    """Both tasks, the rates of the polar factor, and seeds."""

    seed: int = lab.config.root_seed(
        7, help="root of all randomness, a fresh one for what was changed"
    )
    items: int = lab.config.integer(16, least=2, help="recall: tokens of each vocabulary")
    recall_width: int = lab.config.integer(16, help="recall: residual stream d")
    recall_steps: tuple[int, ...] = lab.config.sizes(
        108, 144, points=2, most=lab.config.MOST_COUNT, help="recall: lengths of the trainings"
    )
    recall_rates: tuple[float, ...] = lab.config.numbers(
        0.02, 0.034, 0.058, 0.1, above=0, help="recall: grid of rates"
    )
    recall_seeds: int = lab.config.seeds(56, help="recall: samples that judge")
    gpt_width: int = lab.config.integer(24, help="GPT: residual stream d, of two heads")
    gpt_steps: tuple[int, ...] = lab.config.sizes(
        60, 100, points=2, most=lab.config.MOST_COUNT, help="GPT: lengths of the trainings"
    )
    gpt_rates: tuple[float, ...] = lab.config.numbers(
        0.008, 0.02, 0.05, 0.125, above=0, help="GPT: grid of rates"
    )
    gpt_seeds: int = lab.config.seeds(14, help="GPT: samples that judge")
    choosing: int = lab.config.integer(
        3, most=lab.config.MOST_COUNT, help="other samples of each, which choose the learning rates"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, rates in (("recall_rates", self.recall_rates), ("gpt_rates", self.gpt_rates)):
            if len(rates) < 3 or list(rates) != sorted(rates):
                raise ValueError(f"{name} needs 3 or more rates in ascending order, got {rates}.")
        if self.gpt_width % 2:
            raise ValueError(f"gpt_width must be even, for two heads, got {self.gpt_width}.")


class Task(NamedTuple):
    """Training data of a transformer, AdamW's rate for other leaves, and held-out sequences."""

    architecture: Architecture
    rate: float
    batch: Callable[[Key[Array, ""]], Sequences]
    held_out: Sequences


def recalling(config: Config, key: Key[Array, ""]) -> Task:
    """In-context recall: training outputs are skewed, i^-1.5, and held-out outputs uniform."""
    task = Recall(config.items, length=10)
    return Task(
        Architecture(
            task.vocabulary, config.recall_width, task.length, activation=None, project=False
        ),
        0.02,
        lambda key: recall.sample(key, task, 32, output_exponent=1.5),
        recall.sample(key, task, 128),
    )


def predicting(config: Config, key: Key[Array, ""]) -> Task:
    """The next byte of Python's own help; the validation text is fixed."""
    contents, context = text.load(), 32
    train = jnp.asarray(contents.train)
    return Task(
        Architecture(
            text.VOCABULARY,
            config.gpt_width,
            context,
            heads=2,
            activation="relu_squared",
            expansion=2,
        ),
        0.01,
        lambda key: Sequences(text.sample_batch(train, key, 8, context)),
        Sequences(jnp.asarray(text.stretches(contents.validation, 128, context))),
    )


def filtered_by(share: Array, power: Array, x: Float[Array, "m n"]) -> Float[Array, "m n"]:
    """A method of `optim.muon`."""
    return filtered(x, lambda s: s * (s**2 + share**2) ** -power)


def trained(
    key: Key[Array, ""], task: Task, steps: tuple[int, ...], share: Array, power: Array, rate: Array
) -> dict[str, Float[Array, " steps"]]:
    """Loss and accuracy of a training with one filter at one rate, after these steps."""
    muon = optim.jordan_muon(
        rate,
        beta=0.9,
        method=partial(filtered_by, share, power),
        scale="point_two_sqrt_max",
        muon_weight_dimension_numbers=optim.OUT_IN,
        labels=transformer.labels,
        fallback=optax.adamw(task.rate, 0.9, 0.99, weight_decay=0.0),
    )

    def batch(t: Int[Array, ""]) -> Sequences:
        return task.batch(jax.random.fold_in(sizes.stream(key, "batches"), t))

    def record(models: Transformer) -> dict[str, Array]:
        def evaluate(model: Transformer) -> dict[str, Array]:
            loss = transformer.loss(model, task.held_out)
            loss = jnp.where(loss < LARGEST, loss, LARGEST)  # NaN is not below
            return {"loss": loss, "accuracy": transformer.accuracy(model, task.held_out)}

        return jax.lax.map(evaluate, models)

    start = transformer.init(sizes.stream(key, "weights"), task.architecture)
    found, _ = training.train_many(transformer.loss, start, batch, [muon], steps, record)
    return {name: values[:, 0] for name, values in found.items()}


Cell = tuple[str, int]
"""A filter, and the index of its rate in the grid."""


def judged(
    make: Callable[[Config, Key[Array, ""]], Task],
    config: Config,
    steps: tuple[int, ...],
    rates: tuple[float, ...],
    num_seeds: int,
    key: Key[Array, ""],
) -> xr.Dataset:
    """Every filter at the rate of least mean loss for other seeds, and the index of that rate."""

    def measure(
        key: Key[Array, ""], share: Array, power: Array, by: Array, rate: Array
    ) -> dict[str, Array]:
        return trained(
            key, make(config, sizes.stream(key, "held out")), steps, share, power, by * rate
        )

    def runs(cells: list[Cell], num_seeds: int, name: str) -> xr.Dataset:
        points = [(*FILTERS[of], rates[place]) for of, place in cells]
        columns = dict(
            zip(("share", "power", "by", "rate"), zip(*points, strict=True), strict=True)
        )
        axis = sweep.zipped(**{name: sweep.values(*column) for name, column in columns.items()})
        found = lab.seeded_sweep(key, name, measure, num_seeds, cell=axis)
        return sweep.labelled(found.drop_vars(list(columns)), "step", step=list(steps))

    grid = [(of, place) for of in FILTERS for place in range(len(rates))]
    losses = (
        runs(grid, config.choosing, "choosing")["loss"]
        .mean("seed")
        .transpose("cell", "step")
        .values
    )
    best = losses.reshape(len(FILTERS), len(rates), len(steps)).argmin(1)
    wanted = sorted(
        {(of, int(place)) for of, row in zip(FILTERS, best, strict=True) for place in row}
    )
    found = runs(wanted, num_seeds, "judging")
    labels: dict[str, Any] = {"filter": list(FILTERS), "step": list(steps)}
    places = xr.DataArray(best, labels, ["filter", "step"])
    cells = [
        [wanted.index((of, int(place))) for place in row]
        for of, row in zip(FILTERS, best, strict=True)
    ]
    at_best = found[["loss", "accuracy"]].isel(
        cell=xr.DataArray(cells, dims=["filter", "step"]),
        step=xr.DataArray(range(len(steps)), dims="step"),
    )
    return at_best.reset_coords(drop=True).assign_coords(labels).assign(place=places)


def run(config: Config, key: Key[Array, ""]) -> Data:
    """Both tasks."""
    return {
        "recall": judged(
            recalling,
            config,
            config.recall_steps,
            config.recall_rates,
            config.recall_seeds,
            sizes.stream(key, "recall"),
        ),
        "gpt": judged(
            predicting,
            config,
            config.gpt_steps,
            config.gpt_rates,
            config.gpt_seeds,
            sizes.stream(key, "gpt"),
        ),
    }
