"""Trainings on disk, by orbax: a folder with the last two checkpoints, each whole or absent, and what they are checkpoints of."""

from collections.abc import Mapping
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import jax

Tree = TypeVar("Tree")
Plain = str | int | float | bool | None

KEPT = 2


class Checkpoints:
    """The checkpoints of one training in `folder`, which is made if there is none.

    `configuration` is what makes a training this one and no other (sizes, seeds, the optimizer's name): plain values, stored beside
    the arrays, so that a run is never continued as another.

    Raises:
        ModuleNotFoundError: without orbax, which comes with `pip install specjax[train]`.

    """

    def __init__(self, folder: str | PathLike[str], configuration: Mapping[str, Plain]) -> None:
        try:
            self._orbax = import_module("orbax.checkpoint")
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError("Checkpoints need orbax: pip install 'specjax[train]'.") from error
        self.folder = Path(folder).absolute()
        self._configuration = dict(configuration)
        options = self._orbax.CheckpointManagerOptions(max_to_keep=KEPT, enable_async_checkpointing=False)
        self._manager = self._orbax.CheckpointManager(self.folder, options=options)

    def save(self, step: int, tree: object) -> None:
        """Stores a tree of arrays as the checkpoint of a step."""
        args = self._orbax.args
        described = args.JsonSave({"configuration": self._configuration, "arrays": _arrays(tree)})
        run = args.StandardSave(jax.tree.leaves(tree))
        self._manager.save(step, args=args.Composite(run=run, description=described), force=True)

    def latest(self, like: Tree) -> Tree:
        """The newest checkpoint, or `like` itself, a tree of the same shapes, where there is none.

        Raises:
            ValueError: for a checkpoint of another configuration, or of arrays of other shapes.

        """
        step = self._manager.latest_step()
        if step is None:
            return like
        args = self._orbax.args
        described = self._manager.restore(step, args=args.Composite(description=args.JsonRestore()))["description"]
        self._check(described["configuration"], described["arrays"], _arrays(like))
        leaves, treedef = jax.tree.flatten(like)
        restored = self._manager.restore(step, args=args.Composite(run=args.StandardRestore(leaves)))
        return jax.tree.unflatten(treedef, restored["run"])

    def _check(self, stored: Mapping[str, Plain], stored_arrays: list[str], arrays: list[str]) -> None:
        for name in sorted({*stored, *self._configuration}):
            then, now = stored.get(name), self._configuration.get(name)
            if then != now:
                raise ValueError(
                    f"The checkpoint in {self.folder} is of a training with {name}={then!r}, not {now!r}; take another folder for this one."
                )
        if stored_arrays != arrays:
            raise ValueError(
                f"The checkpoint in {self.folder} is of a training of {len(stored_arrays)} arrays of other shapes than the "
                f"{len(arrays)} of this one; take another folder for this one."
            )


def _arrays(tree: object) -> list[str]:
    def described(x: Any) -> str:
        return f"{x.dtype}{list(x.shape)}"

    return [described(leaf) for leaf in jax.tree.leaves(tree)]
