"""The function of a user's file, and the errors that it raises."""

import functools
import importlib
import importlib.util
import inspect
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import specjax
from specjax.cli._errors import UserError, one_line, unknown

_LONGEST_MESSAGE = 300


def load_function(text: str) -> tuple[ModuleType, Callable[..., Any]]:
    """The module and the function of FILE:FUNCTION or MODULE:FUNCTION.

    Without ":FUNCTION" it is the only public function of the file whose first argument is `key`.
    """
    place, colon, name = text.rpartition(":")
    # A drive of Windows is not a file.
    if not colon or len(place) == 1:
        place, name = text, ""
    with user_errors(f"{place} cannot be imported"):
        module = _load_module(place)
    measures = [
        each
        for each, member in vars(module).items()
        if inspect.isfunction(member)
        and member.__module__ == module.__name__
        and not each.startswith("_")
        and next(iter(inspect.signature(member).parameters), "") == "key"
    ]
    if not name:
        if len(measures) != 1:
            found = f"it has {', '.join(measures)}" if measures else "none begins with `key`"
            raise UserError(
                f"Say which function of {place} to measure, as in {place}:measure; {found}."
            )
        (name,) = measures
    function = getattr(module, name, None)
    if not callable(function):
        raise UserError(unknown(f"function in {place} called", name, measures or ["none"]))
    return module, function


def _load_module(place: str) -> ModuleType:
    path = Path(place)
    if path.suffix != ".py":
        if path.exists():
            raise UserError(f"{place} is not a Python file; its name needs to end in .py.")
        if not all(part.isidentifier() for part in place.split(".")):
            raise UserError(f"There is no file {place}; write FILE.py:FUNCTION.")
        # As `python -m` does.
        sys.path.insert(0, "")
        return importlib.import_module(place)
    if not path.is_file():
        raise UserError(
            f"There is no file {place}; `specjax sweep --example` writes one to begin with."
        )
    # The file may import its neighbours, as a script does.
    sys.path.insert(0, str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up; a module of the same name that is already there stays.
    sys.modules.setdefault(path.stem, module)
    spec.loader.exec_module(module)
    return module


def returning_dict(function: Callable[..., Any]) -> Callable[..., Mapping[str, Any]]:
    """The function with its result in a dict, under the function's name, if it is not one."""
    name = getattr(function, "__name__", "value")

    @functools.wraps(function)
    def measure(*args: Any, **kwargs: Any) -> Mapping[str, Any]:
        found = function(*args, **kwargs)
        return found if isinstance(found, Mapping) else {name: found}

    return measure


@contextmanager
def user_errors(what: str) -> Iterator[None]:
    """Turn an exception into a UserError, after the lines of the user's code in which it arose.

    A ValueError outside of that code is a sentence of ours. Errors of the system pass.
    """
    try:
        yield
    except (UserError, OSError, MemoryError):
        raise
    except Exception as error:
        frames = [
            frame
            for frame in traceback.extract_tb(error.__traceback__)
            if _is_users(frame.filename)
        ]
        is_sentence = isinstance(error, ValueError) or _is_ours(error)
        if not frames and is_sentence:
            raise UserError(_with_flags(one_line(error))) from error
        if not frames and isinstance(error, SyntaxError | ImportError):
            raise UserError(f"{what}: {one_line(error)}") from error
        if not frames:
            raise
        print("".join(traceback.format_list(frames)), end="", file=sys.stderr)
        message = one_line(error)
        if len(message) > _LONGEST_MESSAGE:
            message = f"{message[:_LONGEST_MESSAGE]} ..."
        raise UserError(f"{what}: {type(error).__name__}: {message}") from error


def _with_flags(sentence: str) -> str:
    """A refusal of `sweep.run` with the flags of the command line in place of its arguments."""
    for argument, flag in {
        "plan='exact'": "--plan exact",
        "choose another path, or ask for it": "delete that folder, or choose another --out",
        "use reduce='moments'": "use --moments",
    }.items():
        sentence = sentence.replace(argument, flag)
    return sentence


def _is_ours(error: Exception) -> bool:
    return type(error).__module__.split(".")[0] == specjax.__name__


def _is_users(file: str) -> bool:
    """Whether a file is neither specjax's, nor of the standard library or an installed package."""
    paths = sysconfig.get_paths()
    others = [str(Path(specjax.__file__).parent), *(paths[k] for k in ("stdlib", "purelib"))]
    return not file.startswith("<") and not any(file.startswith(other) for other in others)
