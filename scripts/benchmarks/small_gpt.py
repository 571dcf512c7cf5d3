"""A small GPT on the bytes of Python's help with `optax.contrib.muon` and `optim.muon`: the
validation loss at equal steps and at equal time, and what steps between polar factors save.

All sides have the same conventions, AdamW for embedding, positions and readout, the rate 0.02 of
matrices falling linearly to 0, the same batches and the same `--seeds` starts. The model,
`specjax.models.transformer`, has its layers stacked.

* time: median over blocks of steps, all sides in turn, of the ratio to optax's in the same round;
* equal steps: the loss after `--steps` steps, as mean ± standard error over seeds, and the paired
  difference from optax;
* equal time: the same with as many steps as fit into the time of the fastest side, over which the
  rate falls as before.

`alternate` rows take polar factors in every fifth step. Between them lie polar factors of four
blocks, or signs at a twentieth of the root mean square, the numbers of the authors of LionMuon.

    python scripts/benchmarks/small_gpt.py [--smoke]
"""

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
from timing import machine, table

from specjax import optim
from specjax.blas import one_blas_thread
from specjax.models import transformer
from specjax.models.transformer import Architecture, Sequences
from specjax.spectral import PolarExpress
from specjax.training import text

Maker = Callable[[optax.Schedule], optax.GradientTransformation]
OPTAX, OURS = "optax.contrib.muon", "optim.muon"
RATE, OF_ADAMW, EVERY = 0.02, 0.003, 5
ROUNDS = 20
"""Blocks of steps that are timed in turn."""
BLOCKS = {"query": (1, 4), "key": (1, 4), "value": (1, 4), "output": (4, 1), "up": (1, 4)}
BLOCKS["down"] = (4, 1)
"""Blocks along (inputs, outputs), as tensor parallelism cuts these leaves."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, seconds in all")
    parser.add_argument("--width", type=int, default=64, help="width of the model")
    parser.add_argument("--layers", type=int, default=2, help="blocks of the model")
    parser.add_argument("--context", type=int, default=32, help="tokens of a sequence")
    parser.add_argument("--batch", type=int, default=8, help="sequences of a batch")
    parser.add_argument("--steps", type=int, default=400, help="steps of a training")
    parser.add_argument("--seeds", type=int, default=8, help="trainings of each side")
    options = parser.parse_args()
    if options.smoke:
        options.width, options.layers, options.context, options.batch = 16, 1, 8, 2
        options.steps, options.seeds = 40, 2
    return options


def of_leaves(model: Any) -> Any:
    """optax's dimension numbers for what `transformer.labels` calls matrices, (layers, out, in)."""
    numbers = optax.contrib.MuonDimensionNumbers(2, 1)
    return jax.tree.map(
        lambda label: numbers if label == "matrix" else None, transformer.labels(model)
    )


def alternating(between: Callable[..., optax.GradientTransformation]) -> Maker:
    """`optim.muon` with this transformation in four of five steps."""

    def around(full: optax.GradientTransformation, **axes: Any) -> optax.GradientTransformation:
        return optim.alternate(EVERY, full, between(**axes))

    return lambda rate: ours(rate, around=around)


def ours(rate: optax.Schedule, **options: Any) -> optax.GradientTransformation:
    return optim.muon(
        rate,
        labels=transformer.labels,
        muon_weight_dimension_numbers=optim.OUT_IN,
        adam_learning_rate=OF_ADAMW,
        **options,
    )


def blocks(**axes: Any) -> optax.GradientTransformation:
    def of(tree: Any) -> Any:
        return jax.tree.map_with_path(lambda path, _: optim.Blocks(*BLOCKS[path[-1].name]), tree)

    return optim.orthogonalize_blocks(of, scale="sqrt_max_1_out_over_in", **axes)


def sides(width: int) -> dict[str, Maker]:
    # The entries of a square polar factor have the root mean square 1 / √width.
    signs = optax.chain(optax.scale_by_sign(), optax.scale(0.05 * width**-0.5))
    return {
        OPTAX: lambda rate: optax.contrib.muon(
            rate, muon_weight_dimension_numbers=of_leaves, adam_learning_rate=OF_ADAMW
        ),
        OURS: ours,
        "optim.muon, PolarExpress(5)": lambda rate: ours(rate, method=PolarExpress(5)),
        f"alternate({EVERY}), blocks between": alternating(blocks),
        f"alternate({EVERY}), signs between": alternating(lambda **_: signs),
    }


