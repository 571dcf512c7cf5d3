"""A table of the linear maps of a model that shows where a spectral step decreases the loss more
than a Euclidean one.

For a map W with inputs A and gradient G the guaranteed decreases of the two steps have the ratio
nr(G) / st(A) (spectral-criterion, Section 1.2). For a loss that is quadratic in W A with the same
curvature in every direction, ‖W A - Y‖², the spectral step is better if the ratio is at least 2,
and the Euclidean step if it is at most 1/2; in between either may be better. That is about one step
of these lengths: with tuned ones spectral steps are ahead in most small networks at any ratio
(docs/beyond/what-decides.md). In a model of one linear map gradient steps of the best length may
stay ahead for a while, for which there is a formula (docs/beyond/spectral-race.md).
"""

from collections.abc import Sequence
from functools import partial
from math import isnan
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PyTree

from specjax import spectral
from specjax.arguments import checked
from specjax.diagnostics._curvature import Curvature, curvatures
from specjax.diagnostics.linear_maps import Inputs, LinearMap, inputs_of
from specjax.diagnostics.probe import Model, Probe, listed, shape_by_shape
from specjax.optim.fused_projections import Splits
from specjax.optim.matrices import Layout
from specjax.spectral import estimate_ranks, estimate_stable_rank, power_iteration
from specjax.spectral.float_range import ratio
from specjax.theory import spectral_race

Recommendation = Literal[
    "spectral", "leans spectral", "leans Euclidean", "Euclidean", "undecided", "no gradient"
]

SURE = 2.0
"""From this ratio nr(G)/st(A) up the spectral step is certainly better, and below 1/SURE the
Euclidean one (see the module).
"""


ORTHOGONAL = 0.9
"""Least `orthogonality` of a gradient at which the number of steps is given."""
MOST_STEPS = 100


Bounds = tuple[float, float, float]
"""A value and the ends of its interval."""


class LayerRow(NamedTuple):
    """One linear map (m, k): st(A) of its k inputs and nr(G) of its gradient, each (value, lower,
    upper), and the recommendation.

    `ratio` is nr(G)/st(A), the ratio of the guaranteed decreases, spectral over Euclidean.
    """

    name: str
    kind: str
    shape: tuple[int, int]
    stable_rank: Bounds
    nuclear_rank: Bounds
    ratio: float
    recommendation: Recommendation
    curvature: Curvature | None


class LayerReport(NamedTuple):
    """The rows in the order of first use, and the parameters outside of all linear maps; `str` of
    it is the table.

    `steps_to_pass` is for a model of one linear map whose gradient has nearly orthogonal columns in
    the eigenbasis of its inputs: the number of steps after which spectral ones have passed gradient
    descent, both of the best length, if the loss is quadratic in W A; infinite above 100. None for
    other models.
    """

    rows: tuple[LayerRow, ...]
    others: tuple[str, ...]
    steps_to_pass: float | None

    def __str__(self) -> str:
        head = ["layer", "map", "out x in", "st(A)", "nr(G)", "nr/st", "recommendation"]
        if any(row.curvature for row in self.rows):
            head += ["decrease ratio", "D = polar(G)", "D = G"]
        table = [head, *(_cells(row) for row in self.rows)]
        widths = [max(len(line[i]) for line in table) for i in range(len(head))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in table
        ]
        if self.others:
            lines.append(f"in no linear map: {', '.join(self.others)}")
        if self.steps_to_pass is not None:
            lines.append(_sentence(self.steps_to_pass))
        return "\n".join(lines)


