"""The base classes of polar methods.

A method maps a wide or square matrix `(m, n)`, m <= n, to its orthogonal polar factor;
`specjax.spectral.polar` transposes tall inputs, maps over leading axes and divides by a power of
two, which is exact, so a method sees one matrix whose largest entry has absolute value in [1, 2).
Any callable from an array to an array is a method too, and JAX differentiates its code.
"""

import jax.numpy as jnp
from jaxtyping import Array, Inexact


class AbstractPolar:
    """A method for the polar factor: a small frozen object that `polar(x, method=...)` calls on
    each matrix.

    The methods here are frozen dataclasses and static in jax's trees: they compare by their fields
    and hold no arrays.
    """

    @property
    def uses_lapack(self) -> bool:
        """Whether the method decomposes matrices; jaxlib 0.10 cannot do this safely in batches."""
        return True

    def __call__(self, x: Inexact[Array, "m n"]) -> Inexact[Array, "m n"]:
        """The polar factor of one matrix with m <= n whose largest entry is in [1, 2) in absolute
        value (or which is zero).
        """
        raise NotImplementedError


class ExactPolar(AbstractPolar):
    """A method that returns the polar factor to rounding, so that `polar` can differentiate it in
    closed form.

    Half precision, which LAPACK and cuSOLVER lack, is computed in float32 and rounded at the end.
    """


def zero_where_zero(
    factor: Inexact[Array, "m n"], x: Inexact[Array, "m n"]
) -> Inexact[Array, "m n"]:
    """The factor with the zero rows and columns of x, where a decomposition leaves rounding noise,
    set to zero exactly.
    """
    rows, columns = jnp.any(x != 0, axis=1), jnp.any(x != 0, axis=0)
    return jnp.where(rows[:, None] & columns[None, :], factor, 0)
