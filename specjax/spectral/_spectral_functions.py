"""Functions of the singular values: U h(S) Vᵀ, the family U Sᵖ Vᵀ, and the smoothed polar
factor.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Inexact

from specjax.arguments import REAL, as_array, check_number, checked_but, shown
from specjax.linalg import nan_unless_finite, svd
from specjax.spectral.methods.base import zero_where_zero
from specjax.spectral.products import adjoint, product

Scalar = float | Float[Array, ""]


@checked_but("x", "h")
def spectral_map(
    x: Inexact[Array, "*batch m n"], h: Callable[[Array], Array], rtol: float | None = None
) -> Inexact[Array, "*batch m n"]:
    """U h(S) Vᴴ for the singular value decomposition of each matrix, where h is applied elementwise
    and extended as an odd function.

    Singular values up to `rtol` times the largest (by default 64 times the machine epsilon) stay
    zero, unless h(0) = 0 with a finite slope, where the cut is not needed. So `jnp.ones_like` gives
    the polar factor, a zero matrix goes to zero, and zero padding commutes with the map. If h
    leaves all singular values of a matrix unchanged, the result equals x bit for bit.

    The derivative in x is that of Daleckii and Krein,

        dF_ij = h[s_i, s_j] (A + Aᴴ)_ij / 2 + h[s_i, -s_j] (A - Aᴴ)_ij / 2,   A = Uᴴ dx V,

    in the bases U and V, with the divided differences h[s, t] = (h(s) - h(t)) / (s - t) of the odd
    extension, at equal arguments the slope: finite at repeated singular values. Arrays that h
    closes over are differentiated too. Second derivatives in x go through the decomposition: right
    at distinct singular values, and NaN, never a wrong number, at repeated ones (two zeros
    included); `polar` has no such limit.

    Args:
        x: Matrices in the last two axes, tall or wide; leading axes are batch axes. float32,
            float64 or complex of either, which is kept.
        h: A differentiable function from the singular values, in descending order, to as many
            values, elementwise.
        rtol: The cut, relative to the largest singular value of each matrix.

    A matrix with a NaN or infinite entry goes to NaN.

    Raises:
        ValueError: if x has fewer than two axes or half precision or whole numbers, h is not a
            function, or rtol is outside [0, 1).

    Examples:
        >>> import jax.numpy as jnp
        >>> from specjax import spectral
        >>> x = jnp.diag(jnp.array([3.0, 4.0]))
        >>> clipped = spectral.spectral_map(x, lambda s: jnp.minimum(s, 3.5))
        >>> bool(jnp.allclose(clipped, jnp.diag(jnp.array([3.0, 3.5]))))
        True

    """
    x = as_array(x, "x", "spectral_map")
    if not callable(h):
        raise ValueError(
            "spectral_map needs a function of the singular values, such as jnp.tanh, got"
            f" {shown(h)}."
        )
    if rtol is not None:
        check_number(rtol, "rtol", "[0, 1)", "spectral_map")
    if x.ndim < 2:
        raise ValueError(
            f"spectral_map needs matrices in the last two axes, got shape {x.shape}; add an axis"
            " with x[None, :]."
        )
    if x.dtype not in (jnp.float32, jnp.float64, jnp.complex64, jnp.complex128):
        raise ValueError(
            f"spectral_map needs float32 or float64, got {x.dtype}; convert with"
            " x.astype(jnp.float32)."
        )
    if 0 in x.shape:
        return x
    example = jnp.zeros(min(x.shape[-2:]), jnp.finfo(x.dtype).dtype)
    pure, arrays = jax.closure_convert(h, example)

    def one(matrix: Array) -> Array:
        # Repeated here, after the check before the decomposition, so that zero rows of such a
        # matrix become NaN too.
        matrix = nan_unless_finite(matrix)
        if matrix.shape[0] > matrix.shape[1]:
            return _map(pure, rtol, matrix.T, *arrays).T
        return _map(pure, rtol, matrix, *arrays)

    return jnp.vectorize(one, signature="(m,n)->(m,n)")(x)


@checked_but("x")
def spectral_power(
    x: Inexact[Array, "*batch m n"], p: Scalar, rtol: float | None = None
) -> Inexact[Array, "*batch m n"]:
    """U Sᵖ Vᵀ, from the polar factor (p = 0) to x itself (p = 1); for p = -1 the transposed
    pseudo-inverse.

    For p < 1 singular values up to `rtol` times the largest (by default 64 roundings) go to zero: p
    = 0 is the partial isometry. For p >= 1 all singular values are kept. The power is a number or a
    traced scalar and can be mapped over with `jax.vmap` and differentiated.
    """
    check_number(p, "p", REAL, "spectral_power")
    return spectral_map(x, lambda s: s ** jnp.asarray(p, s.dtype), rtol)


@checked_but("x")
def stabilized_sign(x: Inexact[Array, "*batch m n"], lam: Scalar) -> Inexact[Array, "*batch m n"]:
    """x (xᵀx + λ² I)^(-1/2): each singular value s goes to s / √(s² + λ²), smooth at zero; λ = 0 is
    the polar factor.

    Unlike the polar factor it depends on the scale of x, and it is differentiable at rank-deficient
    x for λ > 0, where its slope is 1/λ. λ >= 0 is a number or a traced scalar.
    """
    check_number(lam, "lam", "[0, inf)", "stabilized_sign")

    def smoothed(s: Array) -> Array:
        return s / jnp.hypot(s, jnp.full_like(s, lam))

    return spectral_map(x, smoothed)


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _map(h: Callable[..., Array], rtol: float | None, x: Array, *arrays: Array) -> Array:
    """The map of one matrix, m <= n."""
    u, s, vt = svd(x)
    return _composed(x, u, s, vt, _values(h, rtol, s, arrays)[1])


def _composed(x: Array, u: Array, s: Array, vt: Array, values: Array) -> Array:
    mapped = product(u * values[None, :].astype(u.dtype), vt)
    return jnp.where(jnp.all(values == s), x, zero_where_zero(mapped, x))


def _values(
    h: Callable[..., Array], rtol: float | None, s: Array, arrays: tuple[Array, ...]
) -> tuple[Array, Array, Array]:
    """The singular values, h of them and its slopes; a dropped singular value counts as zero, with
    value and slope zero.
    """
    at_zero, slope_at_zero = _with_slope(h, jnp.zeros_like(s), arrays)
    smooth = (at_zero == 0) & jnp.isfinite(slope_at_zero)
    cut = (64 * jnp.finfo(s.dtype).eps if rtol is None else rtol) * s[0]
    kept = smooth | ((s > cut) & (s > 0))
    values, slopes = _with_slope(h, jnp.where(kept, s, 1), arrays)
    return jnp.where(kept, s, 0), jnp.where(kept, values, 0), jnp.where(kept, slopes, 0)


@_map.defjvp
def _map_derivative(
    h: Callable[..., Array],
    rtol: float | None,
    primals: tuple[Array, ...],
    tangents: tuple[Array, ...],
) -> tuple[Array, Array]:
    x, *parameters = primals
    dx, *changes = tangents
    arrays = tuple(parameters)
    u, all_values, vt = svd(x)
    s, values, slopes = _values(h, rtol, all_values, arrays)
    tables = _divided_differences(h, s, values, slopes, arrays)
    symmetric, antisymmetric, ratios = (table.astype(x.dtype) for table in tables)

    rows = product(adjoint(u), dx)
    a = product(rows, adjoint(vt))
    inner = 0.5 * (symmetric * (a + adjoint(a)) + antisymmetric * (a - adjoint(a)))
    _, dvalues = jax.jvp(lambda *arrays: h(jnp.where(s > 0, s, 1), *arrays), arrays, tuple(changes))
    inner = inner + jnp.diag(jnp.where(s > 0, dvalues, 0)).astype(x.dtype)
    change = product(u, product(inner, vt) + ratios[:, None] * (rows - product(a, vt)))
    return _composed(x, u, all_values, vt, values), change


def _divided_differences(
    h: Callable[..., Array], s: Array, values: Array, slopes: Array, arrays: tuple[Array, ...]
) -> tuple[Array, Array, Array]:
    """h[s_i, s_j], h[s_i, -s_j] and h(s_i) / s_i of the odd extension, by Simpson's rule for the
    slope where s_i is near s_j.
    """
    total, gap = s[:, None] + s[None, :], s[:, None] - s[None, :]
    near = jnp.abs(gap) <= jnp.finfo(s.dtype).eps ** 0.2 * total
    middle = jax.vmap(lambda row: _with_slope(h, row, arrays)[1])(
        jnp.where(total > 0, total / 2, 1)
    )
    middle = jnp.where(total > 0, middle, 0.5 * (slopes[:, None] + slopes[None, :]))
    simpson = (slopes[:, None] + 4 * middle + slopes[None, :]) / 6
    symmetric = jnp.where(
        near, simpson, (values[:, None] - values[None, :]) / jnp.where(near, 1, gap)
    )
    antisymmetric = jnp.where(
        total > 0, (values[:, None] + values[None, :]) / jnp.where(total > 0, total, 1), simpson
    )
    return symmetric, antisymmetric, jnp.where(s > 0, values / jnp.where(s > 0, s, 1), slopes)


def _with_slope(
    h: Callable[..., Array], s: Array, arrays: tuple[Array, ...]
) -> tuple[Array, Array]:
    """h(s) and h'(s), elementwise."""
    return jax.jvp(lambda s: h(s, *arrays), (s,), (jnp.ones_like(s),))
