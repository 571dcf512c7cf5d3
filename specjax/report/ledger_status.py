"""The statuses of the rows of a ledger, from the statements that cite them and the results in a
folder.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from specjax import experiments, lab
from specjax.experiments.ledgers import PAPERS, ledger
from specjax.lab.check import Check
from specjax.lab.experiment import SCALES
from specjax.report import records, result_store
from specjax.report._record import Record, Result

_MOST = 100
"""Longest sentence, in letters, that a line of a terminal shows."""
_NUMBERS = re.compile(r"-?\d[\d.e+-]*")
"""Numbers in a rule are sizes of its run; without them two rules can be compared."""
_FALSE: dict[lab.ledger.Status, lab.ledger.Status] = {"corrected": "false"}
"""Both statuses mean: false as printed."""


class Cited(NamedTuple):
    """A statement that cites a row, with its result and check, or None if it was not judged.

    `recorded` is the check of the record of a larger run, if its other verdict makes the row depend
    on the configuration.
    """

    experiment: str
    statement: lab.Statement
    result: Result | None
    check: Check | None
    recorded: Check | None = None

    @property
    def where(self) -> str:
        """Where the result is from, if it was not run here, or what the record says otherwise."""
        if self.recorded is not None:
            return f" (here; {self.recorded.verdict} in the record)"
        return (
            f" (record of scale {self.result.record.scale})"
            if self.result and self.result.recorded
            else ""
        )


class Standing(NamedTuple):
    """A row with its status and the statements that cite it."""

    row: lab.ledger.Row
    status: lab.ledger.Status
    cited: tuple[Cited, ...]

    @property
    def sentence(self) -> str:
        """The finding of the row; without one, the paper's sentence."""
        return self.row.finding or self.row.says

    @property
    def judged(self) -> list[Cited]:
        """The judged statements: first those that make the status, by the distance of their nearest
        rival.
        """
        found = [(cited, cited.check) for cited in self.cited if cited.check is not None]
        return [
            cited
            for cited, _ in sorted(
                found, key=lambda each: (not _makes(self.status, *each), _nearest(each[1]))
            )
        ]

    @property
    def deciding(self) -> Cited | None:
        """The first of the judged statements."""
        return next(iter(self.judged), None)

    @property
    def decided(self) -> tuple[str, ...]:
        """The judged statements with their powers, `statement: power`, and the scale of a
        record.
        """
        return tuple(
            f"{by.statement.name}: {by.check.power or by.check.verdict}{by.where}"
            for by in self.judged
            if by.check
        )


class Paper(NamedTuple):
    """A paper in a report: the rows of its ledger, if it has one, and its results."""

    name: str
    rows: tuple[Standing, ...]
    results: tuple[Result, ...]

    @property
    def folded(self) -> tuple[Standing, ...]:
        """The rows without a judgement."""
        return tuple(row for row in self.rows if row.status == "not judged")

    @property
    def shown(self) -> tuple[Standing, ...]:
        """All other rows."""
        return tuple(row for row in self.rows if row.status != "not judged")

    def cited_by(self, result: Result) -> tuple[lab.ledger.Row, ...]:
        """The rows that the statements of an experiment cite."""
        return tuple(
            row.row
            for row in self.rows
            if any(c.experiment == result.record.name for c in row.cited)
        )

    def elsewhere(self, result: Result) -> tuple[Check, ...]:
        """The checks of a result that decide no row: those of a smoke run, of an experiment that
        this version lacks, or left open while the record decides.
        """
        cited_checks = {
            cited.check.name
            for row in self.rows
            for cited in row.cited
            if cited.check and cited.result is result
        }
        return tuple(check for check in result.checks if check.name not in cited_checks)

    @property
    def others(self) -> list[Check]:
        """All checks that decide no row."""
        return [check for result in self.results for check in self.elsewhere(result)]


def known() -> dict[str, lab.ledger.Ledger]:
    """The ledgers of the papers, and of experiments that belong to no paper, by name."""
    others = {
        experiment.ledger.paper: experiment.ledger for experiment in experiments.load_all().values()
    }
    return {paper: ledger(paper) for paper in PAPERS} | others


def papers(results: Sequence[Result]) -> list[Paper]:
    """The papers of the results, in the order of the results.

    Raises:
        ValueError: a result of another version.
    """
    names = dict.fromkeys(result.record.paper for result in results)
    ledgers, found = known(), records.beside(results)
    return [
        Paper(
            name,
            tuple(rows(name, found)) if name in ledgers else (),
            tuple(result for result in results if result.record.paper == name),
        )
        for name in names
    ]


def deciding(out: Path) -> list[Result]:
    """The results in the folder `out` and the records, as `rows` takes them; read once for all
    papers.

    Raises:
        ValueError: a result or a record of another version.
    """
    return records.beside(result_store.load_all(out))


