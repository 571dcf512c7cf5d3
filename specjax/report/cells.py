"""The words and numbers that the terminal, the Markdown and the HTML report share."""

from collections import Counter
from collections.abc import Iterable, Sequence

from specjax.experiments.contract import Check, Verdict
from specjax.report.record import Record, Result

CHECK_HEADER = ("check", "predicted", "measured", "interval", "verdict")
SUMMARY_HEADER = ("verdict", "statement", "source", "experiment")
_SEVERITY: tuple[Verdict, ...] = ("refuted", "inconclusive", "confirmed")


def number(value: float | None) -> str:
    """A number to four digits, or a dash where there is none."""
    return "–" if value is None else f"{value:.4g}"


def interval(ends: tuple[float, float] | None) -> str:
    """An interval as `[low, high]`, or a dash where there is none."""
    return "–" if ends is None else f"[{number(ends[0])}, {number(ends[1])}]"


def verdict(result: Result, check: Check) -> str:
    """The verdict, and the expected one where it differs."""
    expected = result.expected(check)
    return check.verdict if check.verdict == expected else f"{check.verdict} (expected: {expected})"


def check_row(result: Result, check: Check) -> tuple[str, ...]:
    """The cells of a check under `CHECK_HEADER`."""
    return (
        check.name,
        number(check.predicted),
        number(check.measured),
        interval(check.interval),
        verdict(result, check),
    )


def counts(checks: Iterable[Check]) -> str:
    """How many checks came out how, the refuted first, as in `1 refuted, 4 confirmed`."""
    tally = Counter(check.verdict for check in checks)
    return ", ".join(f"{tally[kind]} {kind}" for kind in _SEVERITY if tally[kind]) or "no checks"


def by_paper(results: Sequence[Result]) -> dict[str, list[tuple[Result, Check]]]:
    """The checks of each paper, refuted ones first and confirmed ones last, otherwise in the order of the results."""
    papers: dict[str, list[tuple[Result, Check]]] = {}
    for result in results:
        papers.setdefault(result.record.paper, []).extend((result, check) for check in result.checks)
    for pairs in papers.values():
        pairs.sort(key=lambda pair: _SEVERITY.index(pair[1].verdict))
    return papers


def confirmed_last(
    pairs: Sequence[tuple[Result, Check]],
) -> tuple[list[tuple[Result, Check]], list[tuple[Result, Check]]]:
    """The pairs that a reader sees at once, refuted and inconclusive, and the confirmed ones, which a page can fold."""
    return (
        [pair for pair in pairs if pair[1].verdict != "confirmed"],
        [pair for pair in pairs if pair[1].verdict == "confirmed"],
    )


def overview(results: Sequence[Result]) -> str:
    """One sentence on everything: how many experiments of how many papers, and how many statements came out how."""
    checks = [check for result in results for check in result.checks]
    papers = {result.record.paper for result in results}
    return f"Experiments: {len(results)}, on papers: {len(papers)}, statements: {len(checks)} ({counts(checks)})."


def surprises(results: Iterable[Result]) -> list[str]:
    """One phrase for each verdict that is not the expected one."""
    return [
        f"{result.record.name}/{check.name} is {check.verdict}, expected {result.expected(check)}"
        for result in results
        for check in result.surprises
    ]


def settings(record: Record) -> list[tuple[str, str]]:
    """Names and values of what a run was made with: its configuration, then where and when it ran."""
    config = [
        (name, ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value))
        for name, value in record.config.items()
    ]
    commit = "–" if record.commit is None else record.commit + (" with uncommitted changes" if record.modified else "")
    return [
        ("scale", record.scale),
        *config,
        ("seconds", f"{record.seconds:.1f}"),
        ("started", record.started),
        ("device", f"{record.device['count']} × {record.device['kind']} ({record.device['platform']})"),
        ("versions", ", ".join(f"{package} {version}" for package, version in record.versions.items())),
        ("commit", commit),
    ]


def align(rows: Sequence[Sequence[str]], indent: str = "") -> str:
    """Rows of text as columns of spaces, for a terminal."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(indent + line.rstrip() for line in lines)
