"""A training loop of compiled stretches of steps, with a record between them and a stop at NaN.

The whole state of a training is one tree of arrays, a `Run`, and each stretch is a function of it,
so a training resumed from a stored `Run` ends with the same bits.
"""

import logging
import sys
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
from specjax.compilation_cache import persistent
from specjax.diagnostics import first_not_finite
from specjax.jaxlib import cpu_options
from specjax.spectral.float_range import at_least_float32
from specjax.training._checkpoints import Checkpoints, default_checkpoints, digests

logger = logging.getLogger("specjax.training")

Loss = Callable[[PyTree, PyTree], Array]
BatchOfStep = Callable[[Int[Array, ""]], PyTree]
"""The batch of a step: a pure function, so that a resumed training sees the same batches."""
Record = Callable[[PyTree, Int[Array, ""]], PyTree]
"""A tree of arrays, computed from the parameters and the step."""

DATA = "data"
"""The axis of a mesh over which batches are sharded."""


class Run(NamedTuple):
    """The state of a training at a step."""

    params: PyTree
    optimizer: optax.OptState
    step: Int[Array, ""]
    losses: Float[Array, " steps"]
    """The loss of each batch before its step; zero from `step` on."""
    records: PyTree
    """Leading axis: the steps 0, every, 2 every, …, steps; zero beyond `step`."""
    finite: Bool[Array, ""]
    """False once a loss, a gradient or a parameter is NaN or infinite; the parameters are then
    those of that loss or gradient, or the first that are not finite.
    """


class Diverged(ValueError):
    """The loss, gradient or parameters are not finite; the message names the step and the layer,
    and `run` is the state before.

    A ValueError, since the caller can choose another learning rate, and the command line prints it
    as one sentence.
    """

    def __init__(self, message: str, run: Run) -> None:
        super().__init__(message)
        self.run = run


