"""The JSON description of a sweep in a store: configuration, plan, and axes."""

import json
import os
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import xarray as xr

from specjax import resume
from specjax.sweep._store.files import checksum, find_blocks

NAME, LOCK = "sweep.json", "lock"


@dataclass(frozen=True)
class Description:
    """A sweep as JSON.

    Attributes:
        config: Everything that decides the numbers; a store is continued only with an equal one.
        plan: How they are cut into blocks; whoever continues a store adopts its plan.
        places: The indices of each bucket along every axis.
        sample: The dimension behind the axes.
        form: The dataset's `to_dict` without data, except for the coordinates of axes.
    """

    config: dict[str, Any]
    plan: dict[str, Any]
    places: list[list[list[int]]]
    sample: str
    form: dict[str, Any]

    @classmethod
    def of(cls, dataset: xr.Dataset, sample: str, **fields: Any) -> "Description":
        """The description of a sweep whose dataset has the form of `dataset`."""
        rest = dataset.drop_vars([sample, *dataset.data_vars]).to_dict()
        form = {**dataset.to_dict(data=False), "coords": rest["coords"]}
        return cls(**json.loads(json.dumps({**fields, "sample": sample, "form": form})))

    @property
    def identity(self) -> str:
        """A checksum that the blocks of this sweep, with this plan, share with no others."""
        return checksum(json.dumps([self.config, self.plan]).encode())

    @property
    def samples(self) -> int:
        """The number of samples requested."""
        return int(self.form["dims"][self.sample])

    def to_json(self) -> bytes:
        """The content of the file, with its checksum."""
        return json.dumps(
            [checksum(json.dumps(asdict(self)).encode()), asdict(self)], indent=1
        ).encode()

    def require(self, asked: "Description", path: Path) -> None:
        """Raise ValueError, with the differing fields, if `asked` is another sweep."""
        there, here = _leaves(self.config), _leaves(asked.config)
        differ = [key for key in {**there, **here} if there.get(key) != here.get(key)]
        differences = [
            f"{key} is {there.get(key, 'absent')} there and {here.get(key, 'absent')} here"
            for key in differ
        ]
        if differences:
            differences[5:] = ["..."] * (len(differences) > 5)
            raise ValueError(
                f"{path} holds a sweep of another configuration: {'; '.join(differences)}; choose"
                " another path, or ask for it."
            )


def read_description(path: Path) -> Description | None:
    """The description in the store at `path`, or None if it has no block yet.

    Raises:
        ValueError: the folder holds something that this version cannot read.
    """
    if not os.path.lexists(path):
        return None
    with in_one_sentence(path):
        blocks = find_blocks(path)
        # Systems leave files such as .DS_Store in every folder.
        foreign = {name for name in os.listdir(path) if not name.startswith(".")} - {NAME, LOCK}
        if not blocks and not foreign:
            return None
        # A file that is not JSON, or is other JSON, raises any of these.
        with suppress(FileNotFoundError, ValueError, TypeError, RecursionError):
            written, fields = json.loads((path / NAME).read_bytes())
            if written == checksum(json.dumps(fields).encode()):
                return Description(**fields) if blocks else None
    if blocks:
        raise ValueError(
            f"{path} has blocks, but its {NAME} is not what was written; put it back, or choose"
            " another path."
        )
    raise ValueError(
        f"{path} holds {min(foreign)!r}, so it is not a store of this version; if an earlier one"
        " wrote it, continue with that, or choose another path."
    )


def in_one_sentence(path: Path) -> AbstractContextManager[None]:
    """Raise as StoreError, in one sentence, why the store at `path` cannot be used."""
    return resume.explained_errors(f"The store {path}", "finished blocks")


def _leaves(value: Any, place: str = "") -> dict[str, str]:
    """The values in a configuration as JSON, by their places, and the order of named values.

    The order counts: axes in another order are other arrays.
    """
    if not isinstance(value, dict | list):
        return {place: json.dumps(value)}
    named = value if isinstance(value, dict) else dict(enumerate(value))
    leaves = (
        {f"the order of {place}": ", ".join(value)}
        if isinstance(value, dict) and place and len(value) > 1
        else {}
    )
    for name, part in named.items():
        leaves |= _leaves(part, f"{place}.{name}" if place else str(name))
    return leaves
