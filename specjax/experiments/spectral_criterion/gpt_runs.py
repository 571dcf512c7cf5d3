"""A small GPT on the bytes of a text, trained by AdamW and by Muon: losses, and the ranks of Table 1 along the way."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import xarray as xr
from jax.sharding import Mesh
from jaxtyping import Array, Int
from tqdm import tqdm

from specjax import optim, training
from specjax.experiments.validation import check_root_seed
from specjax.models import transformer
from specjax.models.transformer import Architecture, Sequences, Transformer
from specjax.spectral.squaring import stable_rank_above
from specjax.training import text

OPTIMIZERS = ("adamw", "muon")
ENDS = ("embedding", "head")
LEAST_STRETCHES = 8
"""Of validation, below which their mean loss has no standard error to speak of."""


@dataclass(frozen=True)
class Config:
    """A text, a model, a training, and how often it is looked at."""

    text: str = field(default="", metadata={"help": "a text file; Python's own help if empty"})
    width: int = field(default=128, metadata={"help": "residual stream d"})
    blocks: int = field(default=4, metadata={"help": "blocks"})
    heads: int = field(default=4, metadata={"help": "heads of every attention"})
    activation: str = field(default="relu_squared", metadata={"help": "of the perceptrons, 4d hidden units wide"})
    context: int = field(default=64, metadata={"help": "bytes in a sequence"})
    batch: int = field(default=16, metadata={"help": "sequences in a batch"})
    microbatches: int = field(default=1, metadata={"help": "parts of a batch whose gradients are accumulated"})
    steps: int = field(default=400, metadata={"help": "steps"})
    every: int = field(default=40, metadata={"help": "steps from one record, and checkpoint, to the next"})
    schedule: str = field(default="cosine", metadata={"help": "of the learning rates: cosine or constant"})
    adamw_rate: float = field(default=3e-3, metadata={"help": "learning rate of AdamW, also beside Muon"})
    muon_rate: float = field(default=0.02, metadata={"help": "learning rate of Muon on the matrices of the blocks"})
    stretches: int = field(default=64, metadata={"help": "sequences of the validation text"})
    checkpoints: str = field(
        default="", metadata={"help": "folder to store the trainings in and go on from; none if empty"}
    )
    seed: int = field(default=0, metadata={"help": "seed of weights and batches"})

    def __post_init__(self) -> None:
        self.architecture  # noqa: B018  refuses what is no transformer
        if self.schedule not in ("cosine", "constant"):
            raise ValueError(f"The schedule is cosine or constant, got {self.schedule!r}.")
        if self.every < 1 or self.steps < 2 * self.every or self.steps % self.every:
            raise ValueError(
                f"steps must be a multiple of every, at least twice it, got {self.steps} and {self.every}."
            )
        if self.batch < 1 or self.microbatches < 1 or self.batch % self.microbatches:
            raise ValueError(f"microbatches must divide the batch, got {self.microbatches} and {self.batch}.")
        if not min(self.adamw_rate, self.muon_rate) > 0:
            raise ValueError(f"Learning rates must be positive, got {self.adamw_rate} and {self.muon_rate}.")
        if self.stretches < LEAST_STRETCHES:
            raise ValueError(
                f"stretches must be at least {LEAST_STRETCHES}, for a standard error, got {self.stretches}."
            )
        check_root_seed(self.seed)

    @property
    def architecture(self) -> Architecture:
        """The transformer."""
        return Architecture(text.VOCABULARY, self.width, self.context, self.blocks, self.heads, self.activation)


def matrices(model: Transformer) -> list[str]:
    """The names of the matrices in a block."""
    return [name for name, leaf in vars(model.blocks).items() if leaf is not None]


def optimizers(config: Config) -> dict[str, optax.GradientTransformation]:
    """AdamW on everything, and Muon on the matrices of the blocks with the same AdamW on the rest."""

    def rate(peak: float) -> Callable[[Array], Array] | float:
        return optax.cosine_decay_schedule(peak, config.steps) if config.schedule == "cosine" else peak

    adamw = optax.adamw(rate(config.adamw_rate), b2=0.95)
    muon = optim.muon(rate(config.muon_rate), labels=transformer.labels, dimension_numbers=optim.OUT_IN, other=adamw)
    return {"adamw": adamw, "muon": muon}


def run(config: Config) -> dict[str, xr.Dataset]:
    """One training for each optimizer, from the same weights, with the same batches."""
    data = text.load(config.text or None)
    train, validation = jnp.asarray(data.train), text.stretches(data.validation, config.stretches, config.context)
    model_key, batch_key = jax.random.split(jax.random.key(config.seed))
    model = transformer.init(model_key, config.architecture)
    held_out = Sequences(jnp.asarray(validation))

    def draw(step: Int[Array, ""]) -> Sequences:
        key = jax.random.fold_in(batch_key, step)
        return Sequences(text.draw(train, key, config.batch, config.context))

    def record(model: Transformer, step: Int[Array, ""]) -> dict[str, Array]:
        batch = draw(step)
        ranks = training.measure_ranks(transformer.loss, model, batch)
        seen = batch.tokens[:, :-1].reshape(-1)
        losses = jax.lax.map(lambda one: transformer.loss(model, Sequences(one[None])), held_out.tokens)
        return {
            "validation": losses,
            "stable_rank": jnp.stack([getattr(ranks.stable.blocks, name) for name in matrices(model)]),
            "nuclear_rank": jnp.stack([getattr(ranks.nuclear.blocks, name) for name in matrices(model)]),
            "end_stable_rank": jnp.stack([getattr(ranks.stable, name) for name in ENDS]),
            "end_nuclear_rank": jnp.stack([getattr(ranks.nuclear, name) for name in ENDS]),
            "embedded_stable_rank": stable_rank_above(model.embedding[seen]),
            "embedding_spread": jnp.max(jnp.abs(jnp.sum(model.embedding[seen] ** 2, axis=1) / config.width - 1)),
        }

    devices = jax.devices()
    share = config.batch // config.microbatches
    mesh = Mesh(np.array(devices), (training.DATA,)) if len(devices) > 1 and share % len(devices) == 0 else None
    runs = []
    for name, optimizer in optimizers(config).items():
        with tqdm(total=config.steps, desc=name, unit="step", disable=None) as bar:

            def progress(run: training.Run, bar: tqdm = bar) -> None:
                bar.update(int(run.step) - bar.n)
                bar.set_postfix(
                    validation=f"{float(run.records['validation'][int(run.step) // config.every].mean()):.3f}"
                )

            runs.append(
                training.train(
                    transformer.loss,
                    model,
                    optimizer,
                    draw,
                    steps=config.steps,
                    every=config.every,
                    record=record,
                    microbatches=config.microbatches,
                    mesh=mesh,
                    checkpoints=checkpoints_of(config, name),
                    progress=progress,
                )
            )
    parameters = sum(leaf.size for leaf in jax.tree.leaves(model))
    return {"training": _dataset(config, runs, matrices(model), text.unigram_entropy(data.train), parameters)}


def checkpoints_of(config: Config, optimizer: str) -> training.Checkpoints | None:
    """The checkpoints of one of the trainings, if there is a folder for them."""
    if not config.checkpoints:
        return None
    configuration = {name: value for name, value in asdict(config).items() if name != "checkpoints"}
    return training.Checkpoints(Path(config.checkpoints) / optimizer, configuration | {"optimizer": optimizer})


def _dataset(config: Config, runs: list[training.Run], names: list[str], entropy: float, parameters: int) -> xr.Dataset:
    dims: Mapping[str, tuple[str, ...]] = {
        "validation": ("stretch",),
        "stable_rank": ("matrix", "block"),
        "nuclear_rank": ("matrix", "block"),
        "end_stable_rank": ("end",),
        "end_nuclear_rank": ("end",),
        "embedded_stable_rank": (),
        "embedding_spread": (),
    }
    variables = {
        name: (("seed", "optimizer", "step", *axes), np.stack([np.asarray(run.records[name]) for run in runs])[None])
        for name, axes in dims.items()
    }
    variables["loss"] = (("seed", "optimizer", "batch"), np.stack([np.asarray(run.losses) for run in runs])[None])
    variables["entropy"] = ((), np.asarray(entropy))
    variables["parameters"] = ((), np.asarray(parameters))
    coords = {
        "seed": [config.seed],
        "optimizer": list(OPTIMIZERS),
        "step": np.arange(0, config.steps + 1, config.every),
        "matrix": names,
        "end": list(ENDS),
    }
    return xr.Dataset(variables, coords)
