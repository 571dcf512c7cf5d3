"""Helpers that use the whole range of a floating dtype: half precision in float32, and division by
the largest entry.

Squares of float32 numbers below 1e-23 vanish and those above 1.8e19 are infinite, so functions that
square and then divide first pass their arguments through `scaled`.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Inexact, Num


def at_least_float32(x: Num[Array, "..."]) -> Inexact[Array, "..."]:
    """x in float32 if its floats are narrower, and in JAX's default float if it holds whole
    numbers.

    Floats follow numpy's promotion, since JAX refuses to promote two widths under strict promotion.
    """
    if not jnp.issubdtype(x.dtype, jnp.inexact):
        return x.astype(jnp.result_type(float))
    return x.astype(np.promote_types(x.dtype, np.float32))


def squares(x: Num[Array, "..."]) -> Num[Array, "..."]:
    """|x|² of each entry, real for a complex x."""
    return x.real**2 + x.imag**2 if jnp.iscomplexobj(x) else x**2


def inner(
    x: Inexact[Array, "*batch m n"], y: Inexact[Array, "*batch m n"]
) -> Float[Array, "*batch"]:
    """Re ⟨x, y⟩ = Re tr(xᴴ y) of matrices: the nuclear norm of x if y is its polar factor."""
    return jnp.sum(jnp.real(jnp.conj(x) * y), axis=(-2, -1))


def divided_by(x: Inexact[Array, "..."], largest: Float[Array, "..."]) -> Inexact[Array, "..."]:
    """x / largest, and x itself where `largest`, a nonnegative array that broadcasts against x, is
    zero, infinite or NaN.

    So an infinite entry stays in place: x / inf would silently be zero almost everywhere, where the
    result must be NaN.
    """
    if jnp.iscomplexobj(x):
        return jax.lax.complex(divided_by(x.real, largest), divided_by(x.imag, largest))
    # XLA turns the division by one scalar into a product with its reciprocal, which is subnormal,
    # hence 0, for the largest floats.
    headroom = jnp.where(largest > 1, 0.125, 1).astype(x.dtype)
    usable = (largest > 0) & jnp.isfinite(largest)
    return jnp.where(usable, x * headroom / jnp.where(usable, largest * headroom, 1), x)


def scaled(
    x: Num[Array, "*shape"], axis: int | tuple[int, ...] = (-2, -1)
) -> tuple[Inexact[Array, "*shape"], Float[Array, "..."]]:
    """x / p in at least float32, and p: the power of two that brings the largest entry along the
    axes into [1, 2), without rounding.

    p keeps the axes, with length 1, and is held fixed under differentiation; it is 1 where there
    are only zeros or no entries. If one entry is infinite or NaN, all become NaN, since LAPACK's
    singular value decomposition may never return on an infinite matrix.
    """
    x = at_least_float32(x)
    largest = jnp.max(jnp.abs(jax.lax.stop_gradient(x)), axis=axis, keepdims=True, initial=0)
    finite = jnp.isfinite(largest)
    # XLA reads subnormal numbers as zero on most devices.
    power = power_of_two(jnp.where(finite & (largest >= jnp.finfo(x.dtype).tiny), largest, 1))
    return jnp.where(finite, divided_by(x, power), jnp.nan), power


def power_of_two(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """The largest power of two that is at most x, for normal x > 0, read off the bits of its
    exponent.

    `jnp.frexp` would not do: from 0.11 on JAX expands it outside of the caller's enable_x64 scope.
    """
    info, word = jnp.finfo(x.dtype), np.dtype(f"uint{jnp.finfo(x.dtype).bits}")
    exponent = np.array(((1 << info.nexp) - 1) << info.nmant, word)
    return jax.lax.bitcast_convert_type(jax.lax.bitcast_convert_type(x, word) & exponent, x.dtype)


def exactly_scaled(x: Inexact[Array, "m n"]) -> Inexact[Array, "m n"]:
    """x divided, without rounding, by the power of two that brings its largest entry (real or
    imaginary part) into [1, 2).

    A zero matrix stays as it is; one with an infinite or NaN entry is NaN. The power is held fixed
    under differentiation.
    """
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        parts = exactly_scaled(jnp.concatenate([x.real, x.imag]))
        return jax.lax.complex(*jnp.split(parts, 2))
    # float16 cannot represent the reciprocals of all its powers of two.
    return scaled(x)[0].astype(x.dtype)


def frobenius(
    x: Inexact[Array, "..."], axis: int | tuple[int, ...] = (-2, -1)
) -> Float[Array, "..."]:
    """√Σ |x|² along the axes, in at least float32 and over its whole range; the derivative at zero
    is zero.
    """
    unit, power = scaled(x, axis)
    total = jnp.sum(squares(unit), axis=axis)
    zero = total == 0
    return jnp.where(zero, 0, jnp.sqrt(jnp.where(zero, 1, total))) * jnp.squeeze(power, axis)


def averaged_rms(
    old: Float[Array, "..."], new: Float[Array, "..."], beta: Float[Array, ""]
) -> Float[Array, "..."]:
    """√(β old² + (1 - β) new²), the root of an average of squares, over the whole range of floats;
    the derivative at zero is zero.
    """
    return frobenius(jnp.stack([jnp.sqrt(beta) * old, jnp.sqrt(1 - beta) * new]), axis=0)


def ratio(part: Inexact[Array, "..."], whole: Inexact[Array, "..."]) -> Inexact[Array, "..."]:
    """part / whole, and 0 for 0/0; NaN stays NaN."""
    if jnp.iscomplexobj(part):
        return jax.lax.complex(ratio(part.real, whole), ratio(part.imag, whole))
    nothing = (part == 0) & (whole == 0)
    return jnp.where(nothing, 0, part / jnp.where(nothing, 1, whole))
