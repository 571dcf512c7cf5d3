"""The direction of steepest descent in a Schatten norm: between the gradient (p = 2) and its polar
factor (p = ∞).

By Hölder's inequality for Schatten norms (Bhatia 1997, Matrix Analysis, Chapter IV; Cesista 2025,
Steepest descent under Schatten-p norms) the D that maximizes ⟨G, D⟩ under (Σ σ(D)^p)^(1/p) <= 1 is

    D = U S^(q-1) Vᵀ / (Σ s^q)^(1/p),   1/p + 1/q = 1,   G = U S Vᵀ,

with ⟨G, D⟩ = (Σ s^q)^(1/q). For p <= 1, quasi-norms below 1, the largest ⟨G, D⟩ is s_1, at D = u_1
v_1ᵀ, since Σ σ <= (Σ σ^p)^(1/p).
"""

import jax.numpy as jnp
import optax
from jaxtyping import Array, ArrayLike, Float, PyTree

from specjax.arguments import check_number, checked
from specjax.optim._hyperparameters import Number, takes_schedules
from specjax.optim._orthogonal import matrix_transform
from specjax.optim._scales import Scale
from specjax.optim.matrices import IN_OUT, DimensionNumbers
from specjax.spectral import polar, spectral_map, spectral_norm
from specjax.spectral.float_range import at_least_float32, ratio

RANK_ONE = 2.0**-20
"""Orders p up to 1 plus this number count as 1."""
_TIE = 64  # roundings, within which a singular value counts as equal to the largest


@takes_schedules
@checked
def schatten_direction(
    p: Number,
    scale: str | Scale = "none",
    *,
    dimension_numbers: DimensionNumbers = IN_OUT,
    sizes: PyTree | None = None,
) -> optax.GradientTransformationExtraArgs:
    """U S^(q-1) Vᵀ / (Σ s^q)^(1/p), 1/p + 1/q = 1, for each matrix U S Vᵀ: the steepest direction
    of Schatten-p norm 1.

    It is multiplied by a factor that depends on the shape. p = ∞ is the polar factor, p = 2 the
    matrix divided by its Frobenius norm, p = 1 and below the first singular pair u_1 v_1ᵀ (if the
    largest singular value is repeated, the mean over its pairs, of nuclear norm 1). The sign is
    kept: chain with `optax.scale_by_learning_rate`.

    Args:
        p: The order, positive: a number, `math.inf`, or a scalar array, so that a sweep over p is
            one program.
        scale: As for `orthogonalize`.
        dimension_numbers: The axes of inputs and outputs.
        sizes: The active extents of padded matrices.

    Returns:
        A transformation without state; updates keep shape and dtype. It decomposes each matrix in
        at least float32; for p > 2 singular values below 64 roundings of the largest count as zero.
        A zero matrix stays zero.

    Raises:
        ValueError: at once for a p that is not positive or an unknown scale; at init and update for
            a leaf that is not a matrix.

    """
    check_number(p, "p", "(0, inf]", "schatten_direction")
    return matrix_transform(
        lambda x: polar(x, lambda wide: _direction(wide, p)),
        "schatten_direction",
        scale,
        dimension_numbers=dimension_numbers,
        sizes=sizes,
    )


def _direction(x: Float[Array, "m n"], p: ArrayLike) -> Float[Array, "m n"]:
    wide = at_least_float32(x)
    order = jnp.asarray(p, wide.dtype)
    # Relative to the largest singular value no power overflows. D does not depend on the scale.
    unit = ratio(wide, spectral_norm(wide))
    power = spectral_map(unit, lambda s: _powers(s, order))
    # ⟨G, U S^(q-1) Vᵀ⟩ = Σ s^q, at least 1. For p <= 1 take the root of order 1, since a single
    # pair has norm 1 in every order.
    total = jnp.sum(unit * power)
    return ratio(power, jnp.where(total > 0, total, 1) ** (1 / jnp.maximum(order, 1))).astype(
        x.dtype
    )


def _powers(s: Float[Array, "..."], order: Float[Array, ""]) -> Float[Array, "..."]:
    """s^(q-1) of values whose largest is 1, with 1/order + 1/q = 1; for the order 1 it is one for
    the values that equal the largest.
    """
    first = jnp.where(s >= 1 - _TIE * jnp.finfo(s.dtype).eps, jnp.ones_like(s), 0)
    exponent = 1 / jnp.maximum(order - 1, RANK_ONE)
    return jnp.where(order - 1 > RANK_ONE, s**exponent, first)
