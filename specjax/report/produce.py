"""From an experiment and a configuration to a stored result, and from stored results to the
report.
"""

import dataclasses
import json
import time
import warnings
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from specjax import experiments
from specjax.lab import Check, Config, Data, Experiment, Judgement
from specjax.report import html, markdown, peak_memory, result_store, thumbnails, unfinished
from specjax.report.record import Record, Result, describe, described_again

MARKDOWN, HTML = "report.md", "report.html"


class Refused(ValueError):
    """An experiment's own words on why it cannot run as asked, or cannot judge what came out."""


def produce(experiment: Experiment[Any], scale: str, config: Config, out: Path) -> Result:
    """Run an experiment, judge it, draw it and store it in `out/NAME`.

    Raises Refused where the experiment refuses its configuration or its data with a ValueError;
    other exceptions pass through. In either case the result in `out` is as it was before. What ran
    and could not be judged is kept in `out/NAME.unjudged.nc`. What its sweeps and trainings compute
    is kept as they run, and the same call goes on from it, until
    `discard(unfinished_in(...))`: that is for the caller, who knows when nothing will be asked for
        again.
    """
    record = describe(experiment, scale, config)
    peak_memory.forget()
    # A configuration that JSON cannot hold is better refused now than after the run.
    json.dumps(record.config, allow_nan=False)
    start = time.perf_counter()
    try:
        with unfinished.kept(unfinished.unfinished_in(out, experiment.name, config)):
            data = experiment.run(config)
    except ValueError as error:
        raise Refused(str(error)) from error
    try:
        judgements = experiment.judge(config, data)
    except ValueError as error:
        kept = result_store.save_unjudged(out, experiment.name, data)
        raise Refused(f"{error} The data of the run are kept in {kept}.") from error
    result, figure = _concluded(record, experiment, config, data, judgements)
    seconds = round(time.perf_counter() - start, 3)
    result = dataclasses.replace(
        result, record=dataclasses.replace(record, seconds=seconds, memory=peak_memory.peak())
    )
    result_store.save(out, result, data, figure)
    return result


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
    stored, experiment = result_store.load(folder), experiments.load(name)
    try:
        config = experiment.config(**stored.record.fields)
    except (TypeError, ValueError) as error:
        raise Refused(
            f"{name} no longer has the configuration of the result in {folder} ({error}); run it"
            " again."
        ) from error
    data = result_store.load_data(folder)
    try:
        judgements = experiment.judge(config, data)
    except (ValueError, KeyError) as error:
        raise Refused(
            f"{name} cannot judge the data in {folder} ({error}); run it again."
        ) from error
    record = described_again(stored.record, experiment)
    result, figure = _concluded(record, experiment, config, data, judgements)
    result_store.save(out, result, data, figure)
    return result


def _concluded(
    record: Record,
    experiment: Experiment[Any],
    config: Config,
    data: Data,
    judgements: list[Judgement],
) -> tuple[Result, Figure]:
    checks = tuple(map(Check.of, judgements))
    return Result(
        record, checks, tuple(experiment.tabulate(config, data, judgements))
    ), experiment.draw(config, data)


def refresh(out: Path) -> None:
    """Write `report.md`, `report.html` and the thumbnails that are missing, from the results that
    `out` holds.

    Raises:
        ValueError: a record that cannot be read, or the report cannot be written.

    Warns:
        LeftOutWarning: what cannot be read is left out, and so is the thumbnail of a figure that
            cannot.
    """
    results = result_store.load_all(out)
    for result in results:
        folder = out / result.record.name
        try:
            thumbnails.ensure(folder)
        except Exception as error:  # of a damaged picture Pillow raises whatever it meets
            told = (
                f"Left out: there is no thumbnail of {folder / result_store.FIGURE}"
                f" ({' '.join(str(error).split())})."
            )
            warnings.warn(told, result_store.LeftOutWarning, stacklevel=2)
    try:
        result_store.write_text(out / MARKDOWN, markdown.render(results))
        result_store.write_text(out / HTML, html.render(results))
    except OSError as error:
        raise ValueError(
            f"The report in {out} cannot be written ({error.strerror or error})."
        ) from error
