"""The record of a result: its experiment, configuration, seed, versions, device and commit."""

import dataclasses
import os
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax

from specjax.lab import Config, Experiment, Table
from specjax.lab.check import Check

_PACKAGES = ("specjax", "jax", "jaxlib", "numpy", "optax", "equinox")


@dataclass(frozen=True)
class Record:
    """The contents of `config.json`: all facts of a run except its data and verdicts.

    `commit` is the commit of the specjax that ran, None where it did not run from a git checkout;
    `modified` says whether that checkout had uncommitted changes. `judged` is the commit of the
    specjax that judged the data, where they were judged again later. `memory` is the most bytes
    that the process held during the run, None where that is not known. `headlines_alone` says that
    the run computed and judged the headlines of its experiment and no other statement.
    """

    name: str
    paper: str
    source: str
    title: str
    summary: str
    scale: str
    config: Mapping[str, Any]
    seed: int
    versions: Mapping[str, str]
    device: Mapping[str, Any]
    commit: str | None
    modified: bool
    started: str
    seconds: float
    judged: str | None = None
    memory: int | None = None
    headlines_alone: bool = False

    @property
    def fields(self) -> dict[str, Any]:
        """The configuration with tuples, as the experiment takes it, in place of JSON's lists."""
        return {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in self.config.items()
        }


@dataclass(frozen=True)
class Result:
    """A stored run: its record, checks and tables. Its data and figures stay in files; a `recorded`
    result has neither. `has_grid` says whether all statements have a figure of their own.
    """

    record: Record
    checks: tuple[Check, ...]
    tables: tuple[Table, ...]
    recorded: bool = False
    has_grid: bool = False

    @property
    def surprises(self) -> tuple[Check, ...]:
        """The checks whose verdict differs from the expected one."""
        return tuple(check for check in self.checks if check.surprising)


def describe(experiment: Experiment[Any], scale: str, config: Config) -> Record:
    """The record of a run that starts now."""
    devices = jax.devices()
    commit, modified = _commit()
    return Record(
        name=experiment.name,
        paper=experiment.paper,
        source=experiment.source,
        title=experiment.title,
        summary=experiment.summary,
        scale=scale,
        config=dataclasses.asdict(config),
        seed=config.seed,
        versions={package: version(package) for package in _PACKAGES}
        | {"python": platform.python_version()},
        device={
            "platform": devices[0].platform,
            "kind": devices[0].device_kind,
            "count": len(devices),
            "host": f"{os.cpu_count()}-core {platform.machine().replace('_', '-')} CPU",
        },
        commit=commit,
        modified=modified,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=0.0,
    )


def described_again(record: Record, experiment: Experiment[Any]) -> Record:
    """The record of a run whose data are judged again now: title, summary and commit of judging
    change.
    """
    commit, modified = _commit()
    judged = None if commit is None else commit + (" with changes" if modified else "")
    return dataclasses.replace(
        record,
        source=experiment.source,
        title=experiment.title,
        summary=experiment.summary,
        judged=judged,
    )


def _commit() -> tuple[str | None, bool]:
    # A specjax installed inside somebody else's checkout must not report their commit: git has to
    # track this very file.
    if _git("ls-files", "--error-unmatch", Path(__file__).name) is None:
        return None, False
    commit = _git("rev-parse", "HEAD")
    return commit, commit is not None and bool(
        _git("status", "--porcelain", "--untracked-files=no")
    )


def _git(*arguments: str) -> str | None:
    command = ["git", "-C", str(Path(__file__).parent), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
