"""E[G_i G_iᵀ] of deep linear networks W_L ⋯ W_1 with independent N(0, 1) weights, at any depth.

With B_i = W_{i-1} ⋯ W_1 and A_i = W_L ⋯ W_{i+1} the layer's gradient is G_i = A_iᵀ (W_L ⋯ W_1 - Φ)
B_iᵀ, and E[G_i G_iᵀ] = V_i s_i I + T_i (outer-product, Theorem 2). Layers are numbered 1 to L.
Everything is float64, since products of widths exceed the range of float32 from seven layers of
1000. Sizes below 1 are a ValueError.
"""

from collections.abc import Sequence
from itertools import pairwise

import jax.numpy as jnp
from jax.scipy.special import gammaln
from jaxtyping import Array, ArrayLike, Float

from specjax.arguments import checked
from specjax.theory.closed_forms import check_in, floats, in_float64

_Numbers = Float[Array, "..."]


@in_float64
@checked
def backward_moments(dims: Sequence[ArrayLike]) -> tuple[list[_Numbers], list[_Numbers]]:
    """r_i, v_i: E[(B_i B_iᵀ)²] = r_i I, E[tr(B_i B_iᵀ)²] = v_i (outer-product, eqs. 21-22)."""
    d = _floats(dims)
    r, v = [jnp.ones_like(d[0])], [d[0] ** 2]
    for inner, outer in pairwise(d[:-1]):
        r_next = v[-1] + (outer + 1) * inner * r[-1]
        v_next = outer**2 * v[-1] + 2 * outer * inner * r[-1]
        r, v = [*r, r_next], [*v, v_next]
    return r, v


@in_float64
@checked
def forward_moments(dims: Sequence[ArrayLike]) -> tuple[list[_Numbers], list[_Numbers]]:
    """s_i, u_i: E[(A_iᵀ A_i)²] = s_i I, E[tr(A_iᵀ A_i)²] = u_i; exact (outer-product, eqs. 23-24).

    A_iᵀ A_i is B Bᵀ of the network with its layers transposed and reversed, so the same recursion
    applies.
    """
    s, u = backward_moments(tuple(reversed(tuple(dims))))
    return s[::-1], u[::-1]


@in_float64
@checked
def expected_outer_product(
    dims: Sequence[ArrayLike], target: Float[Array, "out in"], layer: int
) -> Float[Array, "m m"]:
    """E[G_i G_iᵀ] of layer i, exact at every size (outer-product, Theorem 2).

    Args:
        dims: (d_0, …, d_L), plain integers.
        target: The linear map Φ that the network learns, shape (d_L, d_0).
        layer: i, from 1 to L.

    Returns:
        A float64 matrix of shape (d_i, d_i).

    Raises:
        ValueError: a layer that does not exist.

    Examples:
        >>> from specjax.theory import deep_linear
        >>> deep_linear.expected_outer_product([2, 3, 2], jnp.eye(2), 2).tolist()
        [[39.0, 0.0], [0.0, 39.0]]
    """
    noise, signal = noise_coefficient(dims, layer), target_coefficient(dims, layer)
    (target,) = floats(target)
    if layer == len(dims) - 1:
        return noise * jnp.eye(target.shape[0]) + signal * target @ target.T
    return (noise + signal * jnp.sum(target**2)) * jnp.eye(int(dims[layer]))  # type: ignore[arg-type]


@in_float64
@checked
def noise_coefficient(dims: Sequence[ArrayLike], layer: int) -> _Numbers:
    """V_i s_i with V_i = d_{i-1} r_i, the target-free diagonal, exact and vectorized (eq. 25)."""
    _check_layer(dims, layer)
    r, _ = backward_moments(dims)
    s, _ = forward_moments(dims)
    return _floats(dims)[layer - 1] * r[layer - 1] * s[layer - 1]


@in_float64
@checked
def target_coefficient(dims: Sequence[ArrayLike], layer: int) -> _Numbers:
    """The factor of Φ Φᵀ (output) or ‖Φ‖_F² I (hidden) in T_i: other inner widths (eq. 26)."""
    _check_layer(dims, layer)
    d = _floats(dims)
    product = jnp.ones_like(d[0])
    for j in range(1, len(d) - 1):
        product = product * (1 if j == layer else d[j])
    return product


@in_float64
@checked
def order_as_printed(dims: Sequence[ArrayLike], layer: int) -> _Numbers:
    """d_{i-1} (∏_{j<=i-2} d_j)² (∏_{j>i} d_j)², the printed order of V_i s_i, which is wrong.

    Corollary 2 and the summary print it. At L = i = 2 the recursion gives V_2 = d_1 d_0 (d_0 + d_1
    + 1), which grows as d_1² at fixed d_0, not as d_1. Kept to measure the difference;
    `noise_coefficient` is exact.
    """
    _check_layer(dims, layer)
    d = _floats(dims)
    order = d[layer - 1]
    for j in (*range(layer - 1), *range(layer + 1, len(d))):
        order = order * d[j] ** 2
    return order


