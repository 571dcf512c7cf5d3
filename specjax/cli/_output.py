"""Tables that several commands print."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specjax.report import Result


def print_checks(results: "Sequence[Result]") -> None:
    """Print the checks of results as one table."""
    from specjax.report import formatting

    rows: list[tuple[str, ...]] = [("experiment", *formatting.CHECK_HEADER)]
    rows += [
        (result.record.name, *formatting.check_row(check))
        for result in results
        for check in result.checks
    ]
    print("\n" + formatting.align(rows) + "\n")
    if undecided := formatting.undecided(results):
        print(undecided + "\n")


def print_files(results: "Sequence[Result]", out: Path, *, with_figures: bool = True) -> None:
    """Print the figures of results, and the pages of the report."""
    from specjax import report
    from specjax.report import formatting

    rows = [
        (r.record.name, f"{r.record.seconds:.1f} s", str(out / r.record.name / report.FIGURE))
        for r in results
    ]
    if with_figures:
        print(formatting.align([("experiment", "time", "figure"), *rows]))
    print(f"report: {out / report.MARKDOWN} and {out / report.HTML}")


def print_problems(problems: Sequence[str]) -> int:
    """Print problems to standard error, and return the exit code."""
    for problem in problems:
        print(f"specjax: {problem}", file=sys.stderr)
    return 1 if problems else 0
