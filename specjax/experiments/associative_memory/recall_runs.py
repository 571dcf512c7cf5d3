"""The grid of the recall experiment: dimensions, distributions, batch sizes and learning rates, all in one sweep."""

from dataclasses import dataclass, field
from itertools import product
from math import gcd

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array

from specjax import sizes, sweep
from specjax.experiments.associative_memory import recall_training
from specjax.experiments.associative_memory.recall_training import OPTIMIZERS, Trained
from specjax.experiments.contract import Data
from specjax.experiments.validation import check_root_seed, check_sizes
from specjax.models import recall
from specjax.models.recall import Recall
from specjax.models.transformer import Architecture
from specjax.sizes import AnySize, Size

ACTIVATIONS = {"attention": None, "perceptrons": "relu"}
"""Of the two architectures: attention only, and with a ReLU perceptron in every block."""
LEAST_SEEDS = 4


@dataclass(frozen=True)
class Config:
    """Sizes and grids. The paper gives T, K, M, the batch, the iterations and α_o = 1.5 of Figure 8; the rest is not in its text."""

    items: int = field(default=16, metadata={"help": "N, tokens of each vocabulary"})
    length: int = field(default=16, metadata={"help": "T, tokens of a sequence"})
    triggers: int = field(default=2, metadata={"help": "K, triggers of a sequence"})
    repeats: int = field(default=2, metadata={"help": "M, times each appears"})
    architectures: tuple[str, ...] = field(default=("attention",), metadata={"help": "attention, perceptrons, or both"})
    dims: tuple[int, ...] = field(default=(8, 12, 16), metadata={"help": "widths d of the transformer"})
    output_exponents: tuple[float, ...] = field(
        default=(0.0, 1.5), metadata={"help": "α_o from 0 up; the second is that of Figures 7 and 8"}
    )
    trigger_exponents: tuple[float, ...] = field(default=(0.0, 1.5), metadata={"help": "α_t from 0 up"})
    batches: tuple[int, ...] = field(
        default=(32,), metadata={"help": "sequences of a step, the last for all figures, the others for Figure 8"}
    )
    iterations: tuple[int, ...] = field(default=(128, 256), metadata={"help": "steps after which to evaluate"})
    muon_rates: tuple[float, ...] = field(default=(0.01, 0.03, 0.1, 0.3), metadata={"help": "learning rates of Muon"})
    adamw_rates: tuple[float, ...] = field(default=(0.003, 0.01, 0.03, 0.1), metadata={"help": "of AdamW, as many"})
    sgd_rates: tuple[float, ...] = field(default=(0.03, 0.1, 0.3, 1.0), metadata={"help": "of SGD, as many"})
    evaluation: int = field(default=128, metadata={"help": "sequences of each evaluation"})
    seeds: int = field(default=6, metadata={"help": "initializations, even: halves choose rates for each other"})
    seed: int = field(default=0, metadata={"help": "seed of weights and sequences"})

    def __post_init__(self) -> None:
        Recall(self.items, self.length, self.triggers, self.repeats)
        if not self.architectures or not set(self.architectures) <= set(ACTIVATIONS):
            raise ValueError(f"architectures are {' and '.join(ACTIVATIONS)}, got {self.architectures}.")
        check_sizes("dims", self.dims, least=2, points=2)
        check_sizes("batches", self.batches, least=1, points=1)
        check_sizes("iterations", self.iterations, least=1, points=1)
        for name in ("output_exponents", "trigger_exponents"):
            exponents = np.asarray(getattr(self, name), float)
            if len(exponents) < 2 or exponents[0] != 0 or not np.all(np.diff(exponents) > 0) or exponents[-1] == np.inf:
                raise ValueError(
                    f"{name} need 0, uniform, and larger ones in ascending order, got {getattr(self, name)}."
                )
        rates = self.rates
        if (
            len({len(of) for of in rates}) > 1
            or not all(0 < rate < np.inf for of in rates for rate in of)
            or not rates[0]
        ):
            raise ValueError(f"The three optimizers need as many positive learning rates each, got {rates}.")
        if self.evaluation < 1:
            raise ValueError(f"evaluation must be at least 1 sequence, got {self.evaluation}.")
        if self.seeds < LEAST_SEEDS or self.seeds % 2:
            raise ValueError(f"seeds must be even and at least {LEAST_SEEDS}, for two halves, got {self.seeds}.")
        check_root_seed(self.seed)

    @property
    def rates(self) -> tuple[tuple[float, ...], ...]:
        """Of each optimizer."""
        return self.muon_rates, self.adamw_rates, self.sgd_rates

    @property
    def settings(self) -> list[tuple[float, float, int]]:
        """(α_t, α_o, batch) of all that is trained: each exponent alone at the last batch, and the other batches at one α_o."""
        batch, shown = self.batches[-1], self.output_exponents[1]
        laws = [(0.0, float(output), batch) for output in self.output_exponents]
        laws += [(float(trigger), 0.0, batch) for trigger in self.trigger_exponents[1:]]
        return laws + [(0.0, float(shown), other) for other in self.batches[:-1]]

    def setting(self, trigger_exponent: float = 0.0, output_exponent: float = 0.0, batch: int | None = None) -> int:
        """Its place among the settings; by default uniform, and of the last batch."""
        wanted = (float(trigger_exponent), float(output_exponent), self.batches[-1] if batch is None else batch)
        return self.settings.index(wanted)


