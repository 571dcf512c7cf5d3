"""Decompositions: those of `jnp.linalg` with their derivatives, for one matrix and for batches, and
NaN for what is not finite.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import linalg
from specjax.spectral import SVD

X = np.random.default_rng(0).normal(size=(3, 2, 4, 6)).astype(np.float32)
SQUARE = X[..., :4] + np.swapaxes(X[..., :4], -1, -2)


@pytest.mark.parametrize("x", [X[0, 0], X, np.swapaxes(X, -1, -2)], ids=["one", "wide", "tall"])
def test_singular_value_decompositions_are_compact(x):
    u, s, vh = jax.jit(linalg.svd)(x)
    np.testing.assert_allclose((u * s[..., None, :]) @ vh, x, atol=1e-5)
    np.testing.assert_allclose(s, np.linalg.svd(x, compute_uv=False), rtol=1e-5)
    np.testing.assert_allclose(jax.jit(linalg.singular_values)(x), s, rtol=1e-5)
    assert u.shape[-1] == vh.shape[-2] == 4


def test_the_others_are_those_of_numpy():
    values, vectors = jax.jit(linalg.eigh)(SQUARE)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(SQUARE), atol=1e-5)
    np.testing.assert_allclose(jax.jit(linalg.eigvalsh)(SQUARE), values, atol=1e-5)
    np.testing.assert_allclose(SQUARE @ vectors, vectors * values[..., None, :], atol=1e-5)
    lower = np.tril(SQUARE) + 9 * np.triu(np.ones((4, 4), np.float32), 1)
    of_lower = jax.jit(lambda h: linalg.eigh(h, symmetrize_input=False)[0])
    np.testing.assert_allclose(of_lower(lower), values, atol=1e-5)
    q, r = jax.jit(linalg.qr)(X)
    np.testing.assert_allclose(q @ r, X, atol=1e-5)
    np.testing.assert_allclose(
        np.swapaxes(q, -1, -2) @ q, np.broadcast_to(np.eye(4), (3, 2, 4, 4)), atol=1e-5
    )


def through(svd):
    """A function of all parts that no sign of a singular vector changes."""

    def function(x):
        u, s, vh = svd(x)
        return jnp.sum(jnp.sin(u[..., :, :2] * s[..., None, :2] @ vh[..., :2, :])) + jnp.sum(s**3)

    return function


@pytest.mark.integration
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("tall", [False, True])
def test_derivatives_of_both_modes_and_orders_are_those_of_jax(tall):
    x = np.swapaxes(X, -1, -2)[0] if tall else X[0]
    x = x.astype(np.float64)
    dx = np.cos(3 * x)
    ours, theirs = (
        through(f) for f in (linalg.svd, lambda x: jnp.linalg.svd(x, full_matrices=False))
    )
    for derivative in (
        lambda f: jax.jvp(f, (x,), (dx,))[1],
        lambda f: jax.grad(f)(x),
        lambda f: jax.jvp(jax.grad(f), (x,), (dx,))[1],
        lambda f: jax.vmap(jax.grad(f))(x),
    ):
        found, expected = (jax.jit(lambda f=f: derivative(f))() for f in (ours, theirs))  # noqa: B023
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n", [3, 40])
@pytest.mark.parametrize("decomposed", [linalg.svd, linalg.singular_values, SVD()])
def test_of_an_infinite_matrix_everything_is_nan(decomposed, n):
    """LAPACK, given the matrix itself, finds finite vectors and infinite values, or may not return
    at all.
    """
    x = np.random.default_rng(0).normal(size=(n, n)).astype(np.float32)
    x[1, 0] = np.inf
    assert all(np.isnan(part).all() for part in jax.tree.leaves(jax.jit(decomposed)(x)))


def test_under_vmap_no_matrix_is_decomposed_twice():
    """The second try stays in a loop, which ends before it begins; in a `cond` it would be made for
    every matrix.
    """
    text = jax.jit(linalg.svd).trace(X).lower(lowering_platforms=("cpu",)).as_text()
    again = text.index("gesvd")
    assert "stablehlo.while" in text[:again]
    assert text.count("gesvd") == text.count("gesdd") == 1
