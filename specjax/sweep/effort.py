"""How hard XLA works on a program of a sweep on a CPU: less than by default, where that costs little (docs/benchmarks.md)."""

import os
from functools import cache
from typing import Any

import jax

Options = dict[str, Any]

_LEVEL = "xla_backend_optimization_level"
# LLVM at full effort takes up to four times as long to compile what a sweep is made of, for programs that run about as fast.
_LESS: Options = {_LEVEL: 1}
# What XLA's older emitters write, in one piece, compiles in two thirds of that, and runs up to twice as long.
_SHORT: Options = _LESS | {"xla_cpu_use_fusion_emitters": False, "xla_cpu_parallel_codegen_split_count": 1}
# Without optimization it takes a third of the rest. Some draws are then rounded otherwise than those of `specjax.sizes` alone, which
# a sweep promises to have bit for bit: for what is not kept.
_AT_ONCE: Options = _SHORT | {_LEVEL: 0}
_SHARE = 0.2  # of the estimated time to compile, below which the older emitters save more than they lose


def effort(seconds: float | None, compiling: float = 0.0) -> Options:
    """XLA's options for a program that is estimated to run for so many seconds, or of which nothing is kept (None).

    `compiling` is how long it is estimated to compile by the newer emitters. There are none on another platform, or with JAX's own
    switch for quick compilation; an option that XLA_FLAGS sets stays as it is.
    """
    if jax.default_backend() != "cpu" or jax.config.read("jax_disable_most_optimizations"):
        return {}
    flags = os.environ.get("XLA_FLAGS", "")
    wanted = _AT_ONCE if seconds is None else _SHORT if seconds < _SHARE * compiling else _LESS
    return {option: value for option, value in wanted.items() if option not in flags and _known(option, value)}


@cache
def _known(option: str, value: Any) -> bool:
    """Whether this jaxlib has the option, which changes how long a program takes and not what it is."""
    try:
        jax.jit(lambda x: x).lower(0.0).compile({option: value})
    except jax.errors.JaxRuntimeError:
        return False
    return True
