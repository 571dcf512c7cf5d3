"""What an experiment is: a configuration per scale, a run, the checks that judge it, a figure and tables.

Running, judging and drawing are three steps. `run` returns labelled data and nothing else; `checks` derives every verdict from
those data by a stated rule; `plot` draws them. So a stored run can be judged and drawn again.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Generic, Literal, TypeVar

import xarray as xr
from matplotlib.figure import Figure

Verdict = Literal["confirmed", "refuted", "inconclusive"]
Data = Mapping[str, xr.Dataset]
"""The datasets of a run by name, one for each sweep the experiment makes."""

ConfigT = TypeVar("ConfigT")

RUN_FLAGS = frozenset({"scale", "out", "explain", "help"})
"""Flags of `specjax run` that are no fields of a configuration."""


@dataclass(frozen=True)
class Check:
    """One statement of a paper, judged: the record that `checks.json` holds.

    `predicted` and `interval` are None where the statement is a yes/no one, and `measured` where no number could be had; `rule` says
    how the verdict follows from the numbers. `record` is what the lab knows of it besides, None where the rule is one of `verdicts`.
    """

    name: str
    source: str
    statement: str
    predicted: float | None
    measured: float | None
    interval: tuple[float, float] | None
    verdict: Verdict
    rule: str
    record: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Table:
    """A table of a report: a title, column heads, and rows of text cells."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Experiment(Generic[ConfigT]):
    """A result of a paper as a program.

    `scales` maps `smoke`, `quick` and `paper` to configurations (frozen dataclasses whose fields become command-line flags).
    `refuted` names the checks whose statement is known to be false: `specjax reproduce` fails if any verdict comes out
    otherwise than "refuted" for these and "confirmed" for the rest, but for those that are `held_open`, of which it expects nothing.

    Raises:
        ValueError: a field of a configuration with the name of a flag that every experiment has.
    """

    name: str
    paper: str
    source: str
    title: str
    summary: str
    scales: Mapping[str, ConfigT]
    run: Callable[[ConfigT], Data]
    checks: Callable[[ConfigT, Data], list[Check]]
    plot: Callable[[ConfigT, Data], Figure]
    tables: Callable[[ConfigT, Data], list[Table]]
    refuted: frozenset[str] = frozenset()
    held_open: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        for config in self.scales.values():
            taken = RUN_FLAGS & {field.name for field in fields(config)}  # type: ignore[arg-type]  # dataclasses, by contract
            if taken:
                raise ValueError(
                    f"The configuration of {self.name} has the field {min(taken)!r}, a flag of `specjax run` itself; give it another name."
                )

    def expected(self, check: Check) -> Verdict:
        """The verdict that `reproduce` expects of `check`."""
        if check.name in self.held_open:
            return check.verdict
        return "refuted" if check.name in self.refuted else "confirmed"


AnyExperiment = Experiment[Any]
