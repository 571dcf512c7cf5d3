"""Where the rows of a ledger stand: their statuses, from the statements that cite them and the results in a folder."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from specjax import experiments, lab
from specjax.experiments.ledgers import PAPERS, ledger
from specjax.report import store

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
    """Every row of a paper's ledger, in the order of the paper; what was not run in `out`, or at smoke scale only, is said so.

    Raises:
        ValueError: a result of another version.
    """
    # A smoke run is there to be quick, and decides no row.
    results = {result.record.name: result for result in store.load_all(out) if result.record.scale != "smoke"}
    cited: dict[str, list[tuple[lab.Citation, str]]] = {}
    for name, experiment in experiments.on_the_lab().items():
        if experiment.ledger.paper != paper:
            continue
        records = {check.name: check.record for check in results[name].checks} if name in results else {}
        for statement in experiment.statements:
            for id in statement.cites:
                cited.setdefault(id, []).append(_citation(statement, records.get(statement.name)))
    rows = []
    for id, row in known()[paper].rows.items():
        citations = cited.get(id, [])
        decided = tuple(power for _, power in citations if power)
        rows.append(Standing(row, lab.status(citation for citation, _ in citations), decided))
    return rows


def counts(rows: Sequence[Standing]) -> str:
    """How many rows have each status, as in `12 holds, 3 open`."""
    return ", ".join(f"{number} {status}" for status, number in Counter(row.status for row in rows).most_common())


def cells(standing: Standing) -> tuple[str, ...]:
    """The cells of a line of the terminal."""
    row = standing.row
    text = row.because if standing.status == "not judged" else row.finding or row.says
    short = text if len(text) <= _MOST else text[: _MOST - 1].rsplit(" ", 1)[0] + " …"
    return (row.id, row.where, standing.status, "; ".join(standing.decided[:1]), short)


def _citation(statement: lab.Statement, record: Mapping[str, Any] | None) -> tuple[lab.Citation, str]:
    if record is None:
        return lab.Citation(None, statement.corrected, False), ""
    if missing := {"power", "verdict", "depends"} - set(record):
        raise ValueError(
            f"The record of {statement.name!r} lacks {min(missing)!r}, as those of another version do; run its experiment again."
        )
    decided = f"{statement.name}: {record['power'] or record['verdict']}"
    return lab.Citation(record["verdict"], statement.corrected, record["depends"]), decided
