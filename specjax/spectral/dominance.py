"""Measures of how far a square matrix P is from diagonal. The outer-product paper applies them to P
= G Gᵀ.

Zero padding is not part of P, so the averages take the active size: an int or a `Size`, by default
the extent of P. All functions raise ValueError for a matrix that is not square, and compute half
precision in float32. For a complex P, Hermitian like G Gᴴ, ratios use the real part of the
diagonal, and means of entries are complex.
"""

from itertools import product

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Inexact

from specjax.arguments import as_array, check_number
from specjax.sizes import AnySize, Size, active
from specjax.spectral.float_range import at_least_float32, inner, ratio, scaled, squares


def diagonal_mean(
    p: Inexact[Array, "*batch m m"], size: AnySize | None = None
) -> Inexact[Array, "*batch"]:
    """The mean of the diagonal entries P_aa; `size` is the number of rows without padding, by
    default all.
    """
    p = at_least_float32(_square(p))
    return _trace(p) / _number(p, size)


def off_diagonal_mean(
    p: Inexact[Array, "*batch m m"], size: AnySize | None = None
) -> Inexact[Array, "*batch"]:
    """The mean of the signed off-diagonal entries P_ac, a != c (0 for a 1×1 matrix).

    `size` is the number of rows without padding, by default all.
    """
    p = at_least_float32(_square(p))
    return jnp.sum(off_diagonal(p), axis=(-2, -1)) / _pairs(p, size)


def dominance_ratio(
    p: Inexact[Array, "*batch m m"], size: AnySize | None = None
) -> Float[Array, "*batch"]:
    """Mean |P_ac| over the off-diagonal entries divided by the mean of the diagonal; 0 for a
    diagonal or zero matrix.

    `size` is the number of rows without padding, by default all.

    Examples:
        >>> import jax.numpy as jnp
        >>> from specjax import spectral
        >>> float(spectral.dominance_ratio(jnp.array([[2.0, -1.0], [1.0, 2.0]])))
        0.5
    """
    unit, _ = scaled(_square(p))
    off = jnp.abs(off_diagonal(unit))
    off = jnp.sum(off, axis=(-2, -1)) / _pairs(off, size)
    return ratio(off, jnp.real(diagonal_mean(unit, size)))


def row_dominance(p: Inexact[Array, "*batch m m"]) -> Float[Array, "*batch m"]:
    """Σ_c |P_ac| / P_aa for each row a, c != a: below 1 where the row is diagonally dominant; 0 on
    padding.

    Examples:
        >>> import jax.numpy as jnp
        >>> from specjax import spectral
        >>> spectral.row_dominance(jnp.array([[2.0, -1.0], [4.0, 2.0]])).tolist()
        [0.5, 2.0]
    """
    p = _square(p)
    unit, _ = scaled(p, axis=-1)
    sums = jnp.sum(jnp.abs(off_diagonal(unit)), axis=-1)
    padding, diagonal = (jnp.diagonal(x, axis1=-2, axis2=-1) for x in (p == 0, jnp.real(unit)))
    return jnp.where(padding, 0, sums / jnp.where(padding, 1, diagonal))


def off_diagonal_energy(p: Inexact[Array, "*batch m m"]) -> Float[Array, "*batch"]:
    """Σ_{a≠c} |P_ac|² / ‖P‖_F²: 0 for a diagonal or zero matrix, near 1 for one that is far from
    diagonal.

    Examples:
        >>> import jax.numpy as jnp
        >>> from specjax import spectral
        >>> float(spectral.dominance.off_diagonal_energy(jnp.ones((4, 4))))
        0.75
    """
    unit, _ = scaled(_square(p))
    return ratio(
        jnp.sum(squares(off_diagonal(unit)), axis=(-2, -1)), jnp.sum(squares(unit), axis=(-2, -1))
    )