@checked
def noise_exponent(depth: int, layer: int) -> int:
    """The power of a common inner width in V_i s_i at fixed d_0 and d_L; asymptotic.

    It is 2 (L - 1) for i = L and 2L - 3 before. By the recursions r_i ~ d_0 w^(2i-3) for i > 1 and
    r_1 = 1, s_i ~ d_L w^(2(L-i)-1) for i < L and s_L = 1, and V_i = d_{i-1} r_i. The paper's
    printed orders give other powers. Raises ValueError for a layer that does not exist.

    Examples:
        >>> from specjax.theory import deep_linear
        >>> [deep_linear.noise_exponent(depth, layer=1) for depth in (3, 4)]
        [3, 5]
    """
    _check_layer(range(depth + 1), layer)
    return 2 * (depth - 1) if layer == depth else 2 * depth - 3


@checked
def noise_exponent_as_printed(depth: int, layer: int) -> int:
    """The power of a common inner width in the printed V_i s_i (Corollary 2) at fixed d_0, d_L.

    2L - 4 for i = 1 < L, 2L - 5 between, 2L - 3 for i = L. Raises ValueError for a layer that does
    not exist.
    """
    _check_layer(range(depth + 1), layer)
    return int(layer > 1) + 2 * max(layer - 2, 0) + 2 * (max(depth - 1 - layer, 0))


@in_float64
@checked
def one_draw_ratio_output(d0: ArrayLike) -> _Numbers:
    """Mean |off-diagonal| over mean diagonal of one sample of G_2 G_2ᵀ at L = 2, as d_1 → ∞.

    It is Γ((d_0 + 1)/2) / (√π Γ(d_0/2 + 1)): the mean over samples with d_0, d_2 and Φ fixed, up to
    O(1/d_1); 0.2734 at d_0 = 8, near √(2/(π d_0)) for large d_0.

    [ours] With W_2 W_1 = √d_1 Z, Z of d_2 × d_0 N(0, 1) entries in the limit, and W_1ᵀ W_1 = d_1 I
    to leading order, G_2 G_2ᵀ is d_1² Z Zᵀ. So the ratio is the mean of d_2 |z_1·z_2|/‖Z‖_F² for
    rows z. With r = ‖z_1‖ and g = z_1·z_2/r, which is independent of r and N(0, 1), the ratio r
    |g|/(r² + g²) and the share of r² + g² in ‖Z‖_F² are functions of independent beta variables:
    their means are 2 Γ((d_0 + 1)/2)/(√π (d_0 + 1) Γ(d_0/2)) and (d_0 + 1)/(d_0 d_2).
    """
    check_in("[1, inf)", d0=d0)
    (d0,) = floats(d0)
    return jnp.exp(gammaln((d0 + 1) / 2) - gammaln(d0 / 2 + 1)) / jnp.sqrt(jnp.pi)


@in_float64
@checked
def one_draw_ratio_hidden(d0: ArrayLike, d2: ArrayLike) -> _Numbers:
    """Mean |off-diagonal| over mean diagonal of one sample of G_1 G_1ᵀ at L = 2, as d_1 → ∞.

    (1/√π) Γ((d_0+1)/2)/Γ(d_0/2+1) · Γ((d_2+1)/2)/Γ(d_2/2+1) · Γ((d_0+d_2+1)/2)/Γ((d_0+d_2)/2) is
    the mean over samples at fixed d_0, d_2 and Φ, up to O(1/d_1): 0.3937 at d_0 = 8, d_2 = 6.

    [ours] With A = Z Zᵀ, Z as in `one_draw_ratio_output`, G_1 G_1ᵀ has the entries d_1 u_aᵀ A u_b,
    with the columns u of W_2: independent N(0, I), and independent of Z in the limit. The mean of
    |uᵀ A v| over v is √(2/π) ‖A u‖, and that of ‖A u‖ over u is E‖u‖ times that of ‖A e_1‖, A being
    invariant under rotations. With r = ‖z_1‖ and s the sum of squares of d_2 - 1 N(0, 1) variables,
    ‖A e_1‖ = r √(r² + s), so that ‖A e_1‖/tr A is √(r²/(r² + s)) times the share of r² + s in
    ‖Z‖_F²: again functions of independent beta variables.
    """
    check_in("[1, inf)", d0=d0, d2=d2)
    d0, d2 = floats(d0, d2)
    ends = [gammaln((d + 1) / 2) - gammaln(d / 2 + 1) for d in (d0, d2)]
    both = gammaln((d0 + d2 + 1) / 2) - gammaln((d0 + d2) / 2)
    return jnp.exp(ends[0] + ends[1] + both) / jnp.sqrt(jnp.pi)


def _floats(dims: Sequence[ArrayLike]) -> list[Array]:
    for size in dims:
        check_in("[1, inf)", dims=size)
    return list(jnp.broadcast_arrays(*floats(*dims)))


def _check_layer(dims: Sequence[ArrayLike], layer: int) -> None:
    if not 1 <= layer < len(dims):
        raise ValueError(
            f"A network of sizes {tuple(dims)} has layers 1 to {len(dims) - 1}, got layer {layer}."
        )
