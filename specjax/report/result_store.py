"""Result folders, one for each experiment, written completely or not at all.

A folder is written under a hidden name beside its place and moved there when complete, so a reader
of `DIR/NAME` sees a whole result: the new one, or after a failure the old one. A result may come
from elsewhere, so its files must have the checksums in `SHA256SUMS`, and its name, from which links
and files are made, must be that of its folder.
"""

import dataclasses
import hashlib
import json
import os
import re
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import xarray as xr
from matplotlib.figure import Figure

from specjax import experiments, resume
from specjax.lab import Table
from specjax.lab.check import Check
from specjax.lab.experiment import SCALES, Data
from specjax.report import formatting
from specjax.report._record import Record, Result
from specjax.report._typed import require_types

CONFIG, CHECKS, TABLES, DATA, FIGURE = (
    "config.json",
    "checks.json",
    "tables.json",
    "data.nc",
    "figure.png",
)
STATEMENTS, THUMBNAIL, SUMS = "statements.png", "thumbnail.webp", "SHA256SUMS"
_ONE = "data"
"""Name in the file of the only dataset of a run."""
_FILES = frozenset({CONFIG, CHECKS, TABLES, DATA, FIGURE, STATEMENTS, THUMBNAIL, SUMS})
_KEBAB = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_LEFT_BY_SYSTEMS = frozenset({".DS_Store", "Thumbs.db", "desktop.ini"})


class LeftOutWarning(UserWarning):
    """A result or thumbnail is left out of a report, because it cannot be read or made; the message
    names it.
    """


def require_room(out: Path, names: Sequence[str]) -> None:
    """Raise ValueError unless results called `names`, and a report, can be written in `out`;
    nothing is left behind.

    To be called before a computation, which a folder that cannot be written, or holds files that a
    new result would delete, would waste.
    """
    try:
        with suppress(FileNotFoundError, NotADirectoryError):
            os.lstat(out)  # a name may be too long
        place = out.absolute()
        while not os.path.lexists(place):
            place = place.parent
        if not place.is_dir():
            raise ValueError(
                f"Results cannot be written to {out}, because {place} is not a folder; choose"
                " another --out."
            )
        # Permission bits say nothing to root or on a read-only file system, so the test is to
        # write.
        with tempfile.TemporaryDirectory(prefix=".specjax-", dir=place):
            pass
    except OSError as error:
        raise ValueError(
            f"Results cannot be written to {out} ({error.strerror or error}); choose another --out."
        ) from error
    for name in names:
        folder = out / name
        if os.path.lexists(folder) and (folder.is_symlink() or not folder.is_dir()):
            raise ValueError(
                f"{folder} is in the way of the results of {name}; move it away or choose another"
                " --out."
            )
        there = set(os.listdir(folder)) if folder.is_dir() else set()
        drafts = {
            name for name in there if name.startswith(f".{THUMBNAIL}.")
        }  # of a process that was killed
        foreign = sorted(there - _FILES - _LEFT_BY_SYSTEMS - drafts)
        if foreign:
            raise ValueError(
                f"{folder} holds {foreign[0]}, which specjax did not write and would delete with"
                " the old result; move it away or choose another --out."
            )


def save(
    out: Path, result: Result, data: Data, figure: Figure, statements: Figure | None = None
) -> Path:
    """Write a result to `out/NAME`, in place of an older one, and return that folder.

    `statements` is the figure of all statements, if `figure` shows some.
    """
    folder = out / result.record.name
    with _replacing(folder) as draft:
        _dump(draft / CONFIG, dataclasses.asdict(result.record))
        _dump(draft / CHECKS, [dataclasses.asdict(check) for check in result.checks])
        _dump(draft / TABLES, [dataclasses.asdict(table) for table in result.tables])
        _tree(data).to_netcdf(draft / DATA, engine="h5netcdf")
        figure.savefig(draft / FIGURE, dpi=150, format="png")
        if statements is not None:
            statements.savefig(draft / STATEMENTS, dpi=100, format="png")
        sums = [f"{_digest(file)}  {file.name}\n" for file in sorted(draft.iterdir())]
        (draft / SUMS).write_text("".join(sums), encoding="utf-8")
    return folder


