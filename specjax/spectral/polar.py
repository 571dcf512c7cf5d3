"""The polar factor of a matrix: the map that Muon applies to its momentum.

For x = U S Vᴴ (compact singular value decomposition) the polar factor is U Vᴴ = (x xᴴ)^(-1/2) x.
"""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

import jax
import jax.numpy as jnp
from jaxtyping import Array, Inexact

from specjax.arguments import as_array, shown
from specjax.programs.one_at_a_time import one_at_a_time
from specjax.spectral._derivatives import differentiable_factor
from specjax.spectral.float_range import exactly_scaled
from specjax.spectral.methods import (
    QDWH,
    SVD,
    AbstractPolar,
    ExactPolar,
    Newton,
    NewtonSchulz,
    PolarExpress,
)
from specjax.spectral.polynomials import CUBIC5
from specjax.spectral.products import adjoint

Method = Callable[[Array], Array] | str
"""A method, or its name."""


def polar(
    x: Inexact[Array, "*batch m n"],
    method: Method = SVD(),  # noqa: B008
) -> Inexact[Array, "*batch m n"]:
    """The orthogonal (for complex x, unitary) factor U Vᴴ of the compact singular value
    decomposition of each matrix.

    Zero singular values stay zero, a zero matrix goes to zero, and zero padding commutes with it.
    The result depends on the direction of x alone: x is divided by a power of two first, which
    rounds nothing and brings its largest entry into [1, 2), so no gradient is too small or too
    large (XLA reads subnormal entries, in float32 those below 1.2e-38, as zero). A NaN or infinite
    entry makes the matrix NaN.

    Derivatives of any order work in both modes. For the exact methods (`SVD`, `Newton`, `QDWH`)
    they are those of the polar factor in closed form, finite at repeated singular values;
    `specjax.spectral._derivatives` defines them for a rank-deficient x. `NewtonSchulz`,
    `PolarExpress` and a callable are differentiated as they are computed. The scale of x is held
    fixed, which is exact for every method that does not depend on it.

    Args:
        x: Matrices in the last two axes, tall or wide; leading axes are batch axes. A floating or
            complex dtype, which is kept.
        method: The method that computes the factor and sets its accuracy: see
            `specjax.spectral.methods`. A name, as "polar_express", stands for the method with its
            defaults, "cubic5" for `NewtonSchulz(5, CUBIC5)`. Any callable works that maps a matrix
            (m, n), m <= n, whose largest entry has an absolute value in [1, 2), to one of the same
            shape and dtype, whatever its scale.

    Returns:
        An array of the shape and dtype of x.

    Raises:
        ValueError: if x has fewer than two axes or an integer dtype, or the method is not a
            callable that keeps the shape and dtype.

    Examples:
        >>> import jax.numpy as jnp
        >>> from specjax import spectral
        >>> x = jnp.array([[0.0, 3.0], [4.0, 0.0]])
        >>> bool(jnp.allclose(spectral.polar(x), jnp.array([[0.0, 1.0], [1.0, 0.0]])))
        True

    """
    x = as_array(x, "x", "polar")
    if x.ndim < 2:
        raise ValueError(
            f"polar needs matrices in the last two axes, got shape {x.shape}; add an axis with"
            " x[None, :]."
        )
    if not jnp.issubdtype(x.dtype, jnp.inexact):
        raise ValueError(
            f"polar needs a floating or complex dtype, got {x.dtype}; convert with x.astype(float)."
        )
    chosen = method_of(method, "polar")
    return jnp.vectorize(partial(polar_of_matrix, chosen), signature="(m,n)->(m,n)")(x)


METHODS: Mapping[str, Callable[[], AbstractPolar]] = MappingProxyType(
    {
        "cubic5": partial(NewtonSchulz, 5, CUBIC5),
        "newton": Newton,
        "newton_schulz": NewtonSchulz,
        "polar_express": PolarExpress,
        "qdwh": QDWH,
        "svd": SVD,
    }
)
"""The methods by name."""


def method_of(method: Method, by: str) -> Callable[[Array], Array]:
    """The method with this name, with its defaults, or the method itself; raises ValueError, in the
    name of the function `by`, for anything else.
    """
    if isinstance(method, str) and method in METHODS:
        return METHODS[method]()
    if not callable(method) or isinstance(method, type):
        raise ValueError(
            f"{by} needs a method such as SVD(), one of the names {', '.join(METHODS)}, or a"
            f" callable array -> array, got {shown(method)}."
        )
    return method


def polar_of_matrix(method: Callable[[Array], Array], x: Inexact[Array, "m n"]) -> Array:
    """`polar` of one matrix, of any shape; the caller has checked the arguments."""
    if 0 in x.shape:
        return x
    is_tall = x.shape[0] > x.shape[1]
    unit = exactly_scaled(adjoint(x) if is_tall else x)
    if isinstance(method, ExactPolar):
        working = x.dtype if jnp.finfo(x.dtype).bits >= 32 else jnp.float32
        factor = differentiable_factor(method, unit.astype(working)).astype(x.dtype)
    elif getattr(method, "uses_lapack", True):
        factor = one_at_a_time(method, unit)
    else:
        factor = method(unit)
    if not isinstance(factor, jax.Array):
        raise ValueError(
            f"A polar method takes an array to an array; this one returned {shown(factor)}."
        )
    if factor.shape != unit.shape or factor.dtype != x.dtype:
        raise ValueError(
            f"A polar method keeps shape and dtype; this one took {x.dtype}{list(unit.shape)} to"
            f" {factor.dtype}{list(factor.shape)}; return an array like its argument."
        )
    return adjoint(factor) if is_tall else factor
