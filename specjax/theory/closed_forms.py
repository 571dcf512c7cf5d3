"""Closed forms of numbers: evaluated in float64, and only inside their domain.

The results are float64 arrays even outside a float64 scope: convert them by `float()` or
`numpy.asarray`, or stay in such a scope, before combining them with float32 arrays. Functions of
whole arrays, such as kernels and bounds for given matrices, keep the dtype of their arguments
instead.
"""

from collections.abc import Callable
from functools import cache, wraps
from typing import ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike

from specjax.arguments import shown
from specjax.programs import is_traced

P = ParamSpec("P")
R = TypeVar("R")


def in_float64(function: Callable[P, R]) -> Callable[P, R]:
    """Run the function in a float64 scope, for differences of large numbers and high powers."""

    @wraps(function)
    def evaluated(*args: P.args, **kwargs: P.kwargs) -> R:
        with jax.enable_x64(True):
            return function(*args, **kwargs)

    return evaluated


def floats(*numbers: ArrayLike) -> tuple[Array, ...]:
    """The numbers as arrays of JAX's default float: float64 in a float64 scope."""
    for x in numbers:
        if jnp.iscomplexobj(x):
            raise ValueError(f"A closed form needs real numbers, got {shown(x)}.")
    return tuple(jnp.asarray(x, jnp.result_type(float)) for x in numbers)


@cache
def legendre(nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Gauss–Legendre nodes and weights on [-1, 1], computed at the first use, not at import."""
    return np.polynomial.legendre.leggauss(nodes)


def check_in(interval: str, **numbers: ArrayLike) -> None:
    """Raise ValueError for a concrete number, or entry, outside an interval such as "(0, 1]"."""
    low, high = (float(end) for end in interval[1:-1].split(","))
    for name, value in numbers.items():
        if is_traced(value):
            continue
        if jnp.iscomplexobj(value):
            raise ValueError(f"{name} must be a real number in {interval}, got {shown(value)}.")
        values = np.asarray(value, float)
        above = values >= low if interval[0] == "[" else values > low
        below = values <= high if interval[-1] == "]" else values < high
        if not (above & below).all():
            outside = values[~(above & below)].ravel()[0]
            raise ValueError(f"{name} must be in {interval}, got {outside:g}.")
