"""A measurement with a scope of 64 bits of its own: sweeps keep it, wherever it is."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from specjax import sizes, sweep


def least(x):
    """The logarithm of the least singular value of a matrix of condition 1e10, of which float32 has
    no digit.
    """
    with jax.enable_x64(True):
        q = jnp.linalg.qr(x.astype(jnp.float64))[0]
        narrow = q * np.geomspace(1.0, 1e-10, 4)[None, :]
        scaled = lax.fori_loop(0, 2, lambda _, y: y * 2, narrow @ q.T)
        return jnp.log10(jnp.linalg.svd(scaled)[1][-1]).astype(jnp.float32)


def rest(x):
    """What is left of 1e-12 beside a number of order one: nothing in float32."""
    with jax.enable_x64(True):
        wide = x.astype(jnp.float64)
        return jnp.max(jnp.abs((wide + 1e-12 - wide) * 1e12)).astype(jnp.float32)


def in_a_scan(function):
    return lambda x: lax.scan(lambda c, y: (c, function(y)), 0, jnp.stack([x, 2 * x]))[1]


def in_a_map(function):
    return lambda x: lax.map(function, jnp.stack([x, 2 * x]))


def in_a_branch(function):
    return lambda x: lax.cond(x[0, 0] > 0, function, lambda x: function(-x), x)


def in_a_loop(function):
    return lambda x: lax.while_loop(
        lambda c: c[0] < 2, lambda c: (c[0] + 1, function(x)), (0, jnp.float32(0))
    )[1]


def in_a_call(function):
    return jax.jit(lambda x: jax.checkpoint(function)(x))


@pytest.mark.integration
@pytest.mark.parametrize(
    ("function", "expected"), [(least, np.log10(4e-10)), (rest, 1.0)], ids=["least", "rest"]
)
@pytest.mark.parametrize(
    "place", [lambda f: f, in_a_scan, in_a_map, in_a_branch, in_a_loop, in_a_call]
)
def test_a_scope_of_64_bits_stays(function, expected, place):
    def measure(key, rate):
        turns = lax.fori_loop(0, 3, lambda i, n: n + i, 0)
        return {"turns": turns, "found": place(function)(rate * sizes.normal(key, (4, 4)))}

    found = sweep.run(measure, {"rate": sweep.values(1.0, 3.0)}, num_seeds=3, key=jax.random.key(0))
    np.testing.assert_allclose(found["found"], expected, atol=2e-3)
    # Beside the scope whole numbers have 32 bits.
    assert found["turns"].dtype == np.int32
    assert (found["turns"] == 3).all()
