"""`specjax reproduce`."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

from specjax.cli.errors import UserError, one_line, value_errors_in_one_sentence
from specjax.cli.output import print_checks, print_files, print_problems
from specjax.cli.parser import add_out, add_scale, make_parser, parse_out, parse_scale

if TYPE_CHECKING:
    from specjax.report import Result
    from specjax.report.runner import Outcome


def reproduce_records(arguments: list[str]) -> int:
    """Run the selected experiments, and compare their verdicts with the expected and the recorded
    ones.
    """
    given = _parse(arguments)
    scale, out = parse_scale(given.scale), parse_out(given.out)
    if given.only == "":
        raise UserError(
            "--only needs a part of a name, as in `--only figure`; leave it out to run all"
            " experiments."
        )
    from specjax import experiments, report
    from specjax.report import records, runner

    names = [name for name in experiments.names() if _is_selected(name, given.only)]
    if not names:
        raise UserError(
            f"--only {given.only!r} matches no experiment; `specjax list` shows the names."
        )
    with value_errors_in_one_sentence():
        report.require_room(out, names)
        recorded = records.load_all()

    jobs = runner.default_jobs() if given.jobs is None else given.jobs
    if given.rest:
        total = len(names)
        with value_errors_in_one_sentence():
            names = runner.without_record(names, scale, recorded, report.load_all(out))
        print(runner.work_left(names, scale, total, recorded, jobs), flush=True)
    if jobs > 1:
        names = runner.longest_first(names, recorded)
    outcomes = _run_all(names, scale, out, jobs, discard=given.rest)
    return _print_outcomes(outcomes, out, recorded)


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = make_parser(
        "specjax reproduce", "Run the experiments and compare every verdict with the expected one."
    )
    add_scale(parser)
    add_out(parser)
    parser.add_argument(
        "--only",
        metavar="PATTERN",
        help="experiments whose name contains PATTERN or matches it (*, ?)",
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
    names: Sequence[str], scale: str, out: Path, jobs: int, *, discard: bool
) -> "list[Outcome]":
    """The outcomes in the order of `specjax list`. With `discard` the resume folder of each result
    is deleted at once, else all of them at the end.
    """
    from specjax import experiments, report
    from specjax.report import formatting, runner

    begun, outcomes = 0, []

    def print_begun(name: str) -> None:
        nonlocal begun
        begun += 1
        print(f"[{begun}/{len(names)}] {name} ...", flush=True)

    for outcome in runner.attempt_all(names, scale, out, jobs, print_begun):
        outcomes.append(outcome)
        result = outcome.result
        print(outcome.trace, end="", file=sys.stderr)
        counts = "failed" if result is None else formatting.counts(result.checks)
        done = f"[{len(outcomes)}/{len(names)}] {outcome.name}"
        print(f"{done}: {outcome.seconds:.1f} s, {counts}", flush=True)
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


def _print_outcomes(
    outcomes: "Sequence[Outcome]", out: Path, recorded: "Mapping[str, Result]"
) -> int:
    from specjax import report
    from specjax.report import formatting, record_diff

    results = [outcome.result for outcome in outcomes if outcome.result is not None]
    problems = [outcome.failure for outcome in outcomes if outcome.result is None]
    problems += formatting.surprises(results)
    if results:
        print_checks(results)
        try:
            report.refresh(out)
            print_files(results, out)
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


def _is_selected(name: str, pattern: str | None) -> bool:
    return pattern is None or pattern in name or fnmatch(name, pattern)
