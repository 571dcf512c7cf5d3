"""A byte-level GPT on real text whose hidden matrices move by five rules: the runs of `gpt_ablation`.

Everything but the rule of the blocks' matrices is the same in all arms: weights at the start, batches, and AdamW for the embedding, the
positions and the head. The models of the arms lie along one axis, so that forward and backward passes compile once. All rates fall to
zero linearly; they are base rates times a factor for each arm. Muon has one base rate for W_out, in both of its arms, and one for the
other matrices, since with Muon's usual scale by shape W_out needs a larger one.

Two sweeps for each kind of perceptron: "selection" trains the four fixed arms with every factor, "report" trains all five on other
seeds, each with the factor of the lowest mean loss in the selection. The switch has Muon's and SGD's steps with the factors of their
own arms, and stable ranks measured on the batch of every step.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import xarray as xr
from jaxtyping import Array, Float, Int, Key, PyTree

from specjax import optim, sweep
from specjax.diagnostics import activation_stable_ranks
from specjax.experiments.contract import Data
from specjax.experiments.validation import check_root_seed, check_seeds
from specjax.models import transformer
from specjax.models.transformer import Architecture, Blocks, Sequences, Transformer
from specjax.spectral import PolarExpress
from specjax.training import text

ARMS = {
    "adamw": "AdamW",
    "out": "Muon on W_out",
    "muon": "Muon on all",
    "sgd": "SGD",
    "switch": "switch at nr ≥ st",
}
"""Muon on W_out leaves the other matrices to AdamW; the switch takes Muon's or SGD's step of each matrix."""
FIXED = ("adamw", "out", "muon", "sgd")
ACTIVATIONS = {"plain": "relu_squared", "gated": "swiglu"}
UNITS = {"plain": 3, "gated": 2}
"""Hidden units over d, in multiples of `Config.expansion`: 2·3 = 3·2 times d² weights for both."""
SECOND_DECAY, MUON_MOMENTUM, SGD_MOMENTUM = 0.95, 0.95, 0.9
NUCLEAR = PolarExpress(10, 1e-4)
"""For ‖G‖_*, by products alone: singular values from 1e-4 ‖G‖_F up come to 1, and lower ones add next to nothing."""
LIMIT = 2 * float(np.log(text.VOCABULARY))
"""Losses count for no more, and those of diverged runs for as much: twice that of a uniform guess."""

Factor = Float[Array, ""] | float


@dataclass(frozen=True)
class Config:
    """A text, a model, a training, rates, and seeds."""

    text: str = field(default="", metadata={"help": "a text file; Python's own help if empty"})
    width: int = field(default=32, metadata={"help": "residual stream d"})
    blocks: int = field(default=2, metadata={"help": "blocks"})
    heads: int = field(default=2, metadata={"help": "heads of every attention"})
    expansion: int = field(default=1, metadata={"help": "hidden units over 3d (non-gated) and 2d (gated)"})
    context: int = field(default=32, metadata={"help": "bytes in a sequence"})
    batch: int = field(default=8, metadata={"help": "sequences in a batch"})
    steps: int = field(default=200, metadata={"help": "steps"})
    records: int = field(default=10, metadata={"help": "evaluations of a run"})
    stretches: int = field(default=64, metadata={"help": "sequences of the validation text"})
    table_rate: float = field(default=0.01, metadata={"help": "AdamW's rate for embedding, positions and head"})
    adamw_rate: float = field(default=0.015, metadata={"help": "base rate of AdamW for the matrices"})
    muon_rate: float = field(default=0.04, metadata={"help": "base rate of Muon on matrices other than W_out"})
    out_rate: float = field(default=0.25, metadata={"help": "base rate of Muon on W_out"})
    sgd_rates: tuple[float, ...] = field(
        default=(0.8, 0.06), metadata={"help": "base rates of SGD, non-gated and gated"}
    )
    factors: tuple[float, ...] = field(default=(0.5, 1.0, 2.0), metadata={"help": "factors on the base rates"})
    selection_seeds: int = field(default=2, metadata={"help": "seeds on which factors are chosen"})
    seeds: int = field(default=4, metadata={"help": "seeds that are reported"})
    seed: int = field(default=0, metadata={"help": "seed of all draws"})

    def __post_init__(self) -> None:
        for kind in ACTIVATIONS:
            self.architecture(kind)  # refuses what is no transformer
        if self.records < 2 or self.steps < self.records or self.steps % self.records:
            raise ValueError(f"steps must be a multiple of records >= 2, got {self.steps} and {self.records}.")
        if min(self.batch, self.stretches) < 1:
            raise ValueError(f"batch and stretches must be at least 1, got {self.batch} and {self.stretches}.")
        rates = (self.table_rate, self.adamw_rate, self.muon_rate, self.out_rate, *self.sgd_rates)
        if len(self.sgd_rates) != len(ACTIVATIONS) or not all(0 < rate < np.inf for rate in rates):
            raise ValueError(f"Rates must be positive, of SGD one for each kind of perceptron, got {rates}.")
        if not 1 <= len(self.factors) == len(set(self.factors)) or not all(0 < one < np.inf for one in self.factors):
            raise ValueError(f"factors must be different positive numbers, got {self.factors}.")
        if self.selection_seeds < 1:
            raise ValueError(f"selection_seeds must be at least 1, got {self.selection_seeds}.")
        check_seeds("seeds", self.seeds)
        check_root_seed(self.seed)

    def architecture(self, kind: str) -> Architecture:
        """The transformer with one kind of perceptron."""
        units = UNITS[kind] * self.expansion
        return Architecture(
            text.VOCABULARY, self.width, self.context, self.blocks, self.heads, ACTIVATIONS[kind], units
        )


def matrices(kind: str) -> tuple[str, ...]:
    """The names of the matrices in a block."""
    names = tuple(Blocks.__dataclass_fields__)
    return names if kind == "gated" else tuple(name for name in names if name != "gate")


class Trained(NamedTuple):
    """Runs of several arms: what was observed at the records, and the share of blocks in which the switch took the spectral step."""

    observed: PyTree
    """Axes (records, arms, …)."""
    spectral: Float[Array, "steps matrices"]
    """Without columns where there is no switch."""


class _State(NamedTuple):
    models: Transformer
    tables: optax.OptState
    hidden: tuple[optax.OptState, ...]


def train(
    key: Key[Array, ""],
    config: Config,
    kind: str,
    data: Array,
    arms: tuple[str, ...],
    factors: Mapping[str, Factor],
    observe: Callable[[Transformer], PyTree],
    *,
    records: int,
) -> Trained:
    """Trains some arms from one initialization, on one batch a step.

    Args:
        key: Of weights and batches.
        config: Sizes and rates.
        kind: "plain" or "gated".
        data: The bytes of the training text.
        arms: Names of `ARMS`.
        factors: The factor on the base rates of each fixed arm; the switch has those of "muon" and "sgd".
        observe: What is to be kept of a model; called after every `config.steps / records` steps.
        records: How often.

    """
    model_key, batch_key = jax.random.split(key)
    model = transformer.init(model_key, config.architecture(kind))
    rules = [rule(arm, config, kind, factors) for arm in arms]
    table_steps = _adamw(config.table_rate, config)
    models = jax.tree.map(lambda leaf: jnp.stack([leaf] * len(rules)), model)
    start = _State(models, table_steps.init(_split(models)[0]), tuple(one.init(model.blocks) for one in rules))

    def step(state: _State, t: Int[Array, ""]) -> tuple[_State, Float[Array, " matrices"]]:
        tokens = Sequences(text.draw(data, jax.random.fold_in(batch_key, t), config.batch, config.context))
        gradients = jax.vmap(jax.grad(transformer.loss), (0, None))(state.models, tokens)
        (tables, blocks), (table_gradients, block_gradients) = _split(state.models), _split(gradients)
        table_updates, table_state = table_steps.update(table_gradients, state.tables, tables)
        updates, after, spectral = [], [], jnp.zeros(0)
        for i, (arm, one, before) in enumerate(zip(arms, rules, state.hidden, strict=True)):
            own, gradient, weights = (
                jax.tree.map(lambda leaf, i=i: leaf[i], tree) for tree in (state.models, block_gradients, blocks)
            )
            ranks = {}
            if arm == "switch":
                ranks = {"stable_ranks": activation_stable_ranks(transformer.loss, own, tokens).blocks}
            update, hidden = one.update(gradient, before, weights, **ranks)
            if arm == "switch":
                spectral = jnp.stack([jnp.mean(took, dtype=float) for took in jax.tree.leaves(hidden.took_spectral)])
            updates.append(update)
            after.append(hidden)
        moved = optax.apply_updates(blocks, jax.tree.map(lambda *leaves: jnp.stack(leaves), *updates))
        joined = _joined(optax.apply_updates(tables, table_updates), moved)
        return _State(joined, table_state, tuple(after)), spectral

    every = config.steps // records

    def record(state: _State, first: Int[Array, ""]) -> tuple[_State, Trained]:
        state, spectral = jax.lax.scan(step, state, first + jnp.arange(every))
        return state, Trained(jax.vmap(observe)(state.models), spectral)

    _, trained = jax.lax.scan(record, start, every * jnp.arange(records))
    return trained._replace(spectral=trained.spectral.reshape(config.steps, -1))


def rule(arm: str, config: Config, kind: str, factors: Mapping[str, Factor]) -> optax.GradientTransformationExtraArgs:
    """The optimizer of the blocks' matrices in an arm."""
    if arm == "switch":
        always, never = (rule(name, config, kind, factors) for name in ("muon", "sgd"))
        return optim.rank_switch(always, never, NUCLEAR, dimension_numbers=optim.OUT_IN)
    factor = factors[arm]
    if arm == "sgd":
        base = dict(zip(ACTIVATIONS, config.sgd_rates, strict=True))[kind]
        return optax.with_extra_args_support(optax.sgd(_falling(base * factor, config), SGD_MOMENTUM))
    adamw = optax.with_extra_args_support(_adamw(config.adamw_rate * factor, config))
    if arm == "adamw":
        return adamw
    others = adamw
    if arm == "muon":
        others = _muon(config.muon_rate * factor, config, labels="matrix", other=adamw)
    return _muon(config.out_rate * factor, config, labels=_only_down, other=others)


