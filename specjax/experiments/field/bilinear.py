"""Matrix-valued least squares y = zᵀ W x with a power law in the covariance of x, after a script of
authors of arXiv 2605.09552.

x ~ N(0, K) with eigenvalues j^-α of K, and z ~ N(0, I); everything is in the eigenbasis of K.
Entries, and so their signs, are those in a basis in which K has no zeros, the generic case of the
paper, or in the eigenbasis.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from specjax import sizes, spectral

SVD, MUON, SIGN, SIGN_DIAGONAL, SGD = (
    "SignSVD",
    "Muon's 5 steps",
    "SignSGD",
    "SignSGD, K diagonal",
    "SGD",
)
MUONS = spectral.NewtonSchulz()


def power_law(n: int, exponent: Array | float) -> Float[Array, " n"]:
    """j^-exponent, from 1 down."""
    return jnp.arange(1.0, n + 1) ** -exponent


def gradient(
    key: Key[Array, ""], error: Float[Array, "n n"], eigenvalues: Float[Array, " n"], batch: int
) -> Float[Array, "n n"]:
    """The gradient of ½ mean (zᵀ error x)² on a fresh batch; its mean is error · K."""
    x, z = (
        jax.random.normal(sizes.stream(key, side), (batch, error.shape[0])) for side in ("x", "z")
    )
    x = x * jnp.sqrt(eigenvalues)[None, :]
    residuals = jnp.sum((z @ error) * x, axis=1)
    return (z * residuals[:, None]).T @ x / batch


def direction(
    g: Float[Array, "n n"], optimizer: str, basis: Float[Array, "n n"]
) -> Float[Array, "n n"]:
    """An optimizer's step along a gradient; SignSGD takes signs in the orthogonal `basis`."""
    if optimizer in (SVD, MUON):
        return spectral.polar(g) if optimizer == SVD else spectral.polar(g, MUONS)
    if optimizer == SIGN:
        return jnp.sign(g @ basis.T) @ basis
    return jnp.sign(g) if optimizer == SIGN_DIAGONAL else g


def loss(error: Float[Array, "n n"], eigenvalues: Float[Array, " n"]) -> Float[Array, ""]:
    """½ E (zᵀ error x)² = ½ tr(error K errorᵀ)."""
    return jnp.sum(error**2 * eigenvalues[None, :]) / 2
