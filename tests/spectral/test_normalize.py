import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from specjax import spectral

direction_error, normalize_rows, normalize_columns = (
    jax.jit(f)
    for f in (spectral.direction_error, spectral.normalize_rows, spectral.normalize_columns)
)
X = np.random.default_rng(0).standard_normal((2, 3, 4))


@pytest.mark.usefixtures("x64")
def test_rows_and_columns_get_unit_norm_and_keep_their_direction():
    rows, columns = normalize_rows(jnp.asarray(X)), normalize_columns(jnp.asarray(X))
    for b, i in np.ndindex(2, 3):
        np.testing.assert_allclose(rows[b, i], X[b, i] / np.linalg.norm(X[b, i]), rtol=1e-14)
    for b, j in np.ndindex(2, 4):
        np.testing.assert_allclose(
            columns[b, :, j], X[b, :, j] / np.linalg.norm(X[b, :, j]), rtol=1e-14
        )


@pytest.mark.parametrize("scale", [1e-35, 1e30, 2e37])
def test_zero_rows_stay_zero_beside_rows_of_extreme_size(scale):
    x = jnp.asarray([[3.0, 4.0], [0.0, 0.0], [-5.0, 12.0]], jnp.float32) * jnp.float32(scale)
    expected = [[0.6, 0.8], [0, 0], [-5 / 13, 12 / 13]]
    np.testing.assert_allclose(normalize_rows(x), expected, rtol=1e-6)
    np.testing.assert_allclose(normalize_columns(x.T), np.transpose(expected), rtol=1e-6)


@pytest.mark.usefixtures("x64")
def test_direction_error_is_the_distance_at_the_best_step_size():
    x, target = X
    best = minimize_scalar(
        lambda c: np.linalg.norm(c * x - target) / np.linalg.norm(target), tol=1e-12
    ).fun
    assert 0.5 < best < 0.999
    assert direction_error(jnp.asarray(x), jnp.asarray(target)) == pytest.approx(best, rel=1e-12)
    batch = direction_error(jnp.asarray(X), jnp.asarray(X[::-1]))
    np.testing.assert_allclose(batch, [best, best], rtol=1e-10)


@pytest.mark.parametrize("scale", [-3.0, 1e-25, 1e25])
def test_direction_error_of_a_multiple_is_zero_to_rounding(scale):
    x = jnp.asarray(X[0], jnp.float32)
    assert direction_error(x * jnp.float32(scale), x) < 1e-6
    assert direction_error(x, x * jnp.float32(scale)) < 1e-6


def test_direction_error_resolves_small_differences_in_float32():
    x, other = jnp.asarray([[1.0, 0.0]], jnp.float32), jnp.asarray([[1.0, 1e-4]], jnp.float32)
    assert direction_error(x, other) == pytest.approx(1e-4, rel=1e-4)


def test_direction_error_of_an_orthogonal_or_zero_step_is_one():
    x = jnp.asarray([[1.0, 0.0]])
    assert direction_error(x, x[:, ::-1]) == 1
    assert direction_error(jnp.zeros((1, 2)), x) == 1
    assert jnp.isnan(direction_error(x, jnp.zeros((1, 2))))
