"""The table of `docs/accuracy.md` that says how exact each transformation of `specjax.optim` is, at
every scale of the gradients.

    python scripts/maintain/step_errors.py

The transformations, matrices and NumPy references are those of `tests/optim/test_scales.py`.
Printed are the largest errors of a leaf beside its largest entry, in units of the rounding of the
dtype.
"""

import sys
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.optim.test_scales import STEPS, errors

SCALES = {
    "float32": (1e-30, 1e-20, 1e-10, 1.0, 1e10, 1e19, 1e30),
    "bfloat16": (1e-30, 1e-10, 1.0, 1e10, 1e30),
    "float16": (2.0**-12, 1.0, 2.0**10),
}


def worst(name: str, dtype: str) -> str:
    """Over all scales whose updates a dtype holds."""
    found = [errors(name, factor, jnp.dtype(dtype)) for factor in SCALES[dtype]]
    finite = [max(each.values()) for each in found if max(each.values()) < float("inf")]
    return f"{max(finite):.2g}"


def main() -> None:
    print(f"| transformation | {' | '.join(SCALES)} |")
    print(f"|---|{'---|' * len(SCALES)}")
    with warnings.catch_warnings(), jax.numpy_dtype_promotion("standard"):
        warnings.simplefilter("ignore")
        for name in STEPS:
            print(
                f"| `{name}` | {' | '.join(worst(name, dtype) for dtype in SCALES)} |", flush=True
            )


if __name__ == "__main__":
    main()
