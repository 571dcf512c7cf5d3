from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import sizes
from specjax.theory.angles import angle_mean, arc_cosine_0, arc_cosine_1, arccos
from tests.reference import angles as reference
from tests.reference.moments import simulate

FUNCTIONS = {
    "one": lambda t: t * 0 + 1,
    "angle": lambda t: t,
    "cosine squared": lambda t: jnp.cos(t) ** 2,
    "wiggly": lambda t: jnp.exp(jnp.sin(7 * t)),
    "kernel squared": lambda t: arc_cosine_1(t) ** 2,
}
every_function = pytest.mark.parametrize("q", FUNCTIONS.values(), ids=FUNCTIONS)
DIMENSIONS = [1, 2, 3, 4, 5, 7, 25, 41, 300, 1000, 100_000]


@cache
def mean_of(q):
    """One program of each function for all tests of one precision."""
    return jax.jit(partial(angle_mean, q))


@pytest.mark.integration
@every_function
@pytest.mark.usefixtures("x64")
def test_averages_agree_with_adaptive_quadrature(q):
    measured, compiled = np.asarray(mean_of(q)(np.array(DIMENSIONS))), jax.jit(q)
    expected = [reference.angle_mean(lambda t: float(compiled(t)), d) for d in (1, 2, 3, 25, 1000)]
    chosen = [DIMENSIONS.index(d) for d in (1, 2, 3, 25, 1000)]
    np.testing.assert_allclose(measured[chosen], expected, rtol=2e-12)
    assert float(mean_of(q)(25)) == pytest.approx(measured[DIMENSIONS.index(25)], rel=1e-14)


@pytest.mark.integration
@pytest.mark.usefixtures("x64")
def test_the_cosine_squared_averages_to_one_over_d():
    """cos θ is one coordinate of a point on the sphere, so its square averages to 1/d, and its
    fourth power to 3/(d(d+2)).
    """
    d = np.array(DIMENSIONS, float)
    second, fourth = jax.jit(
        lambda d: [angle_mean(lambda t, p=p: jnp.cos(t) ** p, d) for p in (2, 4)]
    )(d)
    np.testing.assert_allclose(second, 1 / d, rtol=1e-11)
    np.testing.assert_allclose(fourth, 3 / (d * (d + 2)), rtol=1e-11)


@pytest.mark.integration
@every_function
def test_float32_keeps_five_digits_at_every_dimension(q):
    measured = mean_of(q)(np.array(DIMENSIONS))
    assert measured.dtype == jnp.float32
    with jax.enable_x64(True):
        exact = mean_of(q)(np.array(DIMENSIONS))
    np.testing.assert_allclose(measured, exact, rtol=1e-5)


@pytest.mark.integration
def test_dimensions_have_any_shape():
    d = np.array([[2, 3, 4], [5, 6, 7]])
    averages = np.asarray(angle_mean(jnp.cos, d)) + np.asarray(angle_mean(jnp.sin, d))
    assert averages.shape == (2, 3)
    of_one = jax.jit(partial(angle_mean, lambda t: jnp.cos(t) + jnp.sin(t)))
    for i in np.ndindex(2, 3):
        assert averages[i] == pytest.approx(float(of_one(d[i])), rel=1e-5)


def functions(t):
    return jnp.stack([t**2, arc_cosine_1(t) ** 2])


@jax.jit
def means(d):
    return jnp.stack([angle_mean(lambda t, i=i: functions(t)[i], d) for i in (0, 1)])


@pytest.mark.integration
@pytest.mark.parametrize("d", [1, 2, 5])
def test_averages_agree_with_simulated_angles(d):
    def draw(key):
        u, v = sizes.normal(key, (2, d))
        return functions(
            jnp.arccos(jnp.clip(u @ v / jnp.linalg.norm(u) / jnp.linalg.norm(v), -1, 1))
        )

    mean, error = simulate(draw, jax.random.key(1), chunks=100)
    exact, neighbour = (np.asarray(means(n)) for n in (d, d + 1))
    assert (np.abs(mean - exact) < 4 * error).all()
    assert (np.abs(mean - neighbour) > 8 * error).all()


@pytest.mark.parametrize("theta", [0.0, 0.4, np.pi / 2, 2.5, np.pi])
@pytest.mark.usefixtures("x64")
def test_the_kernels_are_averages_over_the_plane(theta):
    """E over x ~ N(0, I_2) in polar coordinates: E r² = 2, and the angle of x is uniform."""
    phi = np.linspace(-np.pi, np.pi, 400_001)[:-1]
    u, v = np.cos(phi), np.cos(phi - theta)
    assert arc_cosine_0(jnp.asarray(theta)) == pytest.approx(np.mean((u > 0) & (v > 0)), abs=1e-5)
    assert arc_cosine_1(jnp.asarray(theta)) == pytest.approx(
        2 * np.mean(np.maximum(u, 0) * np.maximum(v, 0)), abs=1e-9
    )


def test_arccos_is_that_of_numpy_to_a_few_roundings():
    # Evenly in the cosine, and evenly in the angle, which is dense near the ends.
    x = np.concatenate(
        [np.linspace(-1, 1, 100_001), np.cos(np.linspace(0, np.pi, 100_001))]
    ).astype(np.float32)
    compiled = jax.jit(arccos)
    error = np.abs(np.asarray(compiled(x), np.float64) - np.arccos(x.astype(np.float64)))
    assert error.max() < 5e-7
    # Relative to the angle where it is small, and of the sign that the cosine has near π/2.
    small = x > 0.9999
    assert np.max(error[small] / np.maximum(np.arccos(x[small].astype(np.float64)), 1e-30)) < 5e-7
    assert np.isnan(compiled(jnp.asarray([1.0001, -1.0001]))).all()


@pytest.mark.integration
@pytest.mark.usefixtures("x64")
def test_arccos_in_float64_and_its_derivatives():
    x = np.array([-0.999, -0.3, 0.0, 0.5, 0.999])
    np.testing.assert_array_equal(arccos(jnp.asarray(x)), jnp.arccos(x))
    derivatives = (jax.grad, lambda f: jax.grad(jax.grad(f)))
    of_both = jax.jit(
        lambda x: [[jax.vmap(d(f))(x) for f in (arccos, jnp.arccos)] for d in derivatives]
    )
    for dtype, rtol in ((jnp.float64, 1e-12), (jnp.float32, 2e-4)):
        for found, expected in of_both(jnp.asarray(x, dtype)):
            np.testing.assert_allclose(found, expected, rtol=rtol, atol=1e-7)
