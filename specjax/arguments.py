"""Checks of arguments that all rooms share: arrays, numbers in an interval, and annotations.

jaxtyping and beartype check annotations in the tests only, since users may not have them. `checked`
checks less, and raises errors of one sentence.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property, wraps
from inspect import Parameter, signature
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from specjax.programs import is_traced

P = ParamSpec("P")
R = TypeVar("R")

REAL = "(-inf, inf)"
"""Every finite real number, as an interval of `check_number`."""


def as_array(x: Any, name: str, by: str) -> Array:
    """`x` as a JAX array: JAX and NumPy arrays, numbers, and lists of numbers, in JAX's dtypes.

    Args:
        x: The argument.
        name: Its name, for the error.
        by: The name of the called function, for the error.

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
    """Raise ValueError unless `value` is one real number, or a scalar array of one, inside an
    interval; of a traced one only shape and dtype are known.

    Args:
        value: The argument.
        name: Its name, for the error.
        interval: In mathematical notation: "[0, 1)", "(0, inf]", or `REAL`. NaN is in none.
        by: The name of the called function, for the error.

    Raises:
        ValueError: for another value, such as None, text, a boolean or a complex number.
    """
    wanted = (
        f"a finite number as {name}" if interval == REAL else f"a number in {interval} as {name}"
    )
    refusal = ValueError(f"{by} needs {wanted}, got {shown(value)}.")
    if isinstance(value, bool | str) or (
        not hasattr(value, "dtype") and not isinstance(value, int | float)
    ):
        raise refusal
    if hasattr(value, "dtype") and not any(
        jnp.issubdtype(value.dtype, kind) for kind in (jnp.integer, jnp.floating)
    ):
        raise refusal
    if getattr(value, "shape", ()) != ():
        raise ValueError(
            f"{by} needs one number as {name}, got shape {value.shape}; take jax.vmap for several."
        )
    if is_traced(value):
        return
    low, high = (float(end) for end in interval[1:-1].split(","))
    try:
        number = float(value)
    except OverflowError:  # an int beyond all floats
        raise refusal from None
    above = number >= low if interval[0] == "[" else number > low
    below = number <= high if interval[-1] == "]" else number < high
    if not (above and below):
        raise refusal


def check_count(value: Any, name: str, least: int, by: str) -> None:
    """Raise ValueError unless `value` is a whole number of at least `least`; 2.5 and True are
    refused.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(
            f"{by} needs a whole number of at least {least} as {name}, got {shown(value)}."
        )


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """The function with its arguments checked by their annotations: arrays are converted by
    `as_array`, wrong values refused in one sentence.

    It checks arrays of jaxtyping, classes, functions, literals, collections and unions of these;
    all other annotations pass.
    """
    return checked_but()(function)


def checked_but(*names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """As `checked`, except for the arguments with these names, which the function checks itself."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        rules = _Rules(function, names)

        @wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> R:
            return function(
                *rules.positional(args),
                **{name: rules.conform(name, value) for name, value in kwargs.items()},
            )

        return called

    return decorate


def check_fields(made: object) -> None:
    """Raise ValueError for a field of a dataclass that does not match its annotation."""
    for name, hint in get_type_hints(type(made)).items():
        _conformed(getattr(made, name), hint, name, type(made).__name__)


class _Rules:
    """The annotations of a function, read at its first call, when all their names are known."""

    def __init__(self, function: Callable[..., Any], left: Collection[str]) -> None:
        self.function, self.left = function, {*left, "return"}

    @cached_property
    def hints(self) -> Mapping[str, Any]:
        try:
            hints = get_type_hints(self.function)
        except NameError:  # a name for type checkers alone
            hints = {
                name: hint
                for name, hint in self.function.__annotations__.items()
                if not isinstance(hint, str)
            }
        return {name: hint for name, hint in hints.items() if name not in self.left}

    @cached_property
    def places(self) -> tuple[list[str], str]:
        """The names of positional arguments, and of `*args`, or ""."""
        parameters = [*signature(self.function).parameters.values()]
        named = [
            each.name
            for each in parameters
            if each.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
        ]
        return named, next(
            (each.name for each in parameters if each.kind is Parameter.VAR_POSITIONAL), ""
        )

    def positional(self, values: Sequence[Any]) -> list[Any]:
        names, rest = self.places
        return [
            self.conform(names[i] if i < len(names) else rest, value)
            for i, value in enumerate(values)
        ]

    def conform(self, name: str, value: Any) -> Any:
        return (
            _conformed(value, self.hints[name], name, self.function.__name__)
            if name in self.hints
            else value
        )


