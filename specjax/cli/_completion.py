"""`specjax completion`: a script that completes commands, flags, experiments and papers."""

import contextlib
import io
import re
from collections.abc import Callable, Mapping

from specjax import experiments
from specjax.cli._errors import UserError, unknown
from specjax.cli._parser import make_parser

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
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -o default -F _specjax specjax
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
    script = _SCRIPT % {"commands": " ".join([*commands, "completion"]), "cases": cases}
    print((_ZSH if shell == "zsh" else "") + script, end="")
    return 0


def _arguments(command: str) -> list[str]:
    """The words that a command takes besides its flags; files complete by themselves."""
    if command == "ledger":
        from specjax.experiments.ledgers import PAPERS

        return list(PAPERS)
    return list(experiments.names()) if command in ("run", "judge", "attack") else []


def _flags(command: Callable[[list[str]], int]) -> list[str]:
    """The flags in the help of a command."""
    text = io.StringIO()
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(text):
        command(["--help"])
    return sorted(set(_FLAG.findall(text.getvalue())))
