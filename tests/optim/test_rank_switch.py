"""The switch takes the better of two guaranteed decreases."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from specjax import optim, spectral
from specjax.optim.rank_switch import nuclear_rank
from specjax.spectral import NewtonSchulz
from specjax.spectral.polynomials import CUBIC
from tests.reference.spectra import matrix_with

SPECTRAL, EUCLIDEAN = optim.orthogonalize(), optax.scale(2.0)


def step(updates, stable_ranks, **arguments):
    transform = optim.rank_switch(SPECTRAL, EUCLIDEAN, **arguments)
    return jax.jit(lambda u, ranks: transform.update(u, transform.init(u), stable_ranks=ranks))(
        updates, stable_ranks
    )


@pytest.mark.integration
def test_each_leaf_and_each_matrix_of_a_stack_decides_for_itself():
    low, high = (
        np.asarray(matrix_with(s, (4, 5), 0), np.float32)
        for s in ([1.0, 0.01, 0.01, 0.01], [1.0] * 4)
    )
    updates = jax.tree.map(jnp.asarray, {"a": low, "b": high, "stack": np.stack([low, high, high])})
    chosen, state = step(updates, {"a": 2.0, "b": 2.0, "stack": jnp.array([2.0, 2.0, 5.0])})
    assert [bool(state.took_spectral[name]) for name in "ab"] == [False, True]
    assert state.took_spectral["stack"].tolist() == [False, True, False]
    ortho, _ = jax.jit(lambda u: SPECTRAL.update(u, SPECTRAL.init(u)))(updates)
    np.testing.assert_allclose(chosen["a"], 2 * low)
    np.testing.assert_allclose(chosen["b"], ortho["b"], atol=2e-5)
    np.testing.assert_allclose(
        chosen["stack"], np.stack([2 * low, ortho["b"], 2 * high]), atol=2e-5
    )


@pytest.mark.parametrize("method", [None, NewtonSchulz(40, CUBIC)], ids=["svd", "iteration"])
def test_the_threshold_is_the_nuclear_rank_at_any_size(method):
    g = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
    s = np.linalg.svd(g, compute_uv=False)
    below, above = (factor * s.sum() ** 2 / np.sum(s**2) for factor in (0.999, 1.001))
    # All are matrices of one stack, so that one program decides on each.
    stack = jnp.asarray([size * g for size in np.float32([1e-30, 1.0, 1e30]) for _ in range(2)])
    _, state = step(stack, jnp.asarray([below, above] * 3), method=method)
    assert state.took_spectral.tolist() == [True, False] * 3


@pytest.mark.integration
def test_it_takes_the_larger_guaranteed_decrease():
    """The bounds of the module's text, for gradients of every rank and activations of every stable
    rank.
    """
    transform = optim.rank_switch(SPECTRAL, EUCLIDEAN)
    update = jax.jit(transform.update)
    rng = np.random.default_rng(0)
    for _ in range(10):
        g = rng.standard_normal((4, 6)) * rng.uniform(0.01, 1, (4, 1)) ** 3
        activations = rng.standard_normal((6, 9)) * rng.uniform(0.01, 1, (6, 1)) ** 2
        s, a = np.linalg.svd(g)[1], np.linalg.svd(activations)[1]
        better = s.sum() ** 2 / np.sum(a**2) > np.sum(s**2) / a[0] ** 2
        stable_rank = jnp.float32(spectral.stable_rank(jnp.asarray(activations, jnp.float32)))
        gradient = jnp.asarray(g, jnp.float32)
        _, state = update(gradient, transform.init(gradient), stable_ranks=stable_rank)
        assert bool(state.took_spectral) == better


def test_nan_and_zero_take_the_euclidean_step():
    gradients = jnp.stack(
        [jnp.full((2, 2), jnp.nan), jnp.full((2, 2), jnp.inf), jnp.zeros((2, 2)), *[jnp.eye(2)] * 2]
    )
    _, state = step(gradients, jnp.array([1.0, 1.0, 1.0, jnp.nan, 1.0]))
    assert state.took_spectral.tolist() == [False, False, False, False, True]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    ("shape", "sizes"), [((4, 6), [1e-7, 1.0, 1e4]), ((500, 400), [1.0])], ids=str
)
def test_nuclear_rank_in_half_precision_is_that_of_its_numbers(dtype, shape, sizes):
    """In float16 the squares of 1e-7 and of 1e4, and the square of a sum of 400 singular values,
    are out of range.
    """
    draws = np.random.default_rng(0).standard_normal((2, *shape))
    g = jnp.asarray(np.concatenate([size * draws for size in sizes]), dtype)
    s = np.linalg.svd(np.asarray(g, float), compute_uv=False)
    found = jax.jit(lambda g: nuclear_rank(g, NewtonSchulz(30, CUBIC)))(g)
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, s.sum(axis=1) ** 2 / (s**2).sum(axis=1), rtol=1e-3)


def test_missing_and_misshapen_stable_ranks_are_refused():
    g = jnp.ones((3, 2, 2))
    transform = optim.rank_switch(SPECTRAL, EUCLIDEAN)
    with pytest.raises(ValueError, match=r"stable_ranks=tree"):
        transform.update(g, transform.init(g))
    with pytest.raises(ValueError, match=r"batch shape \(3,\) of its leaf, got shape \(2,\)"):
        step(g, jnp.ones(2))
    with pytest.raises(ValueError, match="got None"):
        step(g, None)


@pytest.mark.integration
def test_a_zero_matrix_takes_the_euclidean_step():
    step, zero = optim.rank_switch(optim.orthogonalize(), optax.identity()), jnp.zeros((3, 3))
    _, state = step.update(zero, step.init(zero), zero, stable_ranks=0.0)
    assert not state.took_spectral
