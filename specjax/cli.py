"""The command line: `specjax list`, `run NAME`, `scaling`, `reproduce`, `judge`, `attack NAME` and
`ledger`.

Whatever a user can get wrong is answered by one sentence on standard error and exit code 2, before
anything is computed or written. Everything heavy is imported inside the commands, so that `specjax
--help` answers at once.
"""

import argparse
import difflib
import os
import sys
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import specjax
from specjax.jaxlib import with_cpu_flags

if TYPE_CHECKING:
    from specjax.lab import Config, Experiment
    from specjax.report import Result

SCALES = ("smoke", "quick", "paper")
DEFAULT_SCALE, DEFAULT_OUT = "quick", "results"
_LISTED = 20  # names that a refusal lists at most

_OVERVIEW = """commands:
  list                 the experiments: name, paper and title
  run NAME             run one experiment; `specjax run NAME --help` shows its flags
  scaling              check whether a rate transfers between widths, and which updates grow
  reproduce            run all experiments and compare every verdict with the expected one
  judge [NAME ...]     judge stored results again, by the statements as they are now
  attack NAME ...      run experiments, and try every statement against its rivals and controls
  ledger [PAPER]       every numbered statement of the papers, and what has become of it"""


class UserError(Exception):
    """A mistake of the user's, told in one sentence that says what would be right."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message.removeprefix('argument ')}; see `{self.prog} --help`.")

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """As `parse_args`, but an unknown flag is answered with the nearest one."""
        namespace, extra = self.parse_known_args(arguments)
        if not extra:
            return namespace
        flag = extra[0].partition("=")[0]
        if not flag.startswith("-"):
            raise UserError(f"There is no place for {flag!r} here; see `{self.prog} --help`.")
        raise UserError(
            _unknown(
                "flag",
                flag,
                [known for known in self._option_string_actions if known.startswith("--")],
            )
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command in `argv` (default: the process's arguments) and return its exit code.

    0: done. 1: `reproduce` found a verdict other than expected, or an experiment failed. 2: a
    mistake in the arguments or the configuration. 130: interrupted. 141: whoever read the output
    closed it. `--help` and `--version` leave by SystemExit(0), as argparse does.
    """
    # Before JAX starts: programs are kept between runs, without XLA's false alarms about them (see
    # sweep/compilation_cache.py).
    os.environ.setdefault("SPECJAX_COMPILATION_CACHE", "on")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # XLA spreads the decompositions of a sweep over its own threads; with threads of OpenBLAS as
    # well, both kinds wait for each other.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Experiments also compile outside of sweeps.
    os.environ["XLA_FLAGS"] = with_cpu_flags(os.environ.get("XLA_FLAGS", ""))
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        with _warned_in_one_sentence():
            try:
                return _dispatch(arguments)
            finally:
                sys.stdout.flush()
    except UserError as error:
        print(f"specjax: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        goes_on = arguments and arguments[0] in ("run", "scaling", "reproduce")
        kept = (
            "; what is finished is kept, and the same command goes on from there" if goes_on else ""
        )
        print(f"specjax: interrupted{kept}.", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # As after `specjax list | head`. What Python still holds back is thrown away, else it would
        # complain of it at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _dispatch(arguments: list[str]) -> int:
    commands = {
        "list": _list,
        "run": _run,
        "scaling": _scaling,
        "reproduce": _reproduce,
        "judge": _judge,
        "attack": _attack,
        "ledger": _ledger,
    }
    if arguments and not arguments[0].startswith("-"):
        command, *rest = arguments
        if command not in commands:
            raise UserError(_unknown("command", command, list(commands)))
        return commands[command](rest)
    parser = _parser(
        "specjax",
        "A laboratory for spectral optimizers: experiments that judge theorems.",
        usage="specjax [--help] [--version] COMMAND ...",
        epilog=_OVERVIEW,
    )
    parser.add_argument("--version", action="version", version=f"specjax {specjax.__version__}")
    parser.parse(arguments)
    raise UserError(f"Say what to do: {', '.join(commands)}; see `specjax --help`.")


def _list(arguments: list[str]) -> int:
    _parser("specjax list", "List the experiments: name, paper and title.").parse(arguments)
    from specjax import experiments
    from specjax.report import formatting

    rows = [(each.name, each.paper, each.title) for each in experiments.load_all().values()]
    print(formatting.align([("name", "paper", "title"), *rows]))
    return 0


def _run(arguments: list[str]) -> int:
    if not arguments or arguments[0].startswith("-"):
        parser = _parser(
            "specjax run",
            "Run one experiment and store its data, figure, checks and report.",
            usage="specjax run NAME [--scale SCALE] [--out DIR] [--FIELD VALUE ...]",
            epilog=(
                "`specjax run NAME --help` shows the experiment's own flags; `specjax list` shows"
                " the names."
            ),
        )
        _add_scale_and_out(parser)
        if {"-h", "--help"} & set(arguments):
            parser.parse_args(["--help"])
        raise UserError(
            "The experiment's name comes first, as in `specjax run NAME`; `specjax list` shows the"
            " names."
        )
    from specjax import experiments

    name, *rest = arguments
    if name not in experiments.names():
        raise UserError(_unknown("experiment", name, experiments.names()))
    return _run_with_flags(f"specjax run {name}", experiments.load(name), rest)


def _scaling(arguments: list[str]) -> int:
    from specjax.experiments.scaling import builtin_models, scaling_cli

    # These two come first because the other flags, which --help shows, are those of the experiment
    # that they name.
    choices = {"model": list(builtin_models.MODELS), "optimizer": list(builtin_models.OPTIMIZERS)}
    first = _Parser(prog="specjax scaling", add_help=False, allow_abbrev=False)
    for what, known in choices.items():
        first.add_argument(f"--{what}", default=known[0])
    given, rest = first.parse_known_args(arguments)
    for what, known in choices.items():
        if (name := getattr(given, what)) not in known:
            raise UserError(_unknown(what, name, known))
    told = "\n".join(
        f"--{what} is one of {', '.join(known)} (default: {known[0]})"
        for what, known in choices.items()
    )
    prog = f"specjax scaling --model {given.model} --optimizer {given.optimizer}"
    return _run_with_flags(
        prog, scaling_cli.experiment(given.model, given.optimizer), rest, epilog=told
    )


def _run_with_flags(
    prog: str, experiment: "Experiment[Any]", rest: list[str], epilog: str = ""
) -> int:
    """Run an experiment whose configuration is given by flags."""
    from specjax.lab.flags import flags, override

    # Fields may be typed as config.json spells them, with underscores.
    rest = [_dashed(word) if word.startswith("--") else word for word in rest]
    # The scale comes first because the other flags have their defaults, which --help shows, from
    # it.
    first = _Parser(prog=prog, add_help=False, allow_abbrev=False)
    first.add_argument("--scale", default=DEFAULT_SCALE)
    scale = _scale(first.parse_known_args(rest)[0].scale)
    options = flags(experiment.at(scale))

    parser = _parser(
        prog, f"{experiment.title}\n\n{textwrap.fill(experiment.summary, 100)}", epilog=epilog
    )
    _add_scale_and_out(parser)
    parser.add_argument(
        "--explain", action="store_true", help="print how each sweep was planned, and what it took"
    )
    fields = parser.add_argument_group("configuration", f"defaults are those of --scale {scale}")
    for flag in options:
        text = f"{flag.help} (default: {flag.default})".strip().replace("%", "%%")
        fields.add_argument(
            flag.option, dest=f"field {flag.field}", metavar=flag.metavar, help=text
        )
    given = vars(parser.parse(rest))
    texts = {
        flag.field: given[f"field {flag.field}"]
        for flag in options
        if given[f"field {flag.field}"] is not None
    }
    with _told_in_one_sentence():
        config = override(experiment.at(scale), texts)
    return _run_one(experiment, scale, config, _out(given["out"]), given["explain"])


def _run_one(
    experiment: "Experiment[Any]", scale: str, config: "Config", out: Path, explain: bool
) -> int:
    from specjax import report
    from specjax.resume import StoreError

    with _told_in_one_sentence():
        report.require_room(out, [experiment.name])
    try:
        with _too_large_in_one_sentence():
            result = report.produce(experiment, scale, config, out)
    except (report.Refused, StoreError) as error:
        raise UserError(_sentence(error)) from error
    report.discard(result, out)
    _print_checks([result])
    # After the checks, which are there whatever else lies in the folder.
    with _told_in_one_sentence():
        report.refresh(out)
    if explain:
        _print_plans(out / experiment.name)
    _print_places([result], out)
    return 0


def _print_plans(folder: Path) -> None:
    import xarray as xr

    from specjax import report, sweep

    found = report.load_data(folder)
    named = {folder.name: found} if isinstance(found, xr.Dataset) else found
    for name, data in named.items():
        # Data that an experiment has made otherwise have no plan.
        if sweep.is_explained(data):
            print(f"{name}: {sweep.explain(data)}\n")


def _reproduce(arguments: list[str]) -> int:
    parser = _parser(
        "specjax reproduce", "Run the experiments and compare every verdict with the expected one."
    )
    _add_scale_and_out(parser)
    parser.add_argument(
        "--only",
        metavar="PATTERN",
        help="experiments whose name contains PATTERN or matches it (*, ?)",
    )
    parser.add_argument(
        "--jobs",
        metavar="N",
        type=_jobs,
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
    given = parser.parse(arguments)
    scale, out = _scale(given.scale), _out(given.out)
    if given.only == "":
        raise UserError(
            "--only needs a part of a name, as in `--only figure`; leave it out to run all"
            " experiments."
        )
    from specjax import experiments, report
    from specjax.report import formatting, record_diff, records, runner

    names = [name for name in experiments.names() if _selected(name, given.only)]
    if not names:
        raise UserError(
            f"--only {given.only!r} matches no experiment; `specjax list` shows the names."
        )
    with _told_in_one_sentence():
        report.require_room(out, names)
        recorded = records.load_all()

    jobs = runner.default_jobs() if given.jobs is None else given.jobs
    if given.rest:
        total = len(names)
        with _told_in_one_sentence():
            names = runner.without_record(names, scale, recorded, report.load_all(out))
        print(runner.work_left(names, scale, total, recorded, jobs), flush=True)
    if jobs > 1:
        names = runner.longest_first(names, recorded)
    begun, outcomes = 0, []

    def begin(name: str) -> None:
        nonlocal begun
        begun += 1
        print(f"[{begun}/{len(names)}] {name} ...", flush=True)

    for outcome in runner.attempt_all(names, scale, out, jobs, begin):
        outcomes.append(outcome)
        if outcome.trace:
            print(outcome.trace, end="", file=sys.stderr)
        found = "failed" if outcome.result is None else formatting.counts(outcome.result.checks)
        print(
            f"[{len(outcomes)}/{len(names)}] {outcome.name}: {outcome.seconds:.1f} s, {found}",
            flush=True,
        )
        if given.rest and outcome.result is not None:
            # The result is there, so the same command leaves this experiment out.
            report.discard(outcome.result, out)
    outcomes.sort(key=lambda outcome: experiments.names().index(outcome.name))
    results = [outcome.result for outcome in outcomes if outcome.result is not None]
    # Only now, so that the same command, interrupted at the last experiment, computes none of the
    # others again.
    for result in results:
        report.discard(result, out)
    failures = [outcome.failure for outcome in outcomes if outcome.result is None]
    problems = failures + formatting.surprises(results)
    if results:
        _print_checks(results)
        try:
            report.refresh(out)
            _print_places(results, out)
        except ValueError as error:
            problems.append(f"The report is as it was: {_sentence(error)}")
    if told := record_diff.differing(results, recorded):
        print("\n".join(["\nnot as recorded:", *told]))
    for problem in problems:
        print(f"specjax: {problem}", file=sys.stderr)
    return 1 if problems else 0


def _judge(arguments: list[str]) -> int:
    parser = _parser(
        "specjax judge",
        "Judge stored results again, by the statements as they are now: the data stay, nothing is"
        " run.\nExit code 1: a verdict is not the expected one, or a result cannot be judged.",
    )
    parser.add_argument(
        "names", metavar="NAME", nargs="*", help="experiments (default: all in DIR)"
    )
    _add_out(parser)
    given = parser.parse(arguments)
    out = _out(given.out)
    from specjax import experiments, report
    from specjax.report import formatting

    known = experiments.names()
    for name in given.names:
        if name not in known:
            raise UserError(_unknown("experiment", name, known))
    with _told_in_one_sentence():
        stored = given.names or [result.record.name for result in report.load_all(out)]
        names = [name for name in stored if name in known]
        if not names:
            raise UserError(
                f"There is no result of an experiment in {out}; `specjax run NAME --out {out}`"
                " makes one."
            )
        results, problems = _judged_again(names, out)
        report.refresh(out)
    _print_checks(results)
    _print_places(results, out)
    # Results of `specjax scaling`, and of experiments that another script has registered.
    for name in stored:
        if name not in known:
            print(
                f"specjax: {name} is as it was, since `specjax list` has no experiment of this"
                " name.",
                file=sys.stderr,
            )
    problems += formatting.surprises(results)
    for problem in problems:
        print(f"specjax: {problem}", file=sys.stderr)
    return 1 if problems else 0


def _judged_again(names: "Sequence[str]", out: Path) -> "tuple[list[Result], list[str]]":
    """The results that could be judged again, and why others could not; raises ValueError if none
    could.
    """
    from specjax import report

    results, problems = [], []
    for name in names:
        try:
            results.append(report.judge_again(name, out))
        except ValueError as error:
            problems.append(_sentence(error))
    if not results:
        raise ValueError(" ".join(problems))
    return results, problems


def _attack(arguments: list[str]) -> int:
    parser = _parser(
        "specjax attack",
        "Run experiments and try every statement against its rivals, its controls and the"
        " perturbations of its relation.\nExit code 0: each verdict could have come out otherwise."
        " 1: one survives what should have broken it.",
    )
    parser.add_argument(
        "names",
        metavar="NAME",
        nargs="+",
        help="an experiment, or a paper for all of its experiments",
    )
    parser.add_argument(
        "--scale",
        default=DEFAULT_SCALE,
        help=f"one of {', '.join(SCALES)} (default: {DEFAULT_SCALE})",
    )
    given = parser.parse(arguments)
    scale = _scale(given.scale)
    from specjax import experiments, lab
    from specjax.report import formatting

    known = experiments.load_all()
    papers = {experiment.paper for experiment in known.values()}
    for name in given.names:
        if name not in papers and name not in known:
            raise UserError(_unknown("experiment or paper", name, [*sorted(papers), *known]))
    rows = []
    for name, experiment in known.items():
        if name in given.names or experiment.paper in given.names:
            config = experiment.at(scale)
            with _told_in_one_sentence():
                rows += lab.attack_rows(name, experiment.judge(config, experiment.run(config)))
    header = ("experiment", "statement", "verdict", "against", "outcome", "")
    print(
        formatting.align(
            [header, *((*row[:-1], "SURVIVES" if row.survived else "") for row in rows)]
        )
    )
    survivors = sum(row.survived for row in rows)
    print(
        f"{len(rows)} attacks, {survivors} survived that should not have been"
        if survivors
        else f"{len(rows)} attacks, no survivor"
    )
    return 1 if survivors else 0


def _ledger(arguments: list[str]) -> int:
    parser = _parser(
        "specjax ledger",
        "Every numbered statement, figure and table of the papers, and what has become of it.",
    )
    parser.add_argument(
        "paper", metavar="PAPER", nargs="?", help="one of the papers (default: all)"
    )
    parser.add_argument(
        "--out",
        default=DEFAULT_OUT,
        metavar="DIR",
        help=(
            f"results that decide, before the records of runs made earlier (default: {DEFAULT_OUT})"
        ),
    )
    given = parser.parse(arguments)
    from specjax.report import formatting, ledger_status

    papers = list(ledger_status.known())
    if given.paper is not None and given.paper not in papers:
        raise UserError(_unknown("paper", given.paper, papers))
    with _told_in_one_sentence():
        found = ledger_status.deciding(_out(given.out))
        for paper in papers if given.paper is None else [given.paper]:
            rows = ledger_status.rows(paper, found)
            print(f"{paper}: {ledger_status.counts(rows)}")
            print(
                formatting.align(
                    [
                        ("row", "where", "status", "decided by", "says or why not"),
                        *map(ledger_status.cells, rows),
                    ]
                )
                + "\n"
            )
    return 0


def _print_checks(results: "Sequence[Result]") -> None:
    from specjax.report import formatting

    rows: list[tuple[str, ...]] = [("experiment", *formatting.CHECK_HEADER)]
    rows += [
        (result.record.name, *formatting.check_row(check))
        for result in results
        for check in result.checks
    ]
    print("\n" + formatting.align(rows) + "\n")


def _print_places(results: "Sequence[Result]", out: Path) -> None:
    from specjax import report
    from specjax.report import formatting

    rows = [
        (r.record.name, f"{r.record.seconds:.1f} s", str(out / r.record.name / report.FIGURE))
        for r in results
    ]
    print(formatting.align([("experiment", "time", "figure"), *rows]))
    print(f"report: {out / report.MARKDOWN} and {out / report.HTML}")


def _parser(prog: str, description: str, **options: str) -> _Parser:
    return _Parser(
        prog=prog,
        description=description.replace("%", "%%"),
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        **options,  # type: ignore[arg-type]
    )


def _add_scale_and_out(parser: argparse.ArgumentParser) -> None:
    scales = ", ".join(SCALES)
    parser.add_argument(
        "--scale", default=DEFAULT_SCALE, help=f"one of {scales} (default: {DEFAULT_SCALE})"
    )
    _add_out(parser)


def _add_out(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out", default=DEFAULT_OUT, metavar="DIR", help=f"results folder (default: {DEFAULT_OUT})"
    )


def _scale(name: str) -> str:
    if name not in SCALES:
        raise UserError(_unknown("scale", name, SCALES))
    return name


def _out(text: str) -> Path:
    if not text:
        raise UserError("--out needs the name of a folder, as in `--out results`.")
    return Path(text)


def _jobs(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise UserError(
            f"--jobs needs a whole number from 1 on, got {text!r}; write e.g. --jobs 2."
        )
    return int(text)


def _selected(name: str, pattern: str | None) -> bool:
    return pattern is None or pattern in name or fnmatch(name, pattern)


def _dashed(word: str) -> str:
    flag, equals, value = word.partition("=")
    return flag.replace("_", "-") + equals + value


def _unknown(what: str, name: str, known: Sequence[str]) -> str:
    # Without their dashes: those alone would make any flag look like a short one.
    bare = {word.lstrip("-"): word for word in known}
    close = [bare[word] for word in difflib.get_close_matches(name.lstrip("-"), bare)]
    # The list has no flags.
    many = what.startswith("experiment") and len(known) > _LISTED
    listed = "`specjax list` shows the names." if many else f"there are {', '.join(known)}."
    hint = f"did you mean {' or '.join(close)}?" if close else listed
    return f"There is no {what} {name!r}; {hint}"


@contextmanager
def _told_in_one_sentence() -> Iterator[None]:
    """A ValueError says what is wrong with the request: pass its sentence on, without a
    traceback.
    """
    try:
        yield
    except ValueError as error:
        raise UserError(_sentence(error)) from error


@contextmanager
def _too_large_in_one_sentence() -> Iterator[None]:
    """Arrays that no memory holds, and numbers that no integer of JAX holds, come of the
    configuration.
    """
    try:
        yield
    except OverflowError as error:
        raise UserError(
            f"This configuration makes numbers beyond int32 or float32: {_sentence(error)}"
        ) from error
    except (MemoryError, RuntimeError) as error:
        said = _sentence(error)
        if (
            isinstance(error, RuntimeError)
            and "Out of memory" not in said
            and "RESOURCE_EXHAUSTED" not in said
        ):
            raise
        raise UserError(
            f"This configuration needs more memory than there is; take smaller sizes. ({said})"
        ) from error


@contextmanager
def _warned_in_one_sentence() -> Iterator[None]:
    """A warning is told once, without the line of ours that gave it, which says nothing to whoever
    gave the command.
    """
    before, told = warnings.formatwarning, set()

    def line(message: Warning | str, *_: object, **__: object) -> str:
        said = f"specjax: warning: {_sentence(message)}\n"
        new = said not in told
        told.add(said)
        return said if new else ""

    warnings.formatwarning = line
    try:
        yield
    finally:
        warnings.formatwarning = before


def _sentence(error: BaseException | str) -> str:
    return " ".join(str(error).split())
