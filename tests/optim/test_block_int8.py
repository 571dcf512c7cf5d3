"""The momentum in eight bits against NumPy, and the bounds of both roundings."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from specjax import optim
from specjax.optim._block_int8 import Int8Blocks, decoded, encoded

RNG = np.random.default_rng(0)
SHAPES = [(3, 700), (2, 3, 256), (5,), (1, 257), (), (4, 1)]


def rounded(x):
    """Rows in blocks of 256, one after the other, to the nearest multiple of their largest entry
    over 127.
    """
    rows = np.atleast_1d(np.asarray(x, np.float64))
    result = np.zeros_like(rows)
    for index in np.ndindex(rows.shape[:-1]):
        for start in range(0, rows.shape[-1], 256):
            block = rows[index][start : start + 256]
            unit = np.abs(block).max() / 127
            result[index][start : start + 256] = np.round(block / unit) * unit
    return result.reshape(np.shape(x))


def normal(shape):
    return (RNG.standard_normal(shape) * 10 ** RNG.uniform(-3, 3)).astype(np.float32)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_to_the_nearest_it_is_numpys(shape):
    x = normal(shape)
    code = encoded(jnp.asarray(x))
    assert code.codes.dtype == jnp.int8
    assert code.codes.shape == (shape or (1,))
    found = decoded(code, shape)
    assert found.shape == shape
    np.testing.assert_allclose(found, rounded(x), rtol=2e-6)
    largest = np.abs(rounded(x)).max()
    assert np.abs(np.asarray(found) - x).max() <= largest / 254 * 1.001


@pytest.mark.integration
def test_rounding_at_random_has_the_right_mean_and_bound():
    """Of 1 and k / (4 · 127): the upper neighbour in k of 4 cases."""
    count = 20000
    for k in range(4):
        x = jnp.full((count, 2), (9 + k / 4) / 127).at[:, 0].set(-1.0)
        codes = np.asarray(encoded(x, jax.random.key(k)).codes)
        assert set(codes[:, 0]) == {-127}
        assert set(codes[:, 1]) <= {9, 10}
        share = k / 4
        error = (share * (1 - share) / count) ** 0.5
        assert abs((codes[:, 1] == 10).mean() - share) <= 4 * error
    x = jnp.asarray(normal((64, 300)))
    found = np.asarray(decoded(encoded(x, jax.random.key(5)), x.shape))
    units = np.repeat(np.asarray(encoded(x).scale), [256, 44], axis=1)
    assert (np.abs(found - x) < units * 1.001).all()
    assert (np.abs(found - x) > units / 2).any()


def test_zero_stays_zero_and_a_nan_spoils_its_block():
    x = np.ones((2, 512), np.float32)
    x[0], x[1, 300] = 0, np.inf
    found = np.asarray(decoded(encoded(jnp.asarray(x)), x.shape))
    np.testing.assert_array_equal(found[0], 0)
    assert np.isfinite(found[1, :256]).all()
    assert np.isnan(found[1, 256:]).all()
    empty = encoded(jnp.zeros((3, 0)))
    assert decoded(empty, (3, 0)).shape == (3, 0)


@pytest.mark.integration
def test_padding_and_stacking_change_nothing():
    x = jnp.asarray(normal((3, 300)))
    alone = decoded(encoded(x), x.shape)
    padded = jnp.pad(x, [(0, 2), (0, 400)])
    np.testing.assert_array_equal(decoded(encoded(padded), padded.shape)[:3, :300], alone)
    pair = jnp.stack([jnp.asarray(normal((3, 300))), x])
    np.testing.assert_array_equal(decoded(encoded(pair), pair.shape)[1], alone)


def averages(gradients, beta):
    m, found = 0 * gradients[0], []
    for g in gradients:
        full = beta * m + (1 - beta) * g
        found.append(full)
        m = rounded(full)
    return found


def test_the_momentum_is_the_recursion_on_rounded_averages():
    """The update is the average before it is rounded."""
    gradients = [normal((2, 300)) for _ in range(10)]
    transform = optim.momentum(0.9, mu_dtype="int8")
    state = transform.init(jnp.zeros((2, 300)))
    assert isinstance(state.mu, Int8Blocks)
    for g, right in zip(gradients, averages(gradients, 0.9), strict=True):
        update, state = transform.update(jnp.asarray(g), state)
        # An average beside the middle of two codes may go to either; each moves one entry.
        far = np.abs(np.asarray(update) - right) > 1e-5 * np.abs(right).max()
        assert far.mean() < 0.01
    assert state.count is None


@pytest.mark.integration
def test_at_random_it_moves_where_the_nearest_stands_still():
    """β = 0.95 and an entry that goes from 0 to 0.05 beside one of 1: its steps of 0.05 · 0.05 are
    below half of 1/127.
    """
    steps, count, beta = 200, 255, 0.95
    late = np.full((steps, count + 1), 0.05, np.float32)
    late[:, 0] = 1
    stream = jnp.asarray(np.concatenate([late * (late == 1), late]))

    def last(**options):
        transform = optim.momentum(beta, mu_dtype="int8", **options)
        step = lambda state, g: (transform.update(g, state)[1], None)  # noqa: E731
        start = transform.init(stream[0])
        return jax.jit(lambda: jax.lax.scan(step, start, stream)[0].mu)()

    assert not decoded(last(), (count + 1,))[1:].any()
    found = np.asarray(decoded(last(key=jax.random.key(0)), (count + 1,)))[1:]
    error = found.std() / count**0.5
    assert abs(found.mean() - 0.05) < 4 * error < 0.003


@pytest.mark.filterwarnings("ignore:muon without a layout")
def test_muon_keeps_its_momentum_in_eight_bits_and_adamw_its_own():
    params = {"w": jnp.ones((512, 256)), "b": jnp.ones(256)}
    for options in ({}, {"key": jax.random.key(0)}):
        state = optim.muon(0.1, mu_dtype="int8", **options).init(params)
        inner = state.inner_states["muon"].inner_state
        mu = optax.tree.get(inner, "mu")["w"]
        assert mu.codes.nbytes + mu.scale.nbytes == 512 * 256 * (1 + 4 / 256)
        others = state.inner_states["adam"].inner_state
        assert {x.dtype.name for x in jax.tree.leaves(others)} <= {"float32", "int32"}
