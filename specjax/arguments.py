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
    try:
        array = x if isinstance(x, jax.Array) else jnp.asarray(x)
    except (TypeError, ValueError, OverflowError):
        array = None
    # A key is an array, but not one of numbers.
    if array is None or not (jnp.issubdtype(array.dtype, jnp.number) or array.dtype == bool):
        raise ValueError(f"{by} needs an array of numbers as {name}, got {shown(x)}.")
    return array


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
    refusal = ValueError(f"{by} needs {wanted}, got {shown(value)}.")
    if isinstance(value, bool | str) or (not hasattr(value, "dtype") and not isinstance(value, int | float)):
        raise refusal
    if hasattr(value, "dtype") and value.dtype.kind not in "iuf" and not jnp.issubdtype(value.dtype, jnp.floating):
        raise refusal
    if is_traced(value):
        return
    low, high = (float(end) for end in interval[1:-1].split(","))
    try:
        numbers = np.asarray(value, np.float64)
    except OverflowError:  # an int beyond all floats
        raise refusal from None
    above = numbers >= low if interval[0] == "[" else numbers > low
    below = numbers <= high if interval[-1] == "]" else numbers < high
    if not np.all(above & below):
        raise refusal


def shown(value: Any) -> str:
    """A value as an error shows it, on one line: short ones as they are, others by their type."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # an int of more digits than Python prints
        text = ""
    return text if 0 < len(text) <= 60 else f"an object of type {type(value).__name__}"