def save_unjudged(out: Path, name: str, data: Data) -> Path:
    """Write the data of a run that could not be judged to `out/NAME.unjudged.nc`, and return that
    file.
    """
    out.mkdir(parents=True, exist_ok=True)
    kept = out / f"{name}.unjudged.nc"
    draft = kept.with_name(f".{kept.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    try:
        _tree(data).to_netcdf(draft, engine="h5netcdf")
        draft.replace(kept)
    finally:
        draft.unlink(missing_ok=True)
    return kept


def load_data(folder: Path | str) -> Data:
    """The data of a result folder as its experiment returned them; raises ValueError if they cannot
    be read.
    """
    file = Path(folder) / DATA
    try:
        require_intact(file)
        with xr.open_datatree(file, engine="h5netcdf") as tree:
            found = {name: node.to_dataset().load() for name, node in tree.children.items()}
    except Exception as error:  # HDF5 and its readers raise many types for damaged files
        raise ValueError(
            f"{file} cannot be read ({_words(error)}); run its experiment again."
        ) from error
    return found[_ONE] if set(found) == {_ONE} else found


def load(folder: Path | str) -> Result:
    """Read a result folder; raises ValueError for a folder of another version or of another
    name.
    """
    folder = Path(folder)
    if not os.path.lexists(folder / CONFIG):
        raise ValueError(f"There is no result in {folder}; make it by `specjax run {folder.name}`.")
    try:
        for file in (CONFIG, CHECKS, TABLES):
            require_intact(folder / file)
        found = parsed(_parse(folder / CONFIG), _parse(folder / CHECKS), _parse(folder / TABLES))
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(
            f"{folder} does not hold a result this version can read ({_words(error)}); "
            "delete it or run its experiment again."
        ) from error
    name = folder.absolute().name
    if found.record.name != name or not _KEBAB.fullmatch(name):
        right = (
            "which is not that of its folder"
            if found.record.name != name
            else "which is not in kebab-case"
        )
        raise ValueError(
            f"{folder} holds a result by the name of {found.record.name!r}, {right}; rename the"
            " folder, or delete it."
        )
    return dataclasses.replace(found, has_grid=os.path.lexists(folder / STATEMENTS))


def parsed(record: Any, checks: Any, tables: Any) -> Result:
    """The result in the parsed JSON of its files; raises TypeError or KeyError for those of another
    version.
    """
    require_types(Record, record)
    if record["scale"] not in SCALES:
        raise TypeError(f"the scale is one of {', '.join(SCALES)}, got {record['scale']!r}")
    for check in checks:
        require_types(Check, check)
    for table in tables:
        require_types(Table, table)
    found = Result(
        Record(**record),
        tuple(map(Check.parsed, checks)),
        tuple(
            Table(table["title"], tuple(table["header"]), tuple(map(tuple, table["rows"])))
            for table in tables
        ),
    )
    # A report needs keys that the types do not name.
    formatting.settings(found.record)
    for check in found.checks:
        formatting.attacks(check), formatting.power(check)
    return found


def load_all(out: Path | str) -> list[Result]:
    """All results in `out`, in the order of `specjax list`, then those of unknown experiments.

    Warns:
        LeftOutWarning: what cannot be read is left out, as is a link, by which files would be
            written elsewhere.
    """
    known = {name: place for place, name in enumerate(experiments.names())}
    found = []
    for folder in sorted(
        _result_folders(Path(out)), key=lambda path: (known.get(path.name, len(known)), path.name)
    ):
        try:
            if folder.is_symlink():
                raise ValueError(f"{folder} is a link; move there what it leads to.")
            found.append(load(folder))
        except ValueError as error:
            warnings.warn(f"Left out: {error}", LeftOutWarning, stacklevel=2)
    return found


def write_text(path: Path, text: str) -> None:
    """Write a file atomically: a reader sees the old text or the new one."""
    resume.write_atomically(path, text.encode(), f".{path.name}.{os.getpid()}")


def _result_folders(out: Path) -> list[Path]:
    """The folders that hold several files of a result; a single one, such as a config.json, may be
    anybody's.
    """
    if not os.path.isdir(out):
        return []
    try:
        folders = [
            path for path in out.iterdir() if not path.name.startswith(".") and os.path.isdir(path)
        ]
        return [folder for folder in folders if _could_be_one(folder)]
    except OSError as error:
        raise ValueError(
            f"The results in {out} cannot be read ({error.strerror or error}); choose another"
            " --out."
        ) from error


def _could_be_one(folder: Path) -> bool:
    try:
        return len({CONFIG, CHECKS, TABLES, DATA, SUMS} & set(os.listdir(folder))) > 1
    except PermissionError:
        return True


@contextmanager
def _replacing(folder: Path) -> Iterator[Path]:
    """Yield a draft folder that replaces `folder` if the block succeeds, and is deleted
    otherwise.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = folder.with_name(f".{folder.name}.{os.getpid()}.new")
    old = folder.with_name(f".{folder.name}.{os.getpid()}.old")
    try:
        draft.mkdir()
        yield draft
        # A folder cannot be renamed onto a full one, so the old result is moved aside first, and
        # back if the new one fails.
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
    path.write_text(
        json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8"
    )


def _parse(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def require_intact(file: Path) -> None:
    """Raise ValueError if a file does not have its checksum. Results of an earlier version have no
    checksums and pass.
    """
    sums = file.with_name(SUMS)
    if (
        os.path.lexists(sums)
        and f"{_digest(file)}  {file.name}" not in sums.read_text(encoding="utf-8").splitlines()
    ):
        raise ValueError(f"{file.name} is not what was written")


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
