import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.theory.angles import arc_cosine_0, arc_cosine_1, arccos


@pytest.mark.parametrize("theta", [0.0, 0.4, np.pi / 2, 2.5, np.pi])
@pytest.mark.usefixtures("x64")
def test_the_kernels_are_averages_over_the_plane(theta):
    """E over x ~ N(0, I_2) in polar coordinates: E r² = 2, and the angle of x is uniform."""
    phi = np.linspace(-np.pi, np.pi, 400_001)[:-1]
    u, v = np.cos(phi), np.cos(phi - theta)
    assert arc_cosine_0(jnp.asarray(theta)) == pytest.approx(np.mean((u > 0) & (v > 0)), abs=1e-5)
    assert arc_cosine_1(jnp.asarray(theta)) == pytest.approx(2 * np.mean(np.maximum(u, 0) * np.maximum(v, 0)), abs=1e-9)


def test_arccos_is_that_of_numpy_to_a_few_roundings():
    # Evenly in the cosine, and evenly in the angle, which is dense near the ends.
    x = np.concatenate([np.linspace(-1, 1, 100_001), np.cos(np.linspace(0, np.pi, 100_001))]).astype(np.float32)
    error = np.abs(np.asarray(arccos(jnp.asarray(x)), np.float64) - np.arccos(x.astype(np.float64)))
    assert error.max() < 5e-7
    # Relative to the angle where it is small, and of the sign that the cosine has near π/2.
    small = x > 0.9999
    assert np.max(error[small] / np.maximum(np.arccos(x[small].astype(np.float64)), 1e-30)) < 5e-7
    assert np.isnan(arccos(jnp.asarray([1.0001, -1.0001]))).all()


@pytest.mark.usefixtures("x64")
def test_arccos_in_float64_and_its_derivatives():
    x = jnp.asarray([-0.999, -0.3, 0.0, 0.5, 0.999])
    np.testing.assert_array_equal(arccos(x), jnp.arccos(x))
    for derivative in (jax.grad, lambda f: jax.grad(jax.grad(f))):
        for dtype, rtol in ((jnp.float64, 1e-12), (jnp.float32, 2e-4)):
            found, expected = (jax.vmap(derivative(f))(x.astype(dtype)) for f in (arccos, jnp.arccos))
            np.testing.assert_allclose(found, expected, rtol=rtol, atol=1e-7)
