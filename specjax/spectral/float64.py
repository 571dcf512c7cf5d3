"""Functions that are computed in float64, whatever is on outside: for decompositions of matrices whose small singular values matter."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import jax

Function = TypeVar("Function", bound=Callable[..., Any])


def in_float64(*static: str) -> Callable[[Function], Function]:
    """Compiles a function in a float64 scope, in which alone its arguments can be made float64.

    Args:
        static: Arguments that are part of the program, by name.
    """

    def decorated(function: Function) -> Function:
        compiled = jax.jit(function, static_argnames=static)

        @wraps(function)
        def scoped(*arguments: Any) -> Any:
            with jax.enable_x64(True):
                return compiled(*arguments)

        return cast(Function, scoped)

    return decorated
