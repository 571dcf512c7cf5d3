"""Explain errors of a measurement that uses a traced value as a number."""

import linecache
import os
import traceback
from pathlib import Path
from types import TracebackType

import jax
import numpy as np

import specjax

_NOT_USERS = tuple(
    f"{Path(str(package.__file__)).resolve().parent}{os.sep}"
    for package in (jax, np, specjax)
    if package.__file__
)
_NUMBER_ERRORS = (jax.errors.ConcretizationTypeError, jax.errors.TracerIntegerConversionError)
ERRORS = (TypeError, jax.errors.TracerBoolConversionError, jax.errors.NonConcreteBooleanIndexError)
"""The errors of a measurement that `refusal` can explain."""


class ConcreteValueError(TypeError):
    """A measurement uses a traced value as if it were a number."""


def refusal(error: BaseException) -> str | None:
    """One sentence with the line of the user's file; None for an error of another kind."""
    if isinstance(error, jax.errors.TracerBoolConversionError):
        what, way = "decides by a traced value", "write jnp.where or jax.lax.cond"
    elif isinstance(error, jax.errors.TracerArrayConversionError):
        what, way = (
            "hands a traced value to NumPy",
            "call the function of the same name in jax.numpy",
        )
    elif isinstance(error, jax.errors.NonConcreteBooleanIndexError):
        what, way = "takes the entries where a traced mask is true", "write jnp.where(mask, x, 0)"
    elif isinstance(error, _NUMBER_ERRORS) or "concrete values" in str(error):
        what, way = "needs a Python number where a traced value is", "compute with jax.numpy"
    else:
        return None
    return (
        f"measure {what}{_line(error.__traceback__)}; {way}, or sweep that argument with"
        " sweep.choices(...), which passes it as it is."
    )


def _line(trace: TracebackType | None) -> str:
    """The innermost line outside of libraries."""
    for frame, number in reversed([*traceback.walk_tb(trace)]):
        file = frame.f_code.co_filename
        if not file.startswith(("<frozen", *_NOT_USERS)) and "site-packages" not in file:
            code = linecache.getline(file, number, frame.f_globals).strip()
            return f" at {file}:{number} ({code})" if code else f" at {file}:{number}"
    return ""
