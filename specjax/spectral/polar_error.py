"""The distance of an approximate polar factor from the exact one.

A polynomial method acts on singular values alone: it takes U S Vᵀ to U p(S) Vᵀ. The three measures
are averages over the singular directions of x, alike for every size and for zero padding: the mean
of p(s), the root mean square of p(s) - 1 and that of p(s)² - 1.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Inexact

from specjax.arguments import as_array
from specjax.spectral.float_range import squares
from specjax.spectral.methods import SVD
from specjax.spectral.polar import polar
from specjax.spectral.products import adjoint, product


class PolarError(NamedTuple):
    """The error of a factor O against the exact factor U of rank r, one number for each matrix of a
    batch.

    `alignment` is ⟨O, U⟩ / r, 1 for the exact factor: the part of the step that is taken.
    `distance` is ‖O - U‖_F / √r and `defect` ‖O Oᵀ - U Uᵀ‖_F / √r, how far O is from an isometry of
    the range of U, both 0 for the exact factor. `rank` is r = ‖U‖_F²; a rank below the number of
    nonzero rows or columns shows that the reference treated some singular values as zero.
    """

    alignment: Float[Array, "*batch"]
    distance: Float[Array, "*batch"]
    defect: Float[Array, "*batch"]
    rank: Float[Array, "*batch"]


def factor_error(
    factor: Inexact[Array, "*batch m n"], exact: Inexact[Array, "*batch m n"]
) -> PolarError:
    """The error of `factor` against the `exact` polar factor, a partial isometry: of any rank, zero
    padding included.

    It is computed in the wider of the two dtypes, and half precision in float32, so a bfloat16
    factor can be compared with a float64 one. It takes matrix products and no decomposition. Where
    `exact` is zero, as for a zero matrix, the division is left out, and the factor 0 has alignment
    1.
    """
    factor, exact = (
        as_array(factor, "factor", "factor_error"),
        as_array(exact, "exact", "factor_error"),
    )
    if factor.ndim < 2 or factor.shape != exact.shape:
        raise ValueError(
            f"factor_error needs two arrays of matrices of one shape, got {factor.shape} and"
            f" {exact.shape}."
        )
    with jax.numpy_dtype_promotion("standard"):
        dtype = jnp.promote_types(jnp.promote_types(factor.dtype, exact.dtype), jnp.float32)
    factor, exact = factor.astype(dtype), exact.astype(dtype)
    missing = exact - factor
    rank = jnp.sum(squares(exact), axis=(-2, -1))
    divisor = jnp.where(rank > 0, rank, 1)
    # Computed from the difference and not as ⟨O, U⟩ / r, so that a small distance from 1 keeps its
    # digits.
    alignment = 1 - jnp.sum(jnp.real(jnp.conj(exact) * missing), axis=(-2, -1)) / divisor
    gram = _smaller_gram(factor) - _smaller_gram(exact)
    return PolarError(
        alignment,
        _frobenius(missing) / jnp.sqrt(divisor),
        _frobenius(gram) / jnp.sqrt(divisor),
        rank,
    )


def method_error(
    x: Inexact[Array, "*batch m n"],
    method: Callable[[Array], Array],
    exact: Callable[[Array], Array] = SVD(),  # noqa: B008
) -> PolarError:
    """The error that `polar(x, method)` makes, against `polar(x, exact)`; it costs as much as both
    of them.

    The default reference counts singular values below 64 roundings of the largest as zero, in
    float32 those below 7.6e-6. A spectrum that falls further shows as a `rank` that is too small
    and needs float64; `SVD(rtol=0)` would compare with directions that are rounding noise. It
    raises the errors of `polar`.
    """
    return factor_error(polar(x, method), polar(x, exact))


def _smaller_gram(x: Array) -> Array:
    """x xᴴ or xᴴ x, whichever is smaller."""
    return product(x, adjoint(x)) if x.shape[-2] <= x.shape[-1] else product(adjoint(x), x)


def _frobenius(x: Array) -> Array:
    return jnp.sqrt(jnp.sum(squares(x), axis=(-2, -1)))
