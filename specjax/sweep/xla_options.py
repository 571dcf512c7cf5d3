"""How hard XLA works on a program of a sweep on a CPU: less than by default, where that costs
little (docs/benchmarks.md).
"""

import os
from typing import Any

import jax

from specjax.jaxlib import cpu_options, is_known

Options = dict[str, Any]

# LLVM at full effort takes up to four times as long to compile what a sweep is made of, for
# programs that run about as fast.
_KEPT: Options = {"xla_backend_optimization_level": 1}
# Without optimization it takes 0.6 of that. Programs run up to four times as long, and some draws
# are rounded otherwise than those of `specjax.sizes` alone, which a sweep promises to have bit for
# bit.
_CHECK: Options = {"xla_backend_optimization_level": 0}


def xla_options(*, is_kept: bool) -> Options:
    """XLA's options for a program whose results are kept, or for one that only checks them.

    There are none on another platform than a CPU. With JAX's own switch for quick compilation there
    are only those without which its results are wrong (`specjax.jaxlib`). An option that XLA_FLAGS
    sets stays as it is, and one that this jaxlib does not have is left out.
    """
    if jax.default_backend() != "cpu":
        return {}
    wanted = cpu_options()
    if not jax.config.read("jax_disable_most_optimizations"):
        wanted |= _KEPT if is_kept else _CHECK
    flags = os.environ.get("XLA_FLAGS", "")
    return {
        option: value
        for option, value in wanted.items()
        if option not in flags and is_known(option, value)
    }
