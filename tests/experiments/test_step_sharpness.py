"""The curvature along a step, of a quadratic whose Hessian is known."""

import jax.numpy as jnp
import numpy as np
import pytest

from specjax.experiments.submitted.step_sharpness import sharpness


def test_sharpness_is_the_rayleigh_quotient_of_the_hessian():
    rng = np.random.default_rng(0)
    hessian, w, step = rng.normal(size=(12, 12)), rng.normal(size=(3, 4)), rng.normal(size=(3, 4))
    hessian = hessian + hessian.T
    known = jnp.array(hessian, jnp.float32)

    def loss(w):
        return w.ravel() @ known @ w.ravel() / 2 + jnp.sum(w)

    flat = step.ravel()
    expected = flat @ hessian @ flat / (flat @ flat)
    found = sharpness(loss, jnp.array(w, jnp.float32), jnp.array(step, jnp.float32))
    assert float(found) == pytest.approx(expected, rel=1e-4)