def _conformed(value: Any, hint: Any, name: str, by: str) -> Any:
    """The value, converted if the annotation is an array; raises ValueError if it does not match
    the annotation.
    """
    members = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    members = getattr(hint, "__constraints__", ()) or members
    arrays = [member for member in members if hasattr(member, "dim_str") or member is jax.Array]
    if any(_holds(value, member) for member in members if member not in arrays):
        return value
    if not arrays:
        nouns = dict.fromkeys(
            _noun(member) for member in members if member is not int or float not in members
        )
        raise ValueError(f"{by} needs {' or '.join(nouns)} as {name}, got {shown(value)}.")
    if any("key" in str(dtype) for dtype in _dtypes(arrays[0])):
        if not isinstance(value, jax.Array) or not jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            raise ValueError(
                f"{by} needs a typed key as {name}, got {shown(value)}; make one with"
                " jax.random.key(seed)."
            )
        return value
    on_host = getattr(arrays[0], "array_type", jax.Array) is np.ndarray
    array = host_array(value, name, by) if on_host else as_array(value, name, by)
    _check_axes(array, arrays[0], name, by)
    return array


def host_array(value: Any, name: str, by: str) -> np.ndarray:
    """As `as_array`, but a NumPy array in its own dtype."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):
        array = np.asarray(None)
    if array.dtype.kind not in "biufc":
        raise ValueError(f"{by} needs an array of numbers as {name}, got {shown(value)}.")
    return array


def _check_axes(array: Array | np.ndarray, hint: Any, name: str, by: str) -> None:
    axes = getattr(hint, "dim_str", "...").split()
    fixed = [axis for axis in axes if axis != "..." and not axis.startswith("*")]
    if array.ndim < len(fixed) or (len(fixed) == len(axes) and array.ndim > len(fixed)):
        many = f"{len(fixed)} {'axis' if len(fixed) == 1 else 'axes'}"
        wanted = f"{many}{' or more' if len(fixed) < len(axes) else ''}" if fixed else "no axes"
        raise ValueError(f"{by} needs an array with {wanted} as {name}, got shape {array.shape}.")
    dtypes = _dtypes(hint)
    if dtypes and jnp.iscomplexobj(array) and not any("complex" in str(dtype) for dtype in dtypes):
        raise ValueError(f"{by} needs real numbers as {name}, got {array.dtype}.")


def _dtypes(hint: Any) -> Sequence[Any]:
    """The dtypes that an annotation of an array allows; empty if it allows all."""
    found = getattr(hint, "dtypes", ())
    return found if isinstance(found, list | tuple) else ()


def _holds(value: Any, hint: Any) -> bool:
    """Whether a value matches an annotation without arrays, as far as that can be checked here."""
    origin = get_origin(hint)
    if origin is Literal:
        return isinstance(value, str | int | NoneType) and value in get_args(hint)
    kind = hint if origin is None else origin
    if kind is int:
        return (
            isinstance(value, Integral) and not isinstance(value, bool) and abs(int(value)) < 2**63
        )
    if kind is float:
        whole = isinstance(value, Integral) and abs(int(value)) >= 2**63
        return isinstance(value, Real) and not isinstance(value, bool) and not whole
    if (
        not isinstance(kind, type)
        or kind in (Any, object)
        or hasattr(hint, "_is_protocol")
        or kind.__module__ == "jaxtyping"
    ):
        return True
    if kind is np.ndarray and isinstance(value, np.ndarray):
        return value.dtype.kind in "biufcO"
    if kind in (Sequence, Collection, Iterable) and isinstance(value, str):
        return False
    return isinstance(value, kind)


_NOUNS: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "True or False",
    Callable: "a function",
    NoneType: "None",
    Mapping: "a dict",
    Sequence: "a sequence",
    Collection: "a collection",
    Iterable: "an iterable",
}


def _noun(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return f"one of {', '.join(map(repr, get_args(hint)))}"
    kind = get_origin(hint) or hint
    named = _NOUNS.get(kind)
    return named or f"a{'n' if kind.__name__[0] in 'AEIOaeio' else ''} {kind.__name__}"


def shown(value: Any) -> str:
    """A value on one line of an error: short ones as they are, others by their type."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # an int of more digits than Python prints
        text = ""
    return text if 0 < len(text) <= 60 else f"an object of type {type(value).__name__}"
