"""Targets that a user gives as a file."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from specjax.models.targets import check_target


def load_target(path: str, shape: tuple[int, int]) -> Float[Array, "rows columns"]:
    """The matrix in a .npy file, in JAX's default float.

    Raises ValueError if there is no such file, it holds no real numbers, another shape, or non-finite entries.
    """
    if not Path(path).is_file():
        raise ValueError(f"There is no target file {path!r}; write the target with numpy.save.")
    try:
        matrix = np.load(path, allow_pickle=False).astype(float)
    except (ValueError, TypeError, OSError, EOFError) as error:
        raise ValueError(
            f"The target file {path!r} holds no array of real numbers; write it with numpy.save."
        ) from error
    check_target(matrix, shape, f"The target in {path!r}")
    return jnp.asarray(matrix, jnp.result_type(float))
