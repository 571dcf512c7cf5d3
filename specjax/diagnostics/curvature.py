"""The Hessian of each linear map of a model along its Euclidean and its spectral step, by Hessian-vector products."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from specjax import spectral
from specjax.diagnostics.linear_maps import Inputs
from specjax.diagnostics.probe import Probe, heads, listed
from specjax.spectral import CUBIC, NewtonSchulz
from specjax.spectral.scaling import scaled


class Curvature(NamedTuple):
    """The Hessian of one block along its two steps, by Hessian-vector products.

    `decrease_ratio` compares the decreases ⟨G, D⟩² / 2 ⟨D, H D⟩ of the quadratic model at the best step size, spectral over Euclidean; NaN
    where one of the curvatures is not positive. `spectral_feature` and `euclidean_feature` are ⟨D, H D⟩ / ‖D A‖_F², which the layered
    Hessian bound (spectral-criterion, eq. 4.4) takes for the same constant C_F in both directions.
    """

    decrease_ratio: float
    spectral_feature: float
    euclidean_feature: float


def curvatures(
    probe: Probe, gradients: list[Array], inputs: list[Inputs], exact_up_to: int
) -> list[list[Curvature | None]]:
    """The curvature along the two steps of every map, one map at a time; None where the gradient is zero."""

    def tangent(leaves: list[Array], batch: PyTree, directions: list[Array]) -> list[Array]:
        """Each direction of a map's matrices as a direction of its parameter."""
        return [
            jax.linear_transpose(m.matrices, leaves[m.leaf])(
                d.astype(jax.eval_shape(m.matrices, leaves[m.leaf]).dtype)
            )[0]
            for m, d in zip(probe.found(leaves, batch), directions, strict=True)
        ]

    def along(leaves: list[Array], batch: PyTree, direction: list[Array]) -> Array:
        gradient = jax.grad(probe.loss)
        _, product = jax.jvp(lambda x: gradient(x, batch), (leaves,), (direction,))
        return jnp.sum(jnp.stack([jnp.sum(d * p) for d, p in zip(direction, product, strict=True)]))

    tangent, along = jax.jit(tangent), jax.jit(along)
    # Nothing here depends on the length of a step; that of the gradient may have no square in float32.
    steps = {"euclidean": [scaled(g)[0] for g in gradients], "spectral": [_polar(g, exact_up_to) for g in gradients]}
    results: list[list[Curvature | None]] = [[] for _ in gradients]
    for head in range(max(len(listed(g)) for g in gradients)):
        curvature: dict[str, list[Array]] = {}
        for name, directions in steps.items():
            tangents = tangent(probe.leaves, probe.batch, [_only(d, head) for d in directions])
            curvature[name] = [
                along(
                    probe.leaves,
                    probe.batch,
                    [t if i == m.leaf else jnp.zeros_like(x) for i, x in enumerate(probe.leaves)],
                )
                for (m, _), t in zip(probe.maps, tangents, strict=True)
            ]
        for i, gradient in enumerate(gradients):
            if head < len(listed(gradient)):
                pair = [(listed(d[i])[head], float(curvature[name][i])) for name, d in steps.items()]
                results[i].append(_curvature(heads(inputs[i])[head], *pair))
    return results


def _curvature(inputs: Inputs, euclidean: tuple[Array, float], spectral_: tuple[Array, float]) -> Curvature | None:
    (g, along_g), (p, along_p) = euclidean, spectral_
    if not bool(jnp.any(g != 0)):
        return None
    ratio = float("nan")
    if along_g > 0 and along_p > 0:
        ratio = float(jnp.sum(g * p)) ** 2 / along_p / (float(jnp.sum(g**2)) ** 2 / along_g)
    return Curvature(ratio, along_p / _feature(p, inputs), along_g / _feature(g, inputs))


def _feature(d: Array, inputs: Inputs) -> float:
    """‖D A‖_F²."""
    if inputs.counts is not None:
        return float(jnp.sum(inputs.counts * jnp.sum(d**2, axis=0)))
    assert inputs.scale is not None
    scale_squared = float(inputs.scale) ** 2
    if inputs.columns is not None:
        return scale_squared * float(jnp.sum((d @ inputs.columns.astype(d.dtype)) ** 2))
    assert inputs.gram is not None
    return scale_squared * float(jnp.sum((d @ inputs.gram.astype(d.dtype)) * d))


def _polar(g: Array, exact_up_to: int) -> Array:
    exact = min(g.shape[-2:]) <= exact_up_to
    return spectral.polar(g, spectral.SVD() if exact else NewtonSchulz(30, CUBIC))


def _only(direction: Array, head: int) -> Array:
    """The direction of one head, the others zero."""
    flat = direction.reshape(-1, *direction.shape[-2:])
    return jnp.where(jnp.arange(len(flat))[:, None, None] == head, flat, 0).reshape(direction.shape)
