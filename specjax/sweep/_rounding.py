"""The effect of rounding on a program, by moving the last bits of all its results at random.

Known as Monte Carlo arithmetic (Parker, 1997) and as the CESTAC method (Vignes, 1978). Each
floating result of an operation that rounds is multiplied by 1 + a or 1 - a. The sign is hashed from
its own bits, so each entry of each step of a scan has its own. Exact operations (a reshape, a sort,
a selection, a maximum) keep their result equal to its source, zeros stay zero, and neither keys nor
random bits change, so random samples stay the same. The bodies of calls and scans are entered.
Those of `cond`, `while_loop` and others are not, because a loop that ends by a tolerance might not
end: their operands and results are moved, as are those of unreadable programs.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, UInt32

from specjax.programs import Equation, Program, Scan, UnreadableProgramError, evaluate, scan, trace

ULPS = 8
"""The units of the dtype's precision by which a result is moved."""

# Operations that do not round. Moving the result of another such operation would only overstate the
# rounding.
_EXACT = frozenset(
    """
    abs neg sign max min clamp select_n reshape broadcast_in_dim transpose squeeze expand_dims slice
    dynamic_slice dynamic_update_slice gather scatter concatenate pad rev split tile sort top_k
    convert_element_type bitcast_convert_type iota copy copy_p stop_gradient reduce_max reduce_min
    cummax cummin reduce_precision real imag complex conj floor ceil round device_put
    optimization_barrier reduce_window_max reduce_window_min select_and_scatter_add
    select_and_gather_add
    """.split()  # noqa: SIM905  (a list would have a line for each)
)
# 2**32 over the golden ratio: the highest bit of its multiple depends on all bits of a word.
_HASH = 0x9E3779B1


def moved(function: Callable[..., Any], stream: UInt32[Array, ""], *arguments: Any) -> Any:
    """`function(*arguments)` with last bits moved in the way of `stream`; stream 0 moves none."""
    program, shapes = trace(function, *arguments)
    outputs = _body(program, jax.tree.leaves(arguments), stream)
    return jax.tree.unflatten(jax.tree.structure(shapes), outputs)


def _body(program: Program, arguments: Sequence[Any], stream: Array) -> list[Any]:
    return evaluate(program, arguments, partial(_outputs, stream))


def _outputs(stream: Array, equation: Equation, inputs: list[Any]) -> list[Any]:
    if equation.called:
        return _body(equation.called, inputs, stream)
    if loop := _readable_scan(equation):
        return _scan(loop, inputs, stream)
    outputs = equation.bind(*inputs)
    return outputs if equation.name in _EXACT else [_move(output, stream) for output in outputs]


def _readable_scan(equation: Equation) -> Scan | None:
    try:
        return scan(equation)
    except UnreadableProgramError:
        return None


def _scan(loop: Scan, inputs: list[Any], stream: Array) -> list[Any]:
    def step(index: Array, given: list[Any]) -> list[Any]:
        # Each step moves bits in its own way: in one way for all, a value that a step keeps would
        # alternate between two.
        own = jnp.where(stream > 0, (stream + index) * jnp.uint32(_HASH) | jnp.uint32(1), stream)
        return _body(loop.body, given, own)

    return loop.run(inputs, step)


def _move(result: Any, stream: Array) -> Any:
    dtype = getattr(result, "dtype", None)
    if dtype is None or not jnp.issubdtype(dtype, jnp.inexact):
        return result
    if jnp.issubdtype(dtype, jnp.complexfloating):
        return lax.complex(_move(lax.real(result), stream), _move(lax.imag(result), stream))
    bits = 8 * dtype.itemsize
    word = np.dtype(f"uint{bits}")
    odd = lax.convert_element_type(stream * jnp.uint32(2 * _HASH % 2**32) + jnp.uint32(_HASH), word)
    high = lax.shift_right_logical(
        _mixed(lax.bitcast_convert_type(result, word), odd, bits), jnp.asarray(bits - 1, word)
    )
    size = jnp.where(
        stream > 0, jnp.asarray(ULPS * jnp.finfo(dtype).eps, dtype), jnp.zeros((), dtype)
    )
    one = jnp.ones((), dtype)
    return lax.mul(result, jnp.where(high > jnp.asarray(0, word), one + size, one - size))


def _mixed(word: Array, odd: Array, bits: int) -> Array:
    """`word` hashed, so that neighbours get independent bits.

    A single product would vary smoothly with the word; the second, after a shift by half, does not.
    """
    half = jnp.asarray(bits // 2, word.dtype)
    once = word * odd
    return (once ^ lax.shift_right_logical(once, half)) * odd
