"""Seeds that diverge are named, and dropped only when asked."""

# ruff: noqa: ARG001 (a measurement is called by its argument names, whether it uses them or not)

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from measures import diverging

from specjax.sweep import FailedSeedsWarning, run, values, widths, without_failed

KEY = jax.random.key(11)
OVER = {"d": widths(2, 4), "lr": values(1.0, 2.0)}


def _diverged(seeds):
    return [s for s in range(seeds) if jax.random.uniform(jax.random.fold_in(KEY, s)) > 0.5]


@pytest.mark.integration
def test_failed_seeds_are_flagged_where_they_failed_and_named():
    expected = _diverged(20)
    first = f"{len(expected)} of 20 seeds .*seed {expected[0]} at d=2, lr=2.0.*without_failed"
    with pytest.warns(FailedSeedsWarning, match=first):
        data = run(diverging, OVER, num_seeds=20, key=KEY, plan="padded", chunk=6)
    assert json.loads(data.attrs["failed_seeds"]) == expected
    assert data["failed"].dims == ("d", "lr", "seed")
    assert not data["failed"].sel(lr=1.0).any()
    for d in (2, 4):
        assert np.flatnonzero(data["failed"].sel(d=d, lr=2.0)).tolist() == expected


def test_without_failed_drops_a_seed_everywhere():
    with pytest.warns(FailedSeedsWarning):
        data = run(diverging, OVER, num_seeds=20, key=KEY)
    kept = without_failed(data)
    assert kept["seed"].values.tolist() == sorted(set(range(20)) - set(_diverged(20)))
    assert np.isfinite(kept["y"]).all()
    assert kept["y"].sizes["d"] == 2


@pytest.mark.filterwarnings("ignore::specjax.sweep.EqualSeedsWarning")
def test_an_inner_nan_of_one_output_fails_the_seed():
    def measure(key, d):
        return {"fine": jnp.zeros(()), "vector": jnp.array([1.0, jnp.nan, 2.0])}

    with pytest.warns(FailedSeedsWarning, match="2 of 2 seeds"):
        data = run(measure, {"d": widths(3)}, num_seeds=2, key=KEY)
    with pytest.raises(ValueError, match="All 2 seeds failed"):
        without_failed(data)


def test_without_failed_refuses_other_datasets():
    data = run(diverging, {"d": widths(2), "lr": values(1.0)}, num_seeds=2, key=KEY)
    assert json.loads(data.attrs["failed_seeds"]) == []
    with pytest.raises(ValueError, match="variable 'failed'"):
        without_failed(data.drop_vars("failed"))
