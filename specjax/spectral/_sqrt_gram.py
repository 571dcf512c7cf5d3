"""The metric of a polar step, which couples the rows of a weight."""

from jaxtyping import Array, Inexact

from specjax.arguments import as_array
from specjax.linalg import svd
from specjax.spectral.float_range import scaled
from specjax.spectral.products import adjoint


def row_metric(v: Inexact[Array, "m n"]) -> Inexact[Array, "m m"]:
    """(V Vᴴ)^{1/2}, whose Kronecker product with I_n is Muon's metric (outer-product, eq. 2).

    It is computed from the SVD of V, which keeps all digits of small values.
    """
    v = as_array(v, "v", "row_metric")
    if v.ndim != 2:
        raise ValueError(
            f"row_metric needs one matrix, got shape {v.shape}; take jax.vmap for several."
        )
    unit, power = scaled(v)
    u, s, _ = svd(unit)
    values = (s[None, :] * power).astype(u.dtype)
    return ((u * values) @ adjoint(u)).astype(v.dtype)