def train(
    loss: Loss,
    params: PyTree,
    batch: BatchOfStep,
    optimizer: optax.GradientTransformation,
    *,
    steps: int,
    every: int,
    record: Record | None = None,
    microbatches: int = 1,
    mesh: Mesh | None = None,
    checkpoints: Checkpoints | None = None,
    progress: Callable[[Run], None] | bool | None = None,
) -> Run:
    """Train for `steps` steps, counting those of a stored run.

    Args:
        loss: `loss(params, batch)`, a mean over all rows of the batch if microbatches are not to
            change it.
        params: The initial parameters; all leaves are trained, and must stay finite.
        batch: The function from a step to its batch; the leaves have a leading axis that
            `microbatches` and the devices of the mesh divide.
        optimizer: Any optax transformation. It gets the parameters.
        steps: Steps in all.
        every: Steps from one record, and one checkpoint, to the next.
        record: `record(params, step)`, computed before the step, and once at the end.
        microbatches: Parts of a batch whose gradients are computed one after the other, for batches
            that do not fit. The means of gradients and losses are taken in at least float32, and
            rounded to the dtype of the parameters once.
        mesh: Devices with the axis "data", over which every (micro)batch is sharded; parameters are
            replicated.
        checkpoints: Where the run is stored at every record, and resumed from. By default the ones
            of `specjax.resume.enabled`, if any.
        progress: Called at every record; True prints a line there, to standard error.

    Raises:
        ValueError: steps that are not a multiple of every, a batch that cannot be divided, a mesh
            without that axis, or a checkpoint of another training, such as one whose programs of
            the loss or of the batches differ.
        StoreError: another process trains into the folder of the checkpoints, or all of them are
            damaged.
        Diverged: at the first NaN or infinity.

    Examples:
        >>> from specjax import training
        >>> loss = lambda w, target: jnp.mean((w - target) ** 2)
        >>> run = training.train(
        ...     loss, jnp.zeros(1), lambda step: jnp.ones(1), optax.sgd(0.25), steps=2, every=1)
        >>> run.params.tolist(), run.losses.tolist()
        ([0.75], [1.0, 0.25])
    """
    record = _record_nothing if record is None else record
    if steps < 1 or every < 1 or steps % every:
        raise ValueError(
            f"The steps must be a positive multiple of every, got steps={steps} and every={every}."
        )
    _check_batch(jax.eval_shape(batch, jax.ShapeDtypeStruct((), jnp.int32)), microbatches, mesh)

    def split_batch(step: Array) -> PyTree:
        parts = jax.tree.map(lambda x: x.reshape(microbatches, -1, *x.shape[1:]), batch(step))
        if mesh is None:
            return parts
        return jax.lax.with_sharding_constraint(
            parts, NamedSharding(mesh, PartitionSpec(None, DATA))
        )

    def gradients(params: PyTree, step: Array) -> tuple[Array, PyTree]:
        def part_gradient(part: PyTree) -> tuple[Array, PyTree]:
            # A sum in half precision stops growing after some hundreds of parts.
            return jax.tree.map(at_least_float32, jax.value_and_grad(loss)(params, part))

        def add(total: PyTree, part: PyTree) -> tuple[PyTree, None]:
            return jax.tree.map(jnp.add, total, part_gradient(part)), None

        parts = split_batch(step)
        shapes = jax.eval_shape(part_gradient, jax.tree.map(lambda x: x[0], parts))
        zero = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        total, _ = jax.lax.scan(add, zero, parts)
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
        # Checked by themselves, since no later loss may depend on all new parameters.
        return Run(params, state, step, losses, run.records, finite & _finite(params)), None

    # Its own program, so that trainings with other optimizers do not compile it again.
    measured = jax.jit(record, compiler_options=cpu_options())

    def add_record(run: Run) -> Run:
        values = measured(run.params, run.step)
        return run._replace(records=_set_record(run.records, values, run.step // every))

    @partial(jax.jit, donate_argnums=0, compiler_options=cpu_options())
    def stretch(run: Run) -> Run:
        return jax.lax.scan(advance, run, length=every)[0]

    # Each microbatch by itself: one may lack a token that counts, and the whole may not fit.
    @partial(jax.jit, compiler_options=cpu_options())
    def check_parts(params: PyTree, step: Array) -> tuple[PyTree, Bool[Array, " microbatches"]]:
        parts = split_batch(step)
        return parts, jax.lax.map(
            lambda part: _finite(jax.value_and_grad(loss)(params, part)), parts
        )

    def find_culprit(run: Run) -> str:
        parts, flags = check_parts(run.params, run.step)
        first = int(jnp.argmin(flags))
        layer = first_not_finite(loss, run.params, jax.tree.map(lambda x: x[first], parts))
        return "the mean over microbatches" if layer is None else layer

    with ExitStack() as held:
        held.enter_context(persistent())
        run = _start(params, optimizer, record, steps, every)
        # A default folder of `resume` is named by the programs already.
        shapes_given = None if checkpoints is None else jax.eval_shape(lambda: run.params)
        if checkpoints is None and resume.folder() is not None:
            shapes = jax.eval_shape(lambda: run)  # the arrays themselves are not on the mesh yet
            checkpoints = default_checkpoints(
                (stretch.trace(shapes), measured.trace(shapes.params, shapes.step)), run
            )
        if checkpoints is not None:
            held.enter_context(checkpoints.writing())
            run = checkpoints.latest(run)
            made = {} if shapes_given is None else _program_digests(loss, batch, shapes_given)
            checkpoints.require_same(made)
        began, first = perf_counter(), int(run.step)
        if checkpoints is not None and first < steps:
            checkpoints.require_writable()
        if mesh is not None:
            run = jax.device_put(run, NamedSharding(mesh, PartitionSpec()))
        held.enter_context(one_blas_thread())
        while int(run.step) < steps:
            run = stretch(add_record(run))
            if not bool(run.finite):
                raise Diverged(
                    f"The training stopped being finite at step {int(run.step)}, first in"
                    f" {find_culprit(run)}; lower the learning rate or clip the gradient.",
                    run,
                )
            if int(run.step) == steps:
                run = add_record(run)
            if checkpoints is not None:
                checkpoints.save(int(run.step), run, made)
            if callable(progress):
                progress(run)
            taken = perf_counter() - began
            left = taken * (steps - int(run.step)) / (int(run.step) - first)
            line = f"step {int(run.step)} of {steps}, {left:.0f} s left"
            logger.info("%s", line, extra={"taken": taken})
            if progress is True:
                print(line, file=sys.stderr, flush=True)
    return run


def _record_nothing(*_: object) -> PyTree:
    return {}


def _program_digests(loss: Loss, batch: BatchOfStep, params: PyTree) -> dict[str, str]:
    """Digests of the programs of the loss and of the batches, without the functions' names."""
    step = jax.ShapeDtypeStruct((), jnp.int32)
    return digests(
        loss=jax.jit(lambda *args: loss(*args)).trace(params, jax.eval_shape(batch, step)),
        batch=jax.jit(lambda step: batch(step)).trace(step),
    )


def _start(
    params: PyTree, optimizer: optax.GradientTransformation, record: Record, steps: int, every: int
) -> Run:
    start = jnp.zeros((), jnp.int32)
    records = jax.tree.map(
        lambda x: jnp.zeros((steps // every + 1, *x.shape), x.dtype),
        jax.eval_shape(record, params, start),
    )
    # Copies, because a stretch donates the memory of its run.
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
    """Whether every entry is finite; a norm of finite entries may be infinite."""
    return jax.tree.reduce(
        lambda finite, leaf: finite & jnp.all(jnp.isfinite(leaf)), tree, jnp.asarray(True)
    )


@partial(jax.jit, donate_argnums=0)
def _set_record(records: PyTree, values: PyTree, index: Int[Array, ""]) -> PyTree:
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
