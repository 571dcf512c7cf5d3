"""Matrix products in full precision, and products of rounded operands that are accumulated in full
precision.
"""

import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint
from jax.typing import DTypeLike
from jaxtyping import Array, Inexact

from specjax.spectral import _hermitian_product
from specjax.spectral._hermitian_product import mirrored_product

# The functions below call jnp.matmul directly where that saves a frame in every optimizer step.
_HIGHEST = jax.lax.Precision.HIGHEST


def product(
    left: Inexact[Array, "*batch m k"], right: Inexact[Array, "*batch k n"]
) -> Inexact[Array, "*batch m n"]:
    """left @ right at the highest precision: on a GPU float32 may otherwise run in TF32, an error
    larger than the methods'.
    """
    return jnp.matmul(left, right, precision=_HIGHEST)


def adjoint(x: Inexact[Array, "*batch m n"]) -> Inexact[Array, "*batch n m"]:
    """The conjugate transpose of each matrix; the transpose of a real one."""
    return jnp.conj(x.mT)


def rounded_product(
    left: Inexact[Array, "m k"], right: Inexact[Array, "k n"], operands: DTypeLike | None
) -> Inexact[Array, "m n"]:
    """left @ right of operands rounded to the dtype `operands`, accumulated in the dtype of `left`;
    None rounds nothing.
    """
    if operands is None:
        return product(left, right)
    return jnp.matmul(
        left.astype(operands), right.astype(operands), preferred_element_type=left.dtype
    )


def rounded_gram(x: Inexact[Array, "m n"], operands: DTypeLike | None) -> Inexact[Array, "m m"]:
    """x xᴴ, of rounded operands as in `rounded_product`."""
    if operands is None:
        if x.shape[0] < _hermitian_product.FIRST_SIZE:
            return jnp.matmul(x, jnp.conj(x.mT), precision=_HIGHEST)
        return mirrored_product(x, x, _times_adjoint, _times_adjoint)
    # XLA on a CPU may multiply a transposed half-precision operand at the speed of float32, a
    # transposed copy at twice that and more.
    transposed = with_layout_constraint(x.astype(operands).T, Layout((0, 1)))
    return rounded_product(x, transposed, operands)


def commuting_product(
    left: Inexact[Array, "m m"], right: Inexact[Array, "m m"], operands: DTypeLike | None
) -> Inexact[Array, "m m"]:
    """left @ right of two Hermitian matrices that commute, so that it is Hermitian too; rounded as
    in `centred_product`, on both sides.
    """
    if operands is None:
        if left.shape[0] < _hermitian_product.FIRST_SIZE:
            return jnp.matmul(left, right, precision=_HIGHEST)
        return mirrored_product(left, right, _times_adjoint, product)
    mean, rest = _without_mean(left)
    mean_right, rest_right = _without_mean(right)
    return mean * right + mean_right * rest + rounded_product(rest, rest_right, operands)


def centred_product(
    left: Inexact[Array, "m m"], right: Inexact[Array, "m n"], operands: DTypeLike | None
) -> Inexact[Array, "m n"]:
    """As `rounded_product`, but rounds only the difference of `left` from its mean eigenvalue: μ
    right + (left − μ) @ right.

    Where the eigenvalues of `left` lie close together, as in an iteration that converges, this
    difference is small, and so is its rounding error.
    """
    if operands is None:
        return jnp.matmul(left, right, precision=_HIGHEST)
    mean, rest = _without_mean(left)
    return mean * right + rounded_product(rest, right, operands)


def _times_adjoint(
    left: Inexact[Array, "m k"], right: Inexact[Array, "n k"]
) -> Inexact[Array, "m n"]:
    return product(left, adjoint(right))


def diagonal_of(x: Inexact[Array, "m m"]) -> Inexact[Array, " m"]:
    """The diagonal as a gather of m numbers, since `jnp.trace` and `jnp.diagonal` may pass over all
    m².
    """
    indices = jnp.arange(x.shape[0])
    return x[indices, indices]


def _without_mean(x: Inexact[Array, "m m"]) -> tuple[Inexact[Array, ""], Inexact[Array, "m m"]]:
    """The mean eigenvalue μ of a matrix, and x − μ."""
    mean = jnp.mean(diagonal_of(x))
    return mean, x - mean * jnp.eye(x.shape[0], dtype=x.dtype)
