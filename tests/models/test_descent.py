"""Paths against a direction, by a loop in NumPy."""

import jax.numpy as jnp
import numpy as np
import pytest

from specjax.models import descent


@pytest.mark.usefixtures("x64")
def test_a_path_is_a_loop_with_rates_per_run_and_projection():
    rng = np.random.default_rng(0)
    start, rates, target = (
        rng.standard_normal((2, 3, 3)),
        rng.random((4, 2)),
        rng.standard_normal((3, 3)),
    )

    def project(x):
        return (x + jnp.swapaxes(x, -1, -2)) / 2

    found = descent.path(
        jnp.asarray(start), jnp.asarray(rates), lambda x: x - jnp.asarray(target)[None], project
    )
    for run, x in enumerate(start):
        for t in range(4):
            moved = x - rates[t, run] * (x - target)
            x = (moved + moved.T) / 2
            np.testing.assert_allclose(found[t, run], x, rtol=1e-12)


@pytest.mark.usefixtures("x64")
def test_a_path_omits_its_start_and_projects_nothing_by_default():
    found = descent.path(jnp.ones((2, 3)), jnp.asarray([0.5, 0.5]), lambda x: x)
    np.testing.assert_array_equal(found, np.array([0.5, 0.25])[:, None, None] * np.ones((2, 3)))
