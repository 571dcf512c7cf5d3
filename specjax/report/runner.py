"""Run experiments, one or several at a time, and store their results; judge stored results again;
write the report of a folder of results.
"""

import dataclasses
import json
import os
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import jax
from matplotlib.figure import Figure

from specjax import experiments
from specjax.compilation_cache import persistent
from specjax.lab import Config, Experiment, Judgement
from specjax.lab.check import Check
from specjax.lab.experiment import SCALES, Data
from specjax.report import _html, _markdown, _parallel, _peak_memory, _thumbnails, result_store
from specjax.report._record import Record, Result, describe, described_again
from specjax.report._resume_dir import resumable
from specjax.report.text_progress import log_progress

MARKDOWN, HTML = "report.md", "report.html"


class Refused(ValueError):
    """An experiment refuses its configuration, or cannot judge its data; it says why."""


@dataclass(frozen=True)
class Outcome:
    """The result of an experiment, or None with the sentence and the trace of its failure."""

    name: str
    seconds: float
    result: Result | None
    failure: str = ""
    trace: str = ""


def produce(
    experiment: Experiment[Any],
    scale: str,
    config: Config,
    out: Path,
    *,
    headlines_alone: bool = False,
) -> Result:
    """Run an experiment, judge it, draw it and store it in `out/NAME`; all its statements, or its
    headlines alone and no sweep that they do not read.

    Sweeps and trainings keep what they compute in the resume folder, so the same call goes on from
    there after an interrupt. The folder stays until the caller calls `discard(result, out)`, since
    only the caller knows when the result will not be computed again. Where standard error is not a
    terminal it gets lines of progress.

    Raises:
        Refused: the experiment refuses its configuration or its data with a ValueError. Data that
            could not be judged are kept in `out/NAME.unjudged.nc`.

    Other exceptions pass through. After any exception the older result in `out` is as it was.
    """
    if headlines_alone:
        experiment = experiment.with_headlines_alone()
    record = dataclasses.replace(
        describe(experiment, scale, config), headlines_alone=headlines_alone
    )
    _peak_memory.forget()
    # A configuration that JSON cannot hold is better refused now than after the run.
    json.dumps(record.config, allow_nan=False)
    start = time.perf_counter()
    # Experiments also compile outside of sweeps.
    with log_progress(), persistent():
        try:
            with resumable(record, out):
                data = experiment.run(config)
        except ValueError as error:
            raise Refused(str(error)) from error
        try:
            judgements = experiment.judge(config, data)
        except ValueError as error:
            unjudged = result_store.save_unjudged(out, experiment.name, data)
            raise Refused(f"{error} The data of the run are kept in {unjudged}.") from error
        result, figure, grid = _concluded(record, experiment, config, data, judgements)
    seconds = round(time.perf_counter() - start, 3)
    record = dataclasses.replace(record, seconds=seconds, memory=_peak_memory.peak())
    result = dataclasses.replace(result, record=record)
    result_store.save(out, result, data, figure, grid)
    return result


def attempt(name: str, scale: str, out: Path, *, headlines_alone: bool = False) -> Outcome:
    """The outcome of one experiment at a scale: of `produce`, or of the exception it raised."""
    start = time.perf_counter()
    try:
        experiment = experiments.load(name)
        config = experiment.at(scale)
        result = produce(experiment, scale, config, out, headlines_alone=headlines_alone)
    except Exception as error:
        failure = f"{name} failed with {type(error).__name__}: {' '.join(str(error).split())}"
        seconds = time.perf_counter() - start
        return Outcome(name, seconds, None, failure, traceback.format_exc())
    return Outcome(name, time.perf_counter() - start, result)


def attempt_all(
    names: Sequence[str],
    scale: str,
    out: Path,
    jobs: int,
    begun: Callable[[str], None],
    *,
    headlines_alone: bool = False,
) -> Iterator[Outcome]:
    """The outcome of each experiment, as they end, `jobs` at a time; a failed one costs the others
    nothing. `begun` is called with each name when it begins.
    """
    ended = "its process ended; if memory was short, take --jobs 1"
    one = partial(attempt, scale=scale, out=out, headlines_alone=headlines_alone)
    for name, outcome in _parallel.each(one, names, jobs, begun):
        yield outcome or Outcome(name, 0.0, None, f"{name} failed: {ended}")


def default_jobs() -> int:
    """Experiments at a time: two on a CPU of two cores or more, as one alone does not fill both."""
    return min(2, os.cpu_count() or 1) if jax.default_backend() == "cpu" else 1


