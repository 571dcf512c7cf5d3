"""The version of jaxlib, and the options without which its XLA computes wrong numbers on a CPU, or
keeps memory.

From jaxlib 0.11.1 on, and in 0.12.0.1 still, a product with a constant matrix of equal entries,
such as the zeros of a first step, is wrong under `vmap` if a reduction or an elementwise operation
is fused with it: `jit(vmap(lambda x: jnp.max(x @ jnp.ones((24, 24)), axis=1)))` returns
uninitialized memory (tests/test_jax_regression.py). YNNPACK makes these fusions. Products alone
stay with it, and are right; without YNNPACK altogether, trainings would take twice as long.

Sweeps run programs side by side and compile them without YNNPACK. While two loops with products run
at once, YNNPACK keeps memory until they end: 0.3 GB a second on two cores for float64 products of
20 x 20 matrices. One program at a time keeps none, nor does jaxlib 0.10.1.

JAX is imported late, since the flags of a process must be set before it starts.
"""

import os
from functools import cache
from importlib.metadata import version
from typing import Any

JAXLIB = tuple(map(int, version("jaxlib").split(".")[:2]))
"""The version, such as (0, 12)."""

_OPTION, _VALUE = "xla_cpu_experimental_ynn_fusion_type", "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT"
_NOTHING = ""  # the value with which YNNPACK computes nothing
_IS_FAULTY = JAXLIB >= (0, 11)
# XLA ends the process at an unknown flag, so a flag is set only for versions known to have it.
_HAS_FLAG = JAXLIB < (0, 13)


def cpu_options(*, side_by_side: bool = False) -> dict[str, Any]:
    """Options for `compiler_options` of `jax.jit`, for a program that may run beside others.

    Empty if the default device is not a CPU, XLA_FLAGS sets the option to another value than
    `with_cpu_flags` does, or XLA lacks it.
    """
    import jax

    value = _NOTHING if side_by_side else _VALUE
    is_set = _OPTION in os.environ.get("XLA_FLAGS", "").replace(f"{_OPTION}={_VALUE}", "")
    is_needed = (
        _IS_FAULTY and not is_set and jax.default_backend() == "cpu" and is_known(_OPTION, value)
    )
    return {_OPTION: value} if is_needed else {}


def with_cpu_flags(flags: str) -> str:
    """The XLA_FLAGS that a whole process needs before its first array, given its present `flags`.

    They stay unchanged if they set the option, or name a file, which XLA reads instead.
    """
    is_file = bool(flags.strip()) and not flags.strip().startswith("-")
    if not (_IS_FAULTY and _HAS_FLAG) or _OPTION in flags or is_file:
        return flags
    return f"{flags} --{_OPTION}={_VALUE}".strip()


@cache
def is_known(option: str, value: Any) -> bool:
    """Whether this jaxlib has an option of XLA."""
    import jax

    try:
        jax.jit(lambda x: x).lower(0.0).compile({option: value})
    except jax.errors.JaxRuntimeError:
        return False
    return True
