"""Checkpoints of a training, by orbax: a folder with the last two, each whole or absent.

A checkpoint has the checksums of its arrays. One that is damaged later is set aside, and the
training goes on from the one before. Who trains holds `FOLDER/lock`.
"""

import glob
import hashlib
import json
import logging
import os
import re
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from itertools import count
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import jax

from specjax import resume
from specjax.resume import StoreError

logger = logging.getLogger("specjax.training")

Tree = TypeVar("Tree")

KEPT = 2
NAMED = 2
"""Most of the differing arrays that an error names."""
LOCK, ASIDE = "lock", "damaged-"
_STEP = re.compile(r"0|[1-9][0-9]*")


class DamagedCheckpointWarning(UserWarning):
    """A checkpoint does not have its checksums; the training resumes from an older one."""


class _DamagedError(Exception):
    """The reason why a checkpoint cannot be read."""


class Checkpoints:
    """The checkpoints of one training in `folder`, which is made if missing.

    `configuration` identifies the training (sizes, seeds, the optimizer's name) by numbers, texts,
    None, and lists of these. It is stored beside the arrays, so that a run is never resumed as
    another.

    Raises:
        ModuleNotFoundError: without orbax, which comes with the extra `train`.
        ValueError: a value of another kind in the configuration, or a folder with `*`, `?` or `[`
            in its path, a pattern for orbax.
        StoreError: the folder cannot be made.

    """

    def __init__(self, folder: str | PathLike[str], configuration: Mapping[str, Any]) -> None:
        try:
            self._orbax = import_module("orbax.checkpoint")
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                "Checkpoints need orbax: pip install orbax-checkpoint."
            ) from error
        self.folder = Path(folder).absolute()
        if glob.escape(str(self.folder)) != str(self.folder):
            raise ValueError(
                f"Checkpoints cannot be written to {self.folder}, because orbax reads *, ? and [ in"
                " a path as a pattern; choose another folder."
            )
        self._configuration = {name: _plain(name, value) for name, value in configuration.items()}
        self._made: Mapping[str, str] = {}  # digests in the resumed checkpoint
        self._refused: OSError | None = None
        # Not orbax's manager, which fails as a whole if one checkpoint is damaged.
        self._checkpointer = self._orbax.Checkpointer(self._orbax.CompositeCheckpointHandler())
        with self._in_one_sentence():
            self.folder.mkdir(parents=True, exist_ok=True)

    @property
    def step(self) -> int | None:
        """The step of the newest checkpoint, whole or damaged; None if there is none."""
        return max(self._steps(), default=None)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Within the block no other process can train into this folder. A read-only folder can be
        read.

        Raises:
            StoreError: another process trains into it.

        """
        with ExitStack() as held:
            with self._in_one_sentence():
                try:
                    if jax.process_index() == 0:  # the others write with it
                        held.enter_context(resume.locked(self.folder / LOCK))
                except BlockingIOError:
                    raise
                except OSError as error:
                    self._refused = error
            yield

    def require_writable(self) -> None:
        """Raise StoreError if the folder could not be locked for `writing`, before any step is
        taken.
        """
        with self._in_one_sentence():
            if self._refused is not None:
                raise self._refused

    def save(self, step: int, tree: object, made: Mapping[str, str] | None = None) -> None:
        """Store a tree of arrays as the checkpoint of a step; `made` are digests of the programs,
        for `require_same`.
        """
        args = self._orbax.args
        arrays = {name: _digest(leaf) for name, leaf in _arrays(tree).items()}
        described = {
            "step": step,
            "configuration": self._configuration,
            "arrays": arrays,
            "made": dict(made or {}),
        }
        run = args.StandardSave(jax.tree.leaves(tree))
        description = args.JsonSave({"checksum": _checksum(described), **described})
        with self._in_one_sentence():
            composite = args.Composite(run=run, description=description)
            self._checkpointer.save(self.folder / str(step), args=composite, force=True)
        for old in sorted(self._steps())[:-KEPT] if jax.process_index() == 0 else ():
            shutil.rmtree(self.folder / str(old), ignore_errors=True)

    def latest(self, like: Tree) -> Tree:
        """The newest whole checkpoint, or `like` if there is none; arrays are matched by their
        paths in the tree.

        Raises:
            ValueError: for a checkpoint of another configuration, or of arrays of other paths,
                shapes or dtypes. Optimizers whose states are alike, as those of two learning rates
                are, only the configuration distinguishes.
            StoreError: there are checkpoints, and each is damaged.

        Warns:
            DamagedCheckpointWarning: a newer one is damaged, and set aside.

        """
        found = self.newest(lambda _: like)
        return like if found is None else found

    def newest(self, like: Callable[[int], Tree]) -> Tree | None:
        """As `latest`, for trees that depend on the step; None if there is no checkpoint."""
        damaged: dict[int, _DamagedError] = {}
        for step in sorted(self._steps(), reverse=True):
            try:
                found = self._read(step, like)
            except _DamagedError as error:
                damaged[step] = error
                continue
            for each in damaged:
                self._set_aside(each, step)
            return found
        if damaged:
            reasons = "; ".join(f"step {step}: {reason}" for step, reason in damaged.items())
            message = (
                f"None of the checkpoints in {self.folder} can be read ({reasons}); delete them to"
                " begin anew."
            )
            raise StoreError(message) from damaged[max(damaged)]
        return None

    def require_same(self, made: Mapping[str, str]) -> None:
        """Raise ValueError if a digest differs from that of the resumed checkpoint; missing ones
        are not compared.
        """
        for name, digest in made.items():
            if self._made.get(name, digest) != digest:
                what = name.partition(" (")[0]
                raise ValueError(
                    f"The checkpoint in {self.folder} is of a training with another {what}; take"
                    " another folder for this one."
                )

    def _read(self, step: int, like: Callable[[int], Tree]) -> Tree:
        args = self._orbax.args
        described = self._description(step)
        tree = like(step)
        arrays, order = _arrays(tree), list(described["arrays"])
        self._check(described["configuration"], order, arrays)
        run = self._restore(step, run=args.StandardRestore([arrays[name] for name in order]))
        found = dict(zip(order, run, strict=True))
        if isinstance(described["arrays"], dict):  # an earlier version stored no checksums
            for name, digest in described["arrays"].items():
                if digest and _digest(found[name]) != digest:
                    raise _DamagedError(f"{name} is not what was written")
        # A program takes the arrays in their order.
        self._made = described.get("made", {}) if order == list(arrays) else {}
        return jax.tree.unflatten(jax.tree.structure(tree), [found[name] for name in arrays])

    def _description(self, step: int) -> dict[str, Any]:
        if (self.folder / str(step)).is_symlink():
            raise _DamagedError("it is a link")
        described = self._restore(step, description=self._orbax.args.JsonRestore())
        checksum = described.pop("checksum", None) if isinstance(described, dict) else ""
        if checksum is not None and checksum != _checksum(described):
            raise _DamagedError("its description is not what was written")
        if not {"configuration", "arrays"} <= set(described):
            raise _DamagedError("it has no description")
        if described.get("step", step) != step:
            raise _DamagedError(f"it is that of step {described['step']}")
        return described

    def _restore(self, step: int, **args: Any) -> Any:
        (name,) = args
        try:
            return self._checkpointer.restore(
                self.folder / str(step), args=self._orbax.args.Composite(**args)
            )[name]
        # of damaged files orbax and tensorstore raise whatever they meet, over many lines
        except Exception as error:
            raise _DamagedError(type(error).__name__) from error

    def _steps(self) -> list[int]:
        """The steps of all checkpoints, whole or damaged."""
        with self._in_one_sentence():
            names = [path.name for path in self.folder.iterdir() if path.is_dir()]
        return [int(name) for name in names if _STEP.fullmatch(name)]

    def _in_one_sentence(self) -> AbstractContextManager[None]:
        return resume.explained_errors(f"The folder {self.folder}", "checkpoints")

    def _set_aside(self, step: int, whole: int) -> None:
        """Rename a damaged checkpoint, which would be in the way of the next one of that step, and
        warn.
        """
        message = f"The checkpoint of step {step} in {self.folder} is damaged"
        if self._refused is None and jax.process_index() == 0:
            names = (f"{ASIDE}{step}{'' if number == 0 else f'-{number}'}" for number in count())
            aside = next(name for name in names if not os.path.lexists(self.folder / name))
            (self.folder / str(step)).rename(self.folder / aside)
            message += f", and kept as {aside}"
        warnings.warn(
            f"{message}; the training goes on from that of step {whole}.",
            DamagedCheckpointWarning,
            stacklevel=5,
        )

    def _check(
        self, stored: Mapping[str, Any], stored_arrays: Iterable[str], arrays: Iterable[str]
    ) -> None:
        for name in sorted({*stored, *self._configuration}):
            then, now = (
                _text(each[name]) if name in each else "absent"
                for each in (stored, self._configuration)
            )
            if then != now:
                raise ValueError(
                    f"The checkpoint in {self.folder} is of a training with {name}={then}, not"
                    f" {now}; take another folder for this one."
                )
        if set(stored_arrays) != set(arrays):
            raise ValueError(
                f"The checkpoint in {self.folder} has {_beyond(stored_arrays, arrays)}, where this"
                f" training has {_beyond(arrays, stored_arrays)}; take another folder for this one."
            )


def default_checkpoints(programs: Sequence[jax.stages.Traced], start: object) -> Checkpoints | None:
    """The default checkpoints of `resume` for the training with these programs, from the arrays in
    `start`.

    Without orbax None, with a warning in the log: an interrupted training then starts anew.
    """
    if find_spec("orbax") is None:
        logger.warning(
            "this training is not kept while it runs, because orbax is missing: pip install"
            " orbax-checkpoint"
        )
        return None
    versions = {f"{package}_version": version(package) for package in ("specjax", "jax", "jaxlib")}
    identity = {
        "programs": resume.digest(programs, jax.tree.leaves(start)),
        "platform": jax.default_backend(),
        **versions,
    }
    return Checkpoints(resume.subfolder(*identity.values()), identity)


def _arrays(tree: object) -> dict[str, Any]:
    """The arrays of a tree by path, dtype and shape."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {
        f"{jax.tree_util.keystr(path)} {leaf.dtype}{list(leaf.shape)}": leaf
        for path, leaf in leaves
    }


