"""‖X‖_op² and the stable rank by squaring the Gram matrix: it needs only products and no random
start vector.

Use it in a training step or the body of a scan, where a decomposition would take longer than the
rest and a random generator would compile longer than everything else. Use
`spectral.estimate_stable_rank` for an interval and for large matrices.
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

    It is the average of the eigenvalues with weights λ_i^p, computed in at least float32. For any k
    eigenvalues it lies below λ_1 by less than λ_1 log(k)/p, and by at most λ_1 Σ (λ_i/λ_1)^p (1 -
    λ_i/λ_1).
    """
    unit, power = scaled(x)
    factor = power[..., 0, 0]
    return factor * (factor * _largest(gram_matrix(unit)))


def stable_rank_above(x: Inexact[Array, "*batch m n"]) -> Float[Array, "*batch"]:
    """‖X‖_F² over `squared_norm`: an upper bound on st(X) that is as close; 0 for a zero matrix."""
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
    """The trace of Hermitian matrices, which is real."""
    return jnp.real(jnp.trace(gram, axis1=-2, axis2=-1))