def off_diagonal_coefficient(
    p: Inexact[Array, "*batch m m"], reference: Inexact[Array, "*batch m m"]
) -> Float[Array, "*batch"]:
    """The least-squares coefficient ĉ of the off-diagonal part of P on that of a reference matrix
    (outer-product, C.7).

    NaN for a diagonal reference.
    """
    (off_p, scale_p), (off, scale) = scaled(off_diagonal(p)), scaled(off_diagonal(reference))
    coefficient = inner(off_p, off) / inner(off, off)
    return coefficient * (scale_p / scale)[..., 0, 0]


def off_block_energy(p: Inexact[Array, "*batch m m"]) -> Float[Array, "*batch"]:
    """The least share of ‖P‖_F² outside of two diagonal blocks, over all ways to divide the rows
    and columns into two sets.

    It is 0 where P is zero or block-diagonal in some order of its columns. It tries all 2^(m-1) - 1
    ways, so m should not exceed 12 or so.

    Raises:
        ValueError: fewer than two columns, which cannot be divided.
    """
    p = _square(p)
    if _extent(p) < 2:
        raise ValueError(f"Two blocks need two columns or more, got shape {p.shape}.")
    # The first set holds the first column, and it must not hold all columns.
    sides = np.array(
        [(False, *others) for others in product((False, True), repeat=_extent(p) - 1)][1:]
    )
    unit, _ = scaled(p)
    parts = ratio(squares(unit), jnp.sum(squares(unit), (-2, -1), keepdims=True))
    across = jnp.asarray((sides[:, :, None] != sides[:, None, :]).astype(float), parts.dtype)
    return jnp.min(jnp.einsum("...ij,sij->...s", parts, across), axis=-1)


def traceless_cosine(
    a: Inexact[Array, "*batch m m"], b: Inexact[Array, "*batch m m"]
) -> Float[Array, "*batch"]:
    """The cosine of the angle between A - (tr A/m) I and B - (tr B/m) I: 1 for equal patterns, 0
    for unrelated ones.

    NaN for a multiple of I, which has no pattern.
    """
    a, b = _square(a), _square(b)
    m = _extent(a)
    (a, _), (b, _) = scaled(a), scaled(b)
    a, b = (x - jnp.where(_on_diagonal(x), _trace(x)[..., None, None] / m, 0) for x in (a, b))
    return inner(a, b) / jnp.sqrt(inner(a, a) * inner(b, b))


def off_diagonal(p: Inexact[Array, "*batch m m"]) -> Inexact[Array, "*batch m m"]:
    """p with its diagonal set to zero; ValueError for a matrix that is not square."""
    p = _square(p)
    return jnp.where(_on_diagonal(p), 0, p)


def _on_diagonal(p: Array) -> Array:
    """A mask of the diagonal, with as many axes as P."""
    m = _extent(p)
    return jnp.eye(m, dtype=bool).reshape((1,) * (p.ndim - 2) + (m, m))


def _trace(p: Array) -> Array:
    return jnp.trace(p, axis1=-2, axis2=-1)


def _number(p: Array, size: AnySize | None) -> Array:
    m = _extent(p)
    if size is not None and not isinstance(size, Size):
        check_number(size, "size", "[1, inf)", "The mean of a matrix")
    return jnp.asarray(m if size is None else active(size), p.dtype)


def _square(p: Array) -> Array:
    p = as_array(p, "p", "Diagonal dominance")
    _extent(p)
    return p


def _extent(p: Array) -> int:
    if p.ndim < 2 or p.shape[-1] != p.shape[-2]:
        raise ValueError(
            f"Diagonal dominance is one of square matrices, got shape {p.shape}; pass g @ g.T, for"
            " instance."
        )
    return p.shape[-1]


def _pairs(p: Array, size: AnySize | None) -> Array:
    m = _number(jnp.real(p), size)
    return jnp.maximum(m * (m - 1), 1).astype(p.dtype)
