"""‖X‖_op² and the stable rank by squaring the Gram matrix: products only, and no start vector that
would have to be drawn.

For a training step or the body of a scan, where a decomposition would take longer than the rest and
a random generator longer to compile than everything else. For an interval and for large matrices
there is `spectral.estimate_stable_rank`.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float, Inexact

from specjax.spectral.float_range import inner, ratio, scaled
from specjax.spectral.products import adjoint

SQUARINGS = 6


def gram_matrix(x: Inexact[Array, "*batch m n"]) -> Inexact[Array, "*batch k k"]:
    """x xᴴ or xᴴ x, whichever is smaller."""
    return x @ adjoint(x) if x.shape[-2] <= x.shape[-1] else adjoint(x) @ x


def squared_norm(x: Inexact[Array, "*batch m n"]) -> Float[Array, "*batch"]:
    """tr(G^{p+1})/tr(G^p) ≤ ‖X‖_op² = λ_1(G) for the Gram matrix G and p = 2^`SQUARINGS` = 64; 0
    for a zero matrix.

    An average of the eigenvalues with weights λ_i^p, too small by less than log(k)/p of λ_1 for k
    eigenvalues, whatever they are, and by Σ (λ_i/λ_1)^p (1 - λ_i/λ_1) of it at most. In at least
    float32.
    """
    unit, power = scaled(x)
    factor = power[..., 0, 0]
    return factor * (factor * _largest(gram_matrix(unit)))


def stable_rank_above(x: Inexact[Array, "*batch m n"]) -> Float[Array, "*batch"]:
    """‖X‖_F² over `squared_norm`: at least st(X), and above it by as little; 0 for a zero
    matrix.
    """
    gram = gram_matrix(scaled(x)[0])
    return ratio(_trace(gram), _largest(gram))


def _largest(gram: Array) -> Array:
    trace = _trace(gram)
    unit = power = ratio(gram, trace[..., None, None])
    for _ in range(SQUARINGS):
        power = power @ power
        power = ratio(power, _trace(power)[..., None, None])
    return trace * inner(unit, power)


def _trace(gram: Array) -> Array:
    """That of Hermitian matrices, which is real."""
    return jnp.real(jnp.trace(gram, axis1=-2, axis2=-1))
