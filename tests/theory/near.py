"""Comparisons that several test files of this folder share."""

import jax
import numpy as np


def close(found, expected, rel=1e-12):
    np.testing.assert_allclose(found, expected, rtol=rel)


def leading_axes_are_batch_axes(f, shapes, rng):
    """Arrays of the shapes behind an axis of three give f of each of the three."""
    f = jax.jit(f)
    arrays = [rng.uniform(0.2, 0.9, (3, *shape)) for shape in shapes]
    each = [f(*slices) for slices in zip(*arrays, strict=True)]
    np.testing.assert_allclose(f(*arrays), each, rtol=1e-12, atol=1e-15)
