"""Numbers of each layer's update, kept in the optimizer's state for any logger to read.

With the matrix M that comes in and the update U = c O that goes out, c the scale of its shape, r
the shorter side:

- update_rms: ‖U‖_F / √(in · out);
- polar_defect: ‖O Oᵀ - I‖_F / √r on the shorter side, the distance of O from a polar factor of full
  rank;
- nuclear_rank: ⟨M, O⟩² / ‖M‖_F², since ⟨M, polar(M)⟩ = ‖M‖_*;
- stable_rank: ‖M‖_F² / ‖M‖_op², the norm by `STEPS` steps of a power iteration.

So the polar factor that the method has computed stands in for a second decomposition.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PyTree

from specjax.arguments import check_count, checked
from specjax.optim._float32_wrapper import with_params
from specjax.optim._scales import Scale, scale_named, shape_factors
from specjax.optim.fused_projections import Splits
from specjax.optim.leaf_names import leaf_names
from specjax.optim.matrices import IN_OUT, DimensionNumbers, Matrices, matrices_of
from specjax.spectral import power_iteration
from specjax.spectral.float_range import at_least_float32, frobenius, inner, ratio, scaled
from specjax.spectral.products import product

STEPS = 16
"""Steps of the power iteration behind a stable rank."""


class UpdateLog(NamedTuple):
    """The numbers of the matrices of one leaf, or of one part of it, NaN before the first update.

    Attributes:
        update_rms: The root mean square of the entries of the update.
        polar_defect: How far the update is from a multiple of a polar factor of full rank.
        stable_rank: The stable rank of the matrix before it is orthogonalized: an upper bound,
            exact where the iteration has converged.
        nuclear_rank: The nuclear rank of that matrix, with the computed factor as its polar factor.
    """

    update_rms: Float[Array, " batch"]
    polar_defect: Float[Array, " batch"]
    stable_rank: Float[Array, " batch"]
    nuclear_rank: Float[Array, " batch"]


class LogState(NamedTuple):
    """The number of updates, the state of the logged transformation, and the numbers by name."""

    step: Int[Array, ""]
    inner_state: Any
    layers: dict[str, UpdateLog]


@checked
def log_updates(
    inner_transform: optax.GradientTransformation,
    every: int = 1,
    scale: str | Scale = "none",
    *,
    dimension_numbers: DimensionNumbers = IN_OUT,
    sizes: PyTree | None = None,
    splits: Splits | None = None,
) -> optax.GradientTransformationExtraArgs:
    """`inner_transform`, which orthogonalizes, with the numbers of its updates in the state.

    Put it around `orthogonalize`; `muon(log_every=...)` and every recipe of `muon` do. The updates
    are those of the transformation alone. `logged` reads the numbers: `update_rms` and
    `polar_defect` of the update (before the learning rate), `stable_rank` and `nuclear_rank` of the
    matrix that came in, such as the momentum. The module says how they are defined.

    A measurement costs one Gram matrix and 32 products with four vectors for each matrix, and no
    decomposition. The ranks of a zero matrix are 0, its defect is 1. An iteration that does not
    converge, such as the default of `muon`, has a defect near 0.3, and its nuclear rank is the
    exact one up to the spread of its singular values.

    Args:
        inner_transform: A transformation from matrices to scaled polar factors.
        every: The stride: updates 0, `every`, 2 `every` are measured, the others keep the last
            numbers and pay nothing.
        scale: The scale that the updates have, as for `orthogonalize`.
        dimension_numbers: As for `orthogonalize`.
        sizes: As for `orthogonalize`; entries of padding do not count in `update_rms`.
        splits: As for `orthogonalize`: each part has numbers of its own.

    Raises:
        ValueError: at once for a stride below 1 or an unknown scale; at init and update for a leaf
            that is not a matrix.

    Examples:
        >>> import jax.numpy as jnp
        >>> from specjax import optim, spectral
        >>> transform = optim.log_updates(optim.orthogonalize(spectral.SVD()), every=10)
        >>> gradient = {"weight": jnp.diag(jnp.array([3.0, 4.0]))}
        >>> updates, state = transform.update(gradient, transform.init(gradient))
        >>> for name, value in optim.logged(state).items():
        ...     print(f"{name} {value:.4f}")
        weight/update_rms 0.7071
        weight/polar_defect 0.0000
        weight/stable_rank 1.5625
        weight/nuclear_rank 1.9600

    """
    check_count(every, "every", 1, "log_updates")
    formula = scale_named(scale)
    step = optax.with_extra_args_support(inner_transform)

    def matrices_in(tree: PyTree) -> Matrices:
        return matrices_of(tree, dimension_numbers, "log_updates", splits)

    def init(params: PyTree) -> LogState:
        matrices = matrices_in(params)
        empty = [
            UpdateLog(*[jnp.full(len(part), np.nan, at_least_float32(part).dtype)] * 4)
            for part in matrices.parts()
        ]
        layers = dict(zip(_part_names(params, matrices), empty, strict=True))
        return LogState(jnp.zeros((), jnp.int32), step.init(params), layers)

    def update(
        updates: PyTree, state: LogState, params: PyTree | None = None, **extra_args: Any
    ) -> tuple[PyTree, LogState]:
        before = with_params(updates, params)[0]
        after, inner_state = step.update(updates, state.inner_state, params, **extra_args)

        def measured() -> dict[str, UpdateLog]:
            incoming, outgoing = matrices_in(before), matrices_in(after)
            factors = (
                _apply_to_extents(function, outgoing, sizes, after)
                for function in (formula, _entries, jnp.minimum)
            )
            found = map(_measure, incoming.parts(), outgoing.parts(), *factors)
            named = dict(zip(_part_names(after, outgoing), found, strict=True))
            return optax.tree.cast_like(named, state.layers)

        layers = jax.lax.cond(state.step % every == 0, measured, lambda: state.layers)
        return after, LogState(optax.safe_increment(state.step), inner_state, layers)

    return optax.GradientTransformationExtraArgs(init, update)


def logged(state: PyTree) -> dict[str, float]:
    """The numbers that `log_updates` or `muon(log_every=...)` keeps in an optimizer's state, by
    names such as "blocks.0.query/update_rms", for any logger.

    Stacked matrices have an index, "blocks.query[2]/update_rms", and so have the parts of a fused
    leaf, "qkv.part0/update_rms". The numbers are NaN before the first update. Of several logs of
    one leaf in a state the last counts.

    Args:
        state: The state of an optimizer, wrapped in any other states; concrete, so outside of
            `jax.jit`.

    Raises:
        ValueError: for a state without a log.

    Examples:
        >>> import jax.numpy as jnp
        >>> from specjax import optim
        >>> params = {"weight": jnp.ones((4, 4)), "bias": jnp.ones(4)}
        >>> optimizer = optim.muon(0.02, log_every=10)
        >>> list(optim.logged(optimizer.init(params)))[:2]
        ['weight/update_rms', 'weight/polar_defect']

    """
    found = jax.tree.leaves(state, is_leaf=lambda x: isinstance(x, LogState))
    logs = [leaf for leaf in found if isinstance(leaf, LogState)]
    if not logs:
        raise ValueError(
            "logged needs the state of an optimizer with a log; make one with"
            " optim.muon(..., log_every=10), or put optim.log_updates around optim.orthogonalize."
        )
    numbers = {}
    for layers in jax.device_get([log.layers for log in logs]):
        for name, layer in layers.items():
            for field, values in zip(UpdateLog._fields, layer, strict=True):
                several = len(values) != 1
                for i, value in enumerate(values):
                    numbers[f"{name}[{i}]/{field}" if several else f"{name}/{field}"] = float(value)
    return numbers


def _part_names(tree: PyTree, matrices: Matrices) -> list[str]:
    """The name of each of `matrices.parts()`."""
    return [
        f"{name}.part{i}" if view.split else name
        for name, view in zip(leaf_names(tree), matrices.views, strict=True)
        for i in range(len(view.widths))
    ]


def _apply_to_extents(
    function: Scale, matrices: Matrices, sizes: PyTree | None, tree: PyTree
) -> list[Array]:
    """A function of the active inputs and outputs, for each of `matrices.parts()`."""
    factors = shape_factors(function, matrices, sizes, tree)
    return [jnp.asarray(x) for own in factors for x in own]


def _entries(fan_in: Array, fan_out: Array) -> Array:
    return fan_in * fan_out


def _measure(
    x: Float[Array, "batch m n"],
    u: Float[Array, "batch m n"],
    factor: Float[Array, ""],
    entries: Float[Array, ""],
    rank: Float[Array, ""],
) -> UpdateLog:
    """The numbers of a stack of matrices with this number of active entries and this full rank."""
    x, _ = scaled(x)
    u = at_least_float32(u)
    factor, entries, rank = (value.astype(u.dtype) for value in (factor, entries, rank))
    o = u / factor
    gram = product(o, o.mT) if o.shape[1] <= o.shape[2] else product(o.mT, o)
    ones = (jnp.arange(gram.shape[-1]).astype(u.dtype) < rank).astype(u.dtype)
    norm = frobenius(x)
    return UpdateLog(
        update_rms=ratio(frobenius(u), jnp.sqrt(entries)),
        polar_defect=ratio(frobenius(gram - jnp.diag(ones)[None]), jnp.sqrt(rank)),
        stable_rank=ratio(norm, power_iteration(x, jax.random.key(0), steps=STEPS).value) ** 2,
        nuclear_rank=ratio(inner(x, o), norm) ** 2,
    )
