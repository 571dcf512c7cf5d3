"""Records, `records/NAME.json`: the verdicts of the largest run of each experiment, with their
numbers but without data.

They are committed, a few kilobytes each, and go into the wheel. A ledger takes from them what has
not been run, `specjax reproduce` compares its verdicts with them, and the tables of docs/papers are
written from them.
"""

import dataclasses
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import specjax
from specjax import experiments
from specjax.lab.experiment import SCALES
from specjax.lab.flags import written
from specjax.lab.table import POINTS
from specjax.report import result_store
from specjax.report._record import Result

FORMAT = 3


def home() -> Path:
    """The folder of the records: in the checkout, or in the installed package."""
    package = Path(specjax.__file__).parent
    return (
        package.parent / "records"
        if (package.parent / "pyproject.toml").is_file()
        else package / "records"
    )


def content(result: Result) -> dict[str, Any]:
    """The content of the record of a result.

    Raises:
        ValueError: a smoke run, a run of headlines alone, an experiment that there is not, or a
            configuration with a path in it, which is nobody else's.
    """
    record = result.record
    if record.scale == "smoke":
        raise ValueError(
            f"The result of {record.name} is of a smoke run, which decides nothing; run it at scale"
            " quick."
        )
    if record.headlines_alone:
        raise ValueError(
            f"The result of {record.name} has its headlines alone; make one of all its statements"
            f" by `specjax run {record.name}`."
        )
    if record.name not in experiments.names():
        raise ValueError(
            f"There is no experiment {record.name!r} in this version; make a record of one that"
            " there is."
        )
    for field, value in record.config.items():
        if isinstance(value, str) and ("/" in value or "\\" in value):
            raise ValueError(
                f"The result of {record.name} is of {field}={value!r}, a path of one machine; run"
                " it without for a record."
            )
    return {
        "format": FORMAT,
        "command": _command(result),
        "machine": _machine(record.device),
        "run": dataclasses.asdict(record),
        "checks": [
            dataclasses.asdict(dataclasses.replace(check, points=())) for check in result.checks
        ],
        "tables": [dataclasses.asdict(table) for table in result.tables if table.title != POINTS],
    }


def save(result: Result, folder: Path, *, replace: bool = False) -> Path:
    """Write the record of a result into a folder, and return its file.

    Raises:
        ValueError: as `content`, or there is a record of a larger scale or of another version,
            unless `replace`.
    """
    made = content(result)
    path = folder / f"{result.record.name}.json"
    if path.exists() and not replace:
        there, here = load(path).record.scale, result.record.scale
        if SCALES.index(here) < SCALES.index(there):
            raise ValueError(
                f"{path} is of scale {there}, and this result of {here}; say --replace to have the"
                " smaller one."
            )
    folder.mkdir(parents=True, exist_ok=True)
    result_store.write_text(
        path, json.dumps(made, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    )
    return path


def load(path: Path) -> Result:
    """The result in a record, without data and figure.

    Raises:
        ValueError: a record of another version, or no record.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["format"] != FORMAT:
            raise ValueError(
                f"{path} is a record of format {found['format']}, and this version reads {FORMAT};"
                " make it again."
            )
        result = result_store.parsed(found["run"], found["checks"], found["tables"])
        if result.record.name != path.stem:
            raise ValueError(
                f"{path} is a record by the name of {result.record.name!r}; rename it, or"
                " delete it."
            )
    except (OSError, TypeError, KeyError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(
            f"{path} is not a record that this version can read ({type(error).__name__}: {error});"
            " make it again."
        ) from error
    return dataclasses.replace(result, recorded=True)


def load_all(folder: Path | None = None) -> dict[str, Result]:
    """The records in a folder, by default in `home`, by experiment.

    Raises:
        ValueError: as `load`.
    """
    results = map(load, sorted((home() if folder is None else folder).glob("*.json")))
    return {result.record.name: result for result in results}


def beside(results: Iterable[Result]) -> list[Result]:
    """The results, and all records that are not among them."""
    found = list(results)
    there = {result.record.name for result in found if result.recorded}
    return found + [record for name, record in load_all().items() if name not in there]


def _command(result: Result) -> str:
    """The command that makes the same result: the scale, and every field that differs from it."""
    record = result.record
    usual = dataclasses.asdict(experiments.load(record.name).at(record.scale))
    words = ["specjax", "run", record.name, "--scale", record.scale]
    for field, value in record.fields.items():
        if value != usual.get(field):
            words += ["--" + field.replace("_", "-"), written(value)]
    return " ".join(words)


def _machine(device: Mapping[str, Any]) -> str:
    """The kind of machine, such as "2-core x86-64 CPU", without a host name."""
    host = device.get("host", "CPU")
    return (
        host
        if device["platform"] == "cpu"
        else f"{device['count']} × {device['kind']} ({host} host)"
    )
