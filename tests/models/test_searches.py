"""What stands in for `jnp.nonzero` and `jnp.searchsorted` gives what they give, within a scope of
64 bits too.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.models.associative_memory._searches import passed, true_places

MASK = np.random.default_rng(0).random(50) < 0.3


@pytest.mark.parametrize("size", [1, 10, 50, 64])
@pytest.mark.parametrize(
    "mask", [MASK, np.zeros(50, bool), np.ones(50, bool)], ids=["some", "none", "all"]
)
def test_true_places_are_those_of_nonzero(mask, size):
    expected = np.concatenate([np.flatnonzero(mask), np.full(64, 50)])[:size]
    np.testing.assert_array_equal(jax.jit(true_places, static_argnums=1)(mask, size), expected)


def test_values_have_passed_what_numpy_says():
    thresholds = np.sort(np.random.default_rng(1).integers(0, 9, 20)).astype(np.float32)
    values = np.concatenate([thresholds, [-1.0, 4.5, 9.0]]).astype(np.float32)
    np.testing.assert_array_equal(
        jax.jit(passed)(thresholds, values), np.searchsorted(thresholds, values, "right")
    )


def test_within_a_scope_of_64_bits_of_a_function_of_32():
    def function(x):
        with jax.enable_x64(True):
            wide = jnp.cumsum(jnp.abs(x.astype(jnp.float64))) + 1e-12
            # 1e-13 apart, which is nothing in float32.
            found = passed(wide, jnp.stack([wide[3] - 1e-13, wide[3] + 1e-13]))
            return found, true_places(wide > wide[3], 2).astype(jnp.int32)

    counts, places = jax.jit(jax.vmap(function))(np.full((2, 6), 0.5, np.float32))
    np.testing.assert_array_equal(counts, [[3, 4]] * 2)
    np.testing.assert_array_equal(places, [[4, 5]] * 2)