def _beyond(arrays: Iterable[str], others: Iterable[str]) -> str:
    """The first arrays that are not among the others, as text."""
    rest = [name for name in arrays if name not in set(others)]
    return (
        ", ".join(rest[:NAMED]) + (f" and {len(rest) - NAMED} more" if len(rest) > NAMED else "")
        or "none"
    )


def digests(**functions: jax.stages.Traced) -> dict[str, str]:
    """Digests of programs by name, for `require_same`; they are compared only for equal versions of
    JAX and equal platforms.
    """
    by = f"jax {version('jax')}, jaxlib {version('jaxlib')}, {jax.default_backend()}"
    return {f"{name} (by {by})": resume.digest([traced]) for name, traced in functions.items()}


def _plain(name: str, value: Any) -> Any:
    """A value as JSON returns it."""
    if isinstance(value, list | tuple):
        return [_plain(name, each) for each in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(name, each) for key, each in value.items()}
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if hasattr(value, "tolist") and isinstance(
        found := value.tolist(), str | bool | int | float | list
    ):
        return found
    raise ValueError(
        f"The configuration of checkpoints has {name}={value!r}, of type {type(value).__name__};"
        " give numbers, texts, or lists of these."
    )


def _text(value: Any) -> str:
    """A value of a configuration as text for comparison and errors: NaN equals NaN, and 1.0 equals
    1.
    """
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_text(value[key])}" for key in sorted(value)) + "}"
    return repr(int(value) if isinstance(value, float) and value.is_integer() else value)


def _digest(leaf: Any) -> str:
    """A checksum of an array; empty for an array of which this process holds only a part."""
    held = not isinstance(leaf, jax.Array) or leaf.is_fully_addressable or leaf.is_fully_replicated
    return resume.digest((), [leaf]) if held else ""


def _checksum(described: Any) -> str:
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()