@checked
def layer_report(
    model: Model,
    params: PyTree,
    batch: PyTree,
    *,
    curvature: bool = False,
    exact_up_to: int = 512,
    splits: Splits | None = None,
    layout: Layout | None = None,
    key: Key[Array, ""] | None = None,
) -> LayerReport:
    """Makes the table (layer, st(A), nr(G), ratio of decreases, recommendation) for any model.

    The linear maps are found in the traced program, by the parameters that enter products: layers
    of equinox and plain trees, under vmap, jit, remat, scan and cond, embeddings that are looked
    up, layers that share a matrix, convolutions (a matrix from windows to channels), adapters `x @
    (W + A @ B)`, weight norms, concatenated parameters, ragged products and experts that data
    picks. It leaves out depthwise convolutions, which have no matrix, and maps inside `while_loop`,
    which has no gradient, and inside `shard_map`.

    Args:
        model: The loss as a function of parameters and batch: one number, or a tuple of one number
            and anything.
        params: A tree with arrays; other leaves, as in equinox modules, are passed through.
        batch: The batch that the model takes.
        curvature: Whether to compute Hessian-vector products along both steps of every map, two for
            each map.
        exact_up_to: The longest smaller side of a matrix whose ranks are exact; larger ones are
            estimated, with intervals.
        splits: The matrices that a leaf's outputs hold; each gets a row, "part 1 of 3" for the
            queries of fused queries, keys and values.
        layout: A `matrix_layout(...)` in place of `splits`.
        key: The key of the estimates; key(0) by default.

    Returns:
        A row for each map (for each head or layer where one parameter holds several). Where
        activations or a gradient are not finite the ranks are NaN and the recommendation is
        "undecided".

    Raises:
        ValueError: if the model does not return one number, no parameter enters a product,
            `splits` name an unknown leaf, or both `splits` and `layout` are given.

    Examples:
        >>> import jax.numpy as jnp
        >>> from specjax import diagnostics
        >>> params = {"weight": jnp.ones((4, 2)), "bias": jnp.ones(2)}
        >>> loss = lambda params, x: jnp.sum((x @ params["weight"] + params["bias"]) ** 2)
        >>> report = diagnostics.layer_report(loss, params, jnp.eye(4))
        >>> [(row.name, row.recommendation) for row in report.rows], report.others
        ([('weight', 'Euclidean')], ('bias',))

    """
    if layout is not None and splits is not None:
        raise ValueError("layer_report takes layout= or splits=, not both; leave one out.")
    key = jax.random.key(0) if key is None else key
    probe = Probe(model, params, batch, splits if layout is None else layout.splits)
    gradients, inputs = probe.gradients_and_inputs()
    stable, nuclear = (
        [[_bounds(row) for row in rows] for rows in ranks]
        for ranks in jax.device_get(_ranks(gradients, inputs, key, exact_up_to))
    )
    bends: list[list[Curvature | None]] = (
        curvatures(probe, gradients, inputs, exact_up_to)
        if curvature
        else [[None] * len(ranks) for ranks in nuclear]
    )
    rows = [
        LayerRow(
            name,
            kind,
            shape,
            st,
            nr,
            nr[0] / st[0] if st[0] > 0 else float("nan"),
            _recommendation(st, nr),
            bent,
        )
        for (names, kind, shape), of_stable, of_nuclear, of_bent in zip(
            probe.labels(), stable, nuclear, bends, strict=True
        )
        for name, st, nr, bent in zip(names, of_stable, of_nuclear, of_bent, strict=True)
    ]
    return LayerReport(
        tuple(rows), probe.others(), _steps_to_pass(rows, gradients, inputs, exact_up_to)
    )


@checked
def activation_stable_ranks(
    model: Model, params: PyTree, batch: PyTree, *, steps: int = 40
) -> PyTree:
    """st(A) for every parameter that is a linear map, in a tree like `params`. `optim.rank_switch`
    takes it as `stable_ranks`.

    It is pure and can be jitted with a training step; its compile time is that of such a step
    (docs/faq.md, on versions of JAX). Each norm takes `steps` power iterations from a fixed start,
    so up to rounding a value may be too large but never too small. It is NaN where an activation is
    NaN or infinite. A parameter stacked over a scan's layers, or over heads, has one number for
    each; a parameter with several uses has the largest; one without a product has None.

    Raises:
        ValueError: as `layer_report`.

    """
    probe = Probe(model, params, batch)
    return stable_ranks_of(probe, probe.maps_of_this_trace(), steps=steps)


def stable_ranks_of(probe: Probe, maps: Sequence[LinearMap], *, steps: int = 40) -> PyTree:
    """`activation_stable_ranks` from a `Probe`, with the maps of this trace."""
    return probe.by_parameter(
        maps, [_iterated_stable_rank(inputs_of(m), steps) for m in maps], jnp.maximum
    )


# Compile the whole function: operation by operation, the first report of a model takes minutes.
@partial(jax.jit, static_argnames="exact_up_to")
def _ranks(
    gradients: list[Array], inputs: list[Inputs], key: Array, exact_up_to: int
) -> tuple[list[Array], list[Array]]:
    """The stable ranks of the inputs and the nuclear ranks of the gradients of all maps, the
    `Bounds` of each head in a row.
    """
    columns = [listed(given.columns) for given in inputs if given.columns is not None]
    grams = [listed(given.gram) for given in inputs if given.gram is not None]
    of_columns = iter(
        shape_by_shape(partial(_stable_ranks, key=key, exact_up_to=exact_up_to), columns)
    )
    of_grams = iter(
        shape_by_shape(partial(_stable_ranks_of_grams, key=key, exact_up_to=exact_up_to), grams)
    )
    stable = [
        (
            _summarize_counts(given.counts)
            if given.counts is not None
            else next(of_columns if given.columns is not None else of_grams)
        )
        for given in inputs
    ]
    nuclear = partial(_nuclear_ranks, key=key, exact_up_to=exact_up_to)
    return stable, shape_by_shape(nuclear, [listed(g) for g in gradients])


def _summarize_counts(counts: Float[Array, " k"]) -> Float[Array, "1 3"]:
    return _certain(ratio(jnp.sum(counts), jnp.max(counts))[None])