def _muon(rate: Factor, config: Config, **options: Any) -> optax.GradientTransformationExtraArgs:
    falling = _falling(rate, config)
    return optim.muon(falling, decay=MUON_MOMENTUM, dimension_numbers=optim.OUT_IN, **options)


def _only_down(blocks: Blocks) -> Blocks:
    return jax.tree_util.tree_map_with_path(lambda path, _: "matrix" if path[-1].name == "down" else "other", blocks)


def _adamw(rate: Factor, config: Config) -> optax.GradientTransformation:
    return optax.adamw(_falling(rate, config), b2=SECOND_DECAY)


def _falling(rate: Factor, config: Config) -> Callable[[Array], Array]:
    return lambda count: rate * (1 - count / config.steps)


def _split(model: Transformer) -> tuple[Transformer, Blocks]:
    """Everything but the blocks, and the blocks."""
    return eqx.tree_at(lambda m: m.blocks, model, None), model.blocks


def _joined(tables: Transformer, blocks: Blocks) -> Transformer:
    return eqx.tree_at(lambda m: m.blocks, tables, blocks, is_leaf=lambda x: x is None)


def run(config: Config) -> Data:
    """For each kind of perceptron "…_selection", losses by factor, and "…_report", the arms with their chosen factors."""
    contents = text.load(config.text or None)
    found = {}
    for kind in ACTIVATIONS:
        found[f"{kind}_selection"], found[f"{kind}_report"] = sweeps(config, kind, contents)
    return found


