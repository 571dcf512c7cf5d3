"""From an experiment and a configuration to a stored result, and from stored results to the report."""

import dataclasses
import json
import time
from pathlib import Path
from typing import Any

from specjax.lab import Check, Config, Experiment
from specjax.report import html, markdown, store, thumbnails, unfinished
from specjax.report.record import Result, describe

MARKDOWN, HTML = "report.md", "report.html"


class Refused(ValueError):
    """An experiment's own words on why it cannot run as asked, or cannot judge what came out."""


def produce(experiment: Experiment[Any], scale: str, config: Config, out: Path) -> Result:
    """Run an experiment, judge it, draw it and store it in `out/NAME`.

    Raises Refused where the experiment refuses its configuration or its data with a ValueError; other exceptions pass through. In either
    case the result in `out` is as it was before. What ran and could not be judged
    is kept in `out/NAME.unjudged.nc`. What its sweeps and trainings compute is kept as they run, and the same call goes on from it, until
    `discard(unfinished_in(...))`: that is for the caller, who knows when nothing will be asked for again.
    """
    record = describe(experiment, scale, config)
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
        kept = store.save_unjudged(out, experiment.name, data)
        raise Refused(f"{error} The data of the run are kept in {kept}.") from error
    checks = tuple(map(Check.of, judgements))
    tables = tuple(experiment.tabulate(config, data, judgements))
    figure = experiment.draw(config, data)
    seconds = round(time.perf_counter() - start, 3)
    result = Result(dataclasses.replace(record, seconds=seconds), checks, tables)
    store.save(out, result, data, figure)
    return result


def refresh(out: Path) -> None:
    """Write `report.md`, `report.html` and the thumbnails that are missing, from the results that `out` holds."""
    results = store.load_all(out)
    for result in results:
        thumbnails.ensure(out / result.record.name)
    store.write_text(out / MARKDOWN, markdown.render(results))
    store.write_text(out / HTML, html.render(results))
