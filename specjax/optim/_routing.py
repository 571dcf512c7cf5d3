"""The optimizer of every leaf, the matrices it holds, and the scales of their updates."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import jax
import optax
from jaxtyping import PyTree

from specjax.arguments import checked
from specjax.optim._scales import Scale, shape_factors
from specjax.optim.fused_projections import Splits
from specjax.optim.leaf_names import leaf_names
from specjax.optim.matrices import DimensionNumbers, matrices_of


class Route(NamedTuple):
    """One leaf: its optimizer, "matrix" or "other", for matrices (how many, inputs, outputs) and
    the scale of each, and the `group` that AdamW's learning rate goes by, "" if there is one for
    all.
    """

    name: str
    shape: tuple[int, ...]
    optimizer: str
    matrices: tuple[tuple[int, int, int], ...] = ()
    scales: tuple[float, ...] = ()
    group: str = ""


@dataclass(frozen=True)
class Routed:
    """The `init` of an optimizer, with the function that gives the routes of a tree's leaves."""

    init: Callable[[PyTree], optax.OptState]
    routes: Callable[[PyTree], tuple[Route, ...]]

    def __call__(self, params: PyTree) -> optax.OptState:
        """The state at the start."""
        return self.init(params)


class Routing(NamedTuple):
    """The routes of all leaves, in the order of the tree; `str` of it is the table."""

    rows: tuple[Route, ...]

    def __str__(self) -> str:
        table = [
            ["leaf", "shape", "optimizer", "matrices", "scale", "rate"],
            *(_cells(row) for row in self.rows),
        ]
        if not any(row.group for row in self.rows):
            table = [line[:-1] for line in table]
        widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in table
        )


@checked
def routing(optimizer: optax.GradientTransformation, params: PyTree) -> Routing:
    """Shows where `optim.muon` sends every leaf of `params`, whose arrays may be abstract.

    Raises:
        TypeError: for an optimizer that `optim.muon` did not return; of a chain, pass the muon
            inside.
        ValueError: as the optimizer's `init`.

    Examples:
        >>> import jax.numpy as jnp
        >>> from specjax import optim
        >>> params = {"weight": jnp.ones((4, 16)), "bias": jnp.ones(16)}
        >>> print(optim.routing(optim.muon(0.02), params))
        leaf    shape   optimizer  matrices  scale
        bias    16      other
        weight  4 x 16  matrix     4 x 16    2

    """
    if not isinstance(optimizer.init, Routed):
        raise TypeError(
            "routing needs the optimizer that optim.muon returns; of a chain or another"
            " transformation, pass the muon inside."
        )
    return Routing(optimizer.init.routes(params))


def routes(
    params: PyTree,
    labels: PyTree,
    dimension_numbers: DimensionNumbers,
    sizes: PyTree | None,
    splits: Splits | None,
    scale: Scale,
    groups: Collection[str] = (),
) -> tuple[Route, ...]:
    """The routes of a tree in which the leaves labelled "matrix" are orthogonalized, and those of
    `groups` have learning rates of their own.
    """
    found: dict[str, tuple[tuple[tuple[int, int, int], ...], tuple[float, ...]]] = {}
    masked = jax.tree.map(
        lambda label, leaf: leaf if label == "matrix" else optax.MaskedNode(), labels, params
    )
    matrices = matrices_of(masked, dimension_numbers, "orthogonalize", splits)
    factors = shape_factors(scale, matrices, sizes, masked)
    for name, view, scales in zip(leaf_names(masked), matrices.views, factors, strict=True):
        held = tuple((prod(view.batch), prod(view.inputs), width) for width in view.widths)
        found[name] = held, tuple(map(float, scales))
    return tuple(
        Route(
            name,
            tuple(leaf.shape),
            "matrix" if label == "matrix" else "other",
            *found.get(name, ((), ())),
            label if label in groups else "",
        )
        for name, leaf, label in zip(
            leaf_names(params), jax.tree.leaves(params), jax.tree.leaves(labels), strict=True
        )
    )


def _cells(row: Route) -> list[str]:
    held = [
        f"{count} of {fan_in} x {fan_out}" if count > 1 else f"{fan_in} x {fan_out}"
        for count, fan_in, fan_out in row.matrices
    ]
    scales = [f"{scale:.3g}" for scale in row.scales]
    return [
        row.name,
        " x ".join(map(str, row.shape)) or "scalar",
        row.optimizer,
        " + ".join(held),
        ", ".join(scales),
        row.group,
    ]