def sweeps(config: Config, kind: str, contents: text.Text) -> tuple[xr.Dataset, xr.Dataset]:
    """The selection of factors and the reported runs of one kind of perceptron."""
    data = jnp.asarray(contents.train)
    held_out = Sequences(jnp.asarray(text.stretches(contents.validation, config.stretches, config.context)))

    def validation(model: Transformer) -> Float[Array, ""]:
        loss = transformer.loss(model, held_out)
        return jnp.where(loss < LIMIT, loss, LIMIT)  # NaN is not below

    def observe(model: Transformer) -> dict[str, Array]:
        ranks = activation_stable_ranks(transformer.loss, model, held_out).blocks
        return {"loss": validation(model), "stable_rank": jnp.stack(jax.tree.leaves(ranks))}

    def selection(key: Array, factor: Array) -> dict[str, Array]:
        factors = dict.fromkeys(FIXED, factor)
        return {"loss": train(key, config, kind, data, FIXED, factors, validation, records=1).observed[-1]}

    def report(key: Array, adamw: Array, out: Array, muon: Array, sgd: Array) -> dict[str, Array]:
        factors = dict(zip(FIXED, (adamw, out, muon, sgd), strict=True))
        trained = train(key, config, kind, data, tuple(ARMS), factors, observe, records=config.records)
        return {**trained.observed, "spectral": trained.spectral}

    key = jax.random.key(config.seed)
    axis = {"factor": sweep.values(*config.factors)}
    losses = sweep.run(selection, axis, seeds=config.selection_seeds, key=jax.random.fold_in(key, 1))
    losses = losses.rename(loss_dim_0="arm").assign_coords(arm=list(FIXED))
    own = sweep.zipped(**{arm: sweep.values(factor) for arm, factor in chosen_factors(losses).items()})
    runs = sweep.run(report, {"chosen": own}, seeds=config.seeds, key=jax.random.fold_in(key, 0))
    return losses, _labelled(runs, config, kind, text.unigram_entropy(contents.train))


def chosen_factors(losses: xr.Dataset) -> dict[str, float]:
    """The factor of the lowest mean loss by arm; losses over (factor, seed, arm)."""
    mean = losses["loss"].transpose("factor", "seed", ...).values.mean(axis=1)
    return {arm: float(losses["factor"].values[mean[:, i].argmin()]) for i, arm in enumerate(FIXED)}


def _labelled(runs: xr.Dataset, config: Config, kind: str, entropy: float) -> xr.Dataset:
    """With names in place of numbers of dimensions: the one point of the sweep is left out, its factors are coordinates."""
    names = {
        "loss_dim_0": "step",
        "loss_dim_1": "arm",
        "stable_rank_dim_0": "step",
        "stable_rank_dim_1": "arm",
        "stable_rank_dim_2": "matrix",
        "stable_rank_dim_3": "block",
        "spectral_dim_0": "update",
        "spectral_dim_1": "matrix",
    }
    every = config.steps // config.records
    steps = every * np.arange(1, config.records + 1)
    labels = {"step": steps, "arm": list(ARMS), "matrix": list(matrices(kind))}
    renamed = runs.isel(chosen=0)
    parts = {
        name: variable.rename({old: new for old, new in names.items() if old in variable.dims})
        for name, variable in renamed.data_vars.items()
    }
    labelled = xr.Dataset(parts, renamed.coords, renamed.attrs).assign_coords(labels)
    return labelled.assign(entropy=((), np.asarray(entropy)))
