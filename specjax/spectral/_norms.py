"""Norms and rank measures of matrices. All ignore zero padding, and raise ValueError for arrays
with fewer than two axes.

Half precision is computed and returned in float32. Norms and ranks of an empty matrix are 0; NaN
and infinite entries give NaN.
"""

from collections.abc import Callable
from functools import wraps

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Inexact

from specjax.arguments import as_array, check_number, checked_but
from specjax.linalg import singular_values_of_finite
from specjax.spectral.float_range import divided_by, ratio, scaled

_Norm = Callable[[Inexact[Array, "*batch m n"]], Float[Array, "*batch"]]


def _one_program(norm: _Norm) -> _Norm:
    """Compile it as a whole after the check of its argument: one by one, its operations would take
    as long as the decomposition of a small matrix.
    """
    compiled = jax.jit(norm)

    @wraps(norm)
    def checked(x: Inexact[Array, "*batch m n"]) -> Float[Array, "*batch"]:
        return compiled(_matrices(x))

    return checked


@_one_program
def spectral_norm(x: Inexact[Array, "*batch m n"]) -> Float[Array, "*batch"]:
    """The largest singular value ‖x‖_op.

    Examples:
        >>> import jax.numpy as jnp
        >>> from specjax import spectral
        >>> round(float(spectral.spectral_norm(jnp.diag(jnp.array([2.0, 1.0])))), 4)
        2.0
    """
    s, power = _singular_values(x)
    return power * s[..., 0]


@_one_program
def nuclear_norm(x: Inexact[Array, "*batch m n"]) -> Float[Array, "*batch"]:
    """The sum of the singular values ‖x‖_*.

    Examples:
        >>> import jax.numpy as jnp
        >>> from specjax import spectral
        >>> round(float(spectral.nuclear_norm(jnp.diag(jnp.array([2.0, 1.0])))), 4)
        3.0
    """
    s, power = _singular_values(x)
    return power * jnp.sum(s, axis=-1)


@checked_but("x")
def schatten_norm(
    x: Inexact[Array, "*batch m n"], p: float | Float[Array, ""]
) -> Float[Array, "*batch"]:
    """(Σ s^p)^(1/p): the nuclear norm for p = 1, Frobenius for 2, spectral for infinity; p a number
    or a traced scalar, p > 0.

    For p < 1 it is a quasi-norm. The gradient is finite at repeated singular values.

    Raises:
        ValueError: if p is a number that is not positive.

    """
    check_number(p, "p", "(0, inf]", "schatten_norm")
    return _schatten_norm(_matrices(x), p)


@jax.jit
def _schatten_norm(x: Array, p: float | Array) -> Array:
    s, power = _singular_values(x)
    largest = s[..., :1]
    p = jnp.asarray(p, s.dtype)
    relative = divided_by(s, largest)
    powers = jnp.where(relative > 0, jnp.where(relative > 0, relative, 1) ** p, 0)
    total = jnp.sum(powers, axis=-1)
    return power * (largest[..., 0] * jnp.where(total > 0, total, 1) ** (1 / p))


@_one_program
def stable_rank(x: Inexact[Array, "*batch m n"]) -> Float[Array, "*batch"]:
    """st(x) = ‖x‖_F² / ‖x‖_op², between 1 and the rank; 0 for a zero matrix (spectral-criterion,
    Section 1).

    Examples:
        >>> import jax.numpy as jnp
        >>> from specjax import spectral
        >>> round(float(spectral.stable_rank(jnp.diag(jnp.array([2.0, 1.0])))), 4)
        1.25
    """
    s = _relative_singular_values(x)
    return jnp.sum(s**2, axis=-1)


@_one_program
def nuclear_rank(x: Inexact[Array, "*batch m n"]) -> Float[Array, "*batch"]:
    """nr(x) = ‖x‖_*² / ‖x‖_F², between st(x) and the rank; 0 for a zero matrix (spectral-criterion,
    Section 1).

    Examples:
        >>> import jax.numpy as jnp
        >>> from specjax import spectral
        >>> round(float(spectral.nuclear_rank(jnp.diag(jnp.array([2.0, 1.0])))), 4)
        1.8
    """
    s = _relative_singular_values(x)
    squares = jnp.sum(s**2, axis=-1)
    return ratio(jnp.sum(s, axis=-1) ** 2, squares)


@_one_program
def effective_rank(x: Inexact[Array, "*batch m n"]) -> Float[Array, "*batch"]:
    """er(x) = ‖x‖_* / ‖x‖_op, for a positive semidefinite matrix tr x / ‖x‖_op; 0 for a zero
    matrix.

    For data Z (n columns) it links to the stable rank: st(Z) = er(Z Zᵀ / n) (spectral-criterion,
    Section 1).

    Examples:
        >>> import jax.numpy as jnp
        >>> from specjax import spectral
        >>> round(float(spectral.effective_rank(jnp.diag(jnp.array([2.0, 1.0])))), 4)
        1.5
    """
    return jnp.sum(_relative_singular_values(x), axis=-1)


@_one_program
def entropy_rank(x: Inexact[Array, "*batch m n"]) -> Float[Array, "*batch"]:
    """exp(-Σ p log p) of the normalized singular values p = s / Σ s (Roy and Vetterli 2007); 0 for
    a zero matrix.

    Examples:
        >>> import jax.numpy as jnp
        >>> from specjax import spectral
        >>> round(float(spectral.entropy_rank(jnp.eye(3))), 4)
        3.0
    """
    s = _relative_singular_values(x)
    total = jnp.sum(s, axis=-1, keepdims=True)
    p = ratio(s, total)
    entropy = -jnp.sum(jnp.where(p == 0, 0, p * jnp.log(jnp.where(p == 0, 1, p))), axis=-1)
    return jnp.where(total[..., 0] == 0, 0, jnp.exp(entropy))


def _relative_singular_values(x: Array) -> Array:
    """Singular values divided by the largest, so that squares neither overflow nor vanish; zeros
    for a zero matrix.
    """
    s, _ = _singular_values(x)
    return divided_by(s, s[..., :1])


def _singular_values(x: Array) -> tuple[Array, Array]:
    """The singular values of x over a power of two, and that power, since the norm of a matrix of
    floats may overflow.
    """
    # `scaled` makes a matrix NaN throughout where one entry is not finite.
    unit, power = scaled(_matrices(x))
    return singular_values_of_finite(unit), power[..., 0, 0]


def _matrices(x: Array) -> Array:
    """An argument of a norm, with a zero for an empty matrix."""
    x = as_array(x, "x", "A norm or rank")
    if x.ndim < 2:
        raise ValueError(
            f"Norms and ranks need matrices in the last two axes, got shape {x.shape}; add an axis"
            " with x[None, :]."
        )
    if 0 in x.shape[-2:]:
        x = jnp.zeros((*x.shape[:-2], 1, 1), x.dtype)
    return x
