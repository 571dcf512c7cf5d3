"""Text of numbers, verdicts and settings, shared by the terminal and the reports."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from specjax.lab.check import Check
from specjax.lab.outcome import Verdict
from specjax.report._record import Record, Result
from specjax.sweep.memory import described

CHECK_HEADER = ("check", "predicted", "measured", "interval", "verdict")
_ID = re.compile(r"([^-]*)((?:-(?:[a-z]?\d+[a-z]?|[a-z]\b))?(?:-\d+\b)*)(.*)", re.DOTALL)
"""A kind, a number such as -3, -b-1 or -c7, and the rest."""
_SEVERITY: tuple[Verdict, ...] = ("refuted", "inconclusive", "confirmed")


def number(value: float | None) -> str:
    """A number to four digits, or a dash where there is none."""
    return "–" if value is None else f"{value:.4g}"


def interval(ends: tuple[float | None, float | None]) -> str:
    """An interval as `[low, high]`, or a dash where an end is missing."""
    return "–" if None in ends else f"[{number(ends[0])}, {number(ends[1])}]"


def verdict(check: Check) -> str:
    """The verdict, and the expected one where it differs."""
    return f"{check.verdict} (expected: {check.expected})" if check.surprising else check.verdict


def check_row(check: Check) -> tuple[str, ...]:
    """The cells of a check under `CHECK_HEADER`."""
    return (
        check.name,
        number(check.predicted),
        number(check.estimate),
        interval(check.interval),
        verdict(check),
    )


def label(id: str) -> str:
    """The id of a row as papers print it: `theorem-b-1` becomes Theorem B.1, and `eq-40` Eq. 40."""
    found = _ID.match(id)
    assert found is not None  # every part of it may be empty
    kind, number, rest = found.groups()
    numbered = " " + ".".join(number[1:].split("-")).capitalize() if number else ""
    return (
        ("Eq." if kind == "eq" else kind.capitalize())
        + numbered
        + rest.replace("-", ", ", 1).replace("-", " ")
    )


def measured(check: Check) -> str:
    """The deciding estimate and the number it was compared with: `0.4667, predicted 0.4775`."""
    if check.estimate is None:
        return ""
    word = "against" if check.predicted is None else "predicted"
    return number(check.estimate) + (
        "" if check.compared is None else f", {word} {number(check.compared)}"
    )


def power(check: Check) -> str:
    """The evidence that the verdict could have been another: the nearest rival, or a control that
    turned it.
    """
    if check.power:
        return check.power
    turned = "refuted" if check.verdict == "confirmed" else "confirmed"
    attacks = [
        a["name"] for a in check.attacks if a["kind"] == "control" and a["verdict"] == turned
    ]
    return f"{turned} in control “{attacks[0]}”" if attacks else ""


def attacks(check: Check) -> list[tuple[str, str, str, str]]:
    """Kind, name, distance in standard errors if known, and verdict of every attack on a check."""
    distances = {rival["name"]: f"{number(rival['standard_errors'])} SE" for rival in check.rivals}
    return [
        (a["kind"], a["name"], distances.get(a["name"], ""), a["verdict"]) for a in check.attacks
    ]


def counts(checks: Iterable[Check]) -> str:
    """The number of checks by verdict, the refuted first: `1 refuted, 4 confirmed`."""
    tally = Counter(check.verdict for check in checks)
    return ", ".join(f"{tally[kind]} {kind}" for kind in _SEVERITY if tally[kind]) or "no checks"


def overview(results: Sequence[Result]) -> str:
    """One sentence: the numbers of experiments, papers and statements, and the counts of
    verdicts.
    """
    checks = [check for result in results for check in result.checks]
    papers = {result.record.paper for result in results}
    return (
        f"Experiments: {len(results)}, on papers: {len(papers)}, statements: {len(checks)}"
        f" ({counts(checks)})."
    )


def surprises(results: Iterable[Result]) -> list[str]:
    """One phrase for each verdict that differs from the expected one.

    What a run smaller than "paper" leaves undecided is none: it may be too small to decide.
    """
    return [
        f"{result.record.name}/{check.name} is {check.verdict}, expected {check.expected}"
        for result in results
        for check in result.surprises
        if not _may_be_undecided(result, check)
    ]


def undecided(results: Iterable[Result]) -> str:
    """One sentence that counts what runs below "paper" leave undecided; empty for nothing."""
    tally = Counter(
        result.record.scale
        for result in results
        for check in result.surprises
        if _may_be_undecided(result, check)
    )
    if not tally:
        return ""
    sizes = " and ".join(f"{count} at the size {scale}" for scale, count in tally.items())
    return (
        f"Undecided statements: {sizes}; larger runs decide them, and `specjax ledger` has these."
    )


def _may_be_undecided(result: Result, check: Check) -> bool:
    return result.record.scale != "paper" and check.verdict == "inconclusive"


def settings(record: Record) -> list[tuple[str, str]]:
    """Names and values of the settings of a run: its configuration, then machine, versions and
    time.
    """
    config = [
        (name, ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value))
        for name, value in record.config.items()
    ]
    commit = (
        "–"
        if record.commit is None
        else record.commit + (" with uncommitted changes" if record.modified else "")
    )
    return [
        ("scale", record.scale),
        *config,
        ("seconds", f"{record.seconds:.1f}"),
        ("memory", "–" if record.memory is None else described(record.memory)),
        ("started", record.started),
        (
            "device",
            f"{record.device['count']} × {record.device['kind']} ({record.device['platform']})",
        ),
        (
            "versions",
            ", ".join(f"{package} {version}" for package, version in record.versions.items()),
        ),
        ("commit", commit),
    ]


def align(rows: Sequence[Sequence[str]], indent: str = "") -> str:
    """Rows of text as columns of spaces, for a terminal."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    )
    return "\n".join(indent + line.rstrip() for line in lines)
