"""What depends on the version of jaxlib: its number, and options without which its XLA computes wrong numbers on a CPU.

From jaxlib 0.11.1 on, and in 0.12.0.1 still, a product with a constant matrix of equal entries, as the zeros of a first step, is wrong
under `vmap` where a reduction or an elementwise operation is fused with it: `jit(vmap(lambda x: jnp.max(x @ jnp.ones((24, 24)),
axis=1)))` returns what happened to be in memory (tests/test_jax_regression.py). YNNPACK makes these fusions. Each product by itself stays
with it, and is right; without YNNPACK altogether, trainings would take twice as long.

JAX is not imported before it is needed, since the flags of a process must be set before it starts.
"""

import os
from importlib.metadata import version
from typing import Any

JAXLIB = tuple(map(int, version("jaxlib").split(".")[:2]))
"""The version, as (0, 12)."""

_OPTION, _VALUE = "xla_cpu_experimental_ynn_fusion_type", "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT"
_IS_FAULTY = JAXLIB >= (0, 11)


def cpu_options() -> dict[str, Any]:
    """For `compiler_options` of `jax.jit`; none on another device, or where XLA_FLAGS sets the option."""
    import jax

    is_needed = _IS_FAULTY and jax.default_backend() == "cpu" and _OPTION not in os.environ.get("XLA_FLAGS", "")
    return {_OPTION: _VALUE} if is_needed else {}


def with_cpu_flags(flags: str) -> str:
    """What XLA_FLAGS needs to be for a whole process, before the first array is made, where it was `flags`."""
    if not _IS_FAULTY or _OPTION in flags:
        return flags
    return f"{flags} --{_OPTION}={_VALUE}".strip()
