"""Descent on random features with changed singular values, and the best length of each step."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from specjax import sizes
from specjax.experiments.field.spectrum import replaced
from specjax.models import random_features as features

SAMPLES, PER_FEATURE = 512, 4
"""Samples, and batch samples, per feature."""
SEARCH = 0.0
"""Marks the best length of every step, in the place of a fixed length."""


def descend(
    key: Key[Array, ""], width: int, kind: Array, rate: Array, steps: int
) -> tuple[Array, ...]:
    """Train with steps as long as the batch gradient's projection times `rate` over the mean λ.

    The mean eigenvalue is that of B. So the gradient is its own step, and Muon's step is the polar
    factor times nuclear norm over width.

    Returns:
        After every step the loss over that before the first one; the best length for the loss of
        all samples, in the unit of `rate`; and the curvature along the step over the mean
        eigenvalue of B.
    """
    v = features.weights(sizes.stream(key, "features"), width, width)
    a = features.relu_features(v, sizes.normal(sizes.stream(key, "samples"), (width, SAMPLES)))
    teacher = sizes.normal(sizes.stream(key, "teacher"), (width, width))
    count = PER_FEATURE * width
    batches = jax.random.randint(sizes.stream(key, "batches"), (steps, count), 0, SAMPLES)
    random = jax.random.uniform(sizes.stream(key, "spectra"), (steps, width), a.dtype)
    b = features.second_moment(a, a)
    mean = jnp.trace(b) / width

    def step(
        error: Float[Array, "w w"], each: tuple[Array, Array]
    ) -> tuple[Array, tuple[Array, ...]]:
        # The error is W - W*, and so is the gradient's weight with target 0.
        sample, noise = each
        batch = a[:, sample]
        direction, dual = replaced(
            features.gradient(error, batch, jnp.zeros((width, count), a.dtype)), kind, noise
        )
        direction = direction * dual / width
        slope, bend = jnp.sum(error @ b * direction), jnp.sum(direction @ b * direction)
        length = jnp.where(rate == SEARCH, slope / bend, rate / mean)
        moved = error - length * direction
        return moved, (
            jnp.sum(moved @ b * moved) / 2,
            mean * slope / bend,
            bend / jnp.sum(direction**2) / mean,
        )

    losses, lengths, curvatures = jax.lax.scan(step, teacher, (batches, random))[1]
    return losses / (jnp.sum(teacher @ b * teacher) / 2), lengths, curvatures