def longest_first(names: Sequence[str], recorded: Mapping[str, Result]) -> list[str]:
    """The names by the seconds of their records, descending, so that several at a time end soon;
    names without a record come first.
    """
    return sorted(
        names,
        key=lambda name: -recorded[name].record.seconds if name in recorded else float("-inf"),
    )


def without_record(
    names: Sequence[str],
    scale: str,
    recorded: Mapping[str, Result],
    results: Sequence[Result],
    *,
    headlines_alone: bool = False,
) -> list[str]:
    """The names that have neither a record nor a result of the scale or a larger one.

    A result of headlines alone counts where no other statement is asked for.
    """
    known = [
        each
        for each in (*recorded.values(), *results)
        if headlines_alone or not each.record.headlines_alone
    ]
    done = {
        each.record.name for each in known if SCALES.index(each.record.scale) >= SCALES.index(scale)
    }
    return [name for name in names if name not in done]


def work_left(
    names: Sequence[str], scale: str, total: int, recorded: Mapping[str, Result], jobs: int
) -> str:
    """One sentence: the number of experiments left of `total`, and the least time they take by
    their records of smaller scales.
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


def stored_run(name: str, out: Path) -> tuple[Experiment[Any], Result, Config, Data]:
    """The experiment, with the statements that a run judged, and the result, the configuration and
    the data of the run that is stored in `out/NAME`.

    Raises:
        ValueError: no result of this version, data that cannot be read, or no such experiment.
        Refused: a configuration with fields that the experiment no longer has, or refuses.
    """
    folder = out / name
    stored, experiment = result_store.load(folder), experiments.load(name)
    if stored.record.headlines_alone:
        experiment = experiment.with_headlines_alone()
    try:
        config = experiment.config(**stored.record.fields)
    except (TypeError, ValueError) as error:
        raise Refused(
            f"{name} no longer has the configuration of the result in {folder} ({error}); run it"
            " again."
        ) from error
    return experiment, stored, config, result_store.load_data(folder)


def judge_again(name: str, out: Path) -> Result:
    """Judge, attack, tabulate and draw the data stored in `out/NAME` by the statements as they are
    now, and store that in its place.

    For statements, rivals and closed forms that changed after a run; the data, and what the record
    says of the run, stay.

    Raises:
        ValueError: no result of this version in `out/NAME`, data that cannot be read, or no such
            experiment.
        Refused: a configuration with fields that the experiment no longer has, or refuses, or data
            that it cannot judge.
    """
    folder = out / name
    experiment, stored, config, data = stored_run(name, out)
    record = described_again(stored.record, experiment)
    with persistent():
        try:
            judgements = experiment.judge(config, data)
        except (ValueError, KeyError) as error:
            raise Refused(
                f"{name} cannot judge the data in {folder} ({error}); run it again."
            ) from error
        result, figure, grid = _concluded(record, experiment, config, data, judgements)
    result_store.save(out, result, data, figure, grid)
    return result


def _concluded(
    record: Record,
    experiment: Experiment[Any],
    config: Config,
    data: Data,
    judgements: list[Judgement],
) -> tuple[Result, Figure, Figure | None]:
    """The result, its figure, and that of all statements, if it differs."""
    checks = tuple(map(Check.from_judgement, judgements))
    tables = tuple(experiment.tabulate(config, data, judgements))
    grid = experiment.draw_statements(config, data)
    result = Result(record, checks, tables, has_grid=grid is not None)
    return result, experiment.draw(config, data), grid


def refresh(out: Path) -> None:
    """Write `report.md`, `report.html` and the thumbnails that are missing, from the results that
    `out` holds.

    Raises:
        ValueError: a record that cannot be read, or the report cannot be written.

    Warns:
        LeftOutWarning: a result or the figure of a thumbnail cannot be read, and is left out.
    """
    results = result_store.load_all(out)
    for result in results:
        folder = out / result.record.name
        try:
            _thumbnails.ensure(folder)
        except Exception as error:  # Pillow raises many types for a damaged picture
            message = (
                f"Left out: there is no thumbnail of {folder / result_store.FIGURE}"
                f" ({' '.join(str(error).split())})."
            )
            warnings.warn(message, result_store.LeftOutWarning, stacklevel=2)
    try:
        result_store.write_text(out / MARKDOWN, _markdown.render(results))
        result_store.write_text(out / HTML, _html.render(results))
    except OSError as error:
        raise ValueError(
            f"The report in {out} cannot be written ({error.strerror or error})."
        ) from error