class Task:
    """The starts, batches and validation loss of all seeds."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        data = text.load()
        self.train = jnp.asarray(data.train)
        self.keys = jax.random.split(jax.random.key(0), options.seeds)
        shape = Architecture(
            text.VOCABULARY, options.width, options.context, blocks=options.layers, heads=4
        )
        self.models = jax.vmap(lambda key: transformer.init(key, shape))(self.keys)
        held = text.sample_batch(
            jnp.asarray(data.validation), jax.random.key(1), 256, options.context
        )
        self.losses = jax.jit(jax.vmap(lambda model: transformer.loss(model, Sequences(held))))

    def start(self, maker: Maker, steps: int) -> tuple[optax.GradientTransformation, Any]:
        """The optimizer of a training of so many steps, and models and states at its start."""
        optimizer = maker(optax.linear_schedule(RATE, 0.0, steps))
        return optimizer, (self.models, jax.vmap(optimizer.init)(self.models))

    def program(self, optimizer: optax.GradientTransformation, carry: Any, steps: int) -> Any:
        """The compiled function of models, states and the number of steps before."""
        size = self.options.batch, self.options.context

        def of_seed(key: jax.Array, carry: Any, first: jax.Array) -> Any:
            def step(carry: Any, i: jax.Array) -> Any:
                model, state = carry
                tokens = text.sample_batch(self.train, jax.random.fold_in(key, i), *size)
                gradient = jax.grad(transformer.loss)(model, Sequences(tokens))
                updates, state = optimizer.update(gradient, state, model)
                return (optax.apply_updates(model, updates), state), None

            return jax.lax.scan(step, carry, first + jnp.arange(steps))[0]

        # One seed after the other: vmap would compute both branches of a step that alternates.
        def run(carry: Any, first: jax.Array) -> Any:
            return jax.lax.map(lambda own: of_seed(*own, first), (self.keys, carry))

        return jax.jit(run).lower(carry, jnp.array(0)).compile()


def raced(task: Task, makers: Mapping[str, Maker], steps: int) -> tuple[dict[str, Any], dict]:
    """The losses of all seeds after all steps, and the ratios of times to the first side's."""
    block = max(1, steps // ROUNDS)
    starts = {name: task.start(maker, steps) for name, maker in makers.items()}
    programs = {name: task.program(*start, block) for name, start in starts.items()}
    carries = {name: carry for name, (_, carry) in starts.items()}
    ratios: dict[str, list[float]] = {name: [] for name in makers}
    for first in range(0, steps, block):
        taken = {}
        for name, run in programs.items():
            begin = time.perf_counter()
            carries[name] = jax.block_until_ready(run(carries[name], jnp.array(first)))
            taken[name] = time.perf_counter() - begin
        for name, value in taken.items():
            ratios[name].append(value / taken[OPTAX])
    losses = {name: np.asarray(task.losses(models)) for name, (models, _) in carries.items()}
    return losses, {name: statistics.median(values) for name, values in ratios.items()}


def within(value: np.ndarray) -> str:
    return f"{value.mean():.4f} ± {value.std(ddof=1) / len(value) ** 0.5:.4f}"


def rows(task: Task, makers: Mapping[str, Maker], steps: int) -> str:
    losses, ratios = raced(task, makers, steps)
    cells = []
    for name, maker in makers.items():
        done = round(steps * min(ratios.values()) / ratios[name])
        optimizer, carry = task.start(maker, done)
        models, _ = task.program(optimizer, carry, done)(carry, jnp.array(0))
        late = np.asarray(task.losses(models))
        difference = within(losses[name] - losses[OPTAX])
        own = f"{ratios[name]:.2f}", within(losses[name]), difference, within(late), str(done)
        cells.append((name, *own))
    header = ("", "time", f"after {steps} steps", "minus optax", "at equal time", "steps")
    return table((header, *cells))


def main() -> None:
    options = arguments()
    print(machine("specjax", "jax", "optax"))
    task = Task(options)
    count = sum(x[0].size for x in jax.tree.leaves(task.models))
    print(f"\n{count} parameters, validation loss in nats per byte, {options.seeds} seeds\n")
    print(rows(task, sides(options.width), options.steps))


if __name__ == "__main__":
    with one_blas_thread(), jax.numpy_dtype_promotion("standard"):
        main()
