"""All experiments, or some, run one after another or several at a time; one that fails costs the
others nothing.
"""

import os
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

import jax

from specjax import experiments
from specjax.lab import SCALES
from specjax.report import parallel, unfinished
from specjax.report.produce import produce
from specjax.report.record import Result
from specjax.report.text_progress import told_now_and_then


@dataclass(frozen=True)
class Outcome:
    """What became of an experiment: its result, or why it failed and where; and the folder of what
    it has computed.
    """

    name: str
    seconds: float
    result: Result | None
    kept: Path | None = None
    failure: str = ""
    trace: str = ""


def jobs_here() -> int:
    """How many experiments at a time this machine holds: two on a CPU of two cores or more, of
    which one alone does not use both.
    """
    return min(2, os.cpu_count() or 1) if jax.default_backend() == "cpu" else 1


def longest_first(names: Sequence[str], recorded: Mapping[str, Result]) -> list[str]:
    """The names in the order in which several at a time end soonest, by the seconds of their
    records; without a record first.
    """
    return sorted(
        names,
        key=lambda name: -recorded[name].record.seconds if name in recorded else float("-inf"),
    )


def without_record(
    names: Sequence[str], scale: str, recorded: Mapping[str, Result], results: Sequence[Result]
) -> list[str]:
    """The names that have neither a record nor a result of the scale or a larger one."""
    known = [*recorded.values(), *results]
    there = {
        each.record.name for each in known if SCALES.index(each.record.scale) >= SCALES.index(scale)
    }
    return [name for name in names if name not in there]


def work_left(
    names: Sequence[str], scale: str, total: int, recorded: Mapping[str, Result], jobs: int
) -> str:
    """One sentence: how many experiments of `total` these are, and how long they take at least, by
    records of smaller scales.
    """
    if not names:
        have = "The experiment has" if total == 1 else f"All {total} experiments have"
        return (
            f"{have} a record or a result of scale {scale} or a larger one; nothing is left to run."
        )
    seconds = sum(recorded[name].record.seconds for name in names if name in recorded) / jobs
    longer = (
        "; by their records of smaller ones they take longer than"
        f" {timedelta(seconds=round(seconds))}"
        if seconds
        else ""
    )
    return (
        f"{len(names)} of {total} experiments have neither a record nor a result of scale {scale}"
        f" or a larger one{longer}."
    )


def attempts(
    names: Sequence[str], scale: str, out: Path, jobs: int, begun: Callable[[str], None]
) -> Iterator[Outcome]:
    """The outcome of each experiment at a scale, stored in `out/NAME`, as they end; `begun` is
    called with each when it begins.
    """
    for name, outcome in parallel.each(partial(attempt, scale=scale, out=out), names, jobs, begun):
        ended = "its process ended; if memory was short, take --jobs 1"
        yield (
            Outcome(name, 0.0, None, failure=f"{name} failed: {ended}")
            if outcome is None
            else outcome
        )


def attempt(name: str, scale: str, out: Path) -> Outcome:
    """Run, judge and store one experiment, and say what became of it."""
    start = time.perf_counter()
    try:
        experiment = experiments.load(name)
        config = experiment.at(scale)
        kept = unfinished.begin(experiment.name, config, out)
        with told_now_and_then():
            result = produce(experiment, scale, config, out)
    except Exception as error:
        failure = f"{name} failed with {type(error).__name__}: {' '.join(str(error).split())}"
        return Outcome(
            name, time.perf_counter() - start, None, failure=failure, trace=traceback.format_exc()
        )
    return Outcome(name, time.perf_counter() - start, result, kept)
