"""Stateless transformations of each matrix: the polar factor, normalized rows or columns, steepest
descent in the spectral norm.

Every leaf must be a matrix or a stack of matrices; others are refused, since a vector has no polar
factor: route them with `optax.partition`, or take `specjax.optim.muon`, which routes them. None and
`optax.MaskedNode` pass. A zero matrix stays zero, an empty one empty; a NaN or an infinity makes
only its own matrix NaN (see `optax.apply_if_finite`).
"""

from collections.abc import Callable, Sequence
from functools import partial

import jax
import optax
from jaxtyping import Array, PyTree

from specjax import spectral
from specjax.arguments import check_number, checked, checked_but
from specjax.optim._float32_wrapper import in_float32, with_params
from specjax.optim._hyperparameters import Number, takes_schedules
from specjax.optim._scales import Scale, scale_named, shape_factors
from specjax.optim._sharded import Placement, check_sharding, explicit_mesh, with_automatic_axes
from specjax.optim.fused_projections import Splits
from specjax.optim.matrices import IN_OUT, DimensionNumbers, map_stacked, matrices_of
from specjax.spectral.float_range import at_least_float32, inner
from specjax.spectral.methods import SVD, NewtonSchulz
from specjax.spectral.polar import method_of, polar_of_matrix

Method = spectral.methods.AbstractPolar | Callable[[Array], Array] | str
"""A method of `specjax.spectral.polar`, or its name."""


@checked_but("method")
def orthogonalize(
    method: Method = NewtonSchulz(),  # noqa: B008  (frozen)
    scale: str | Scale = "none",
    *,
    adaptive: bool = False,
    dimension_numbers: DimensionNumbers = IN_OUT,
    sizes: PyTree | None = None,
    splits: Splits | None = None,
    sharding: PyTree | None = None,
) -> optax.GradientTransformationExtraArgs:
    """Replaces each matrix by its polar factor times a factor that depends on its shape.

    Leaves of the same matrix shape are stacked and orthogonalized in one call. The sign is kept:
    chain with `optax.scale_by_learning_rate`.

    Args:
        method: How the polar factor is computed; the default is Muon's five steps. A name of
            `specjax.spectral.polar` stands for a method with its defaults.
        scale: A name of `specjax.optim.SCALES`, or a function of (fan_in, fan_out).
        adaptive: Whether each factor O is multiplied by ⟨G, O⟩, the nuclear norm ‖G‖_* for an exact
            method: the steepest descent of `spectral_descent` without its curvature (Bernstein and
            Newhouse 2024; `adaptive` in optax).
        dimension_numbers: The axes of inputs and outputs; by default (in, out) are the last two and
            leading axes are batch axes. `OUT_IN` is the other layout. The choice changes the scale,
            but not the polar factor.
        sizes: A prefix tree of `Fans` with the active extents of padded matrices, or None where the
            shape counts.
        splits: The widths of matrices that lie side by side in the outputs of a leaf, by the leaf's
            name or its end, as in `{"qkv": (512, 64, 64)}`, or an `Interleaved` where they take
            turns: each is orthogonalized and scaled as a leaf of its own would be.
        sharding: The shardings of the leaves, such as `jax.tree.map(lambda x: x.sharding, params)`,
            or one of the stack axis, `NamedSharding(mesh, PartitionSpec(axes))`: each device
            orthogonalizes its own matrices, without a collective in an iteration. Leaves whose
            shardings are known move one axis after the other. By default the compiler decides.

    Returns:
        A transformation without state; updates keep their shapes, and have the dtypes of the
        parameters where `update` gets these. Complex matrices have unitary factors.

    Raises:
        ValueError: at once for an unknown scale, a method that is not callable, or a sharding of
            another form; at init and update for a leaf that is not a matrix, for splits that do not
            add up or name an unknown leaf, and for a leaf with both sizes and splits.

    Examples:
        >>> import jax.numpy as jnp
        >>> from specjax import optim, spectral
        >>> transform = optim.orthogonalize(spectral.SVD())
        >>> gradient = jnp.diag(jnp.array([3.0, 4.0]))
        >>> step, _ = transform.update(gradient, transform.init(gradient))
        >>> bool(jnp.allclose(step, jnp.eye(2)))
        True

    """
    chosen = method_of(method, "orthogonalize")
    # `orthogonalize` stacks matrices itself, so it maps the function of one matrix that `polar`
    # maps.
    polar_factor = jax.vmap(partial(polar_of_matrix, chosen))

    def adapted(x: Array) -> Array:
        orthogonal = polar_factor(x)
        wide, other = at_least_float32(x), at_least_float32(orthogonal)
        return (inner(wide, other).astype(other.dtype)[:, None, None] * other).astype(x.dtype)

    return matrix_transform(
        adapted if adaptive else polar_factor,
        "orthogonalize",
        scale,
        dimension_numbers=dimension_numbers,
        sizes=sizes,
        splits=splits,
        sharding=sharding,
        complex_too=True,
    )


