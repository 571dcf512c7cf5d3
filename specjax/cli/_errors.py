"""Errors and warnings as single sentences for the user."""

import difflib
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

_MOST_LISTED = 20
"""Longest list of names that an error prints where a command lists them too."""


class UserError(Exception):
    """A mistake of the user's: one sentence that says what would be right."""


def unknown(what: str, name: str, known: Sequence[str], listed_by: str = "") -> str:
    """The sentence for a name that is not known, with the nearest ones, or all, or the command
    that lists them.
    """
    # Without their dashes, which would make any flag look like a short one.
    bare = {word.lstrip("-"): word for word in known}
    part = name.lstrip("-")
    close = difflib.get_close_matches(part, bare) or _containing(part, bare)
    if close:
        hint = f"did you mean {' or '.join(bare[word] for word in close)}?"
    elif listed_by and len(known) > _MOST_LISTED:
        hint = f"`{listed_by}` shows the names."
    else:
        hint = f"there {'is' if len(known) == 1 else 'are'} {', '.join(known)}."
    return f"There is no {what} {name!r}; {hint}"


def _containing(part: str, words: Iterable[str]) -> list[str]:
    """The first names with this part; one or two letters are in too many."""
    return [word for word in words if len(part) > 2 and part.lower() in word.lower()][:3]


def one_line(error: BaseException | str) -> str:
    """The text of an error on one line."""
    return " ".join(str(error).split())


@contextmanager
def value_errors_in_one_sentence() -> Iterator[None]:
    """Turn a ValueError, whose sentence is about the request, into a UserError."""
    try:
        yield
    except ValueError as error:
        raise UserError(one_line(error)) from error


@contextmanager
def memory_errors_in_one_sentence() -> Iterator[None]:
    """Turn the errors of too large a configuration into a UserError: arrays that do not fit into
    memory, and numbers beyond int32.
    """
    try:
        yield
    except OverflowError as error:
        raise UserError(
            f"This configuration makes numbers beyond int32 or float32: {one_line(error)}"
        ) from error
    except (MemoryError, RuntimeError) as error:
        text = one_line(error)
        out_of_memory = "Out of memory" in text or "RESOURCE_EXHAUSTED" in text
        if isinstance(error, RuntimeError) and not out_of_memory:
            raise
        raise UserError(
            f"This configuration needs more memory than there is; take smaller sizes. ({text})"
        ) from error


@contextmanager
def warnings_in_one_sentence() -> Iterator[None]:
    """Print each warning once, without the line of our source, which does not help the user."""
    before, printed = warnings.formatwarning, set()

    def format_once(message: Warning | str, *_: object, **__: object) -> str:
        line = f"specjax: warning: {one_line(message)}\n"
        new = line not in printed
        printed.add(line)
        return line if new else ""

    warnings.formatwarning = format_once
    try:
        yield
    finally:
        warnings.formatwarning = before
