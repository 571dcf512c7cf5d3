"""E[G Gᵀ] of symmetric matrix factorization, G = (U Uᵀ - M) U with Gaussian U, in float64."""

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from specjax.arguments import checked
from specjax.theory.closed_forms import floats, in_float64
from specjax.theory.wishart import wishart_moments


@in_float64
@checked
def expected_outer_product(target: Float[Array, "d d"], k: ArrayLike) -> Float[Array, "*k d d"]:
    """α_3 I - 2 α_2 M + k M², exact for every symmetric M (outer-product, Theorem 1).

    Args:
        target: The symmetric matrix M.
        k: Widths, any shape.

    Examples:
        >>> from specjax.theory import matrix_factorization
        >>> matrix_factorization.expected_outer_product(jnp.eye(2), 3).tolist()
        [[117.0, 0.0], [0.0, 117.0]]
    """
    (target,) = floats(target)
    return _combine(target, k, target @ target)


@in_float64
@checked
def corollary_1_as_printed(target: Float[Array, "d d"], k: ArrayLike) -> Float[Array, "*k d d"]:
    """Corollary 1 as printed, with squared entries for M²; wrong unless M is diagonal.

    Kept to measure the difference; use `expected_outer_product`.
    """
    (target,) = floats(target)
    return _combine(target, k, target**2)


@checked
def one_draw_ratio(k: ArrayLike) -> Float[Array, "..."]:
    """3 √(2/π) / √k: mean |off-diagonal| over mean diagonal of one sample of G Gᵀ; asymptotic.

    It holds at fixed d and M up to a factor 1 + O(1/k). G Gᵀ is W³ to leading order, and W = k I +
    √k S with S symmetric and, off the diagonal, of N(0, 1) entries in the limit: so W³ = k³ I + 3
    k^(5/2) S, whose off-diagonal entries have the mean absolute value 3 k^(5/2) √(2/π). The target
    adds k² M, which is smaller. E[G Gᵀ], where the entries of S average out, has the ratio Θ(1/k).
    [ours]
    """
    return 3 * jnp.sqrt(2 / (jnp.pi * jnp.asarray(k, jnp.result_type(float))))


@in_float64
@checked
def target_part(target: Float[Array, "d d"], k: ArrayLike) -> Float[Array, "*k"]:
    """‖M₀‖_F/(√d k), M₀ = M - (tr M/d) I: the effect of M on a normalized step; asymptotic in k.

    The root mean square over samples of ‖G/‖G‖ - N/‖N‖‖_F at the first step of gradient descent,
    with N the gradient at M = 0, up to a factor 1 + O(1/k). G is N - M U, and U Uᵀ is k (I +
    O(1/√k)), so G is k (I - M/k) U to leading order, and only M₀ changes its direction: by M₀ U/(k
    ‖U‖). [ours]
    """
    (target,) = floats(target)
    return _without_trace(target) / (jnp.sqrt(target.shape[0]) * floats(k)[0])


@in_float64
@checked
def polar_target_part(target: Float[Array, "d d"], k: ArrayLike) -> Float[Array, "*k"]:
    """‖M₀‖_F/√(8 k³), M₀ = M - (tr M/d) I: the effect of M on Muon's first step; asymptotic in k.

    The root mean square over samples of ‖polar(G) - polar(N)‖_F/√d with N the gradient at M = 0, up
    to a factor 1 + O(1/k). With W = U Uᵀ and Q = polar(U), polar(G) = polar((W - M) W^(1/2)) Q and
    polar(N) = Q. Where W - M is positive definite, the former is Q up to the commutator of M and
    W^(1/2): a matrix near k^(3/2) I with the antisymmetric part A has the polar factor I +
    A/k^(3/2), and here A = [W^(1/2), M]/2. With W = k I + √k S, S symmetric and, off the diagonal,
    of N(0, 1) entries in the limit, W^(1/2) is √k I + S/2, so the change is [S, M]/4 k^(-3/2), and
    E‖[S, M]‖_F² = Σ_ij (μ_i - μ_j)² = 2 d ‖M₀‖_F² by the eigenvalues μ of M. [ours]
    """
    (target,) = floats(target)
    return _without_trace(target) / jnp.sqrt(8 * floats(k)[0] ** 3)


def _without_trace(target: Array) -> Array:
    d = target.shape[0]
    return jnp.sqrt(jnp.sum((target - jnp.trace(target) / d * jnp.eye(d, dtype=target.dtype)) ** 2))


def _combine(target: Array, k: ArrayLike, quadratic: Array) -> Array:
    d = target.shape[0]
    first, second, third = (alpha[..., None, None] for alpha in wishart_moments(d, k))
    each_k = (1,) * (first.ndim - 2) + (d, d)
    identity = jnp.eye(d, dtype=target.dtype).reshape(each_k)
    return (
        third * identity - 2 * second * target.reshape(each_k) + first * quadratic.reshape(each_k)
    )
