"""A training loop as one compiled stretch after another: batches drawn by step, records at equal
distances, a stop at NaN.

Everything that a training has computed is one tree of arrays, a `Run`, and every stretch is a
function of it: so a training that was stopped and resumed from a stored `Run` ends with the same
bits.
"""

import logging
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from time import perf_counter
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Float, Int, PyTree

from specjax import resume
from specjax.blas import one_blas_thread
from specjax.diagnostics import first_not_finite
from specjax.jaxlib import cpu_options
from specjax.spectral.float_range import at_least_float32
from specjax.training.checkpoints import Checkpoints, digests, kept

logger = logging.getLogger("specjax.training")

Loss = Callable[[PyTree, PyTree], Array]
Draw = Callable[[Int[Array, ""]], PyTree]
"""The batch of a step: a pure function, so that a resumed training sees the batches it would have
seen.
"""
Record = Callable[[PyTree, Int[Array, ""]], PyTree]
"""What is recorded of the parameters at a step: a tree of arrays."""

DATA = "data"
"""The axis of a mesh over which batches are spread."""


class Run(NamedTuple):
    """A training up to a step."""

    params: PyTree
    optimizer: optax.OptState
    step: Int[Array, ""]
    losses: Float[Array, " steps"]
    """Of the batches of all steps taken, before each; zero beyond."""
    records: PyTree
    """With a leading axis over the steps 0, every, 2 every, …, steps; zero beyond the present
    one.
    """
    finite: Bool[Array, ""]
    """False once a loss, a gradient or a parameter is NaN or infinite: the parameters then stay
    those, or those it comes from.
    """


class Diverged(ValueError):
    """A training whose loss, gradient or parameters are not finite; the message has the step and
    the layer, `run` what came before.

    A ValueError, as it is for the caller to choose another learning rate, and the command line
    tells those in one sentence.
    """

    def __init__(self, message: str, run: Run) -> None:
        super().__init__(message)
        self.run = run


