"""Polar factors at some steps only: a second transformation in between, such as the polar factors
of blocks (Khaled et al. 2025, MuonBP, arXiv 2510.16981) or signs (LionMuon, arXiv 2605.19811).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding, PartitionSpec, Sharding
from jaxtyping import Array, Float, Int, PyTree
from optax.contrib import MuonDimensionNumbers

from specjax.arguments import check_count, checked, checked_but
from specjax.optim._float32_wrapper import with_params
from specjax.optim._orthogonal import Method, orthogonalize
from specjax.optim._scales import Scale
from specjax.optim._sharded import check_sharding, explicit_mesh, placed, with_automatic_axes
from specjax.optim.fused_projections import Splits
from specjax.optim.matrices import (
    IN_OUT,
    DimensionNumbers,
    Fans,
    Matrices,
    matrices_of,
    prefix_leaves,
)
from specjax.spectral.methods import NewtonSchulz


class AlternateState(NamedTuple):
    """The number of updates, and the states of both transformations."""

    count: Int[Array, ""]  # type: ignore[assignment]  # hides tuple.count, as in optax
    first: Any
    between: Any


class Blocks(NamedTuple):
    """How many equal blocks lie along the inputs and the outputs of a matrix."""

    inputs: int
    outputs: int


@checked
def alternate(
    every: int, first: optax.GradientTransformation, between: optax.GradientTransformation
) -> optax.GradientTransformationExtraArgs:
    """`first` in the first update and then every `every` updates, `between` in all others.

    Only the one that is due is computed, and only its state advances: put momentum before this
    transformation. Both keep the shapes and dtypes of updates. Rates differ by a factor: chain
    `optax.scale` to one of them.

    MuonBP has the polar factors of blocks between, with the period 5; no code of its authors was
    found, so this follows the algorithm as others describe it. SignMuon, which is LionMuon with one
    decay, has `optax.chain(optax.scale_by_sign(), optax.scale(0.01))` between and the scale
    "point_two_sqrt_max", with the period 5 of the authors' code (brain-lab-research/lion-muon,
    `src/optim/lion_muon.py`, May 2026). There weight decay has the rate of its step, in `muon` the
    same at all.

    Args:
        every: The period, at least 2.
        first: Such as `orthogonalize()`.
        between: Such as `orthogonalize_blocks(blocks)`.

    Raises:
        ValueError: at once for a period below 2.

    Examples:
        >>> import jax.numpy as jnp
        >>> from specjax import optim
        >>> blocks = optim.Blocks(1, 2)
        >>> optimizer = optim.muon(
        ...     0.02,
        ...     around=lambda full, **axes: optim.alternate(
        ...         5, full, optim.orthogonalize_blocks(blocks, **axes)
        ...     ),
        ... )
        >>> params = {"weight": jnp.eye(4), "bias": jnp.ones(4)}
        >>> updates, state = optimizer.update(params, optimizer.init(params), params)

    """
    check_count(every, "every", 2, "alternate")
    steps = [optax.with_extra_args_support(step) for step in (first, between)]

    def init(params: PyTree) -> AlternateState:
        return AlternateState(jnp.zeros((), jnp.int32), *(step.init(params) for step in steps))

    def update(
        updates: PyTree, state: AlternateState, params: PyTree | None = None, **extra_args: Any
    ) -> tuple[PyTree, AlternateState]:
        updates, like = with_params(updates, params)

        def due() -> tuple[PyTree, Any, Any]:
            new, inner = steps[0].update(updates, state.first, params, **extra_args)
            return optax.tree.cast_like(new, like), inner, state.between

        def otherwise() -> tuple[PyTree, Any, Any]:
            new, inner = steps[1].update(updates, state.between, params, **extra_args)
            return optax.tree.cast_like(new, like), state.first, inner

        new, *inner = jax.lax.cond(state.count % every == 0, due, otherwise)
        return new, AlternateState(optax.safe_increment(state.count), *inner)

    return optax.GradientTransformationExtraArgs(init, update)


@checked_but("method")
def orthogonalize_blocks(
    blocks: PyTree,
    method: Method = NewtonSchulz(),  # noqa: B008  (frozen)
    scale: str | Scale = "none",
    *,
    dimension_numbers: DimensionNumbers = IN_OUT,
    splits: Splits | None = None,
    sharding: PyTree | None = None,
) -> optax.GradientTransformationExtraArgs:
    """Replaces each block of a matrix by its polar factor times a factor that depends on the
    block's shape, as `orthogonalize` does for whole matrices.

    Args:
        blocks: How many blocks lie along inputs and outputs, `Blocks(1, 8)` for eight blocks of
            columns of a matrix seen as (in, out); or a prefix tree of them, as of the shards of
            each leaf.
        method: As for `orthogonalize`.
        scale: As for `orthogonalize`, of the block's inputs and outputs.
        dimension_numbers: As for `orthogonalize`.
        splits: As for `orthogonalize`: each fused matrix has blocks of its own.
        sharding: The shardings of the leaves. Where the blocks of a leaf are its shards, each
            device computes its own and nothing moves; fused leaves are left to the compiler.

    Returns:
        A transformation without state, as `orthogonalize`.

    Raises:
        ValueError: as `orthogonalize`, and at init and update for blocks that are not `Blocks` or
            do not divide a side of a matrix.

    """

    def matrices_in(tree: PyTree) -> tuple[Matrices, list[Blocks]]:
        matrices = matrices_of(tree, dimension_numbers, "orthogonalize_blocks", splits)
        grids = prefix_leaves(blocks, tree, Blocks, "blocks")
        pairs = zip(matrices.views, grids, strict=True)
        return matrices, [_checked(grid, fans) for view, grid in pairs for fans in view.parts]

    check_sharding(sharding)
    chosen: dict[str, Any] = {"dimension_numbers": MuonDimensionNumbers(2, 3)}

    def init(params: PyTree) -> optax.EmptyState:
        matrices_in(params)
        return optax.EmptyState()

    def update(
        updates: PyTree, state: optax.EmptyState, params: PyTree | None = None, **_: object
    ) -> tuple[PyTree, optax.EmptyState]:
        updates, like = with_params(updates, params)
        if explicit_mesh(updates) is not None:
            steps = with_automatic_axes(lambda tree: update(tree, state)[0], updates)
            return optax.tree.cast_like(steps, like), state
        matrices, grids = matrices_in(updates)
        parts = matrices.parts()
        cut = [_cut(part, grid) for part, grid in zip(parts, grids, strict=True)]
        places = _places(matrices, prefix_leaves(sharding, updates, Sharding, "sharding"))
        whole = orthogonalize(method, scale, sharding=places, **chosen)
        found, _ = whole.update(cut, state)
        joined = [_join(*each) for each in zip(found, grids, strict=True)]
        return optax.tree.cast_like(matrices.join(joined), like), state

    return optax.GradientTransformationExtraArgs(init, update)


def _cut(part: Float[Array, "batch m n"], grid: Blocks) -> Float[Array, "blocks batch k l"]:
    """The blocks of every matrix, on an axis in front, so that it lies as their shards do."""
    batch, m, n = part.shape
    rows, columns = grid
    cut = part.reshape(batch, rows, m // rows, columns, n // columns)
    return cut.transpose(1, 3, 0, 2, 4).reshape(rows * columns, batch, m // rows, n // columns)


def _join(blocks: Float[Array, "blocks batch k l"], grid: Blocks) -> Float[Array, "batch m n"]:
    """The inverse of `_cut`."""
    _, batch, m, n = blocks.shape
    cut = blocks.reshape(*grid, batch, m, n).transpose(2, 0, 3, 1, 4)
    return cut.reshape(batch, grid.inputs * m, grid.outputs * n)


def _places(matrices: Matrices, shardings: list[Any]) -> list[NamedSharding | None]:
    """The shardings of the blocks of every part: their axis as the sides of the leaf, the axis of
    matrices as its batch; None where the compiler decides.
    """
    found: list[NamedSharding | None] = []
    for view, own in zip(matrices.views, shardings, strict=True):
        kinds = [len(view.batch), len(view.inputs), len(view.outputs)]
        known = None if view.split else placed(own, view.order, kinds)
        if known is None or known.cut is None:
            found += [None] * len(view.widths)
            continue
        batch, inputs, outputs = known.cut
        spec = PartitionSpec(inputs + outputs or None, batch or None)
        found.append(NamedSharding(known.mesh, spec))
    return found


def _checked(grid: Any, fans: Fans) -> Blocks:
    if not isinstance(grid, Blocks):
        raise ValueError(
            f"blocks of orthogonalize_blocks are Blocks(inputs, outputs), got {grid!r}."
        )
    for count, name, side in zip(grid, grid._fields, fans, strict=True):
        check_count(count, f"blocks.{name}", 1, "orthogonalize_blocks")
        if int(side) % count:  # type: ignore[arg-type]
            raise ValueError(
                f"orthogonalize_blocks cannot cut a matrix of {fans.fan_in} inputs and"
                f" {fans.fan_out} outputs into {tuple(grid)} equal blocks."
            )
    return grid
