"""`specjax completion`: a script that completes commands, flags, experiments, papers and rows."""

import contextlib
import functools
import io
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from specjax import experiments
from specjax.cli._errors import UserError, unknown
from specjax.cli._parser import make_parser

# The command line answers a mistake without loading JAX.
if TYPE_CHECKING:
    from specjax.lab.ledger import Ledger

SHELLS = ("bash", "zsh")
_ZSH = "autoload -U +X bashcompinit && bashcompinit\n"
_SCRIPT = """\
_specjax() {
  local word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} words=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    words="%(commands)s --help --version"
  else
    case $command in
%(cases)s
    esac
%(rows)s  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -o default -F _specjax specjax
"""
_ROWS = """\
    if [ "$command" = ledger ] && [ "$COMP_CWORD" -gt 2 ]; then
      case ${COMP_WORDS[2]} in
%s
      esac
    fi
"""
_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")


def print_completion(
    arguments: list[str], commands: Mapping[str, Callable[[list[str]], int]]
) -> int:
    """Print the script for a shell."""
    parser = make_parser(
        "specjax completion",
        "Print a script for tab completion. Write it where the shell looks for such scripts, as\n"
        "  specjax completion bash > ~/.local/share/bash-completion/completions/specjax\n"
        "  specjax completion zsh >> ~/.zshrc",
    )
    parser.add_argument("shell", metavar="SHELL", help=" or ".join(SHELLS))
    shell = parser.parse(arguments).shell
    if shell not in SHELLS:
        raise UserError(unknown("shell", shell, SHELLS))
    cases = "\n".join(
        f'      {name}) words="{" ".join([*_arguments(name), *_flags(command)])}" ;;'
        for name, command in commands.items()
    )
    names = " ".join([*commands, "completion"])
    script = _SCRIPT % {"commands": names, "cases": cases, "rows": _rows()}
    print((_ZSH if shell == "zsh" else "") + script, end="")
    return 0


def _arguments(command: str) -> list[str]:
    """The words that a command takes besides its flags; files complete by themselves."""
    papers = _ledgers() if command in ("ledger", "attack") else ()
    names = experiments.names() if command in ("run", "judge", "attack") else ()
    return [*dict.fromkeys([*papers, *names])]


@functools.cache
def _ledgers() -> "dict[str, Ledger]":
    from specjax.report import ledger_status

    return ledger_status.known()


def _rows() -> str:
    """The ids of each paper's rows, which `specjax ledger PAPER` takes."""
    return _ROWS % "\n".join(
        f'        {paper}) words+=" {" ".join(ledger.rows)}" ;;'
        for paper, ledger in _ledgers().items()
    )


def _flags(command: Callable[[list[str]], int]) -> list[str]:
    """The flags in the help of a command."""
    text = io.StringIO()
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(text):
        command(["--help"])
    return sorted(set(_FLAG.findall(text.getvalue())))
