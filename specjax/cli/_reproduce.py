"""`specjax reproduce`."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from shutil import get_terminal_size
from textwrap import fill
from typing import TYPE_CHECKING

from specjax.cli._errors import UserError, one_line, value_errors_in_one_sentence
from specjax.cli._output import print_checks, print_files, print_problems
from specjax.cli._parser import add_out, add_scale, make_parser, parse_out, parse_scale

if TYPE_CHECKING:
    from specjax.report import Result
    from specjax.report.runner import Outcome


def reproduce_records(arguments: list[str]) -> int:
    """Run the headlines, or the selected experiments, and compare their verdicts with the expected
    and the recorded ones.
    """
    given = _parse(arguments)
    scale, out = parse_scale(given.scale), parse_out(given.out)
    if given.only == "":
        raise UserError(
            "--only needs a part of a name, as in `--only figure`; leave it out to run the"
            " headlines."
        )
    from specjax import report
    from specjax.report import records, runner

    names = _select_names(given.only, everything=given.all)
    with value_errors_in_one_sentence():
        report.require_room(out, names)
        recorded = records.load_all()

    jobs = runner.default_jobs() if given.jobs is None else given.jobs
    alone = not given.all and given.only is None
    if given.rest:
        total = len(names)
        with value_errors_in_one_sentence():
            names = runner.without_record(
                names, scale, recorded, report.load_all(out), headlines_alone=alone
            )
        print(runner.work_left(names, scale, total, recorded, jobs), flush=True)
    if jobs > 1:
        names = runner.longest_first(names, recorded)
    outcomes = _run_all(names, scale, out, jobs, discard=given.rest, headlines_alone=alone)
    return _print_outcomes(
        outcomes, out, recorded, with_checks=not alone, with_abstract=given.only is None
    )


def _select_names(pattern: str | None, *, everything: bool) -> list[str]:
    """The names that a pattern selects among all experiments; without one all names, or those that
    have a headline.
    """
    from specjax import experiments

    if pattern is not None:
        names = [name for name in experiments.names() if pattern in name or fnmatch(name, pattern)]
        if not names:
            raise UserError(
                f"--only {pattern!r} matches no experiment; `specjax list` shows the names."
            )
        return names
    if everything:
        return experiments.names()
    names = [name for name, each in experiments.load_all().items() if each.headlines]
    if not names:
        raise UserError("No experiment has a headline; `specjax reproduce --all` runs them all.")
    return names


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = make_parser(
        "specjax reproduce",
        "Judge the headlines of each paper, of the field and of each discovery, or with --all every"
        " statement,\nand compare every verdict with the expected one.",
    )
    add_scale(parser)
    add_out(parser)
    parser.add_argument("--all", action="store_true", help="all statements of all experiments")
    parser.add_argument(
        "--only",
        metavar="PATTERN",
        help="all statements of the experiments whose name contains PATTERN or matches it (*, ?)",
    )
    parser.add_argument(
        "--jobs",
        metavar="N",
        type=_parse_jobs,
        help=(
            "experiments at a time, each in a process of its own (default: 2 on a CPU of two cores"
            " or more, else 1)"
        ),
    )
    parser.add_argument(
        "--continue",
        dest="rest",
        action="store_true",
        help=(
            "only experiments that have neither a record nor a result in DIR of SCALE or a"
            " larger one"
        ),
    )
    return parser.parse(arguments)


def _run_all(
    names: Sequence[str],
    scale: str,
    out: Path,
    jobs: int,
    *,
    discard: bool,
    headlines_alone: bool,
) -> "list[Outcome]":
    """The outcomes in the order of `specjax list`. With `discard` the resume folder of each result
    is deleted at once, else all of them at the end.
    """
    from specjax import experiments, report
    from specjax.report import runner

    begun, outcomes = 0, []

    def print_begun(name: str) -> None:
        nonlocal begun
        begun += 1
        print(f"[{begun}/{len(names)}] {name} ...", flush=True)

    for outcome in runner.attempt_all(
        names, scale, out, jobs, print_begun, headlines_alone=headlines_alone
    ):
        outcomes.append(outcome)
        result = outcome.result
        print(outcome.trace, end="", file=sys.stderr)
        found = "failed" if result is None else _verdicts(result)
        done = f"[{len(outcomes)}/{len(names)}] {outcome.name}"
        print(f"{done}: {outcome.seconds:.1f} s, {found}", flush=True)
        if discard and result is not None:
            # The result is there, so the same command leaves this experiment out.
            report.discard(result, out)
    # Only now, so that the same command, interrupted at the last experiment, computes none of the
    # others again.
    for outcome in outcomes:
        if outcome.result is not None:
            report.discard(outcome.result, out)
    order = experiments.names()
    return sorted(outcomes, key=lambda outcome: order.index(outcome.name))


def _verdicts(result: "Result") -> str:
    """The verdicts of the headlines, then the counts of all if others were judged too."""
    from specjax.report import abstract, formatting

    verdicts = ", ".join(
        f"{check.name} {formatting.verdict(check)}" for check in abstract.headlines(result)
    )
    counts = "" if result.record.headlines_alone else formatting.counts(result.checks)
    return "; ".join(part for part in (verdicts, counts) if part)


def _print_outcomes(
    outcomes: "Sequence[Outcome]",
    out: Path,
    recorded: "Mapping[str, Result]",
    *,
    with_checks: bool,
    with_abstract: bool,
) -> int:
    from specjax import report
    from specjax.report import abstract, formatting, record_diff

    results = [outcome.result for outcome in outcomes if outcome.result is not None]
    problems = [outcome.failure for outcome in outcomes if outcome.result is None]
    problems += formatting.surprises(results)
    if results:
        if with_checks:
            print_checks(results)
        if with_abstract and (text := abstract.render(results, get_terminal_size().columns)):
            print(f"\n{text}\n\n{formatting.overview(results)}")
        if left := abstract.not_judged(results):
            print(fill(left, abstract.WIDTHS[0]))
        try:
            report.refresh(out)
            print_files(results, out, with_figures=with_checks)
        except ValueError as error:
            problems.append(f"The report is as it was: {one_line(error)}")
    if differences := record_diff.differing(results, recorded):
        print("\n".join(["\nnot as recorded:", *differences]))
    return print_problems(problems)


def _parse_jobs(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise UserError(
            f"--jobs needs a whole number from 1 on, got {text!r}; write e.g. --jobs 2."
        )
    return int(text)
