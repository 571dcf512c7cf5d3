"""Clipping of singular values, of the updates or of the weights after the step.

    hard   U min(S, c) Vᵀ: the nearest matrix with ‖·‖_op <= c
    soft   U S (1 + S²/c²)^(-1/2) Vᵀ = (1 + X Xᵀ / c²)^(-1/2) X, below c and smooth

SPECTRA clips updates and gradients this way (Jiang, Semenov and Stich 2026, Enhancing LLM training
via spectral clipping, arXiv 2603.14315). Clipped weights satisfy the limit after every step
(Newhouse, Hess, Cesista et al. 2025, Training transformers with enforced Lipschitz constants, arXiv
2507.13338).
"""

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, ArrayLike, Float, PyTree

from specjax.arguments import check_number, checked
from specjax.optim._float32_wrapper import in_float32
from specjax.optim._hyperparameters import Number, takes_schedules
from specjax.optim._scales import Scale, scale_named, shape_factors
from specjax.optim._sharded import with_automatic_axes
from specjax.optim.matrices import IN_OUT, DimensionNumbers, matrices_of
from specjax.spectral import spectral_map

Kind = Literal["hard", "soft"]


@takes_schedules
@checked
def clip_singular_values(
    limit: Number,
    kind: Kind = "hard",
    scale: str | Scale = "none",
    *,
    dimension_numbers: DimensionNumbers = IN_OUT,
    sizes: PyTree | None = None,
) -> optax.GradientTransformationExtraArgs:
    """Keeps the singular values of each update X = U S Vᵀ below c = limit · scale(fan_in, fan_out).

    "hard" gives U min(S, c) Vᵀ, the nearest matrix with ‖·‖_op <= c, and "soft" U S (1 +
    S²/c²)^(-1/2) Vᵀ, which is smooth.

    Args:
        limit: A positive number, scalar array or schedule; after a learning rate η every step has
            an operator norm of at most η c.
        kind: "hard" or "soft".
        scale: A name of `specjax.optim.SCALES`, or a function of (fan_in, fan_out):
            "sqrt_out_over_in" makes `limit` one on the operator norm from RMS to RMS.
        dimension_numbers: As for `orthogonalize`.
        sizes: The active extents of padded matrices.

    Returns:
        A transformation without state; it keeps the sign, shapes and dtypes. It decomposes each
        matrix in at least float32. A NaN or an infinity makes only its own matrix NaN.

    Raises:
        ValueError: at once for a limit that is not positive, an unknown kind or scale; at init and
            update for a leaf that is not a matrix.

    Examples:
        >>> import jax.numpy as jnp
        >>> from specjax import optim
        >>> transform = optim.clip_singular_values(3.5)
        >>> gradient = jnp.diag(jnp.array([3.0, 4.0]))
        >>> step, _ = transform.update(gradient, transform.init(gradient))
        >>> bool(jnp.allclose(step, jnp.diag(jnp.array([3.0, 3.5]))))
        True

    """
    init, clip = _clipping("clip_singular_values", limit, kind, scale, dimension_numbers, sizes)

    def update(
        updates: PyTree, state: optax.EmptyState, params: PyTree | None = None
    ) -> tuple[PyTree, optax.EmptyState]:
        del params
        return with_automatic_axes(clip, updates), state

    return in_float32(optax.GradientTransformation(init, update))


@takes_schedules
@checked
def clip_weights(
    limit: Number,
    kind: Kind = "hard",
    scale: str | Scale = "none",
    *,
    dimension_numbers: DimensionNumbers = IN_OUT,
    sizes: PyTree | None = None,
) -> optax.GradientTransformationExtraArgs:
    """Keeps the singular values of the weights W + u below c: u ← clip(W + u) - W. Put it last in a
    chain, after the learning rate.

    Arguments as for `clip_singular_values`. `update` needs `params`. In half precision the weights
    keep the limit to rounding.

    Raises:
        ValueError: as `clip_singular_values`, and at update without parameters.

    """
    init, clip = _clipping("clip_weights", limit, kind, scale, dimension_numbers, sizes)

    def update(
        updates: PyTree, state: optax.EmptyState, params: PyTree | None = None
    ) -> tuple[PyTree, optax.EmptyState]:
        matrices_of(updates, dimension_numbers, "clip_weights")
        if params is None:
            raise ValueError("clip_weights needs the parameters: update(updates, state, params).")
        moved = jax.tree.map(jnp.add, params, updates)
        # An entry that the clip leaves alone keeps its update, since new - w would add a rounding.
        return (
            jax.tree.map(
                lambda new, old, w, u: jnp.where(new == old, u, new - w),
                clip(moved),
                moved,
                params,
                updates,
            ),
            state,
        )

    return in_float32(optax.GradientTransformation(init, update))


def _clipping(
    name: str,
    limit: ArrayLike,
    kind: Kind,
    scale: str | Scale,
    dimension_numbers: DimensionNumbers,
    sizes: PyTree | None,
) -> tuple[Callable[[PyTree], optax.EmptyState], Callable[[PyTree], PyTree]]:
    """The `init` of both transformations, and the function that clips a tree of matrices."""
    check_number(limit, "limit", "(0, inf]", name)
    formula = scale_named(scale)

    def init(params: PyTree) -> optax.EmptyState:
        matrices_of(params, dimension_numbers, name)
        return optax.EmptyState()

    def clip(tree: PyTree) -> PyTree:
        matrices = matrices_of(tree, dimension_numbers, name)
        factors = shape_factors(formula, matrices, sizes, tree)
        return matrices.tree(
            _clipped(
                stack, jnp.asarray(limit, stack.dtype) * jnp.asarray(factor, stack.dtype), kind
            )
            for stack, (factor,) in zip(matrices.stacks(), factors, strict=True)
        )

    return init, clip


def _clipped(
    x: Float[Array, "batch m n"], limit: Float[Array, ""], kind: Kind
) -> Float[Array, "batch m n"]:
    clipped = jnp.minimum if kind == "hard" else _softly
    return spectral_map(x, lambda s: clipped(s, limit))


def _softly(s: Float[Array, " k"], limit: Float[Array, ""]) -> Float[Array, " k"]:
    """s / √(1 + s²/c²), which squares only numbers up to 1 and so cannot overflow."""
    below = s <= limit
    small, large = jnp.where(below, s, limit), jnp.where(below, limit, s)
    part = small / large
    return small / jnp.sqrt(1 + part**2)
