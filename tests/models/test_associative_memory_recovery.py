"""The staged count of recovered items against the dense test in exact arithmetic, ties and
duplicates included.
"""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specjax.models import associative_memory as memory
from specjax.models.associative_memory import recovery

pytestmark = pytest.mark.integration

N, D = 300, 3


@pytest.fixture(autouse=True, scope="module")
def small_blocks():
    """Blocks so small that 300 items go through every stage, in blocks that do not divide them."""
    small = {"FIRST": 7, "STAGES": (31, 100), "ROWS": 16, "COLUMNS": 23, "ALL_ROWS": 64, "PAIRS": 2}
    before = {name: getattr(recovery, name) for name in small}
    for name, value in small.items():
        setattr(recovery, name, value)
    yield
    for name, value in before.items():
        setattr(recovery, name, value)


@pytest.fixture(scope="module")
def staged():
    """One compiled program for all problems of (N, D)."""
    # A new function: of the library's own JAX may hold a trace with larger blocks.
    return jax.jit(lambda u, v, w: memory.recovered(u, v, w))


queries = jax.jit(memory.queries)


def dense(u, v, w):
    """Every comparison in rational arithmetic, of the same float32 queries."""
    y = np.asarray(queries(v, w))
    exact_u, exact_y = ([[Fraction(float(x)) for x in row] for row in a] for a in (u, y))
    logits = [
        [sum(a * b for a, b in zip(row, query, strict=True)) for row in exact_u]
        for query in exact_y
    ]
    return np.array(
        [
            all(own[i] > other for j, other in enumerate(own) if j != i)
            for i, own in enumerate(logits)
        ]
    )


def float64(u, v, w):
    """The dense test in float64; enough where no two logits come near each other."""
    y = np.asarray(queries(v, w), np.float64)
    logits = y @ np.asarray(u, np.float64).T
    own = np.diagonal(logits).copy()
    np.fill_diagonal(logits, -np.inf)
    return own > logits.max(axis=1)


def gaussian(seed):
    rng = np.random.default_rng(seed)
    u, v = rng.standard_normal((2, N, D)).astype(np.float32)
    weights = np.arange(1, N + 1, dtype=np.float32) ** -1.5
    return u, v, (u * weights[:, None]).T @ v


@given(seed=st.integers(0, 10**6))
def test_gaussian_items(staged, seed):
    problem = gaussian(seed)
    np.testing.assert_array_equal(staged(*problem), float64(*problem))


@given(seed=st.integers(0, 10**6), span=st.sampled_from([1, 2, 5]), zeros=st.booleans())
def test_ties_and_duplicates_of_small_integers(staged, seed, span, zeros):
    """Integer items make many exact ties, duplicates of items, and (of v) duplicates of queries."""
    rng = np.random.default_rng(seed)
    u, v = rng.integers(-span, span + 1, (2, N, D)).astype(np.float32)
    u[: N // 2] *= 3
    w = rng.integers(-2, 3, (D, D)).astype(np.float32)
    if zeros:
        v[rng.random(N) < 0.3] = 0
        u[rng.random(N) < 0.3] = 0
    expected = float64(u, v, w)
    np.testing.assert_array_equal(staged(u, v, w), expected)


@given(seed=st.integers(0, 10**6))
def test_duplicates_are_not_recovered_but_neighbours_are(staged, seed):
    """Copies, exact or off by one unit in the last place, of the items that win."""
    rng = np.random.default_rng(seed)
    u, v = rng.standard_normal((2, N, D)).astype(np.float32)
    v = (u / np.linalg.norm(u, axis=1, keepdims=True)).astype(np.float32)
    u[:] = v
    copies = rng.permutation(N)[: 2 * (N // 3)].reshape(2, -1)
    u[copies[0]] = u[copies[1]]
    up = rng.random(copies.shape[1]) < 0.5
    u[copies[0][up]] = np.nextafter(u[copies[0][up]], np.float32(9))
    w = np.eye(D, dtype=np.float32)
    found = np.asarray(staged(u, v, w))
    y = np.asarray(queries(v, w), np.longdouble)
    # Differences of float32 numbers times float32 numbers are exact in 80 bits here.
    margins = np.stack([((u[i].astype(np.longdouble) - u) * y[i]).sum(axis=1) for i in range(N)])
    np.fill_diagonal(margins, 1)
    expected = (margins > 0).all(axis=1)
    np.testing.assert_array_equal(found, expected)
    assert not found[copies[1][~up]].any()


def test_rational_arithmetic_agrees(staged):
    u, v, w = gaussian(0)
    u[10] = u[3]
    np.testing.assert_array_equal(staged(u, v, w), dense(u, v, w))


def test_nothing_is_recovered_by_zero_and_by_what_is_not_finite(staged):
    u, v, w = gaussian(1)
    assert staged(u, v, w).any()
    assert not staged(u, v, 0 * w).any()
    assert not staged(u, v, np.full_like(w, np.nan)).any()
    assert not staged(u, 0 * v, w).any()
    broken = v.copy()
    broken[0] = np.nan
    np.testing.assert_array_equal(staged(u, broken, w)[1:], staged(u, v, w)[1:])
    assert not staged(u, broken, w)[0]


@pytest.mark.parametrize("power", [-60, 60])
def test_scales_do_not_matter(staged, power):
    u, v, w = gaussian(2)
    expected = staged(u, v, w)
    np.testing.assert_array_equal(staged(u, v, np.ldexp(w, power)), expected)
    np.testing.assert_array_equal(staged(np.ldexp(u, power), v, w), expected)
    np.testing.assert_array_equal(
        staged(u, np.ldexp(v, np.arange(N)[:, None] % 40 - 20), w), expected
    )


def test_recovery_is_equivariant(staged):
    """Proposition C.1: turning u, v and W together changes no logit, so no recovery, up to rounding
    of near ties.
    """
    u, v, w = gaussian(3)
    rng = np.random.default_rng(3)
    left, right = (
        np.linalg.qr(rng.standard_normal((D, D)))[0].astype(np.float32) for _ in range(2)
    )
    np.testing.assert_array_equal(staged(u @ left, v @ right, left.T @ w @ right), staged(u, v, w))


def test_batches_and_vmap_and_few_items(staged):
    u, v, w = gaussian(4)
    ws = np.stack([w, -w, w.T])
    expected = np.stack([staged(u, v, x) for x in ws])
    us, vs = (np.broadcast_to(a, (3, *a.shape)) for a in (u, v))
    np.testing.assert_array_equal(staged(us, vs, ws), expected)
    mapped = jax.jit(jax.vmap(memory.recovered, in_axes=(None, None, 0)))(u, v, ws)
    np.testing.assert_array_equal(mapped, expected)
    two = u[:2], v[:2], w
    np.testing.assert_array_equal(staged(*two), float64(*two))


def test_float64_problems(staged):
    with jax.enable_x64(True):
        problem = tuple(a.astype(np.float64) for a in gaussian(5))
        np.testing.assert_array_equal(staged(*problem), float64(*problem))


def test_count_and_prefix():
    mask = jnp.asarray([[True, True, False, True], [False, True, True, True], [True] * 4])
    np.testing.assert_array_equal(memory.count(mask), [3, 3, 4])
    np.testing.assert_array_equal(memory.prefix(mask), [2, 0, 4])
