"""What a store says of its sweep, in JSON: the configuration that decides the numbers, the plan
that cuts them, the axes.
"""

import json
import os
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import xarray as xr

from specjax import resume
from specjax.sweep.store.files import checksum, find_blocks

NAME, LOCK = "sweep.json", "lock"


@dataclass(frozen=True)
class Description:
    """A sweep, as JSON gives it back."""

    config: dict[
        str, Any
    ]  # everything that decides the numbers: a store is continued only by the same
    plan: dict[str, Any]  # how they are cut into blocks: whoever continues a store adopts its plan
    places: list[list[list[int]]]  # the indices of each bucket along every axis
    sample: str  # the dimension behind the axes
    form: dict[
        str, Any
    ]  # of the dataset: its `to_dict` without data, but for the coordinates of axes

    @classmethod
    def of(cls, dataset: xr.Dataset, sample: str, **fields: Any) -> "Description":
        """The description of a sweep whose dataset has this form."""
        rest = dataset.drop_vars([sample, *dataset.data_vars]).to_dict()
        form = {**dataset.to_dict(data=False), "coords": rest["coords"]}
        return cls(**json.loads(json.dumps({**fields, "sample": sample, "form": form})))

    @property
    def identity(self) -> str:
        """What the blocks of this sweep, cut in this way, have in common with no other's."""
        return checksum(json.dumps([self.config, self.plan]).encode())

    @property
    def samples(self) -> int:
        """How many samples are asked for."""
        return int(self.form["dims"][self.sample])

    def to_json(self) -> bytes:
        """The content of the file, with its checksum."""
        return json.dumps(
            [checksum(json.dumps(asdict(self)).encode()), asdict(self)], indent=1
        ).encode()

    def require(self, asked: "Description", path: Path) -> None:
        """Raises ValueError if this, of the store at `path`, is another sweep than `asked`, with
        the fields that differ.
        """
        there, here = _leaves(self.config), _leaves(asked.config)
        differ = [key for key in {**there, **here} if there.get(key) != here.get(key)]
        told = [
            f"{key} is {there.get(key, 'absent')} there and {here.get(key, 'absent')} here"
            for key in differ
        ]
        if told:
            told[5:] = ["..."] * (len(told) > 5)
            what = f"a sweep of another configuration: {'; '.join(told)}"
            raise ValueError(f"{path} holds {what}; choose another path, or ask for it.")


def read_description(path: Path) -> Description | None:
    """What the store at `path` says, or None if there is no block yet; ValueError if there is what
    this version cannot read.
    """
    if not os.path.lexists(path):
        return None
    with in_one_sentence(path):
        blocks = find_blocks(path)
        # What a system leaves in every folder, such as .DS_Store, is nobody's.
        foreign = {name for name in os.listdir(path) if not name.startswith(".")} - {NAME, LOCK}
        if not blocks and not foreign:
            return None
        # Of a file that is not JSON at all, or is other JSON, any of these.
        with suppress(FileNotFoundError, ValueError, TypeError, RecursionError):
            written, fields = json.loads((path / NAME).read_bytes())
            if written == checksum(json.dumps(fields).encode()):
                return Description(**fields) if blocks else None
    if blocks:
        raise ValueError(
            f"{path} has blocks, but its {NAME} is not what was written; put it back, or choose"
            " another path."
        )
    told = (
        f"holds {min(foreign)!r}, so it is no store of this version; if an earlier one wrote it,"
        " continue with that"
    )
    raise ValueError(f"{path} {told}, or choose another path.")


def in_one_sentence(path: Path) -> AbstractContextManager[None]:
    """Says in one sentence why the store at `path` cannot be used, as StoreError."""
    return resume.explained_errors(f"The store {path}", "finished blocks")


def _leaves(value: Any, place: str = "") -> dict[str, str]:
    """The values in a configuration as JSON, by their places, and the order of what has names: axes
    in another order are other arrays.
    """
    if not isinstance(value, dict | list):
        return {place: json.dumps(value)}
    named = value if isinstance(value, dict) else dict(enumerate(value))
    found = (
        {f"the order of {place}": ", ".join(value)}
        if isinstance(value, dict) and place and len(value) > 1
        else {}
    )
    for name, part in named.items():
        found |= _leaves(part, f"{place}.{name}" if place else str(name))
    return found
