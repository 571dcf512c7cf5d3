"""The polar factor from the singular value decomposition."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Inexact

from specjax.arguments import check_fields
from specjax.linalg import compact_svd, nan_unless_finite
from specjax.spectral.methods.base import ExactPolar, zero_where_zero
from specjax.spectral.products import product


@jax.tree_util.register_static
@dataclass(frozen=True)
class SVD(ExactPolar):
    """U Vᵀ of the compact singular value decomposition: exact to rounding at every condition number
    up to 1/rtol.

    Exact means that the result is orthonormal and the factor of a matrix within a few roundings of
    x. Its distance to the factor of x itself grows with the condition number of the problem, 2 ‖x‖
    / (s_m + s_{m-1}) roundings for square x and 1 / s_m for wide.

    Singular values up to `rtol` times the largest count as zero, so a rank-deficient matrix goes to
    its partial isometry. The default, 64 times the machine epsilon (7.6e-6 in float32, 1.4e-14 in
    float64), does not depend on the shape, since zero padding must not move the cut.

    Examples:
        >>> import jax.numpy as jnp
        >>> from specjax import spectral
        >>> x = jnp.diag(jnp.array([3.0, 0.0]))
        >>> bool(jnp.allclose(spectral.polar(x, spectral.SVD()), jnp.diag(jnp.array([1.0, 0.0]))))
        True
    """

    rtol: float | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.rtol is not None and not 0 <= self.rtol < 1:
            raise ValueError(f"SVD needs 0 <= rtol < 1, got rtol={self.rtol}.")

    def __call__(self, x: Inexact[Array, "m n"]) -> Inexact[Array, "m n"]:
        """See the class."""
        x = nan_unless_finite(x)
        u, s, vt = compact_svd(x)
        kept = is_kept(s, self.rtol)
        return zero_where_zero(product(jnp.where(kept[None, :], u, 0), vt), x)


def is_kept(s: Float[Array, " m"], rtol: float | None) -> Array:
    """Marks the sorted singular values that count as nonzero: those above `rtol` (64 roundings by
    default) times the largest.
    """
    return (s > (64 * jnp.finfo(s.dtype).eps if rtol is None else rtol) * s[0]) & (s > 0)