def _stable_ranks(
    columns: Float[Array, "maps k n"], key: Key[Array, ""], exact_up_to: int
) -> Float[Array, "maps 3"]:
    if min(columns.shape[1:]) <= exact_up_to:
        return _certain(spectral.stable_rank(columns))
    return jnp.stack(jax.vmap(partial(estimate_stable_rank, key=key))(columns), axis=-1)


def _stable_ranks_of_grams(
    grams: Float[Array, "maps k k"], key: Key[Array, ""], exact_up_to: int
) -> Float[Array, "maps 3"]:
    """st(A) = tr(A Aᵀ) / ‖A Aᵀ‖_op."""
    traces = jnp.trace(grams, axis1=-2, axis2=-1)
    if grams.shape[-1] <= exact_up_to:
        return _certain(ratio(traces, spectral.spectral_norm(grams)))
    norms = jax.vmap(partial(power_iteration, key=key))(grams)
    return jnp.stack(
        [ratio(traces, norm) for norm in (norms.value, norms.upper, norms.lower)], axis=-1
    )


def _nuclear_ranks(
    matrices: Float[Array, "maps m k"], key: Key[Array, ""], exact_up_to: int
) -> Float[Array, "maps 3"]:
    if min(matrices.shape[1:]) <= exact_up_to:
        return _certain(spectral.nuclear_rank(matrices))
    return jnp.stack(jax.vmap(lambda g: estimate_ranks(g, key).nuclear)(matrices), axis=-1)


def _steps_to_pass(
    rows: Sequence[LayerRow], gradients: list[Array], inputs: list[Inputs], exact_up_to: int
) -> float | None:
    """See `LayerReport`."""
    given = inputs[0]
    if len(rows) > 1 or rows[0].kind != "linear" or rows[0].shape[1] > exact_up_to:
        return None
    gram = given.gram
    if gram is None:
        assert given.columns is not None
        gram = given.columns @ given.columns.mT
    found, passed = jax.device_get(_race(listed(gradients[0])[0], listed(gram)[0]))
    # Without a gradient, or with one that is not finite, the orthogonality is NaN.
    return float(passed) if found.orthogonality >= ORTHOGONAL else None


@jax.jit
def _race(g: Array, b: Array) -> tuple[spectral_race.Errors, Array]:
    found = spectral_race.errors(g, b)
    return found, spectral_race.steps_to_pass(found.x, found.b, MOST_STEPS)


def _sentence(steps: float) -> str:
    """`steps_to_pass` in words."""
    if steps <= 1:
        return "best step sizes, quadratic loss: spectral steps are ahead from the first on"
    if steps > MOST_STEPS:
        return f"best step sizes, quadratic loss: gradient steps stay ahead for {MOST_STEPS} steps"
    return f"best step sizes, quadratic loss: spectral steps are ahead after {steps:.1f} steps"


def _certain(values: Float[Array, " maps"]) -> Float[Array, "maps 3"]:
    return jnp.stack([values] * 3, axis=-1)


def _bounds(row: np.ndarray) -> Bounds:
    value, lower, upper = (float(end) for end in row)
    return value, lower, upper


def _recommendation(stable_rank: Bounds, nuclear_rank: Bounds) -> Recommendation:
    """Decides by the interval of nr/st, so that an uncertain estimate is not decisive."""
    if isnan(nuclear_rank[0]) or isnan(stable_rank[0]):
        return "undecided"
    if nuclear_rank[0] == 0 or stable_rank[0] == 0:
        return "no gradient"
    low, high = nuclear_rank[1] / stable_rank[2], nuclear_rank[2] / stable_rank[1]
    if low >= 1:
        return "spectral" if low >= SURE else "leans spectral"
    if high <= 1:
        return "Euclidean" if high <= 1 / SURE else "leans Euclidean"
    return "undecided"


def _cells(row: LayerRow) -> list[str]:
    cells = [
        row.name,
        row.kind,
        "{} x {}".format(*row.shape),
        _shown(row.stable_rank),
        _shown(row.nuclear_rank),
    ]
    cells += [f"{row.ratio:.3g}", row.recommendation]
    if row.curvature is not None:
        cells += [f"{number:.3g}" for number in row.curvature]
    return cells


def _shown(bounds: Bounds) -> str:
    value, lower, upper = bounds
    return f"{value:.3g}" if lower == upper else f"{value:.3g} [{lower:.3g}, {upper:.3g}]"


def _iterated_stable_rank(inputs: Inputs, steps: int) -> Float[Array, "..."]:
    if inputs.counts is not None:
        return jnp.sum(inputs.counts) / jnp.maximum(jnp.max(inputs.counts), 1)
    if inputs.columns is not None:
        a = inputs.columns
        norm, squares = (
            power_iteration(a, jax.random.key(0), steps=steps).value ** 2,
            jnp.sum(a**2, axis=(-2, -1)),
        )
    else:
        assert inputs.gram is not None
        norm = power_iteration(inputs.gram, jax.random.key(0), steps=steps).value
        squares = jnp.trace(inputs.gram, axis1=-2, axis2=-1)
    return ratio(squares, norm)
