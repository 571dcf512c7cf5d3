"""The manifest of a store: the configuration that decides its numbers, how the work is cut, and the layout of the arrays."""

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from specjax.sweep.store import journal
from specjax.sweep.store.files import replace_files
from specjax.sweep.store.layout import Layout

NAME, DATA, ASIDE = "manifest.json", "data.zarr", ".partial"
FORMAT = 1
# Longest text of a value in an error message.
_LONGEST = 80


@dataclass(frozen=True)
class Manifest:
    """What a sweep is, in JSON.

    Attributes:
        config: Everything that decides the numbers. A store is continued only by the same configuration.
        plan: How the work is cut into blocks. Whoever continues a store adopts its plan.
    """

    config: dict[str, Any]
    plan: dict[str, Any]


class Finished(NamedTuple):
    """What a finished dataset is made of: so many samples in blocks, over all points, and files that no block wrote.

    The files (coordinates, attributes, ...) are given by their path in data.zarr, with their sha256.
    """

    measured: int
    files: dict[str, str]


@dataclass(frozen=True)
class Record:
    """The content of a manifest file; `finished` is None until the dataset is whole."""

    manifest: Manifest
    layout: Layout
    finished: Finished | None = None

    def save(self, path: Path) -> None:
        """Write to the manifest file of the store at `path`, in place of an older one."""
        layout = {
            **{name: getattr(self.layout, name) for name in ("axes", "extents", "split", "sample", "samples", "chunk")},
            "variables": {
                name: {"shape": variable.shape, "dtype": np.dtype(variable.dtype).name}
                for name, variable in self.layout.variables.items()
            },
        }
        config = _plain(self.manifest.config)
        content = {
            "format": FORMAT,
            "config_sha256": _sha256(config),
            "config": config,
            "plan": self.manifest.plan,
            "layout": layout,
            "finished": None if self.finished is None else self.finished._asdict(),
        }
        replace_files(path / ASIDE, [(path / NAME, (json.dumps(content, indent=1) + "\n").encode())])

    def with_samples(self, samples: int) -> "Record":
        """The record of a store with more samples, unfinished."""
        return dataclasses.replace(self, layout=dataclasses.replace(self.layout, samples=samples), finished=None)


def read_manifest(path: Path) -> Manifest | None:
    """The manifest of the store at `path`, or None where there is no store yet: no folder, an empty one, or a store without any block.

    Raises:
        ValueError: `path` is a file, a folder with other content, or a store this version cannot read.
    """
    record = read_record(path)
    return None if record is None or begun(path) else record.manifest


def begun(path: Path) -> bool:
    """Whether the store at `path` is only begun: no block was ever finished in it, so that it binds no measurement to anything."""
    return (path / journal.NAME).exists() and not (path / journal.NAME).stat().st_size


def read_record(path: Path) -> Record | None:
    """As `read_manifest`, with the layout of the arrays."""
    try:
        if not os.path.lexists(path):
            return None
        if not path.is_dir():
            raise ValueError(f"{path} is a file, and a store is a folder; choose another path.")
        names = set(os.listdir(path))
        foreign = sorted(names - {NAME, DATA, ASIDE, journal.NAME})
        if foreign:
            raise ValueError(f"{path} holds {foreign[0]!r}, so it is no store of a sweep; choose another path.")
        if NAME not in names:
            # The manifest is the last file of a new store, and a block is noted only after it.
            if names and (journal.NAME not in names or (path / journal.NAME).stat().st_size):
                raise ValueError(
                    f"{path} has no {NAME}, so its content is unknown; put it back, or choose another path."
                )
            return None
        text = (path / NAME).read_bytes()
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror or error}); choose another path.") from error
    return _parse(path, text)


def require_same(path: Path, stored: Record, config: Mapping[str, Any], layout: Layout) -> None:
    """Raise ValueError naming every field in which a store differs from what is asked of it."""
    differing = _differences("", stored.manifest.config, _plain(config))
    if not differing:
        # Where the configuration agrees, these differ only if the measurement has changed in a way its fingerprint missed.
        differing = _differences("", _shape(stored.layout), _shape(layout))
    if differing:
        told = "; ".join(f"{name} is {there} there and {here} here" for name, there, here in differing)
        raise ValueError(
            f"{path} holds a sweep of another configuration: {told}; choose another path, or ask for the stored configuration."
        )


def _parse(path: Path, text: bytes) -> Record:
    try:
        content = json.loads(text)
        if content["format"] != FORMAT:
            raise ValueError(
                f"{path} is a store of format {content['format']}, and this version reads format {FORMAT}; "
                f"use the version that wrote it, or choose another path."
            )
        intact = content["config_sha256"] == _sha256(content["config"])
        layout = content["layout"]
        variables = {
            name: jax.ShapeDtypeStruct(tuple(variable["shape"]), np.dtype(variable["dtype"]))
            for name, variable in layout.pop("variables").items()
        }
        plain: dict[str, Any] = {k: tuple(value) if isinstance(value, list) else value for k, value in layout.items()}
        finished = content["finished"]
        record = Record(
            Manifest(content["config"], content["plan"]),
            Layout(**plain, variables=variables),
            None if finished is None else Finished(**finished),
        )
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"The {NAME} of {path} cannot be read ({type(error).__name__}: {error}); put it back, or choose another path."
        ) from error
    if not intact:
        raise ValueError(f"The {NAME} of {path} has been changed; put it back as it was, or choose another path.")
    return record


def _shape(layout: Layout) -> dict[str, Any]:
    variables = {
        name: [list(variable.shape), np.dtype(variable.dtype).name] for name, variable in layout.variables.items()
    }
    return {
        "axes": dict(zip(layout.axes, layout.extents, strict=True)),
        "sample": layout.sample,
        "variables": variables,
    }


def _differences(name: str, stored: Any, asked: Any) -> list[tuple[str, str, str]]:
    """The fields, by dotted names, in which two JSON values differ, with their texts."""
    if isinstance(stored, dict) and isinstance(asked, dict):
        nothing = object()
        found: list[tuple[str, str, str]] = []
        for key in [*stored, *(key for key in asked if key not in stored)]:
            below = f"{name}.{key}" if name else key
            pair = stored.get(key, nothing), asked.get(key, nothing)
            if nothing in pair:
                there, here = ("absent" if value is nothing else _text(value) for value in pair)
                found.append((below, there, here))
            else:
                found += _differences(below, *pair)
        return found
    if _canonical(stored) == _canonical(asked):
        return []
    if (
        isinstance(stored, list)
        and isinstance(asked, list)
        and max(map(len, map(_canonical, (stored, asked)))) > _LONGEST
    ):
        if len(stored) != len(asked):
            return [(name, f"a list of {len(stored)}", f"a list of {len(asked)}")]
        return [
            one
            for at, pair in enumerate(zip(stored, asked, strict=True))
            for one in _differences(f"{name}[{at}]", *pair)
        ][:1]
    return [(name, _text(stored), _text(asked))]


def _text(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _plain(value: Any) -> Any:
    """As JSON gives it back: lists for tuples, strings for keys."""
    return json.loads(json.dumps(value))


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _sha256(config: Any) -> str:
    return hashlib.sha256(_canonical(config).encode()).hexdigest()
