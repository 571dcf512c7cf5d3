"""How hard XLA works on a program of a sweep on a CPU: less than by default, where that costs little (docs/benchmarks.md)."""

import os
from functools import cache

import jax

Options = dict[str, str | bool | int]

# LLVM at full effort takes up to four times as long to compile what a sweep is made of, for programs that run about as fast; at none
# they run one and a half to four times as long.
_FOR_SECONDS: Options = {"xla_backend_optimization_level": 1}
# XLA's older emitters, with each program in one piece, compile in a quarter of the time again. They round otherwise: draws made by them are
# not those of `specjax.sizes` bit for bit, as a sweep promises.
_ONCE: Options = {
    "xla_backend_optimization_level": 0,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
}


def effort(*, runs_once: bool) -> Options:
    """XLA's options for a program that runs for seconds, or for one that `runs_once` and whose last bits do not matter.

    None on another platform, or with JAX's own switch for quick compilation; an option that XLA_FLAGS sets stays what it is there.
    """
    if jax.default_backend() != "cpu" or jax.config.read("jax_disable_most_optimizations"):
        return {}
    flags, wanted = os.environ.get("XLA_FLAGS", ""), _ONCE if runs_once else _FOR_SECONDS
    return {option: value for option, value in wanted.items() if option not in flags and _known(option, value)}


@cache
def _known(option: str, value: str | bool | int) -> bool:
    """Whether this jaxlib has the option, which changes how long a program takes and not what it is."""
    try:
        jax.jit(lambda x: x).lower(0.0).compile({option: value})
    except jax.errors.JaxRuntimeError:
        return False
    return True
