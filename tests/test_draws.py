"""Samples are the same under every version of JAX, so that records that name an older one stay
comparable.

The numbers were printed under jax 0.10.1 on Python 3.11, on 27 November 2026. That machine gave
the same bits under 0.11.2 and 0.12.0.1.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import sizes, sweep
from specjax.models import associative_memory as memory

KEY = jax.random.key(7)


def test_keys_are_the_same():
    data = [
        jax.random.key_data(key).tolist()
        for key in (jax.random.fold_in(KEY, 12), sizes.stream(KEY, "items"))
    ]
    assert data == [[4175731086, 1265433085], [3517281918, 147388007]]


def test_uniform_draws_and_signs_are_the_same_bits():
    assert (
        np.asarray(sizes.uniform(KEY, (2, 3))).tobytes().hex()
        == "fe0b5e3f9e6a0e3f58f2993e8ed52c3f4c80533fa0b8c93e"
    )
    assert sizes.rademacher(KEY, (2, 3)).tolist() == [[-1, -1, 1], [-1, -1, 1]]


def test_normal_draws_are_the_same():
    """To two units of the last place, since processors differ in how they round a product and a
    sum.
    """
    expected = np.frombuffer(
        bytes.fromhex("19998e3fcb07113e8fbf05bf3084e83ef96c703feab289be"), np.float32
    )
    np.testing.assert_allclose(sizes.normal(KEY, (2, 3)).ravel(), expected, rtol=2.4e-7)


def test_the_seeds_of_a_sweep_are_the_same_at_every_width():
    over = {"d": sweep.widths(2, 5)}
    found = sweep.run(
        lambda key, d: {"first": jnp.sum(sizes.normal(key, (d, 2))[:1, :1])},
        over,
        num_seeds=3,
        key=KEY,
    )
    expected = np.frombuffer(bytes.fromhex("a1d061bfa1b630bf81d1683f"), np.float32)
    np.testing.assert_allclose(found["first"], [expected, expected], rtol=2.4e-7)


@pytest.mark.integration
def test_the_items_of_a_minibatch_are_the_same():
    counts = np.rint(40 * np.asarray(memory.minibatch(KEY, memory.power_law(50, 1.5), 40))).astype(
        int
    )
    assert counts[:9].tolist() == [21, 5, 2, 2, 2, 0, 1, 0, 0]
    assert np.flatnonzero(counts[9:]).tolist() == [0, 4, 8, 10, 11, 17, 20]
