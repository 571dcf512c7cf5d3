"""Matrix products in full precision, and products of rounded operands that are accumulated in full precision."""

import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint
from jax.typing import DTypeLike
from jaxtyping import Array, Inexact


def product(left: Inexact[Array, "*batch m k"], right: Inexact[Array, "*batch k n"]) -> Inexact[Array, "*batch m n"]:
    """Left @ right at the highest precision: on a GPU float32 may otherwise run in TF32, an error larger than the methods'."""
    return jnp.matmul(left, right, precision=jax.lax.Precision.HIGHEST)


def adjoint(x: Inexact[Array, "m n"]) -> Inexact[Array, "n m"]:
    """The conjugate transpose; the transpose of a real matrix."""
    return jnp.conj(x.T)


def rounded_product(
    left: Inexact[Array, "m k"], right: Inexact[Array, "k n"], operands: DTypeLike | None
) -> Inexact[Array, "m n"]:
    """Left @ right of operands rounded to the dtype `operands`, accumulated in the dtype of `left`; None rounds nothing."""
    if operands is None:
        return product(left, right)
    return jnp.matmul(left.astype(operands), right.astype(operands), preferred_element_type=left.dtype)


def rounded_gram(x: Inexact[Array, "m n"], operands: DTypeLike | None) -> Inexact[Array, "m m"]:
    """X Xᴴ, of rounded operands as in `rounded_product`."""
    if operands is None:
        return product(x, adjoint(x))
    # XLA on a CPU multiplies a transposed half-precision operand at the speed of float32, a transposed copy at twice that.
    transposed = with_layout_constraint(x.astype(operands).T, Layout((0, 1)))
    return rounded_product(x, transposed, operands)


def centred_product(
    left: Inexact[Array, "m m"], right: Inexact[Array, "m n"], operands: DTypeLike | None
) -> Inexact[Array, "m n"]:
    """As `rounded_product`, but only what is left of a square operand without its mean eigenvalue is rounded.

    Left @ right = μ right + (left − μ) @ right, and the same once more for a square `right`. Where eigenvalues lie close
    together, as those of an iteration that converges do, what is rounded is small, and so is its rounding error.
    """
    if operands is None:
        return product(left, right)
    mean, rest = _without_mean(left)
    if right.shape[0] != right.shape[1]:
        return mean * right + rounded_product(rest, right, operands)
    mean_right, rest_right = _without_mean(right)
    return mean * right + mean_right * rest + rounded_product(rest, rest_right, operands)


def _without_mean(x: Inexact[Array, "m m"]) -> tuple[Inexact[Array, ""], Inexact[Array, "m m"]]:
    """The mean eigenvalue μ of a matrix and the matrix without it, x − μ."""
    diagonal = jnp.arange(x.shape[0])
    # A gather of m numbers: `jnp.trace` is a pass over all m².
    mean = jnp.mean(x[diagonal, diagonal])
    return mean, x - mean * jnp.eye(x.shape[0], dtype=x.dtype)
