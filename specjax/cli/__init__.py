"""The command line: `specjax sweep FILE:FUNCTION`, `list`, `run NAME`, `scaling`, `reproduce`,
`judge`, `attack NAME`, `ledger`, `check FOLDER` and `completion SHELL`.

A user's mistake is answered by one sentence on standard error and exit code 2, before anything is
computed or written. Modules that load JAX are imported inside the commands, so `specjax --help`
answers at once.
"""

import os
import sys
from collections.abc import Callable, Sequence

import specjax
from specjax import experiments
from specjax.cli._claim_check import check_claim
from specjax.cli._completion import print_completion
from specjax.cli._errors import UserError, unknown, warnings_in_one_sentence
from specjax.cli._experiment_list import list_experiments
from specjax.cli._judge import attack_statements, judge_stored
from specjax.cli._ledger_view import show_ledger
from specjax.cli._parser import make_parser
from specjax.cli._reproduce import reproduce_records
from specjax.cli._run import run_experiment, run_scaling
from specjax.cli._sweep import sweep_function
from specjax.jaxlib import with_cpu_flags

COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "list": list_experiments,
    "sweep": sweep_function,
    "run": run_experiment,
    "scaling": run_scaling,
    "reproduce": reproduce_records,
    "judge": judge_stored,
    "attack": attack_statements,
    "ledger": show_ledger,
    "check": check_claim,
}
_COMPLETION = "completion"
_RESUMABLE = ("sweep", "run", "scaling", "reproduce")
_OVERVIEW = """commands:
  list                 the experiments: name, paper and title
  sweep FILE:FUNCTION  measure a function of yours over seeds and sizes, and fit exponents
  run NAME             run one experiment; `specjax run NAME --help` shows its flags
  scaling              check whether a rate transfers between widths, and which updates grow
  reproduce            run the headlines, or all experiments, and compare every verdict with the
                       expected one
  judge [NAME ...]     judge stored results again, by the statements as they are now
  attack NAME ...      run experiments, and try every statement against its rivals and controls
  ledger [PAPER] [ROW]  every numbered statement of the papers, and what became of it
  check FOLDER         is a folder with a claim of a paper complete, and does it decide?
  completion SHELL     a script for tab completion in bash or zsh"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command in `argv` (default: the process's arguments) and return its exit code.

    0: done. 1: `reproduce` found a verdict other than expected, or an experiment failed. 2: a
    mistake in the arguments or the configuration. 130: interrupted. 141: the reader of the output
    closed it. `--help` and `--version` leave by SystemExit(0), as argparse does.
    """
    # Before JAX starts: keep compiled programs between runs, without XLA's false alarms about them
    # (see compilation_cache.py).
    os.environ.setdefault("SPECJAX_COMPILATION_CACHE", "on")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # XLA spreads the decompositions of a sweep over its own threads; they and threads of OpenBLAS
    # would wait for each other.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Experiments also compile outside of sweeps.
    os.environ["XLA_FLAGS"] = with_cpu_flags(os.environ.get("XLA_FLAGS", ""))
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        with warnings_in_one_sentence():
            try:
                return _run_command(arguments)
            finally:
                sys.stdout.flush()
    except (UserError, experiments.RegistrationError) as error:
        print(f"specjax: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        kept = "; what is finished is kept, and the same command goes on from there"
        resumable = arguments and arguments[0] in _RESUMABLE
        print(f"specjax: interrupted{kept if resumable else ''}.", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # As after `specjax list | head`. Python would complain at exit about output that it still
        # buffers, so that goes to the null device.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _run_command(arguments: list[str]) -> int:
    if arguments and not arguments[0].startswith("-"):
        command, *rest = arguments
        if command == _COMPLETION:
            return print_completion(rest, COMMANDS)
        if command not in COMMANDS:
            raise UserError(unknown("command", command, [*COMMANDS, _COMPLETION]))
        return COMMANDS[command](rest)
    parser = make_parser(
        "specjax",
        "A laboratory for spectral optimizers: experiments that judge theorems.",
        usage="specjax [--help] [--version] COMMAND ...",
        epilog=_OVERVIEW,
    )
    parser.add_argument("--version", action="version", version=f"specjax {specjax.__version__}")
    parser.parse(arguments)
    raise UserError(f"Say what to do: {', '.join(COMMANDS)}; see `specjax --help`.")
