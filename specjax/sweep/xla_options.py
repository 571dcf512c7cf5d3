"""XLA's effort on a program of a sweep on a CPU: below the default where that costs little."""

import os
from typing import Any

import jax

from specjax.jaxlib import cpu_options, is_known

Options = dict[str, Any]

# LLVM at full effort compiles up to four times as long, for programs that run about as fast
# (docs/benchmarks.md).
_KEPT: Options = {"xla_backend_optimization_level": 1}
# Without optimization it takes 0.6 of that. Programs run up to four times as long, and some random
# samples are rounded otherwise than by `specjax.sizes` alone, which a sweep promises to match bit
# for bit.
_CHECK: Options = {"xla_backend_optimization_level": 0}


def xla_options(*, is_kept: bool) -> Options:
    """XLA's options for a program whose results are kept, or for one that only checks them.

    They are empty on platforms other than a CPU. With JAX's own switch for quick compilation only
    the options for correct results remain (`specjax.jaxlib`). An option that XLA_FLAGS sets stays
    unchanged, and one that this jaxlib lacks is left out.
    """
    if jax.default_backend() != "cpu":
        return {}
    effort = _KEPT if is_kept else _CHECK
    if jax.config.read("jax_disable_most_optimizations"):
        effort = {}
    flags = os.environ.get("XLA_FLAGS", "")
    kept = {
        option: value
        for option, value in effort.items()
        if option not in flags and is_known(option, value)
    }
    return cpu_options(side_by_side=True) | kept
