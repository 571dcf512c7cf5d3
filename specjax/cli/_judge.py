"""`specjax judge` and `specjax attack`."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from specjax.cli._errors import UserError, one_line, unknown, value_errors_in_one_sentence
from specjax.cli._output import print_checks, print_files, print_problems
from specjax.cli._parser import add_out, add_scale, make_parser, parse_out, parse_scale

if TYPE_CHECKING:
    from specjax.lab.check import AttackRow
    from specjax.lab.mutants import MutantRow
    from specjax.report import Result


def judge_stored(arguments: list[str]) -> int:
    """Judge stored results by the statements as they are now."""
    parser = make_parser(
        "specjax judge",
        "Judge stored results again, by the statements as they are now: the data stay, nothing is"
        " run.\nExit code 1: a verdict is not the expected one, or a result cannot be judged.",
    )
    parser.add_argument(
        "names", metavar="NAME", nargs="*", help="experiments (default: all in DIR)"
    )
    parser.add_argument("--json", action="store_true", help="print all checks as JSON")
    add_out(parser)
    given = parser.parse(arguments)
    out = parse_out(given.out)
    from specjax import experiments, report
    from specjax.report import formatting

    known = experiments.names()
    for name in given.names:
        if name not in known:
            raise UserError(unknown("experiment", name, known, "specjax list"))
    with value_errors_in_one_sentence():
        stored = given.names or [result.record.name for result in report.load_all(out)]
        names = [name for name in stored if name in known]
        if not names:
            raise UserError(
                f"There is no result of an experiment in {out}; `specjax run NAME --out {out}`"
                " makes one."
            )
        results, problems = _judge_again(names, out)
        report.refresh(out)
    if given.json:
        checks = {r.record.name: [dataclasses.asdict(check) for check in r.checks] for r in results}
        print(json.dumps(checks, indent=1))
    else:
        print_checks(results)
        print_files(results, out)
    # Results of `specjax scaling`, and of experiments that another script has registered.
    print_problems(
        [
            f"{name} is as it was, since `specjax list` has no experiment of this name."
            for name in stored
            if name not in known
        ]
    )
    return print_problems(problems + formatting.surprises(results))


def _judge_again(names: Sequence[str], out: Path) -> "tuple[list[Result], list[str]]":
    """The results that could be judged, and the reasons for the others; raises ValueError if there
    are none.
    """
    from specjax import report

    results, problems = [], []
    for name in names:
        try:
            results.append(report.judge_again(name, out))
        except ValueError as error:
            problems.append(one_line(error))
    if not results:
        raise ValueError(" ".join(problems))
    return results, problems


def attack_statements(arguments: list[str]) -> int:
    """Run experiments and attack every statement."""
    parser = make_parser(
        "specjax attack",
        "Run experiments and try every statement against its rivals, its controls and the"
        " perturbations of its relation.\nExit code 0: each verdict could have come out otherwise."
        " 1: one survives what should have broken it.\nWith --mutants, confirmed statements are"
        " judged on wrong data too: noise of the same mean, labels permuted, the effect halved and"
        " doubled, each formula times 1.1 and times 0.9. A mutant that is confirmed SURVIVES,"
        " except where the statement is true without an effect, such as one of constancy, or where"
        " its own remark says that it is not sharp. Exit code 0.",
    )
    parser.add_argument(
        "names",
        metavar="NAME",
        nargs="+",
        help="an experiment, or a paper for all of its experiments",
    )
    parser.add_argument(
        "--mutants", action="store_true", help="judge wrong data and wrong formulas"
    )
    parser.add_argument(
        "--stored",
        metavar="DIR",
        help="take the results of `specjax run --out DIR` in place of running",
    )
    add_scale(parser)
    given = parser.parse(arguments)
    scale = parse_scale(given.scale)
    from specjax import experiments, report
    from specjax.compilation_cache import persistent
    from specjax.lab.check import attack_rows
    from specjax.lab.mutants import mutant_rows
    from specjax.report import formatting

    known = experiments.load_all()
    papers = {experiment.paper for experiment in known.values()}
    for name in given.names:
        if name not in papers and name not in known:
            names = [*sorted(papers), *known]
            raise UserError(unknown("experiment or paper", name, names, "specjax list"))
    attacks: list[AttackRow] = []
    mutants: list[MutantRow] = []
    for name, experiment in known.items():
        if name not in given.names and experiment.paper not in given.names:
            continue
        with value_errors_in_one_sentence(), persistent():
            if given.stored is None:
                config = experiment.at(scale)
                data = experiment.run(config)
            else:
                experiment, _, config, data = report.stored_run(name, Path(given.stored))
            if given.mutants:
                mutants += mutant_rows(name, list(experiment.statements), config, data)
            else:
                attacks += attack_rows(name, experiment.judge(config, data))
    if given.mutants:
        return _print_mutants(mutants)
    header = ("experiment", "statement", "verdict", "against", "outcome", "")
    cells = [(*row[:-1], "SURVIVES" if row.survived else "") for row in attacks]
    print(formatting.align([header, *cells]))
    survivors = sum(row.survived for row in attacks)
    survived = f"{survivors} survived that should not have been" if survivors else "no survivor"
    print(f"{len(attacks)} attacks, {survived}")
    return 1 if survivors else 0


def _print_mutants(rows: "Sequence[MutantRow]") -> int:
    from specjax.lab.mutants import UNSHARP, WITHIN, WITHOUT
    from specjax.report import formatting

    header = ("experiment", "statement", "mutant", "outcome", "")
    cells = [(*row, "SURVIVES" if row.survived else "") for row in rows]
    print(formatting.align([header, *cells]))
    survivors = sum(row.survived for row in rows)
    excused = ", ".join(
        f"{count} {outcome}"
        for outcome in (WITHOUT, UNSHARP, WITHIN)
        if (count := sum(row.outcome == outcome for row in rows))
    )
    print(f"{len(rows)} mutants, {survivors} survive" + (f" ({excused})" if excused else ""))
    return 0
