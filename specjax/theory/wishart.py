"""Moments of the Wishart matrix W = U Uᵀ, U ∈ R^{d×k} with N(0, 1) entries: E[Wᵐ] = α_m I_d."""

from jaxtyping import Array, ArrayLike, Float

from specjax.arguments import checked
from specjax.theory.closed_forms import check_in, floats, in_float64


@in_float64
@checked
def wishart_moments(
    d: ArrayLike, k: ArrayLike
) -> tuple[Float[Array, "..."], Float[Array, "..."], Float[Array, "..."]]:
    """α_1, α_2, α_3: the diagonal entries of E[W], E[W²], E[W³]; exact (outer-product, eqs. 8-10).

    Args:
        d: Rows of U, any shape.
        k: Columns of U (degrees of freedom), broadcast against d.

    Returns:
        Three float64 arrays.

    Raises:
        ValueError: d < 1 or k < 0.

    Examples:
        >>> from specjax.theory import wishart
        >>> [float(moment) for moment in wishart.wishart_moments(2, 3)]
        [3.0, 18.0, 150.0]
    """
    check_in("[1, inf)", d=d)
    check_in("[0, inf)", k=k)
    d, k = floats(d, k)
    first = k + 0 * d
    second = k * (k + d + 1)
    third = k**3 + 3 * (d + 1) * k**2 + (d**2 + 3 * d + 4) * k
    return first, second, third