@checked
def normalize_rows(
    *, dimension_numbers: DimensionNumbers = IN_OUT
) -> optax.GradientTransformationExtraArgs:
    """Divides each row by its Euclidean norm; a zero row stays zero (outer-product, eq. 53).

    A row is one input of the matrix seen as (in, out). By default it is a row of the stored array,
    so for weights stored as (out, in) the default normalizes the weights that enter each output.
    Raises as `orthogonalize`.
    """
    return matrix_transform(
        spectral.normalize_rows, "normalize_rows", dimension_numbers=dimension_numbers
    )


@checked
def normalize_columns(
    *, dimension_numbers: DimensionNumbers = IN_OUT
) -> optax.GradientTransformationExtraArgs:
    """Divides each column by its Euclidean norm; a zero column stays zero. The counterpart of
    `normalize_rows`.
    """
    return matrix_transform(
        spectral.normalize_columns, "normalize_columns", dimension_numbers=dimension_numbers
    )


@takes_schedules
@checked_but("method")
def spectral_descent(
    curvature: Number,
    method: Method = SVD(),  # noqa: B008  (frozen)
    *,
    dimension_numbers: DimensionNumbers = IN_OUT,
) -> optax.GradientTransformationExtraArgs:
    """Steepest descent in the spectral norm: -(‖G‖_* / curvature) polar(G) for each matrix
    (spectral-criterion, Section 1).

    It minimizes the bound ⟨G, D⟩ + (curvature / 2) ‖D‖_op² over D. The nuclear norm is computed as
    ⟨G, O⟩ with the computed factor O, which is ‖G‖_* for an exact method, and for the others the
    best step length along O as long as ‖O‖_op <= 1. Half precision, in which the norm can be
    infinite where the step is not, is computed in float32; updates keep their dtype.

    Args:
        curvature: The constant of the quadratic bound in the spectral norm, positive: a number, a
            scalar array or a schedule.
        method: How the polar factor is computed; the default is exact.
        dimension_numbers: As for `orthogonalize`.

    Returns:
        A complete optimizer: its updates are added to the parameters.

    Raises:
        ValueError: at once for a curvature that is not positive; at init and update for a leaf that
            is not a matrix.

    Examples:
        >>> import jax.numpy as jnp
        >>> from specjax import optim
        >>> optimizer = optim.spectral_descent(curvature=2.0)
        >>> gradient = jnp.diag(jnp.array([3.0, 4.0]))
        >>> step, _ = optimizer.update(gradient, optimizer.init(gradient))
        >>> bool(jnp.allclose(step, -(3 + 4) / 2 * jnp.eye(2)))
        True

    """
    check_number(curvature, "curvature", "(0, inf)", "spectral_descent")
    method = method_of(method, "spectral_descent")

    def steepest(x: Array) -> Array:
        orthogonal = spectral.polar(x, method)
        return inner(x, orthogonal)[:, None, None] * orthogonal

    descent = matrix_transform(steepest, "spectral_descent", dimension_numbers=dimension_numbers)
    return in_float32(optax.chain(descent, optax.scale_by_learning_rate(1 / curvature)))


def matrix_transform(
    function: Callable[[Array], Array],
    name: str,
    scale: str | Scale = "none",
    *,
    dimension_numbers: DimensionNumbers,
    sizes: PyTree | None = None,
    splits: Splits | None = None,
    sharding: PyTree | None = None,
    complex_too: bool = False,
) -> optax.GradientTransformationExtraArgs:
    """A stateless transformation that applies `function` to each stack of matrices and multiplies
    the result by the scale of its shape.

    Errors call the transformation `name`; all other arguments are those of `orthogonalize`.
    """
    formula = scale_named(scale)
    check_sharding(sharding)

    def init(params: PyTree) -> optax.EmptyState:
        matrices_of(params, dimension_numbers, name, splits, complex_too=complex_too)
        return optax.EmptyState()

    def update(
        updates: PyTree,
        state: optax.EmptyState,
        params: PyTree | None = None,
        *,
        _placements: Sequence[Placement | None] | None = None,
        **extra_args: object,
    ) -> tuple[PyTree, optax.EmptyState]:
        del extra_args
        updates, like = with_params(updates, params)
        matrices = matrices_of(updates, dimension_numbers, name, splits, complex_too=complex_too)
        places = _placements
        if places is None:
            places = matrices.placements(sharding, updates)
        if explicit_mesh(updates) is not None:
            steps = with_automatic_axes(
                lambda tree: update(tree, state, _placements=places)[0], updates
            )
            return optax.tree.cast_like(steps, like), state
        factors = shape_factors(formula, matrices, sizes, updates)
        parts = matrices.parts()
        filled = [i for i, part in enumerate(parts) if part.size]
        results = map_stacked(function, [parts[i] for i in filled], [places[i] for i in filled])
        for i, result in zip(filled, results, strict=True):
            parts[i] = result
        return optax.tree.cast_like(matrices.join(parts, factors), like), state

    return optax.GradientTransformationExtraArgs(init, update)
