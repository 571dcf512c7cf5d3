"""A training loop for your own step, with any state, on batches from any iterator.

`train` compiles a stretch of steps into one program, so its batches are a function of the step.
`train_steps` takes steps one by one, so the batches may come from a data loader, and the step from
another library.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PyTree

from specjax import resume
from specjax.arguments import checked, shown
from specjax.training._checkpoints import Checkpoints

Step = Callable[[PyTree, Any], tuple[PyTree, ArrayLike]]
"""`step(state, batch)` returns the next state and the loss before the step; compile it with
`jax.jit`.
"""


class Steps(NamedTuple):
    """The state of a training at a step."""

    state: PyTree
    """Parameters, optimizer, running statistics, keys: any state of the step."""
    losses: Float[Array, " taken"]
    """The loss of each batch before its step."""
    records: tuple[PyTree, ...]
    """The records of the steps 0, every, 2 every, … so far."""


class NotFinite(ValueError):
    """A loss is NaN or infinite; the message has its step, and `losses` are those of all steps
    taken.
    """

    def __init__(self, message: str, losses: np.ndarray) -> None:
        super().__init__(message)
        self.losses = losses


@checked
def train_steps(
    step: Step,
    state: PyTree,
    batches: Iterable[Any],
    *,
    steps: int,
    every: int,
    record: Callable[[PyTree, int], PyTree] | None = None,
    checkpoints: Checkpoints | None = None,
    progress: Callable[[Steps], None] | None = None,
) -> Steps:
    """Take `steps` steps, counting those of a stored training.

    Args:
        step: `step(state, batch)` returns the next state and the loss, one number; it may donate
            the memory of its state.
        state: A tree of arrays, for example (parameters, optimizer state, batch statistics).
        batches: An iterable of batches. A resumed training skips those it has seen, so it needs the
            same batches from their beginning.
        steps: Steps in all.
        every: Steps from one record, and one checkpoint, to the next.
        record: `record(state, step)`, a tree of arrays; computed with the state before the step,
            and at the end.
        checkpoints: Where the training is stored at every record, and resumed from.
        progress: Called at every record but the first.

    Returns:
        The training at its end. Losses are checked only at records, so that steps do not wait for
        each other.

    Raises:
        ValueError: steps that are not a multiple of every, fewer batches than steps, a loss that is
            not one number, or a checkpoint of another training, such as one with another last
            batch.
        StoreError: another process trains into the folder of the checkpoints, or all of them are
            damaged.
        NotFinite: at the first record after a loss that is NaN or infinite.

    Examples:
        >>> from specjax import training
        >>> halve = jax.jit(lambda w, target: ((w + target) / 2, (w - target) ** 2))
        >>> run = training.train_steps(halve, jnp.ones(()), [0.0] * 3, steps=3, every=3)
        >>> float(run.state), run.losses.tolist()
        (0.125, [1.0, 0.25, 0.0625])
    """
    if steps < 1 or every < 1 or steps % every:
        raise ValueError(
            f"The steps must be a positive multiple of every, got steps={steps} and every={every}."
        )
    run = Steps(state, jnp.zeros(0), (record(state, 0),) if record else ())
    with ExitStack() as held:
        if checkpoints is not None:
            held.enter_context(checkpoints.writing())
            run = _latest(checkpoints, run, steps, every)
        try:
            remaining, batch = iter(batches), None
        except TypeError:
            raise ValueError(
                f"train_steps needs an iterable as batches, got {shown(batches)}."
            ) from None
        for number in range(len(run.losses)):
            batch = _next(remaining, number, steps)
        if checkpoints is not None and len(run.losses) < steps:
            checkpoints.require_same(_batch_digest(batch))
            checkpoints.require_writable()
        while len(run.losses) < steps:
            state, losses = run.state, []
            for number in range(len(run.losses), len(run.losses) + every):
                batch = _next(remaining, number, steps)
                pair = step(state, batch)
                if not isinstance(pair, tuple) or len(pair) != 2:
                    raise ValueError(
                        f"A step gives the next state and its loss, a pair, got {shown(pair)}."
                    )
                state, loss = pair
                if np.shape(loss) != ():
                    raise ValueError(
                        "A step gives the next state and its loss, one number, got a loss of shape"
                        f" {np.shape(loss)}."
                    )
                losses.append(loss)
            run = _longer(run, state, losses, record)
            if checkpoints is not None:
                checkpoints.save(len(run.losses), run, _batch_digest(batch))
            if progress is not None:
                progress(run)
    return run


def _longer(
    run: Steps,
    state: PyTree,
    losses: list[ArrayLike],
    record: Callable[[PyTree, int], PyTree] | None,
) -> Steps:
    """The training after another stretch of steps. Raises NotFinite if one of their losses is not
    finite.
    """
    every = jnp.concatenate(
        [run.losses, jnp.stack([jnp.asarray(x, run.losses.dtype) for x in losses])]
    )
    finite = np.isfinite(np.asarray(every))
    if not finite.all():
        raise NotFinite(
            f"The loss of step {int(np.argmin(finite))} is {every[np.argmin(finite)]}; lower the"
            " learning rate or clip the gradient.",
            np.asarray(every),
        )
    return Steps(state, every, (*run.records, record(state, len(every))) if record else ())


def _latest(checkpoints: Checkpoints, run: Steps, steps: int, every: int) -> Steps:
    """The newest stored training, or this one at its start; a checkpoint holds one loss for each
    step, and its records.
    """

    def like(taken: int) -> Steps:
        if taken > steps or taken % every:
            raise ValueError(
                f"The checkpoint in {checkpoints.folder} is of step {taken}, which is none of"
                f" {every}, {2 * every}, … up to {steps}; take another folder for this training."
            )
        return Steps(
            run.state, jnp.zeros(taken, run.losses.dtype), run.records * (taken // every + 1)
        )

    found = checkpoints.newest(like)
    return run if found is None else found


def _batch_digest(batch: Any) -> dict[str, str]:
    """A digest of the last batch, to notice an iterator that does not restart; empty for a batch
    without arrays.
    """
    leaves = jax.tree.leaves(batch)
    held = (
        (
            leaf.is_fully_addressable
            if isinstance(leaf, jax.Array)
            else isinstance(leaf, np.ndarray) and not leaf.dtype.hasobject
        )
        for leaf in leaves
    )
    return {"last batch": resume.digest((), leaves)} if leaves and all(held) else {}


def _next(batches: Iterator[Any], taken: int, steps: int) -> Any:
    """The batch of a step."""
    try:
        return next(batches)
    except StopIteration:
        raise ValueError(
            f"There are {taken} batches for {steps} steps; give as many as steps, or cycle through"
            " them."
        ) from None
