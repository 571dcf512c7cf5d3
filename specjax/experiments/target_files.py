"""Target matrices from a user's files."""

from pathlib import Path
from zipfile import BadZipFile

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from specjax.models.targets import check_target


def load_target(path: str, shape: tuple[int, int]) -> Float[Array, "rows columns"]:
    """The matrix in a .npy file, in JAX's default float.

    Raises ValueError if there is no such file, it holds no real numbers, another shape, or entries
    that are not finite in that float.
    """
    if not Path(path).is_file():
        raise ValueError(f"There is no target file {path!r}; write the target with numpy.save.")
    try:
        # An open file, since numpy leaves its own to the garbage collector if it is not an archive.
        with Path(path).open("rb") as file:
            matrix = np.load(file, allow_pickle=False)
    except (ValueError, OSError, EOFError, BadZipFile) as error:
        raise ValueError(
            f"The target file {path!r} holds no array; write it with numpy.save."
        ) from error
    # A .npz file loads as a mapping of arrays.
    if not isinstance(matrix, np.ndarray) or matrix.dtype.kind not in "iuf":
        raise ValueError(
            f"The target file {path!r} holds no array of real numbers; write one with numpy.save."
        )
    with np.errstate(
        over="ignore"
    ):  # an entry too large becomes infinite, which is what is checked
        matrix = matrix.astype(jnp.result_type(float))
    check_target(matrix, shape, f"The target in {path!r}")
    return jnp.asarray(matrix)