def run(config: Config) -> Data:
    """Accuracies and memory recall of every run, and the accuracy of the oracle on the sequences of evaluation, by architecture."""
    every = gcd(*config.iterations)
    records = np.asarray(config.iterations) // every - 1
    task = Recall(config.items, config.length, config.triggers, config.repeats)
    # One axis for all, since batched products of more than eight axes fail on a CPU (jaxlib 0.10).
    cells = list(product(config.dims, config.settings, zip(*config.rates, strict=True)))
    dims, settings, rates = zip(*cells, strict=True)
    trigger_exponents, output_exponents, batches = zip(*settings, strict=True)
    cell = sweep.zipped(
        d=sweep.widths(*dims),
        trigger_exponent=sweep.values(*trigger_exponents),
        output_exponent=sweep.values(*output_exponents),
        sequences=sweep.values(*batches),
        **{f"{name}_rate": sweep.values(*of) for name, of in zip(OPTIMIZERS, zip(*rates, strict=True), strict=True)},
    )
    results = {}
    for architecture in config.architectures:

        def measure(
            key: Array,
            d: AnySize,
            trigger_exponent: Array,
            output_exponent: Array,
            sequences: Array,
            muon_rate: Array,
            adamw_rate: Array,
            sgd_rate: Array,
            architecture: str = architecture,
        ) -> dict[str, Array]:
            trained = recall_training.train(
                key,
                task,
                Architecture(task.vocabulary, d, config.length, activation=ACTIVATIONS[architecture], project=False),
                jnp.stack([muon_rate, adamw_rate, sgd_rate]),
                Size(max(config.batches), sequences),
                exponents=(trigger_exponent, output_exponent),
                records=int(records[-1]) + 1,
                every=every,
                evaluation=config.evaluation,
            )
            return {name: values[jnp.asarray(records)] for name, values in trained._asdict().items()}

        runs = sweep.run(measure, {"cell": cell}, seeds=config.seeds, key=jax.random.key(config.seed))
        results[architecture] = _labelled(runs, config)
    results["task"] = _oracle(config, task)
    return results


def _oracle(config: Config, task: Recall) -> xr.Dataset:
    """How often the best prediction is right, on as many sequences as are evaluated."""

    def measure(key: Array, trigger_exponent: Array, output_exponent: Array) -> dict[str, Array]:
        tokens, counted = recall.sample(key, task, config.evaluation, trigger_exponent, output_exponent)
        assert counted is not None
        right = jax.vmap(recall.oracle)(tokens)[:, :-1] == tokens[:, 1:]
        return {"oracle": jnp.sum(right & counted) / jnp.sum(counted)}

    laws = list(dict.fromkeys((trigger, output) for trigger, output, _ in config.settings))
    triggers, outputs = zip(*laws, strict=True)
    law = sweep.zipped(trigger_exponent=sweep.values(*triggers), output_exponent=sweep.values(*outputs))
    return sweep.run(measure, {"law": law}, seeds=config.seeds, key=sizes.stream(jax.random.key(config.seed), "oracle"))


def _labelled(runs: xr.Dataset, config: Config) -> xr.Dataset:
    """The dataset with its axes taken apart and named."""
    extents = {"d": len(config.dims), "setting": len(config.settings), "rate": len(config.rates[0])}
    named = {}
    for name in (*Trained._fields, "failed"):
        values = runs[name].transpose("cell", "seed", ...).values
        axes = (*extents, "seed", "iteration", "optimizer")[: values.ndim + 2]
        named[name] = (axes, values.reshape(*extents.values(), *values.shape[1:]))
    coords = {"d": list(config.dims), "seed": runs["seed"].values} | _names(config)
    return xr.Dataset(named, coords=coords, attrs=runs.attrs)


def _names(config: Config) -> dict[str, list | tuple]:
    settings = zip(("trigger_exponent", "output_exponent", "batch"), zip(*config.settings, strict=True), strict=True)
    rates = zip(OPTIMIZERS, config.rates, strict=True)
    return {
        "iteration": list(config.iterations),
        "optimizer": list(OPTIMIZERS),
        **{name: ("setting", list(values)) for name, values in settings},
        **{f"{name}_rate": ("rate", list(values)) for name, values in rates},
    }
