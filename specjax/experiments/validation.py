"""What a configuration must satisfy for its experiment to be judged at the end, checked before anything is compiled.

A fit that would refuse its points after the run, for too few widths, say, is refused here.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from jaxtyping import Array, Float


def check_sizes(name: str, sizes: Sequence[int], *, least: int, points: int) -> None:
    """Raises ValueError unless there are at least `points` sizes, ascending, from `least` up."""
    ascending = all(low < high for low, high in pairwise(sizes))
    if len(sizes) < points or not ascending or min(sizes, default=least) < least:
        number = f"{points} or more different sizes" if points > 1 else "different sizes"
        raise ValueError(f"{name} needs {number} in ascending order, each at least {least}, got {tuple(sizes)}.")


def check_seeds(name: str, seeds: int) -> None:
    """Raises ValueError for fewer than two initializations, which have no standard error."""
    if seeds < 2:
        raise ValueError(f"{name} must be at least 2, since one initialization has no standard error, got {seeds}.")


def check_root_seed(seed: int) -> None:
    """Raises ValueError for a seed that JAX would wrap around."""
    if not 0 <= seed < 2**32:
        raise ValueError(f"seed must be from 0 to 2^32 - 1, got {seed}.")


def check_off_diagonal(matrix: Float[Array | np.ndarray, "m m"], what: str, remedy: str) -> None:
    """Raises ValueError for a diagonal matrix: nothing can be projected on its off-diagonal part."""
    matrix = np.asarray(matrix)
    if not np.any(matrix[~np.eye(len(matrix), dtype=bool)]):
        raise ValueError(f"{what} must have an entry off the diagonal that is not zero; {remedy}.")
