"""E[G Gᵀ] of symmetric matrix factorization, G = (U Uᵀ - M) U with U ∈ R^{d×k} of independent N(0, 1) entries; in float64."""

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from specjax.theory.closed_forms import floats, in_float64
from specjax.theory.wishart import wishart_moments


@in_float64
def expected_outer_product(target: Float[Array, "d d"], k: ArrayLike) -> Float[Array, "*k d d"]:
    """α_3 I - 2 α_2 M + k M², exact for every symmetric M (outer-product, Theorem 1).

    Args:
        target: The symmetric matrix M.
        k: Widths, any shape.

    """
    (target,) = floats(target)
    return _combine(target, k, target @ target)


@in_float64
def corollary_1_as_printed(target: Float[Array, "d d"], k: ArrayLike) -> Float[Array, "*k d d"]:
    """What Corollary 1 of the outer-product paper prints: the square of each entry where M² belongs. Wrong unless M is diagonal.

    Kept so that the difference can be measured; use :func:`expected_outer_product`.
    """
    (target,) = floats(target)
    return _combine(target, k, target**2)


def one_draw_ratio(k: ArrayLike) -> Float[Array, "..."]:
    """3 √(2/π) / √k: mean |off-diagonal| over mean diagonal of one draw's G Gᵀ at fixed d and M; asymptotic, up to a factor 1 + O(1/k).

    G Gᵀ is W³ to leading order, and W = k I + √k S with S symmetric and, off the diagonal, of N(0, 1) entries in the limit: so
    W³ = k³ I + 3 k^(5/2) S, whose off-diagonal entries have the mean absolute value 3 k^(5/2) √(2/π). The target adds k² M, which is
    smaller. E[G Gᵀ], where the entries of S average out, has the ratio Θ(1/k). [ours]
    """
    return 3 * jnp.sqrt(2 / (jnp.pi * jnp.asarray(k, jnp.result_type(float))))


def _combine(target: Array, k: ArrayLike, quadratic: Array) -> Array:
    d = target.shape[0]
    first, second, third = (alpha[..., None, None] for alpha in wishart_moments(d, k))
    each_k = (1,) * (first.ndim - 2) + (d, d)
    identity = jnp.eye(d, dtype=target.dtype).reshape(each_k)
    return third * identity - 2 * second * target.reshape(each_k) + first * quadratic.reshape(each_k)
