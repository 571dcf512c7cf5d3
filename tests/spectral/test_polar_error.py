"""The measures of polar error against their definition on known singular values, and what they must
not depend on.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import spectral
from specjax.spectral import QDWH, SVD, NewtonSchulz
from tests.reference.spectra import SHAPES, matrix_with, orthogonal

factor_error = jax.jit(spectral.polar_error.factor_error)
method_error = jax.jit(spectral.polar_error.method_error, static_argnums=(1, 2))
VALUES = np.array([1.1, 0.7, -0.2, 0.9])


def expected(p):
    """Of p(s) along the singular directions: their mean, and the root mean squares of p - 1 and p²
    - 1.
    """
    return np.mean(p), np.sqrt(np.mean((p - 1) ** 2)), np.sqrt(np.mean((p**2 - 1) ** 2)), len(p)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.usefixtures("x64")
def test_the_measures_are_averages_over_singular_directions(shape):
    r = min(shape)
    for k in {r, r - 1}:
        p = VALUES[:k]
        factor, exact = (jnp.asarray(matrix_with(v, shape, 5)) for v in (p, np.ones(k)))
        np.testing.assert_allclose(factor_error(factor, exact), expected(p), rtol=1e-13, atol=1e-13)
        padded = [jnp.pad(a, ((0, 2), (1, 3))) for a in (factor, exact)]
        np.testing.assert_allclose(factor_error(*padded), expected(p), rtol=1e-13, atol=1e-13)


@pytest.mark.usefixtures("x64")
def test_directions_count_and_not_only_singular_values():
    exact = np.eye(2)
    angle = 0.3
    turned = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    error = factor_error(jnp.asarray(turned), jnp.asarray(exact))
    np.testing.assert_allclose(error, (np.cos(angle), 2 * np.sin(angle / 2), 0, 2), atol=1e-14)
    # A direction that the exact factor does not have.
    beyond = factor_error(jnp.asarray(np.eye(3)), jnp.asarray(np.diag([1.0, 1.0, 0.0])))
    np.testing.assert_allclose(beyond, (1, np.sqrt(1 / 2), np.sqrt(1 / 2), 2), atol=1e-14)


@pytest.mark.usefixtures("x64")
def test_complex_factors():
    rng = np.random.default_rng(0)
    unitary = np.linalg.qr(rng.standard_normal((3, 3)) + 1j * rng.standard_normal((3, 3)))[0]
    phase = np.exp(0.4j)
    error = factor_error(jnp.asarray(phase * unitary), jnp.asarray(unitary))
    np.testing.assert_allclose(error, (np.cos(0.4), abs(phase - 1), 0, 3), atol=1e-14)
    assert all(part.dtype == jnp.float64 for part in error)


def test_half_precision_is_held_against_a_wider_reference():
    exact = np.float32(orthogonal(8, 0))
    rounded = jnp.asarray(exact).astype(jnp.bfloat16)
    error = factor_error(rounded, jnp.asarray(exact))
    assert all(part.dtype == jnp.float32 for part in error)
    # bfloat16 keeps 8 bits: an entry moves by up to 2^-9 of itself, on the average by a quarter to
    # a half of that.
    by_hand = np.linalg.norm(np.asarray(rounded, np.float64) - exact) / np.sqrt(8)
    np.testing.assert_allclose(error.distance, by_hand, rtol=1e-5)
    assert 2**-11 < by_hand < 2**-8


def test_small_errors_keep_their_digits():
    exact = jnp.eye(4)
    error = factor_error(exact * (1 - 1e-6), exact)
    # 1 - 1e-6 as float32 is 1 - 17 · 2^-24.
    np.testing.assert_allclose(error.distance, 17 * 2.0**-24, rtol=1e-6)
    np.testing.assert_allclose(1 - np.float64(error.alignment), 17 * 2.0**-24, rtol=1e-6)


def test_zero_and_nan():
    zero = jnp.zeros((2, 3))
    np.testing.assert_array_equal(method_error(zero, NewtonSchulz(), SVD()), (1, 0, 0, 0))
    error = method_error(zero.at[0, 0].set(jnp.nan), NewtonSchulz(), SVD())
    assert all(np.isnan(part) for part in error)


@pytest.mark.integration
@pytest.mark.usefixtures("x64")
def test_a_method_has_the_error_of_its_polynomials():
    values = np.array([[1.0, 1e-1, 1e-2, 1e-3], [1.0, 1.0, 1.0, 1.0]])
    x = jnp.asarray([1e-8 * matrix_with(v, (4, 9), 2) for v in values])
    method = NewtonSchulz(5)
    ends = values / np.linalg.norm(values, axis=1, keepdims=True)
    for p in method.polynomials():
        ends = p(ends)
    error = method_error(x, method, SVD())
    assert error.alignment.shape == (2,)
    np.testing.assert_allclose(
        np.stack(error, axis=1), [expected(p) for p in ends], rtol=1e-9, atol=1e-9
    )
    mapped = jax.jit(jax.vmap(lambda x: spectral.polar_error.method_error(x, method)))(x)
    np.testing.assert_allclose(mapped, error, rtol=1e-12, atol=1e-12)
    exact = method_error(x, QDWH(), SVD())
    np.testing.assert_allclose(np.stack(exact, axis=1), [[1, 0, 0, 4]] * 2, atol=1e-12)


@pytest.mark.integration
def test_the_rank_says_when_the_reference_has_lost_directions():
    x = jnp.asarray(matrix_with([1.0, 1e-3, 1e-7], (3, 5), 1), jnp.float32)
    assert method_error(x, NewtonSchulz(), SVD()).rank == pytest.approx(2, abs=1e-5)
    with jax.enable_x64(True):
        x = jnp.asarray(matrix_with([1.0, 1e-3, 1e-7], (3, 5), 1))
        assert method_error(x, NewtonSchulz(), SVD()).rank == pytest.approx(3, abs=1e-12)
