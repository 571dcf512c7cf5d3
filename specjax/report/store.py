"""Result folders: one per experiment, whole or absent.

A folder is written under a hidden name beside its place and moved there when complete, so whoever reads `DIR/NAME` sees a whole
result: the new one, or after a failure the one before.
"""

import dataclasses
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import xarray as xr
from matplotlib.figure import Figure

from specjax import experiments
from specjax.lab import Check, Data, Table
from specjax.report.record import Record, Result

CONFIG, CHECKS, TABLES, DATA, FIGURE = "config.json", "checks.json", "tables.json", "data.nc", "figure.png"
THUMBNAIL = "thumbnail.webp"
_ONE = "data"
"""The name under which the dataset of a run that has one only is stored."""
_FILES = frozenset({CONFIG, CHECKS, TABLES, DATA, FIGURE, THUMBNAIL})


def require_room(out: Path, names: Sequence[str]) -> None:
    """Raise ValueError unless results called `names`, and a report, can be written in `out`; leaves nothing behind.

    Meant for before a computation: a folder that cannot be written, that holds files a new result would delete, or another
    result the report cannot read, should not be found out after it.
    """
    try:
        place = out.absolute()
        while not os.path.lexists(place):
            place = place.parent
        if not place.is_dir():
            raise ValueError(
                f"Results cannot be written to {out}, because {place} is not a folder; choose another --out."
            )
        # Permission bits say nothing to root or on a read-only file system, so the test is to write.
        with tempfile.TemporaryDirectory(prefix=".specjax-", dir=place):
            pass
    except OSError as error:
        raise ValueError(
            f"Results cannot be written to {out} ({error.strerror or error}); choose another --out."
        ) from error
    for name in names:
        folder = out / name
        if os.path.lexists(folder) and not folder.is_dir():
            raise ValueError(f"{folder} is in the way of the results of {name}; move it away or choose another --out.")
        foreign = sorted(set(os.listdir(folder)) - _FILES) if folder.is_dir() else []
        if foreign:
            raise ValueError(
                f"{folder} holds {foreign[0]}, which specjax did not write and would delete with the old result; "
                f"move it away or choose another --out."
            )
    for folder in _result_folders(out):
        if folder.name not in names:
            load(folder)


def save(out: Path, result: Result, data: Data, figure: Figure) -> Path:
    """Write a result to `out/NAME`, in place of an older one, and return that folder."""
    folder = out / result.record.name
    with _replacing(folder) as draft:
        _dump(draft / CONFIG, dataclasses.asdict(result.record))
        _dump(draft / CHECKS, [dataclasses.asdict(check) for check in result.checks])
        _dump(draft / TABLES, [dataclasses.asdict(table) for table in result.tables])
        _tree(data).to_netcdf(draft / DATA, engine="h5netcdf")
        figure.savefig(draft / FIGURE, dpi=150, format="png")
    return folder


def save_unjudged(out: Path, name: str, data: Data) -> Path:
    """Write the data of a run that could not be judged to `out/NAME.unjudged.nc`, and return that file."""
    out.mkdir(parents=True, exist_ok=True)
    kept = out / f"{name}.unjudged.nc"
    draft = kept.with_name(f".{kept.name}.{os.getpid()}")
    try:
        _tree(data).to_netcdf(draft, engine="h5netcdf")
        draft.replace(kept)
    finally:
        draft.unlink(missing_ok=True)
    return kept


def load_data(folder: Path | str) -> Data:
    """The data of a result folder as its experiment returned them, in memory."""
    with xr.open_datatree(Path(folder) / DATA, engine="h5netcdf") as tree:
        found = {name: node.to_dataset().load() for name, node in tree.children.items()}
    return found[_ONE] if set(found) == {_ONE} else found


def load(folder: Path | str) -> Result:
    """Read a result folder; raises ValueError if it does not hold a result of this version's form."""
    folder = Path(folder)
    if not (folder / CONFIG).exists():
        raise ValueError(f"There is no result in {folder}; make it by `specjax run {folder.name}`.")
    try:
        return parsed(_parse(folder / CONFIG), _parse(folder / CHECKS), _parse(folder / TABLES))
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ValueError(
            f"{folder} does not hold a result this version can read ({type(error).__name__}: {error}); "
            f"delete it or run its experiment again."
        ) from error


def parsed(record: Any, checks: Any, tables: Any) -> Result:
    """The result that these contents of its files are of, as JSON gives them; raises TypeError or KeyError for those of another version."""
    return Result(
        Record(**record),
        tuple(map(Check.parsed, checks)),
        tuple(Table(table["title"], tuple(table["header"]), tuple(map(tuple, table["rows"]))) for table in tables),
    )


def load_all(out: Path | str) -> list[Result]:
    """All results in `out`: first in the order of `specjax list`, then those of experiments this version does not know."""
    known = {name: place for place, name in enumerate(experiments.names())}
    folders = sorted(_result_folders(Path(out)), key=lambda path: (known.get(path.name, len(known)), path.name))
    return [load(folder) for folder in folders]


def write_text(path: Path, text: str) -> None:
    """Write a file as a whole: a reader sees the old text or the new one."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _result_folders(out: Path) -> list[Path]:
    folders = [path for path in out.iterdir() if not path.name.startswith(".")] if out.is_dir() else []
    return [folder for folder in folders if (folder / CONFIG).is_file() and (folder / CHECKS).is_file()]


@contextmanager
def _replacing(folder: Path) -> Iterator[Path]:
    """A draft folder that takes the place of `folder` if the block succeeds and disappears if it does not."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = folder.with_name(f".{folder.name}.{os.getpid()}.new")
    old = folder.with_name(f".{folder.name}.{os.getpid()}.old")
    try:
        draft.mkdir()
        yield draft
        # A folder cannot be renamed onto a full one, so the old result steps aside first, and back if the new one fails.
        if folder.exists():
            folder.rename(old)
        try:
            draft.rename(folder)
        except BaseException:
            if old.exists():
                old.rename(folder)
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def _tree(data: Data) -> xr.DataTree:
    return xr.DataTree.from_dict({_ONE: data} if isinstance(data, xr.Dataset) else dict(data))


def _dump(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


def _parse(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
