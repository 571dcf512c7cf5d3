"""Averages of several gradients combined with the polar factor, in either order, and estimates in
between.

For samples G_1 ... G_k with mean μ the polar factor of the mean estimates polar(μ), with a bias of
order 1/k where μ has full rank; the mean of the polar factors estimates E[polar(G)], without bias.
The two limits differ by an amount that no k removes, so first choose which one to estimate:

| estimate of | function | polar factors | bias | variance |
|---|---|---|---|---|
| E[polar(G)] | `mean_of_polar` | k | none | order 1/k |
| between | `microbatched_polar`, batches of b | k / b | between the two limits | order 1/k |
| polar(μ) | `polar_of_mean` | 1 | order 1/k | order 1/k |
| polar(μ) | `jackknifed_polar` | 1 + groups | order 1/k² | order 1/k |

All take an array (k, m, n), or with leading batch axes, and any `method` of `spectral.polar`.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Inexact

from specjax.spectral._normalize import unit_rows
from specjax.spectral.float_range import scaled
from specjax.spectral.methods import SVD
from specjax.spectral.polar import polar
from specjax.spectral.products import product

Method = Callable[[Array], Array]


def polar_of_mean(
    samples: Inexact[Array, "*batch k m n"],
    method: Method = SVD(),  # noqa: B008
) -> Inexact[Array, "*batch m n"]:
    """polar(mean of the samples), which equals the polar factor of their sum, since the polar
    factor ignores scale ("Ortho of sum").
    """
    return polar(jnp.mean(_unit(samples), axis=-3), method)


def mean_of_polar(
    samples: Inexact[Array, "*batch k m n"],
    method: Method = SVD(),  # noqa: B008
) -> Inexact[Array, "*batch m n"]:
    """The mean of the polar factors of the samples ("sum of Ortho"): unbiased for E[polar(G)] at
    every k.
    """
    return jnp.mean(polar(samples, method), axis=-3)


def mean_of_rank_one_polar(
    left: Inexact[Array, "*batch k m"], right: Inexact[Array, "*batch k n"]
) -> Inexact[Array, "*batch m n"]:
    """`mean_of_polar` of the samples left_i right_iᵀ, computed from normalized factors by one
    matrix product, without a decomposition.

    The gradient of a linear layer on one input is such a product of the backpropagated error and
    the input. So for a layer that sees each sample once, E[polar(G_x)] costs no more than the
    gradient. A sample with a zero factor counts as zero, in derivatives too.
    """
    mean = product(jnp.swapaxes(unit_rows(left), -1, -2), unit_rows(right)) / left.shape[-2]
    return mean.astype(left.dtype)


def microbatched_polar(
    samples: Inexact[Array, "*batch k m n"],
    size: int,
    method: Method = SVD(),  # noqa: B008
) -> Inexact[Array, "*batch m n"]:
    """The mean over k / size microbatches of polar(mean of the microbatch): size 1 is
    `mean_of_polar`, size k `polar_of_mean`.

    Raises:
        ValueError: `size` does not divide the number of samples.
    """
    return jnp.mean(polar_of_mean(_groups(samples, size, "size"), method), axis=-3)


def jackknifed_polar(
    samples: Inexact[Array, "*batch k m n"],
    groups: int | None = None,
    method: Method = SVD(),  # noqa: B008
) -> Inexact[Array, "*batch m n"]:
    """The jackknife g polar(mean) - (g - 1) · mean_j polar(mean without group j), which removes the
    1/k term of the bias.

    With one sample to a group (the default) the remaining bias is of order 1/k². With a fixed
    number g of groups it has the same order, times a factor that tends to 1 as g grows. The result
    estimates polar(μ), which must have full rank, and is not exactly orthogonal.

    Raises:
        ValueError: `groups` is below 2 or does not divide the number of samples.
    """
    k = samples.shape[-3]
    g = k if groups is None else groups
    if g < 2 or k % g:
        raise ValueError(
            f"jackknifed_polar needs at least 2 groups that divide the {k} samples, got groups={g}."
        )
    means = jnp.mean(_groups(_unit(samples), k // g, "groups"), axis=-3)
    whole = jnp.mean(means, axis=-3)
    without = (g * whole[..., None, :, :] - means) / (g - 1)
    # Compute all factors in one batched decomposition.
    factors = polar(jnp.concatenate([whole[..., None, :, :], without], axis=-3), method)
    return g * factors[..., 0, :, :] - (g - 1) * jnp.mean(factors[..., 1:, :, :], axis=-3)


def second_order_bias(
    mu: Inexact[Array, "m n"], factor: Float[Array, "m n r"]
) -> Inexact[Array, "m n"]:
    """½ D²polar(μ)[Σ] for noise of covariance Σ = Σ_i f_i f_iᵀ, f_i = factor[..., i]: k times the
    bias of `polar_of_mean`.

    E[polar(μ + ε̄)] = polar(μ) + this / k + O(1/k²) for the mean ε̄ of k independent noises and μ
    of full rank. It is computed by applying the closed-form derivative of the polar factor twice.
    """

    def curvature(direction: Array) -> Array:
        def slope(t: Array) -> Array:
            return jax.jvp(polar, (mu + t * direction,), (direction,))[1]

        return jax.jvp(slope, (jnp.zeros((), mu.dtype),), (jnp.ones((), mu.dtype),))[1]

    return jnp.sum(jax.lax.map(curvature, jnp.moveaxis(factor, -1, 0)), axis=0) / 2


def _unit(samples: Array) -> Array:
    """The samples divided by one power of two for all, since their sum may overflow and their mean
    may underflow.
    """
    return scaled(samples, axis=(-3, -2, -1))[0].astype(samples.dtype)


def _groups(samples: Array, size: int, name: str) -> Array:
    k = samples.shape[-3]
    if size < 1 or k % size:
        raise ValueError(f"{name} must be positive and divide the {k} samples, got {size}.")
    return samples.reshape(*samples.shape[:-3], k // size, size, *samples.shape[-2:])
