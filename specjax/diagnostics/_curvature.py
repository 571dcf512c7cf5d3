"""The Hessian of each linear map of a model along its Euclidean and its spectral step, by
Hessian-vector products.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from specjax import spectral
from specjax.diagnostics.linear_maps import Inputs
from specjax.diagnostics.probe import Probe, listed, shape_by_shape
from specjax.jaxlib import cpu_options
from specjax.spectral import NewtonSchulz
from specjax.spectral.float_range import scaled
from specjax.spectral.polynomials import CUBIC


class Curvature(NamedTuple):
    """The Hessian of one block along its two steps, by Hessian-vector products.

    `decrease_ratio` compares the decreases ⟨G, D⟩² / 2 ⟨D, H D⟩ of the quadratic model at the best
    step size, spectral over Euclidean; NaN where one of the curvatures is not positive.
    `spectral_feature` and `euclidean_feature` are ⟨D, H D⟩ / ‖D A‖_F², which the layered Hessian
    bound (spectral-criterion, eq. 4.4) takes for the same constant C_F in both directions.
    """

    decrease_ratio: float
    spectral_feature: float
    euclidean_feature: float


class _Numbers(NamedTuple):
    """The numbers of the two steps of each matrix of a map that need no curvature; the inputs A are
    divided by `scale`.
    """

    nonzero: Bool[Array, " maps"]
    inner: Float[Array, " maps"]
    """⟨G, P⟩."""
    squares: Float[Array, " maps"]
    """‖G‖_F²."""
    feature_g: Float[Array, " maps"]
    """‖G A‖_F²."""
    feature_p: Float[Array, " maps"]
    scale: Float[Array, " maps"]


class _Steps(NamedTuple):
    """The two steps of each matrix of a map, G and its polar factor P."""

    euclidean: Float[Array, "maps m k"]
    spectral: Float[Array, "maps m k"]
    numbers: _Numbers


def curvatures(
    probe: Probe, gradients: list[Array], inputs: list[Inputs], exact_up_to: int
) -> list[list[Curvature | None]]:
    """Computes the curvature along the two steps of every map, one map at a time; None where the
    gradient is zero.
    """

    @partial(jax.jit, compiler_options=cpu_options())
    def along(
        leaves: list[Array],
        batch: PyTree,
        directions: list[Array],
        place: Int[Array, ""],
        head: Int[Array, ""],
    ) -> Array:
        """⟨D, H D⟩ for the direction of one matrix, the others zero."""
        direction = [jnp.zeros_like(x) for x in leaves]
        for i, (m, d) in enumerate(zip(probe.found(leaves, batch), directions, strict=True)):
            matrices = jax.eval_shape(m.matrices, leaves[m.leaf])
            chosen = (jnp.arange(len(d)) == head) & (place == i)
            only = (
                jnp.where(chosen[:, None, None], d, 0)
                .reshape(matrices.shape)
                .astype(matrices.dtype)
            )
            direction[m.leaf] += jax.linear_transpose(m.matrices, leaves[m.leaf])(only)[0]
        gradient = jax.grad(probe.loss)
        _, product = jax.jvp(lambda x: gradient(x, batch), (leaves,), (direction,))
        return jnp.sum(jnp.stack([jnp.sum(d * p) for d, p in zip(direction, product, strict=True)]))

    steps = _steps(gradients, inputs, exact_up_to)
    both = [s.euclidean for s in steps], [s.spectral for s in steps]
    return [
        [
            (
                _curvature(
                    numbers,
                    head,
                    *(float(along(probe.leaves, probe.batch, step, place, head)) for step in both),
                )
                if numbers.nonzero[head]
                else None
            )
            for head in range(len(numbers.nonzero))
        ]
        for place, numbers in enumerate(jax.device_get([s.numbers for s in steps]))
    ]


@partial(jax.jit, static_argnames="exact_up_to")
def _steps(gradients: list[Array], inputs: list[Inputs], exact_up_to: int) -> list[_Steps]:
    # The results do not depend on the length of a step, and the squared length of the gradient may
    # underflow in float32.
    euclidean = [listed(scaled(g)[0]) for g in gradients]
    polars = shape_by_shape(
        partial(_polar, exact_up_to=exact_up_to), [listed(g) for g in gradients]
    )
    return [
        _Steps(g, p, _numbers(g, p, given))
        for g, p, given in zip(euclidean, polars, inputs, strict=True)
    ]


def _numbers(g: Float[Array, "maps m k"], p: Float[Array, "maps m k"], inputs: Inputs) -> _Numbers:
    scale = jnp.ones(len(g), g.dtype) if inputs.scale is None else inputs.scale.ravel()
    matrices = (-2, -1)
    return _Numbers(
        jnp.any(g != 0, axis=matrices),
        jnp.sum(g * p, axis=matrices),
        jnp.sum(g**2, axis=matrices),
        _feature(g, inputs),
        _feature(p, inputs),
        scale,
    )


def _curvature(numbers: _Numbers, head: int, along_g: float, along_p: float) -> Curvature:
    # Use double precision, since the squares of these numbers leave the range of float32.
    inner, squares, feature_g, feature_p, scale = (float(each[head]) for each in numbers[1:])
    ratio = float("nan")
    if along_g > 0 and along_p > 0:
        ratio = inner**2 / along_p / (squares**2 / along_g)
    return Curvature(ratio, along_p / (scale**2 * feature_p), along_g / (scale**2 * feature_g))


def _feature(d: Float[Array, "maps m k"], inputs: Inputs) -> Float[Array, " maps"]:
    """‖D A‖_F², A divided by its scale."""
    if inputs.counts is not None:
        return jnp.sum(inputs.counts[None] * jnp.sum(d**2, axis=-2), axis=-1)
    if inputs.columns is not None:
        return jnp.sum((d @ listed(inputs.columns).astype(d.dtype)) ** 2, axis=(-2, -1))
    assert inputs.gram is not None
    return jnp.sum((d @ listed(inputs.gram).astype(d.dtype)) * d, axis=(-2, -1))


def _polar(g: Float[Array, "maps m k"], exact_up_to: int) -> Float[Array, "maps m k"]:
    exact = min(g.shape[-2:]) <= exact_up_to
    return spectral.polar(g, spectral.SVD() if exact else NewtonSchulz(30, CUBIC))
