"""A filter of singular values that damps the largest and the smallest; it replaces the polar
factor.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Inexact

from specjax.arguments import check_fields
from specjax.linalg import svd
from specjax.spectral.float_range import at_least_float32
from specjax.spectral.products import product


@jax.tree_util.register_static
@dataclass(frozen=True)
class Tikhonov:
    """G (GᴴG + ℓ² I)⁻¹ times a number: each singular value s goes to s/(s² + ℓ²), ℓ being `share`
    times their median.

    The result is scaled so that the singular values have a root mean square of 1, like those of the
    polar factor, which it replaces: `polar(x, Tikhonov())`, `optim.muon(rate, method=Tikhonov())`.
    For an associative memory `theory.best_filter` gives the best share and the gain
    (docs/beyond/best-filter.md). Singular values below 64 roundings of the largest count as zero:
    they stay zero and are not in the median. A zero matrix stays zero.

    Raises:
        ValueError: for a share that is not positive.
    """

    share: float = 0.5

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.share > 0:
            raise ValueError(
                f"Tikhonov needs a positive share of the median singular value, got {self.share}."
            )

    def __call__(self, x: Inexact[Array, "m n"]) -> Inexact[Array, "m n"]:
        """The filtered matrix, m <= n; half precision is computed in float32."""
        return filtered(x, lambda s: s / (s**2 + self.share**2))


def filtered(
    x: Inexact[Array, "m n"], h: Callable[[Float[Array, " k"]], Float[Array, " k"]]
) -> Inexact[Array, "m n"]:
    """U h(S / median) Vᴴ, m <= n, scaled so that the singular values have a root mean square of 1;
    zeros stay zero.

    Args:
        x: U S Vᴴ; half precision is computed in float32.
        h: The function that gives the new singular values from the old ones, divided by the median
            of those that are not zero.
    """
    u, s, vh = svd(at_least_float32(x))
    kept = s > 64 * jnp.finfo(s.dtype).eps * s[0]
    median = jnp.nanmedian(jnp.where(kept, s, jnp.nan))
    new = jnp.where(kept, h(jnp.where(kept, s / jnp.where(jnp.any(kept), median, 1), 1)), 0)
    norm = jnp.sqrt(jnp.sum(new**2) / jnp.maximum(jnp.sum(kept, dtype=new.dtype), 1))
    return product(u * (new / jnp.where(norm > 0, norm, 1))[None, :].astype(u.dtype), vh).astype(
        x.dtype
    )
