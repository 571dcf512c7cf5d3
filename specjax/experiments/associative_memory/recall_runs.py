"""The runs of the recall experiment: every dimension, distribution, batch and learning rate in one sweep, and the rates that are chosen.

The paper chooses the learning rate of the highest accuracy in each cell, and shows that accuracy: the largest of several noisy means is
too large. Here the first draws choose, and the others judge.
"""

from itertools import product
from typing import Any

import jax.numpy as jnp
import xarray as xr
from jaxtyping import Array, Key

from specjax import lab, sizes, sweep
from specjax.experiments.associative_memory.recall_training import OPTIMIZERS, Trained, moved_on, train
from specjax.models import recall, transformer
from specjax.models.recall import Recall
from specjax.models.transformer import Architecture
from specjax.sizes import AnySize, Size


class Config(lab.Config):
    """Sizes and grids. The paper gives T, K, M, the batch, the iterations and α_o = 1.5 of Figure 8; the rest is not in its text."""

    items: int = lab.integer(16, least=2, help="N, tokens of each vocabulary")
    length: int = lab.integer(10, help="T, tokens of a sequence")
    triggers: int = lab.integer(2, help="K, triggers of a sequence")
    repeats: int = lab.integer(2, least=2, help="M, times each appears")
    dims: tuple[int, ...] = lab.sizes(12, 16, least=2, points=2, help="widths d of the transformer")
    output_exponent: float = lab.number(1.5, above=0, help="α_o where outputs are skewed")
    trigger_exponent: float = lab.number(1.5, above=0, help="α_t where triggers are skewed")
    batches: tuple[int, ...] = lab.sizes(16, 32, points=2, help="sequences of a step, the last for all figures but 8")
    iterations: tuple[int, ...] = lab.sizes(128, 256, points=2, help="steps after which to evaluate")
    muon_rates: tuple[float, ...] = lab.numbers(0.03, above=0, help="learning rates of Muon")
    adamw_rates: tuple[float, ...] = lab.numbers(0.02, above=0, help="of AdamW, as many")
    sgd_rates: tuple[float, ...] = lab.numbers(0.1, above=0, help="of SGD, as many")
    evaluation: int = lab.integer(128, help="sequences of each evaluation")
    seeds: int = lab.seeds(16, help="draws of weights and batches that judge")
    choosing: int = lab.integer(1, help="further draws, which choose the learning rates")

    def __post_init__(self) -> None:
        super().__post_init__()
        Recall(self.items, self.length, self.triggers, self.repeats)
        if len({len(of) for of in self.rates}) > 1:
            raise ValueError(f"The three optimizers need as many learning rates each, got {self.rates}.")

    @property
    def rates(self) -> tuple[tuple[float, ...], ...]:
        """Of each optimizer."""
        return self.muon_rates, self.adamw_rates, self.sgd_rates

    @property
    def settings(self) -> dict[str, tuple[float, float, int]]:
        """(α_t, α_o, batch) of all that is trained."""
        largest = self.batches[-1]
        laws = {"uniform": (0.0, 0.0, largest), "triggers": (self.trigger_exponent, 0.0, largest)}
        return laws | {f"batch {batch}": (0.0, self.output_exponent, batch) for batch in self.batches}

    @property
    def skewed(self) -> str:
        """The setting of skewed outputs at the largest batch."""
        return f"batch {self.batches[-1]}"


def run(config: Config, key: Key[Array, ""]) -> dict[str, xr.Dataset]:
    """Accuracies and R(W_V) in the draws that judge, at the learning rates chosen; and what an induction head is right in."""
    task = Recall(config.items, config.length, config.triggers, config.repeats)

    def measure(
        key: Array, d: AnySize, trigger: Array, output: Array, sequences: Array, muon: Array, adamw: Array, sgd: Array
    ) -> dict[str, Array]:
        architecture = Architecture(task.vocabulary, d, config.length, activation=None, project=False)
        batch, lengths = Size(config.batches[-1], sequences), (config.iterations, config.evaluation)
        rates, exponents = jnp.stack([muon, adamw, sgd]), (trigger, output)
        return train(key, task, architecture, rates, batch, exponents, *lengths)._asdict()

    # One axis for all, since batched products of more than eight axes fail on a CPU (jaxlib 0.10).
    points = list(product(config.dims, config.settings.values(), zip(*config.rates, strict=True)))
    dims, settings, rates = zip(*points, strict=True)
    columns = (*zip(*settings, strict=True), *zip(*rates, strict=True))
    swept = dict(zip(("trigger", "output", "sequences", *OPTIMIZERS), columns, strict=True))
    cell = sweep.zipped(d=sweep.widths(*dims), **{name: sweep.values(*values) for name, values in swept.items()})
    seeds, of_trainings = config.choosing + config.seeds, sizes.stream(key, "trainings")
    # Hundreds of steps magnify rounding; that padding changes nothing is tested on a few.
    found = sweep.run(measure, {"cell": cell}, seeds=seeds, key=of_trainings, check_padding=False)
    return {"runs": judged(config, labelled(config, found)), "head": _head(config, task, sizes.stream(key, "head"))}


def labelled(config: Config, found: xr.Dataset) -> xr.Dataset:
    """The sweep with its cells taken apart, and everything named."""
    cells = {"d": list(config.dims), "setting": list(config.settings), "rate": list(range(len(config.muon_rates)))}
    records = {"seed": found["seed"].values, "iteration": [0, *config.iterations], "optimizer": list(OPTIMIZERS)}
    coords: dict[str, Any] = cells | records
    shape = [len(values) for values in coords.values()]
    arrays = {name: found[name].transpose("cell", "seed", ...).values.reshape(shape) for name in Trained._fields}
    return xr.Dataset({name: (list(coords), array) for name, array in arrays.items()}, coords)


def judged(config: Config, runs: xr.Dataset) -> xr.Dataset:
    """Runs at the learning rate of the highest OOD accuracy in the first draws of each cell and length, in the other draws."""
    best = runs["outside"].isel(seed=slice(config.choosing)).mean("seed").argmax("rate")
    chosen = runs.isel(seed=slice(config.choosing, None)).isel(rate=best)
    return chosen.drop_vars("rate").assign(rate=best)


def _head(config: Config, task: Recall, key: Key[Array, ""]) -> xr.Dataset:
    """One less the accuracy of an induction head, and of one whose items are moved on by one."""

    def measure(key: Array, trigger: Array, output: Array) -> dict[str, Array]:
        tokens = recall.sample(key, task, config.evaluation, trigger, output)
        head = recall.induction_head(task)
        models = {"error": head, "error_shuffled": moved_on(head, task)}
        return {name: 1 - transformer.accuracy(model, tokens) for name, model in models.items()}

    triggers, outputs = zip(*dict.fromkeys(setting[:2] for setting in config.settings.values()), strict=True)
    law = sweep.zipped(trigger=sweep.values(*triggers), output=sweep.values(*outputs))
    return sweep.run(measure, {"law": law}, seeds=config.seeds, key=key)
