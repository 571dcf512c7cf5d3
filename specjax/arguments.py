"""Checks of arguments that all rooms share: what must be an array, and what must be a number in an interval."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from specjax.programs import is_traced

REAL = "(-inf, inf)"
"""Every finite real number, as an interval of `check_number`."""


def as_array(x: Any, name: str, by: str) -> Array:
    """`x` as a JAX array: JAX and NumPy arrays, numbers, and lists of numbers, in JAX's dtypes.

    Args:
        x: What a user passed.
        name: Of the argument, for the error.
        by: The function that was called, for the error.

    Raises:
        ValueError: for anything else, such as None, text or a list of lists of different lengths.
    """
    if isinstance(x, jax.Array):
        return x
    try:
        return jnp.asarray(x)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{by} needs an array of numbers as {name}, got {_shown(x)}.") from error


def check_number(value: Any, name: str, interval: str, by: str) -> None:
    """Checks that `value` is a real number, or an array of them, inside an interval; of a traced array only the dtype is known.

    Args:
        value: What a user passed.
        name: Of the argument, for the error.
        interval: As mathematics writes it: "[0, 1)", "(0, inf]", or `REAL`. NaN is in none.
        by: The function that was called, for the error.

    Raises:
        ValueError: for another value, such as None, text, a boolean or a complex number.
    """
    wanted = f"a finite number as {name}" if interval == REAL else f"a number in {interval} as {name}"
    refusal = ValueError(f"{by} needs {wanted}, got {_shown(value)}.")
    if isinstance(value, bool | str) or (not hasattr(value, "dtype") and not isinstance(value, int | float)):
        raise refusal
    if hasattr(value, "dtype") and value.dtype.kind not in "iuf" and not jnp.issubdtype(value.dtype, jnp.floating):
        raise refusal
    if is_traced(value):
        return
    low, high = (float(end) for end in interval[1:-1].split(","))
    numbers = np.asarray(value, np.float64)
    above = numbers >= low if interval[0] == "[" else numbers > low
    below = numbers <= high if interval[-1] == "]" else numbers < high
    if not np.all(above & below):
        raise refusal


def check_count(value: Any, name: str, least: int, by: str) -> None:
    """Checks that `value` is a whole number of at least `least`; raises ValueError for another value, such as 2.5 or True."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{by} needs a whole number of at least {least} as {name}, got {_shown(value)}.")


def _shown(value: Any) -> str:
    """A value as an error shows it: short ones as they are, others by their type."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    text = repr(value)
    return text if len(text) <= 60 else f"an object of type {type(value).__name__}"
