"""Sweeps with a stream of randomness each."""

import jax
import numpy as np
import pytest
import xarray as xr

from specjax import lab, sizes, sweep

KEY = jax.random.key(3)


def measure(key, scale):
    return {"x": scale * jax.random.normal(key)}


@pytest.mark.integration
def test_a_sweep_has_the_stream_of_its_name():
    found = lab.seeded_sweep(KEY, "one", measure, 3, scale=sweep.values(1.0, 2.0))
    expected = sweep.run(
        measure, {"scale": sweep.values(1.0, 2.0)}, num_seeds=3, key=sizes.stream(KEY, "one")
    )
    xr.testing.assert_equal(found, expected)
    other = lab.seeded_sweep(KEY, "other", measure, 3, scale=sweep.values(1.0, 2.0))
    assert not np.any(found["x"] == other["x"])
