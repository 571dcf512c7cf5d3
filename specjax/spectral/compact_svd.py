"""One compact singular value decomposition that does not give up on a finite matrix."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Inexact

from specjax.spectral.scaling import nan_unless_finite

Decomposition = tuple[Array, Array, Array]


def compact_svd(x: Inexact[Array, "m n"]) -> Decomposition:
    """(U, s, Vᴴ) as of `jnp.linalg.svd`, and NaN only for a matrix that is not finite.

    On a CPU `jnp.linalg.svd` is LAPACK's gesdd, divide and conquer, which does not converge for some finite matrices that nearly lose
    rank: about two in 10⁵ of those along spectral gradient descent at 100 × 100 in float64. They are decomposed again by QR iteration
    (gesvd), which is slower and does converge. All others keep their bits.
    """
    return jax.lax.platform_dependent(nan_unless_finite(x), cpu=_with_second_try, default=_at_once)


def _at_once(x: Array) -> Decomposition:
    u, s, vh = jnp.linalg.svd(x, full_matrices=False)
    return u, s, vh


def _with_second_try(x: Array) -> Decomposition:
    u, s, vh = _at_once(x)
    gave_up = jnp.all(jnp.isfinite(x)) & ~jnp.all(jnp.isfinite(s))
    return jax.lax.cond(gave_up, lambda x, *_: _by_qr_iteration(x), lambda _, *first: tuple(first), x, u, s, vh)


def _by_qr_iteration(x: Array) -> Decomposition:
    u, s, vh = jax.lax.linalg.svd(x, full_matrices=False, algorithm=jax.lax.linalg.SvdAlgorithm.QR)
    return u, s, vh
