"""Where the rows of a ledger stand: their statuses, from the statements that cite them and the results in a folder."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from specjax import experiments, lab
from specjax.experiments.ledgers import PAPERS, ledger
from specjax.report import records, store
from specjax.report.record import Result

_MOST = 100
"""Letters of a sentence that a line of a terminal shows."""


class Standing(NamedTuple):
    """A row with its status and the numbers that decided it, as "statement: power"."""

    row: lab.Row
    status: lab.Status
    decided: tuple[str, ...]


def known() -> dict[str, lab.Ledger]:
    """The ledgers of the five papers, and of whatever else an experiment on the lab belongs to, by paper."""
    others = {experiment.ledger.paper: experiment.ledger for experiment in experiments.on_the_lab().values()}
    return {paper: ledger(paper) for paper in PAPERS} | others


def of(paper: str, out: Path) -> list[Standing]:
    """Every row of a paper's ledger, in the order of the paper.

    An experiment of which `out` has no result, or only a smoke run, stands as its record says, and what has none either is not run.

    Raises:
        ValueError: a result or a record of another version.
    """
    return rows(paper, records.completed(store.load_all(out)))


def rows(paper: str, found: Sequence[Result]) -> list[Standing]:
    """As `of`, by these results."""
    # A smoke run is there to be quick, and decides no row.
    results = {result.record.name: result for result in found if result.record.scale != "smoke"}
    cited: dict[str, list[tuple[lab.Citation, str]]] = {}
    for name, experiment in experiments.on_the_lab().items():
        if experiment.ledger.paper != paper:
            continue
        known_of = {check.name: check.record for check in results[name].checks} if name in results else {}
        where = f" (record of scale {results[name].record.scale})" if name in results and results[name].recorded else ""
        for statement in experiment.statements:
            for id in statement.cites:
                cited.setdefault(id, []).append(_citation(statement, known_of.get(statement.name), where))
    standings = []
    for id, row in known()[paper].rows.items():
        citations = cited.get(id, [])
        decided = tuple(power for _, power in citations if power)
        standings.append(Standing(row, lab.status(citation for citation, _ in citations), decided))
    return standings


def counts(rows: Sequence[Standing]) -> str:
    """How many rows have each status, as in `12 holds, 3 open`."""
    return ", ".join(f"{number} {status}" for status, number in Counter(row.status for row in rows).most_common())


def cells(standing: Standing) -> tuple[str, ...]:
    """The cells of a line of the terminal."""
    row = standing.row
    text = row.because if standing.status == "not judged" else row.finding or row.says
    short = text if len(text) <= _MOST else text[: _MOST - 1].rsplit(" ", 1)[0] + " …"
    return (row.id, row.where, standing.status, "; ".join(standing.decided[:1]), short)


def _citation(statement: lab.Statement, record: Mapping[str, Any] | None, where: str) -> tuple[lab.Citation, str]:
    if record is None:
        return lab.Citation(None, statement.corrected, False), ""
    if missing := {"power", "verdict", "depends"} - set(record):
        raise ValueError(
            f"The record of {statement.name!r} lacks {min(missing)!r}, as those of another version do; run its experiment again."
        )
    decided = f"{statement.name}: {record['power'] or record['verdict']}{where}"
    return lab.Citation(record["verdict"], statement.corrected, record["depends"]), decided