def train(
    loss: Loss,
    params: PyTree,
    optimizer: optax.GradientTransformation,
    draw: Draw,
    *,
    steps: int,
    every: int,
    record: Record,
    microbatches: int = 1,
    mesh: Mesh | None = None,
    checkpoints: Checkpoints | None = None,
    progress: Callable[[Run], None] | None = None,
) -> Run:
    """Trains for `steps` steps, or for those that are left of a stored run.

    Args:
        loss: `loss(params, batch)`, the mean over a batch: one over all of its rows, if
            microbatches are not to change it.
        params: The initial parameters; all leaves are trained, and must stay finite.
        optimizer: Any optax transformation. It gets the parameters.
        draw: The batch of a step; its leaves have a leading axis that `microbatches` and the
            devices of the mesh divide.
        steps: Steps in all.
        every: Steps from one record, and one checkpoint, to the next.
        record: Telemetry; computed with the parameters before the step, and at the end.
        microbatches: Parts of a batch whose gradients are computed one after the other, for batches
            that do not fit. Their mean, and that of their losses, is taken in float32, or in a
            wider dtype of theirs, and rounded to the dtype of the parameters once.
        mesh: Devices with the axis "data", over which every (micro)batch is spread; parameters are
            on each of them.
        checkpoints: Where the run is stored at every record, and continued from if there is one.
            Without any, a training within `specjax.resume.enabled` has its own there.
        progress: Called at every record.

    Raises:
        ValueError: for steps that are no multiple of every, a batch that cannot be cut so, a mesh
            without that axis, or a checkpoint of another training, as of one with another loss or
            other batches by their programs.
        StoreError: another process trains into the folder of the checkpoints, or all of them are
            damaged.
        Diverged: at the first NaN or infinity.

    """
    if steps < 1 or every < 1 or steps % every:
        raise ValueError(
            f"The steps must be a positive multiple of every, got steps={steps} and every={every}."
        )
    _check_batch(jax.eval_shape(draw, jnp.zeros((), jnp.int32)), microbatches, mesh)

    def shaped(step: Array) -> PyTree:
        batch = jax.tree.map(lambda x: x.reshape(microbatches, -1, *x.shape[1:]), draw(step))
        if mesh is None:
            return batch
        return jax.lax.with_sharding_constraint(
            batch, NamedSharding(mesh, PartitionSpec(None, DATA))
        )

    def gradients(params: PyTree, step: Array) -> tuple[Array, PyTree]:
        def part(batch: PyTree) -> tuple[Array, PyTree]:
            # A sum in half precision stops growing after some hundreds of parts.
            return jax.tree.map(at_least_float32, jax.value_and_grad(loss)(params, batch))

        def add(total: PyTree, batch: PyTree) -> tuple[PyTree, None]:
            return jax.tree.map(jnp.add, total, part(batch)), None

        batches = shaped(step)
        shapes = jax.eval_shape(part, jax.tree.map(lambda x: x[0], batches))
        zero = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        total, _ = jax.lax.scan(add, zero, batches)
        value, gradient = jax.tree.map(lambda x: x / microbatches, total)
        return value, jax.tree.map(lambda g, x: g.astype(x.dtype), gradient, params)

    def advance(run: Run, _: None) -> tuple[Run, None]:
        value, gradient = gradients(run.params, run.step)
        finite = run.finite & _finite((value, gradient))
        updates, state = optimizer.update(gradient, run.optimizer, run.params)
        moved = (optax.apply_updates(run.params, updates), state, run.step + 1)
        params, state, step = jax.tree.map(
            partial(jnp.where, finite), moved, (run.params, run.optimizer, run.step)
        )
        losses = run.losses.at[run.step].set(value.astype(run.losses.dtype))
        # The new parameters are looked at by themselves: no later loss may see them.
        return Run(params, state, step, losses, run.records, finite & _finite(params)), None

    # A program of its own, so that trainings that differ in their optimizer compile it once.
    measured = jax.jit(record, compiler_options=cpu_options())

    def recorded(run: Run) -> Run:
        values = measured(run.params, run.step)
        return run._replace(records=_written(run.records, values, run.step // every))

    @partial(jax.jit, donate_argnums=0, compiler_options=cpu_options())
    def stretch(run: Run) -> Run:
        return jax.lax.scan(advance, run, length=every)[0]

    # One microbatch may lack what the whole has, such as a token that counts, and the whole may not
    # fit.
    @partial(jax.jit, compiler_options=cpu_options())
    def judged(params: PyTree, step: Array) -> tuple[PyTree, Bool[Array, " microbatches"]]:
        batches = shaped(step)
        return batches, jax.lax.map(
            lambda batch: _finite(jax.value_and_grad(loss)(params, batch)), batches
        )

    def culprit(run: Run) -> str:
        batches, flags = judged(run.params, run.step)
        first = int(jnp.argmin(flags))
        found = first_not_finite(loss, run.params, jax.tree.map(lambda x: x[first], batches))
        return "the mean over microbatches" if found is None else found

    run = _start(params, optimizer, record, steps, every)
    # The folder of checkpoints that `resume` has is named by all programs.
    shapes_given = None if checkpoints is None else jax.eval_shape(lambda: run.params)
    if checkpoints is None and resume.folder() is not None:
        shapes = jax.eval_shape(lambda: run)  # the arrays themselves are not on the mesh yet
        checkpoints = kept((stretch.trace(shapes), measured.trace(shapes.params, shapes.step)), run)
    with ExitStack() as held:
        if checkpoints is not None:
            held.enter_context(checkpoints.writing())
            run = checkpoints.latest(run)
            made = {} if shapes_given is None else _made(loss, draw, shapes_given)
            checkpoints.require_same(made)
        began, first = perf_counter(), int(run.step)
        if checkpoints is not None and first < steps:
            checkpoints.require_writable()
        if mesh is not None:
            run = jax.device_put(run, NamedSharding(mesh, PartitionSpec()))
        held.enter_context(one_blas_thread())
        while int(run.step) < steps:
            run = stretch(recorded(run))
            if not bool(run.finite):
                raise Diverged(
                    f"The training stopped being finite at step {int(run.step)}, first in"
                    f" {culprit(run)}; lower the learning rate or clip the gradient.",
                    run,
                )
            if int(run.step) == steps:
                run = recorded(run)
            if checkpoints is not None:
                checkpoints.save(int(run.step), run, made)
            if progress is not None:
                progress(run)
            taken = perf_counter() - began
            left = taken * (steps - int(run.step)) / (int(run.step) - first)
            logger.info(
                "step %d of %d, %.0f s left", int(run.step), steps, left, extra={"taken": taken}
            )
    return run


def _made(loss: Loss, draw: Draw, params: PyTree) -> dict[str, str]:
    """Digests of the programs of the loss and of the batches, under no name of theirs: a renamed
    function is the same.
    """
    step = jax.ShapeDtypeStruct((), jnp.int32)
    batch = jax.eval_shape(draw, step)
    return digests(
        loss=jax.jit(lambda *args: loss(*args)).trace(params, batch),
        draw=jax.jit(lambda step: draw(step)).trace(step),
    )


def _start(
    params: PyTree, optimizer: optax.GradientTransformation, record: Record, steps: int, every: int
) -> Run:
    start = jnp.zeros((), jnp.int32)
    records = jax.tree.map(
        lambda x: jnp.zeros((steps // every + 1, *x.shape), x.dtype),
        jax.eval_shape(record, params, start),
    )
    # Copies, because a stretch gives up the memory of the run that it is called with.
    own = jax.tree.map(jnp.array, params)
    return Run(
        own,
        optimizer.init(own),
        start,
        jnp.zeros(steps, jnp.result_type(float)),
        records,
        jnp.asarray(True),
    )


def _finite(tree: PyTree) -> Bool[Array, ""]:
    """Entry by entry: the square of a finite entry, and so a norm, may be infinite."""
    return jax.tree.reduce(
        lambda found, leaf: found & jnp.all(jnp.isfinite(leaf)), tree, jnp.asarray(True)
    )


@partial(jax.jit, donate_argnums=0)
def _written(records: PyTree, values: PyTree, index: Int[Array, ""]) -> PyTree:
    return jax.tree.map(lambda all_, one: all_.at[index].set(one), records, values)


def _check_batch(batch: PyTree, microbatches: int, mesh: Mesh | None) -> None:
    if mesh is not None and DATA not in mesh.shape:
        raise ValueError(f'The mesh of a training needs the axis "{DATA}", got {mesh.axis_names}.')
    devices = 1 if mesh is None else mesh.shape[DATA]
    counts = {x.shape[0] if x.shape else 0 for x in jax.tree.leaves(batch)}
    if (
        microbatches < 1
        or len(counts) != 1
        or 0 in counts
        or min(counts) % (microbatches * devices)
    ):
        raise ValueError(
            "All leaves of a batch need the same leading axis, a multiple of"
            f" microbatches={microbatches} times {devices} devices, got {sorted(counts)}."
        )