def rows(paper: str, results: Sequence[Result]) -> list[Standing]:
    """Every row of a paper's ledger with its status, in the order of the paper. Smoke runs decide
    nothing.

    Records are of the largest runs. So a row that the runs leave open has the status of the
    records, and a row on which runs and records differ depends on the configuration.

    Raises:
        ValueError: a result of another version.
    """
    # A smoke run is there to be quick, and decides no row.
    runs = {
        result.record.name: result
        for result in results
        if not result.recorded and result.record.scale != "smoke"
    }
    kept = {result.record.name: result for result in results if result.recorded}
    cited: dict[str, list[tuple[Cited, Cited]]] = {}
    for name, experiment in experiments.load_all().items():
        if experiment.ledger.paper != paper:
            continue
        for statement in experiment.statements:
            both = _by_run_and_record(name, statement, runs.get(name), kept.get(name))
            for id in statement.cites:
                cited.setdefault(id, []).append(both)
    return [_standing(row, cited.get(id, [])) for id, row in known()[paper].rows.items()]


def counts(rows: Sequence[Standing]) -> str:
    """How many rows have each status, as in `12 holds, 3 open`; sentences of ours come apart."""

    def listed(ours: bool) -> str:
        found = Counter(row.status for row in rows if row.row.ours is ours)
        return ", ".join(f"{number} {status}" for status, number in found.most_common())

    papers, ours = listed(ours=False), listed(ours=True)
    return f"{papers}; of our own sentences {ours}" if papers and ours else papers or ours


def cells(standing: Standing) -> tuple[str, ...]:
    """The cells of a line of the terminal."""
    row = standing.row
    text = row.because if standing.status == "not judged" else standing.sentence
    short = text if len(text) <= _MOST else text[: _MOST - 1].rsplit(" ", 1)[0] + " …"
    return (row.id, row.where, standing.status, "; ".join(standing.decided[:1]), short)


def _by_run_and_record(
    experiment: str, statement: lab.Statement, run: Result | None, record: Result | None
) -> tuple[Cited, Cited]:
    """A statement in the run, and in the record of a larger run; the same twice if there is only
    one.
    """
    check, kept = _check(statement, run), _check(statement, record)
    here, there = (
        Cited(experiment, statement, run, check),
        Cited(experiment, statement, record, kept),
    )
    if run is None or check is None:
        return (here, here) if kept is None else (there, there)
    if record is None or kept is None or not _says_more(record.record, kept, run.record, check):
        return here, here
    return here, there


def _check(statement: lab.Statement, result: Result | None) -> Check | None:
    checks = () if result is None else result.checks
    return next((check for check in checks if check.name == statement.name), None)


def _says_more(record: Record, kept: Check, run: Record, check: Check) -> bool:
    """Whether a record judges the same statement as a run, by the same rule, in another
    configuration of the same or a larger scale.
    """
    words = [(each.says, _NUMBERS.sub("", each.rule)) for each in (kept, check)]
    # Another seed is the same setting. Files have lists in place of tuples.
    settings = [json.dumps({**each.config, "seed": None}, sort_keys=True) for each in (record, run)]
    larger = SCALES.index(record.scale) >= SCALES.index(run.scale)
    return words[0] == words[1] and settings[0] != settings[1] and larger


def _standing(row: lab.ledger.Row, cited: Sequence[tuple[Cited, Cited]]) -> Standing:
    ran, recorded = tuple(here for here, _ in cited), tuple(there for _, there in cited)
    status, by_records = (lab.ledger.status(map(_citation, each)) for each in (ran, recorded))
    if status == "open" and by_records != "open":
        return Standing(row, by_records, recorded)
    if status == "depends" or _FALSE.get(status, status) == _FALSE.get(by_records, by_records):
        return Standing(row, status, ran)
    differing = (
        (
            here._replace(recorded=there.check)
            if here.check and there.check and here.check.verdict != there.check.verdict
            else here
        )
        for here, there in cited
    )
    return Standing(row, "depends", tuple(differing))


def _citation(cited: Cited) -> lab.ledger.Citation:
    check = cited.check
    return lab.ledger.Citation(
        None if check is None else check.verdict,
        cited.statement.corrected,
        check is not None and check.depends,
        cited.statement.elsewhere,
    )


def _nearest(check: Check) -> float:
    """Standard errors to the nearest rival, infinite without rivals. For a refuted check: minus
    those to the prediction.
    """
    if check.verdict == "refuted":
        return -(check.away or 0.0)
    distances = [rival["standard_errors"] for rival in check.rivals]
    return min((each for each in distances if each is not None), default=math.inf)


def _makes(status: lab.ledger.Status, cited: Cited, check: Check) -> bool:
    verdict, corrected, elsewhere = (
        check.verdict,
        cited.statement.corrected,
        cited.statement.elsewhere,
    )
    return {
        "holds": not corrected,
        "corrected": corrected and verdict == "confirmed",
        "false": not corrected and verdict == "refuted",
        "depends": (
            check.depends or cited.recorded is not None or (elsewhere and verdict == "confirmed")
        ),
        "open": verdict == "inconclusive" or (corrected and verdict == "refuted"),
    }.get(status, True)
