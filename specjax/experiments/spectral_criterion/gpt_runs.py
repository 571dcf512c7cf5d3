"""Byte-level GPTs on a real text, trained by AdamW and Muon, vmapped over seeds and rates.

All start from the same weights with the same batches. A mask chooses the optimizer of a matrix, so
that all rules are one program. Muon's steps have the root mean square of AdamW's, and no weight
decays. Rates are constant, so after t steps a training equals one of that length.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import xarray as xr
from jaxtyping import Array, Int, Key, PyTree

from specjax import lab, optim, sizes, sweep
from specjax.models import transformer
from specjax.models.transformer import Architecture, Blocks, Sequences, Transformer
from specjax.training import text

ARMS = {
    "adamw": (),
    "out": ("down",),
    "muon": tuple(Blocks.__dataclass_fields__),
    "embedded": ("embedding", *Blocks.__dataclass_fields__),
}
"""The matrices that Muon moves; the other block matrices have AdamW at the swept rate."""
LARGEST = 2 * float(np.log(text.VOCABULARY))
"""Cap on losses, also for diverged runs: twice that of a uniform guess."""


class Training(lab.Config):
    """A text, a model, a training, and the number of records."""

    text: str = lab.config.text("", help="a text file; Python's own help if empty")
    width: int = lab.config.integer(64, help="residual stream d")
    blocks: int = lab.config.integer(2, help="blocks")
    heads: int = lab.config.integer(2, help="heads of every attention")
    context: int = lab.config.integer(32, help="bytes in a sequence")
    batch: int = lab.config.integer(8, most=lab.config.MOST_COUNT, help="sequences in a batch")
    steps: int = lab.config.integer(450, most=lab.config.MOST_COUNT, help="steps")
    records: int = lab.config.integer(
        3,
        least=2,
        most=lab.config.MOST_COUNT,
        help="equally long parts of a training, each of which ends with a record",
    )
    stretches: int = lab.config.integer(
        64,
        most=lab.config.MOST_COUNT,
        help="sequences of the validation text, and of those that ranks are of",
    )
    table_rate: float = lab.config.number(
        0.01, above=0, help="AdamW's rate for embedding, positions and head"
    )
    cooldown: int = lab.config.integer(
        0,
        least=0,
        most=lab.config.MOST_COUNT,
        help="further steps before a record in which the rates fall to zero",
    )
    seeds: int = lab.config.seeds(12, help="samples of weights and batches")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.architecture("relu_squared")  # raises for an invalid transformer
        if self.steps % self.records:
            raise ValueError(f"records must divide the steps, got {self.records} and {self.steps}.")

    def architecture(self, activation: str, expansion: int = 4, /) -> Architecture:
        """The transformer with one kind of perceptron."""
        return Architecture(
            text.VOCABULARY,
            self.width,
            self.context,
            self.blocks,
            self.heads,
            activation,
            expansion,
        )


class Cell(NamedTuple):
    """One training of every seed: its arm, rates of AdamW and Muon, and its part of the seeds."""

    arm: str
    adamw: float
    muon: float
    part: int = 0


State = tuple[Transformer, Any, Any]
"""The model, and the states of AdamW and of Muon."""
Stretch = tuple[Array, Array, Array]
"""First and last step, and whether the rates fall, in which case a copy is trained."""
Observe = Callable[[Transformer, Sequences], dict[str, Array]]
"""Observed quantities of a model, on as many training sequences as validation sequences."""


def run(
    config: Training,
    key: Key[Array, ""],
    architecture: Architecture,
    cells: Sequence[Cell],
    observe: Observe,
    *,
    dims: tuple[str, ...] = (),
    start: bool = False,
) -> xr.Dataset:
    """Validation losses and observations along the axes `dims`, by seed and record.

    All cells of a part have the same weights, batches and sequences to be observed on.
    """
    contents = text.load(config.text or None)
    train = jnp.asarray(contents.train)
    held_out = Sequences(
        jnp.asarray(text.stretches(contents.validation, config.stretches, config.context))
    )
    masks = jnp.asarray([[float(name in moved) for name in _MOVED] for moved in ARMS.values()])
    every = config.steps // config.records
    steps = [every * record for record in range(0 if start else 1, config.records + 1)]
    # One loop serves both kinds of stretches, which compiles once.
    stretches = [(max(end - every, 0), end, False) for end in steps]
    if config.cooldown:
        cooling = [(end, end + config.cooldown, True) for end in steps]
        stretches = [each for both in zip(stretches, cooling, strict=True) for each in both]
    begins, ends, falling = zip(*stretches, strict=True)

    def measure(
        key: Key[Array, ""], arm: Array, adamw: Array, muon: Array, part: Array
    ) -> dict[str, Array]:
        key = jax.random.fold_in(key, part.astype(int))
        batches, seen = sizes.stream(key, "batches"), sizes.stream(key, "observed")
        by_muon = dict(zip(_MOVED, masks[arm.astype(int)] > 0, strict=True))

        def step(over: Stretch, t: Int[Array, ""], state: State) -> State:
            begin, end, falls = over
            model, adam, momenta = state
            factor = jnp.where(falls, 1 - (t - begin) / (end - begin), 1.0)
            batch = text.sample_batch(
                train, jax.random.fold_in(batches, t), config.batch, config.context
            )
            gradient = jax.grad(transformer.loss)(model, Sequences(batch))
            own, adam = _ADAM.update(gradient, adam)
            turned, momenta = _MUON.update(_matrices(gradient), momenta)
            rates = {"embedding": config.table_rate}
            moves = [
                jnp.where(by_muon[name], muon * turned[name], rates.get(name, adamw) * update)
                for name, update in _matrices(own).items()
            ]
            tables = jax.tree.map(lambda update: config.table_rate * update, own)
            updates = eqx.tree_at(lambda model: list(_matrices(model).values()), tables, moves)
            return (
                jax.tree.map(lambda weights, update: weights - factor * update, model, updates),
                adam,
                momenta,
            )

        def look(model: Transformer) -> dict[str, Array]:
            loss = transformer.loss(model, held_out)
            tokens = Sequences(text.sample_batch(train, seen, config.stretches, config.context))
            return {
                "loss": jnp.where(loss < LARGEST, loss, LARGEST),
                **observe(model, tokens),
            }  # NaN is not below

        def stretch(state: State, over: Stretch) -> tuple[State, dict[str, Array]]:
            after = jax.lax.fori_loop(over[0], over[1], partial(step, over), state)
            return jax.tree.map(lambda old, new: jnp.where(over[2], old, new), state, after), look(
                after[0]
            )

        model = transformer.init(sizes.stream(key, "weights"), architecture)
        state = model, _ADAM.init(model), _MUON.init(_matrices(model))
        _, found = jax.lax.scan(
            stretch, state, (jnp.asarray(begins), jnp.asarray(ends), jnp.asarray(falling))
        )
        return {name: values[1::2] if config.cooldown else values for name, values in found.items()}

    arms, adamw, muon, parts = zip(*cells, strict=True)
    columns = {"arm": map(list(ARMS).index, arms), "adamw": adamw, "muon": muon, "part": parts}
    axis = sweep.zipped(
        **{name: sweep.values(*map(float, column)) for name, column in columns.items()}
    )
    found = sweep.run(measure, {"cell": axis}, num_seeds=config.seeds, key=key)
    named = sweep.labelled(found.drop_vars(list(columns)), "step", *dims, step=steps)
    return named.assign_coords(arm=("cell", list(arms)))


_MOVED = ("embedding", *Blocks.__dataclass_fields__)
_ADAM = optax.scale_by_adam(b2=0.95)
_MUON = optax.chain(
    optim.momentum(0.95, nesterov=True),
    optim.orthogonalize(scale="point_two_sqrt_max", dimension_numbers=optim.OUT_IN),
)


def _matrices(model: PyTree) -> dict[str, Any]:
    """The embedding and the block matrices of a model, or of a tree like it, by name."""
    found = {"embedding": model.embedding, **vars(model.blocks)}
    return {name: leaf for name, leaf in found.items() if leaf is not None}
