"""Sweeps run on one BLAS thread, and give back what was set."""

import jax
import jax.numpy as jnp
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from specjax import sweep
from specjax.blas import one_blas_thread


def threads() -> list[int]:
    return [each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"]


def test_one_thread_within_and_as_many_as_before_behind():
    with threadpool_limits(limits=2, user_api="blas"):
        before = threads()
        with one_blas_thread():
            assert set(threads()) == {1}
        assert threads() == before
        with pytest.raises(RuntimeError), one_blas_thread():
            raise RuntimeError
        assert threads() == before


def test_a_sweep_runs_on_one():
    seen = []

    def measure(key):
        jax.debug.callback(lambda: seen.append(threads()))
        return {"y": jnp.linalg.svd(jax.random.normal(key, (3, 3)), compute_uv=False)}

    with threadpool_limits(limits=2, user_api="blas"):
        before = threads()
        sweep.run(
            lambda key, x: measure(key) | {"same": x},
            {"x": sweep.values(1.0)},
            num_seeds=2,
            key=jax.random.key(0),
        )
        assert threads() == before
    assert {count for counts in seen for count in counts} == {1}
