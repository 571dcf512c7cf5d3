"""The parser of arguments, and the flags that several commands share."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from specjax.cli._errors import UserError, unknown

SCALES = ("smoke", "quick", "paper")
DEFAULT_SCALE, DEFAULT_OUT = "quick", "results"


class Parser(argparse.ArgumentParser):
    """An argument parser that raises UserError."""

    def error(self, message: str) -> NoReturn:
        """Raise UserError in place of leaving the process."""
        missing = message.removeprefix("the following arguments are required: ")
        said = f"{missing} is missing" if missing != message else message.removeprefix("argument ")
        raise UserError(f"{said}; see `{self.prog} --help`.")

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parse like `parse_args`, but answer an unknown flag with the nearest one."""
        namespace, extra = self.parse_known_args(arguments)
        if not extra:
            return namespace
        if not extra[0].startswith("-"):
            raise UserError(f"There is no place for {extra[0]!r} here; see `{self.prog} --help`.")
        flag = extra[0].partition("=")[0]
        known = [option for option in self._option_string_actions if option.startswith("--")]
        raise UserError(unknown("flag", flag, known))


def make_parser(prog: str, description: str, **options: str) -> Parser:
    """A parser that keeps the lines of its description."""
    return Parser(
        prog=prog,
        description=description.replace("%", "%%"),
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        **options,  # type: ignore[arg-type]
    )


def pre_parser(prog: str) -> Parser:
    """A parser for the flags on which the other flags depend; it ignores those."""
    return Parser(prog=prog, add_help=False, allow_abbrev=False)


def add_scale(parser: argparse.ArgumentParser) -> None:
    """Add the flag --scale."""
    scales = ", ".join(SCALES)
    parser.add_argument(
        "--scale", default=DEFAULT_SCALE, help=f"one of {scales} (default: {DEFAULT_SCALE})"
    )


def add_out(parser: argparse.ArgumentParser, help: str = "results folder") -> None:
    """Add the flag --out."""
    parser.add_argument(
        "--out", default=DEFAULT_OUT, metavar="DIR", help=f"{help} (default: {DEFAULT_OUT})"
    )


def parse_scale(name: str) -> str:
    """The scale `name`, if there is one."""
    if name not in SCALES:
        raise UserError(unknown("scale", name, SCALES))
    return name


def parse_out(text: str) -> Path:
    """The results folder, which needs a name."""
    if not text:
        raise UserError("--out needs the name of a folder, as in `--out results`.")
    return Path(text)
