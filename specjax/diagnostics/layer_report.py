"""A table of the linear maps of a model: where a spectral step decreases the loss more than a Euclidean one.

Of a map W with inputs A and gradient G the guaranteed decreases of the two steps have the ratio nr(G) / st(A) (spectral-criterion,
Section 1.2). For a loss that is quadratic in W A with curvature the same in every direction, ‖W A - Y‖², more is certain: with a
ratio of at least 2 the spectral step is the better one, with at most 1/2 the Euclidean one; between, either may be.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PyTree

from specjax import spectral
from specjax.diagnostics.linear_maps import (
    Inputs,
    Kind,
    LinearMap,
    at_least_float32,
    inputs_of,
    linear_maps,
    path_names,
)
from specjax.spectral import CUBIC, NewtonSchulz
from specjax.spectral.ranks import Estimate, estimate_ranks, estimate_stable_rank, power_iteration

Model = Callable[[PyTree, PyTree], Array]
"""A loss `model(params, batch)`, one number."""

Recommendation = Literal["spectral", "leans spectral", "leans Euclidean", "Euclidean", "undecided", "no gradient"]

SURE = 2.0
"""A ratio nr(G)/st(A) from which the spectral step is certainly the better one, and 1/SURE the Euclidean one (module's text)."""


Bounds = tuple[float, float, float]
"""A value and the ends of its interval."""


# Compiled as a whole: operation by operation the first report of a model takes minutes.
_exact_stable_rank, _exact_nuclear_rank = jax.jit(spectral.stable_rank), jax.jit(spectral.nuclear_rank)
_estimated_stable_rank, _estimated_ranks, _iterated = (
    jax.jit(f) for f in (estimate_stable_rank, estimate_ranks, power_iteration)
)


class Curvature(NamedTuple):
    """The Hessian of one block along its two steps, by Hessian-vector products.

    `decrease_ratio` compares the decreases ⟨G, D⟩² / 2 ⟨D, H D⟩ of the quadratic model at the best step size, spectral over Euclidean; NaN
    where one of the curvatures is not positive. `spectral_feature` and `euclidean_feature` are ⟨D, H D⟩ / ‖D A‖_F², which the layered
    Hessian bound (spectral-criterion, eq. 4.4) takes for the same constant C_F in both directions.
    """

    decrease_ratio: float
    spectral_feature: float
    euclidean_feature: float


class LayerRow(NamedTuple):
    """One linear map (m, k): st(A) of its k inputs and nr(G) of its gradient, each (value, lower, upper), and what follows.

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
    """The rows in the order of first use, and the parameters that are in no linear map; `str` of it is the table."""

    rows: tuple[LayerRow, ...]
    others: tuple[str, ...]

    def __str__(self) -> str:
        head = ["layer", "map", "shape", "st(A)", "nr(G)", "nr/st", "recommendation"]
        if any(row.curvature for row in self.rows):
            head += ["decrease ratio", "D = polar(G)", "D = G"]
        table = [head, *(_cells(row) for row in self.rows)]
        widths = [max(len(line[i]) for line in table) for i in range(len(head))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in table
        ]
        if self.others:
            lines.append(f"in no linear map: {', '.join(self.others)}")
        return "\n".join(lines)


def layer_report(
    model: Model,
    params: PyTree,
    batch: PyTree,
    *,
    curvature: bool = False,
    exact_up_to: int = 512,
    key: Key[Array, ""] | None = None,
) -> LayerReport:
    """The table (layer, st(A), nr(G), ratio of decreases, recommendation) for any model, in one call.

    The linear maps are found in the traced program, by the parameters that enter products: layers of equinox and plain trees, under vmap,
    jit, remat and scan, embeddings that are looked up, layers that share a matrix. Convolutions are not among them.

    Args:
        model: The loss as a function of parameters and batch.
        params: A tree with arrays; other leaves, as those of equinox modules, are passed through.
        batch: Whatever the model takes.
        curvature: Also take Hessian-vector products along both steps of every map, two for each.
        exact_up_to: Matrices whose smaller side is longer have estimated ranks, with intervals.
        key: Of the estimates; key(0) by default.

    Returns:
        A row for each map (for each head or layer where one parameter holds several).

    Raises:
        ValueError: if the model returns something else than one number, or no parameter enters a product.

    """
    key = jax.random.key(0) if key is None else key
    probe = _Probe(model, params, batch)
    gradients, inputs = probe.gradients_and_inputs()
    stable = [[_stable_rank(a, key, exact_up_to) for a in _heads(given)] for given in inputs]
    nuclear = [[_nuclear_rank(g, key, exact_up_to) for g in _listed(gradient)] for gradient in gradients]
    curvatures: list[list[Curvature | None]] = (
        probe.curvatures(gradients, inputs, exact_up_to) if curvature else [[None] * len(ranks) for ranks in nuclear]
    )
    rows = [
        LayerRow(name, kind, shape, st, nr, nr[0] / st[0] if st[0] > 0 else float("nan"), _recommendation(st, nr), bent)
        for (names, kind, shape), of_stable, of_nuclear, of_bent in zip(
            probe.labels(), stable, nuclear, curvatures, strict=True
        )
        for name, st, nr, bent in zip(names, of_stable, of_nuclear, of_bent, strict=True)
    ]
    return LayerReport(tuple(rows), probe.others())


def activation_stable_ranks(model: Model, params: PyTree, batch: PyTree, *, steps: int = 40) -> PyTree:
    """st(A) for every parameter that is a linear map, a tree like `params`: what `optim.rank_switch` takes as `stable_ranks`.

    A pure function that can be jitted with a training step. Each norm is by `steps` power iterations from a fixed start, so a value
    may be too large, never too small, but for rounding. A parameter stacked over a scan's layers, or over
    heads, has one number for each; one used in several ways the largest; one that is in no product, None.

    Raises:
        ValueError: as `layer_report`.

    """
    probe = _Probe(model, params, batch)
    ranks: list[dict[tuple[int, ...], Array]] = [{} for _ in probe.leaves]
    for linear_map in probe.maps_of_this_trace():
        given = inputs_of(linear_map)
        rank = _iterated_stable_rank(given, steps)
        earlier = ranks[linear_map.leaf].get(linear_map.layers)
        # A slice of a parameter has fewer batch axes than another use: the largest of all is what is safe.
        if earlier is not None and earlier.shape != rank.shape:
            earlier, rank = jnp.max(earlier), jnp.max(rank)
        ranks[linear_map.leaf][linear_map.layers] = rank if earlier is None else jnp.maximum(earlier, rank)
    return probe.unflatten([_assembled(by_index) for by_index in ranks])


class _Probe:
    """A model opened up: programs that compute what is asked of its linear maps.

    The maps are found anew whenever a program is traced, since what they close over belongs to that trace.
    """

    def __init__(self, model: Model, params: PyTree, batch: PyTree) -> None:
        self._model = model
        arrays, self._static = eqx.partition(params, eqx.is_inexact_array)
        self.leaves, self._treedef = jax.tree.flatten(arrays)
        self._names = path_names(arrays)
        self._batch, self._batch_static = eqx.partition(batch, lambda x: isinstance(x, jax.Array | np.ndarray))
        self._maps: list[tuple[LinearMap, tuple[int, ...]]] = []

    def _loss(self, leaves: Sequence[Array], batch: PyTree) -> Array:
        params = eqx.combine(jax.tree.unflatten(self._treedef, leaves), self._static)
        return self._model(params, eqx.combine(batch, self._batch_static))

    def _found(self, leaves: Sequence[Array], batch: PyTree) -> list[LinearMap]:
        found = linear_maps(lambda x: self._loss(x, batch), leaves)
        if not found:
            raise ValueError(
                "No parameter enters a matrix product in this model, so that there is no layer to report on."
            )
        return found

    def maps_of_this_trace(self) -> list[LinearMap]:
        """The maps, evaluated where this is called."""
        return self._found(self.leaves, self._batch)

    def unflatten(self, leaves: Sequence[Any]) -> PyTree:
        """A tree like the parameters."""
        return jax.tree.unflatten(self._treedef, leaves)

    def gradients_and_inputs(self) -> tuple[list[Array], list[Inputs]]:
        """The gradient matrices (*maps, m, k) and the inputs of every map."""

        def everything(leaves: list[Array], batch: PyTree) -> tuple[list[Array], list[Inputs]]:
            found = self._found(leaves, batch)
            gradients = jax.grad(self._loss)(leaves, batch)
            matrices = [m.matrices(gradients[m.leaf]) for m in found]
            self._maps = [(m, g.shape) for m, g in zip(found, matrices, strict=True)]
            wide = [at_least_float32(g) for g in matrices]
            return wide, [inputs_of(m) for m in found]

        return jax.jit(everything)(self.leaves, self._batch)

    def labels(self) -> list[tuple[list[str], Kind, tuple[int, int]]]:
        """The names, one for each head, kind and shape of every map."""
        uses = [(m.leaf, m.layers) for m, _ in self._maps]
        labels: list[tuple[list[str], Kind, tuple[int, int]]] = []
        for position, ((found, shape), use) in enumerate(zip(self._maps, uses, strict=True)):
            name = self._names[found.leaf] + "".join(f"[{i}]" for i in found.layers)
            if uses.count(use) > 1:
                name += f" (use {uses[: position + 1].count(use)})"
            heads = [f" (map {', '.join(map(str, head))})" if head else "" for head in np.ndindex(shape[:-2])]
            labels.append(([name + head for head in heads], found.kind, (shape[-2], shape[-1])))
        return labels

    def others(self) -> tuple[str, ...]:
        """The parameters that are in no linear map."""
        seen = {m.leaf for m, _ in self._maps}
        return tuple(name for i, name in enumerate(self._names) if i not in seen)

    def curvatures(
        self, gradients: list[Array], inputs: list[Inputs], exact_up_to: int
    ) -> list[list[Curvature | None]]:
        """The curvature along the two steps of every map, one map at a time; None where the gradient is zero."""

        def tangent(leaves: list[Array], batch: PyTree, directions: list[Array]) -> list[Array]:
            """Each direction of a map's matrices as a direction of its parameter."""
            return [
                jax.linear_transpose(m.matrices, leaves[m.leaf])(
                    d.astype(jax.eval_shape(m.matrices, leaves[m.leaf]).dtype)
                )[0]
                for m, d in zip(self._found(leaves, batch), directions, strict=True)
            ]

        def along(leaves: list[Array], batch: PyTree, direction: list[Array]) -> Array:
            gradient = jax.grad(self._loss)
            _, product = jax.jvp(lambda x: gradient(x, batch), (leaves,), (direction,))
            return jnp.sum(jnp.stack([jnp.sum(d * p) for d, p in zip(direction, product, strict=True)]))

        tangent, along = jax.jit(tangent), jax.jit(along)
        steps = {"euclidean": gradients, "spectral": [_polar(g, exact_up_to) for g in gradients]}
        results: list[list[Curvature | None]] = [[] for _ in gradients]
        for head in range(max(len(_listed(g)) for g in gradients)):
            curvature: dict[str, list[Array]] = {}
            for name, directions in steps.items():
                tangents = tangent(self.leaves, self._batch, [_only(d, head) for d in directions])
                curvature[name] = [
                    along(
                        self.leaves,
                        self._batch,
                        [t if i == m.leaf else jnp.zeros_like(x) for i, x in enumerate(self.leaves)],
                    )
                    for (m, _), t in zip(self._maps, tangents, strict=True)
                ]
            for i, gradient in enumerate(gradients):
                if head < len(_listed(gradient)):
                    pair = [(_listed(d[i])[head], float(curvature[name][i])) for name, d in steps.items()]
                    results[i].append(_curvature(_heads(inputs[i])[head], *pair))
        return results


def _curvature(inputs: Inputs, euclidean: tuple[Array, float], spectral_: tuple[Array, float]) -> Curvature | None:
    (g, along_g), (p, along_p) = euclidean, spectral_
    norm_squared = float(jnp.sum(g**2))
    if norm_squared == 0:
        return None
    ratio = float("nan")
    if along_g > 0 and along_p > 0:
        ratio = float(jnp.sum(g * p)) ** 2 / along_p / (norm_squared**2 / along_g)
    return Curvature(ratio, along_p / _feature(p, inputs), along_g / _feature(g, inputs))


def _feature(d: Array, inputs: Inputs) -> float:
    """‖D A‖_F²."""
    if inputs.counts is not None:
        return float(jnp.sum(inputs.counts * jnp.sum(d**2, axis=0)))
    if inputs.columns is not None:
        return float(jnp.sum((d @ inputs.columns.astype(d.dtype)) ** 2))
    assert inputs.gram is not None
    return float(jnp.sum((d @ inputs.gram.astype(d.dtype)) * d))


def _polar(g: Array, exact_up_to: int) -> Array:
    exact = min(g.shape[-2:]) <= exact_up_to
    return spectral.polar(g, spectral.SVD() if exact else NewtonSchulz(30, CUBIC))


def _only(direction: Array, head: int) -> Array:
    """The direction of one head, the others zero."""
    flat = direction.reshape(-1, *direction.shape[-2:])
    return jnp.where(jnp.arange(len(flat))[:, None, None] == head, flat, 0).reshape(direction.shape)


def _listed(stack: Array) -> Array:
    return stack.reshape(-1, *stack.shape[-2:])


def _heads(inputs: Inputs) -> list[Inputs]:
    """The inputs of every head; a lookup has one."""
    if inputs.counts is not None:
        return [inputs]
    if inputs.columns is not None:
        return [Inputs(None, a, None) for a in _listed(inputs.columns)]
    assert inputs.gram is not None
    return [Inputs(a, None, None) for a in _listed(inputs.gram)]


def _stable_rank(inputs: Inputs, key: Array, exact_up_to: int) -> Bounds:
    if inputs.counts is not None:
        largest = float(jnp.max(inputs.counts))
        return _certain(float(jnp.sum(inputs.counts)) / largest if largest else 0.0)
    if inputs.columns is not None:
        a = at_least_float32(inputs.columns)
        if min(a.shape) <= exact_up_to:
            return _certain(float(_exact_stable_rank(a)))
        return _bounds(_estimated_stable_rank(a, key))
    assert inputs.gram is not None
    # st(A) = tr(A Aᵀ) / ‖A Aᵀ‖_op.
    trace = float(jnp.trace(inputs.gram))
    if not trace:
        return _certain(0.0)
    if len(inputs.gram) <= exact_up_to:
        return _certain(trace / float(spectral.spectral_norm(inputs.gram)))
    norm = _iterated(inputs.gram, key)
    return trace / float(norm.value), trace / float(norm.upper), trace / float(norm.lower)


def _nuclear_rank(g: Array, key: Array, exact_up_to: int) -> Bounds:
    if min(g.shape) <= exact_up_to:
        return _certain(float(_exact_nuclear_rank(g)))
    return _bounds(_estimated_ranks(g, key).nuclear)


def _certain(value: float) -> Bounds:
    return value, value, value


def _bounds(estimate: Estimate) -> Bounds:
    value, lower, upper = (float(end) for end in estimate)
    return value, lower, upper


def _recommendation(stable_rank: Bounds, nuclear_rank: Bounds) -> Recommendation:
    """By the interval of nr/st, so that an estimate decides nothing that it cannot."""
    if nuclear_rank[0] == 0 or stable_rank[0] == 0:
        return "no gradient"
    low, high = nuclear_rank[1] / stable_rank[2], nuclear_rank[2] / stable_rank[1]
    if low >= 1:
        return "spectral" if low >= SURE else "leans spectral"
    if high <= 1:
        return "Euclidean" if high <= 1 / SURE else "leans Euclidean"
    return "undecided"


def _cells(row: LayerRow) -> list[str]:
    cells = [row.name, row.kind, "{} x {}".format(*row.shape), _shown(row.stable_rank), _shown(row.nuclear_rank)]
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
        a = at_least_float32(inputs.columns)
        norm, squares = power_iteration(a, jax.random.key(0), steps=steps).value ** 2, jnp.sum(a**2, axis=(-2, -1))
    else:
        assert inputs.gram is not None
        norm = power_iteration(inputs.gram, jax.random.key(0), steps=steps).value
        squares = jnp.trace(inputs.gram, axis1=-2, axis2=-1)
    return jnp.where(norm > 0, squares / jnp.where(norm > 0, norm, 1), 0)


def _assembled(by_index: dict[tuple[int, ...], Array]) -> Array | None:
    """The ranks of one parameter's layers as an array over them."""
    if not by_index:
        return None
    if list(by_index) == [()]:
        return by_index[()]
    extents = tuple(max(index[axis] for index in by_index) + 1 for axis in range(len(next(iter(by_index)))))
    stacked = jnp.stack([by_index[index] for index in sorted(by_index)])
    return stacked.reshape(*extents, *stacked.shape[1:])
