"""Trainings on disk, by orbax: a folder with the last two checkpoints, each whole or absent, and what they are checkpoints of."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import jax

from specjax import keeping

logger = logging.getLogger("specjax.training")

Tree = TypeVar("Tree")
Plain = str | int | float | bool | None

KEPT = 2
NAMED = 2
"""Of the arrays that differ, how many a refusal names."""


class Checkpoints:
    """The checkpoints of one training in `folder`, which is made if there is none.

    `configuration` is what makes a training this one and no other (sizes, seeds, the optimizer's name): plain values, stored beside
    the arrays, so that a run is never continued as another.

    Raises:
        ModuleNotFoundError: without orbax, which comes with the extra `train`.

    """

    def __init__(self, folder: str | PathLike[str], configuration: Mapping[str, Plain]) -> None:
        try:
            self._orbax = import_module("orbax.checkpoint")
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError("Checkpoints need orbax: pip install orbax-checkpoint.") from error
        self.folder = Path(folder).absolute()
        self._configuration = dict(configuration)
        options = self._orbax.CheckpointManagerOptions(max_to_keep=KEPT, enable_async_checkpointing=False)
        self._manager = self._orbax.CheckpointManager(self.folder, options=options)

    @property
    def step(self) -> int | None:
        """The step of the newest checkpoint; None where there is none."""
        return self._manager.latest_step()

    def save(self, step: int, tree: object) -> None:
        """Stores a tree of arrays as the checkpoint of a step."""
        args = self._orbax.args
        described = args.JsonSave({"configuration": self._configuration, "arrays": list(_arrays(tree))})
        run = args.StandardSave(jax.tree.leaves(tree))
        self._manager.save(step, args=args.Composite(run=run, description=described), force=True)

    def latest(self, like: Tree) -> Tree:
        """The newest checkpoint, or `like` itself where there is none: every array is that of its path in the tree.

        Raises:
            ValueError: for a checkpoint of another configuration, or of arrays of other paths, shapes or dtypes. Optimizers whose
                states are alike, as those of two learning rates are, only the configuration tells apart.

        """
        step = self.step
        if step is None:
            return like
        args = self._orbax.args
        described = self._manager.restore(step, args=args.Composite(description=args.JsonRestore()))["description"]
        arrays, order = _arrays(like), described["arrays"]
        self._check(described["configuration"], order, arrays)
        restored = self._manager.restore(
            step, args=args.Composite(run=args.StandardRestore([arrays[name] for name in order]))
        )
        found = dict(zip(order, restored["run"], strict=True))
        return jax.tree.unflatten(jax.tree.structure(like), [found[name] for name in arrays])

    def _check(self, stored: Mapping[str, Plain], stored_arrays: Iterable[str], arrays: Iterable[str]) -> None:
        for name in sorted({*stored, *self._configuration}):
            then, now = stored.get(name), self._configuration.get(name)
            if then != now:
                raise ValueError(
                    f"The checkpoint in {self.folder} is of a training with {name}={then!r}, not {now!r}; take another folder for this one."
                )
        if set(stored_arrays) != set(arrays):
            raise ValueError(
                f"The checkpoint in {self.folder} has {_beyond(stored_arrays, arrays)}, where this training has "
                f"{_beyond(arrays, stored_arrays)}; take another folder for this one."
            )


def kept(programs: Sequence[jax.stages.Traced], start: object) -> Checkpoints | None:
    """The checkpoints that `keeping` has for the training with these programs, from the arrays in `start`.

    None without orbax: such a training is computed as a whole or not at all, and a warning in the log says so.
    """
    if find_spec("orbax") is None:
        logger.warning(
            "this training is not kept while it runs, because orbax is missing: pip install orbax-checkpoint"
        )
        return None
    versions = {f"{package}_version": version(package) for package in ("specjax", "jax", "jaxlib")}
    identity = {
        "programs": keeping.digest(programs, jax.tree.leaves(start)),
        "platform": jax.default_backend(),
        **versions,
    }
    return Checkpoints(keeping.place(*identity.values()), identity)


def _arrays(tree: object) -> dict[str, Any]:
    """The arrays of a tree by what is known of them: path, dtype and shape."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {f"{jax.tree_util.keystr(path)} {leaf.dtype}{list(leaf.shape)}": leaf for path, leaf in leaves}


def _beyond(arrays: Iterable[str], others: Iterable[str]) -> str:
    """The first of the arrays that are not among the others."""
    rest = [name for name in arrays if name not in set(others)]
    return ", ".join(rest[:NAMED]) + (f" and {len(rest) - NAMED} more" if len(rest) > NAMED else "") or "none"
