"""Targets of the models: sampled at a size, or given by a user and checked."""

import numpy as np
from jaxtyping import Array, Float, Key

from specjax.programs import is_traced
from specjax.sizes import AnySize, normal, padded, rademacher


def linear_target(
    key: Key[Array, ""], rows: AnySize, columns: AnySize, scale: float = 1.0
) -> Float[Array, "rows columns"]:
    """A map Φ with independent N(0, scale²) entries, row-keyed: smaller ones are leading blocks."""
    return scale * normal(key, (rows, columns))


def sign_target(
    key: Key[Array, ""], rows: AnySize, columns: AnySize, scale: float = 1.0
) -> Float[Array, "rows columns"]:
    """A map Φ with independent, row-keyed entries ±scale: ‖Φ‖_F² = scale² · rows · columns."""
    return scale * rademacher(key, (rows, columns))


def low_rank_target(
    key: Key[Array, ""], d: AnySize, rank: int, scale: float = 1.0
) -> Float[Array, "d d"]:
    """M = scale F Fᵀ of the given rank, F ∈ R^{d×rank} with independent N(0, 1) entries."""
    factor = normal(key, (d, rank))
    return scale * factor @ factor.T


def check_target(
    target: Float[Array | np.ndarray, "..."], shape: tuple[AnySize, ...], what: str
) -> None:
    """Raise ValueError unless `target` has the given shape and, if concrete, finite entries."""
    expected = tuple(padded(size) for size in shape)
    if target.shape != expected:
        raise ValueError(f"{what} must have shape {expected}, got {target.shape}.")
    if not is_traced(target) and not np.isfinite(np.asarray(target)).all():
        raise ValueError(f"{what} must have finite entries, got NaN or infinity in it.")


def check_symmetric(target: Float[Array | np.ndarray, "d d"], what: str) -> None:
    """Raise ValueError unless a concrete `target` is symmetric to rounding."""
    if is_traced(target):
        return
    matrix = np.asarray(target)
    if np.max(np.abs(matrix - matrix.T)) > 8 * np.finfo(matrix.dtype).eps * np.max(np.abs(matrix)):
        raise ValueError(f"{what} must be symmetric, got a matrix that is not; pass (M + M.T) / 2.")


def check_off_diagonal(matrix: Float[Array | np.ndarray, "m m"], what: str, remedy: str) -> None:
    """Raise ValueError for a diagonal matrix, which has no off-diagonal part to project on."""
    matrix = np.asarray(matrix)
    if not np.any(matrix[~np.eye(len(matrix), dtype=bool)]):
        raise ValueError(f"{what} must have an entry off the diagonal that is not zero; {remedy}.")
