"""How the metric in which a polar step descends couples the rows of a weight."""

from jaxtyping import Array, Float

from specjax.linalg import svd
from specjax.spectral.scaling import scaled


def row_metric(v: Float[Array, "m n"]) -> Float[Array, "m m"]:
    """(V Vᵀ)^{1/2}, whose Kronecker product with I_n is Muon's metric (outer-product, eq. 2).

    From the SVD of V, which keeps all digits of small values.
    """
    unit, power = scaled(v)
    u, s, _ = svd(unit)
    return (power * ((u * s[None, :]) @ u.T)).astype(v.dtype)
