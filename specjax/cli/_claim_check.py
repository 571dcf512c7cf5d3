"""`specjax check`: whether a folder with a paper's claim is complete, and decides in time."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specjax.cli._errors import UserError, one_line, value_errors_in_one_sentence
from specjax.cli._parser import make_parser

if TYPE_CHECKING:
    from specjax.lab import Experiment
    from specjax.lab.check import Check

MOST_LINES, MOST_SECONDS = 130, 90.0
TEMPLATE = "spectral_power_step"
"""The submitted claim that --template copies."""
_DESCRIPTION = """\
Check a folder with a paper's claim: claim.toml has its words, claim.py its computation (see
`specjax.lab.claim`). Exit code 0: nothing is missing. 1: a line says what is.

specjax check --template FOLDER    write a folder to begin with: a claim that is complete
specjax check FOLDER               check the files, run the presets smoke and quick, and attack"""


def check_claim(arguments: list[str]) -> int:
    """Print what a claim has and what it lacks; the exit code is 1 if it lacks anything."""
    parser = make_parser("specjax check", _DESCRIPTION)
    parser.add_argument("folder", metavar="FOLDER", help="the folder of the claim")
    parser.add_argument("--template", action="store_true", help="write FOLDER, which is new")
    parser.add_argument("--no-run", action="store_true", help="check the files alone")
    given = parser.parse(arguments)
    folder = Path(given.folder)
    from specjax import experiments

    if given.template:
        return _write_template(folder, experiments.SUBMITTED)
    with value_errors_in_one_sentence():
        experiment = experiments.load_folder(folder)
    missing = 0
    steps = [_files(folder, experiment), _words(experiment)]
    if not given.no_run:
        steps.append(_runs(experiment))
    for step in steps:
        for complete, sentence in step:
            missing += not complete
            print(f"{'ok' if complete else 'MISSING':<8} {sentence}", flush=True)
    print(f"{missing} missing" if missing else "complete")
    return 1 if missing else 0


def _write_template(folder: Path, submitted: Path) -> int:
    if not folder.name.isidentifier():
        raise UserError(
            f"The folder's name is that of a Python package, with underscores; got {folder.name!r}."
        )
    try:
        shutil.copytree(submitted / TEMPLATE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    except OSError as error:
        raise UserError(
            f"{folder} cannot be written ({error.strerror or error}); name a new folder."
        ) from error
    print(
        f"{folder}/claim.toml and claim.py are those of the claim"
        f" {TEMPLATE.replace('_', '-')}: change the words, then the computation, and run"
        f"\n  specjax check {folder}"
    )
    return 0


def _files(folder: Path, experiment: "Experiment[Any]") -> Iterator[tuple[bool, str]]:
    lines = len((folder / "claim.py").read_text(encoding="utf-8").splitlines())
    yield lines <= MOST_LINES, f"claim.py has {lines} lines; at most {MOST_LINES}"
    known = {"smoke", "paper"} & set(experiment.scales)
    yield len(known) == 2, "claim.toml has [presets.smoke] and [presets.paper]"


def _words(experiment: "Experiment[Any]") -> Iterator[tuple[bool, str]]:
    """Every row is decided or says why not; every statement has an attack with a number."""
    cited = {row for statement in experiment.statements for row in statement.cites}
    for id, row in experiment.ledger.rows.items():
        if id in cited:
            yield bool(row.finding), f"row {id}: `finding` says what was found"
        else:
            yield bool(row.because), f"row {id}: a statement cites it, or `because` says why not"
    for statement in experiment.statements:
        yield (
            bool(statement.rivals) or len(statement.controls) > 1,
            f"statement {statement.name}: the nearest wrong number as a rival, or two controls",
        )


def _runs(experiment: "Experiment[Any]") -> Iterator[tuple[bool, str]]:
    """The presets smoke and quick, their seconds and verdicts."""
    from specjax.compilation_cache import persistent
    from specjax.lab.check import Check

    for scale in ("smoke", "quick"):
        config, start = experiment.at(scale), time.perf_counter()
        try:
            with persistent():
                judgements = experiment.judge(config, experiment.run(config))
        except ValueError as error:
            yield False, f"{scale}: {one_line(error)}"
            return
        seconds = time.perf_counter() - start
        checks = [Check.from_judgement(judgement) for judgement in judgements]
        yield seconds <= MOST_SECONDS, f"{scale} takes {seconds:.1f} s; at most {MOST_SECONDS:g}"
        for check in checks:
            yield _verdict(scale, check)


def _verdict(scale: str, check: "Check") -> tuple[bool, str]:
    """Whether a verdict is as expected; smoke may leave a statement undecided."""
    as_expected = not check.surprising or (scale == "smoke" and check.verdict == "inconclusive")
    expected = "" if as_expected else f", expected {check.expected}"
    power = f" ({check.power})" if check.power else ""
    reason = f": {check.reason}" if check.reason and not as_expected else ""
    return as_expected, f"{scale}/{check.name} is {check.verdict}{expected}{power}{reason}"
