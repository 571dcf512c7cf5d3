from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import spectral
from specjax.spectral import polar, schatten_norm, spectral_map, spectral_power, stabilized_sign
from tests.reference.spectra import named
from tests.spectral.differences import directional

pytestmark = pytest.mark.usefixtures("x64")

NAMES = ("repeated", "repeated-pair", "wide", "tall", "rank-deficient", "zero")
every_name = pytest.mark.parametrize("name", NAMES)
power = jax.jit(spectral_power, static_argnums=2)
sign = jax.jit(stabilized_sign)
polar_factor = jax.jit(polar)


def close(measured, expected, tolerance=1e-12):
    np.testing.assert_allclose(measured, expected, rtol=0, atol=tolerance)


@every_name
def test_powers_run_from_the_polar_factor_to_the_matrix(name):
    x = named(name)
    close(power(x, 0.0), polar_factor(x))
    close(power(x, 1.0), x)
    close(power(x, 3.0), x @ x.T @ x, 1e-11)
    close(power(x, -1.0), np.linalg.pinv(x, rcond=1e-12).T)
    close(power(power(x, 0.5), 2.0), x)


@every_name
def test_the_stabilized_sign_is_its_formula(name):
    x = named(name)
    values, q = np.linalg.eigh(x.T @ x + 0.3**2 * np.eye(x.shape[1]))
    close(sign(x, 0.3), x @ (q / np.sqrt(values)) @ q.T)
    close(sign(x, 0.0), polar_factor(x))
    close(1e200 * sign(x, 1e200), x)


@every_name
def test_zero_rows_and_columns_stay_zero(name):
    x = np.pad(named(name), ((0, 2), (0, 3)))
    for f in (lambda x: power(x, 0.0), lambda x: power(x, 0.5), lambda x: sign(x, 0.1)):
        found = np.asarray(f(x))
        np.testing.assert_array_equal(found == 0, (found == 0) | (x == 0))
        close(found[:-2, :-3], f(x[:-2, :-3]))


@pytest.mark.integration
@pytest.mark.parametrize("name", ["repeated-pair", "rank-deficient", "tall"])
def test_smooth_maps_are_differentiable_at_every_matrix(name):
    x = named(name)
    dx, dy = np.random.default_rng(0).standard_normal((2, *x.shape))
    for f in (
        lambda x: stabilized_sign(x, 0.7),
        lambda x: spectral_power(x, 3.0),
        lambda x: spectral_power(x, 1.0),
    ):
        # One program for the value and both derivatives.
        found = jax.jit(
            lambda x, f=f: (f(x), jax.jvp(f, (x,), (dx,))[1], jax.vjp(f, x)[1](jnp.asarray(dy))[0])
        )
        _, along, back = found(x)
        close(along, directional(lambda x, found=found: found(x)[0], x, dx, 2e-4), 2e-9)
        # The derivative is symmetric: h(S) is the gradient of the sum of the antiderivative.
        close(np.sum(dy * np.asarray(along)), np.sum(dx * np.asarray(back)), 1e-10)


@partial(jax.jit, static_argnums=2)
def slope_of_power(x, dx, p):
    return jax.jvp(lambda x: spectral_power(x, p), (x,), (dx,))[1]


@pytest.mark.integration
@pytest.mark.parametrize("gap", [0.0, 1e-12, 1e-6, 5e-4, 1e-3, 1e-1])
def test_divided_differences_hold_for_every_gap(gap):
    """d (s^p) along the symmetric off-diagonal is (s_1^p - s_2^p) / (s_1 - s_2), here by its
    series.
    """
    x, p = np.diag([1 + gap, 1.0]), 2.5
    dx = np.array([[0.0, 1.0], [1.0, 0.0]])
    measured = slope_of_power(x, dx, p)
    # ∫ p (1 + t gap)^(p-1) dt by Gauss-Legendre, exact to rounding here.
    t, w = np.polynomial.legendre.leggauss(12)
    expected = np.sum(w * p * (1 + gap * (t + 1) / 2) ** (p - 1)) / 2
    close(measured[0, 1], expected, 1e-11)


@pytest.mark.integration
def test_the_derivative_of_the_constant_map_is_that_of_polar():
    for name in ("repeated-pair", "rank-deficient"):
        x, dx = named(name), np.random.default_rng(1).standard_normal(named(name).shape)
        by_map, by_polar = (
            jax.jit(lambda x, dx, f=f: jax.jvp(f, (x,), (dx,))[1])(x, dx)
            for f in (lambda x: spectral_map(x, jnp.ones_like), polar)
        )
        close(by_map, by_polar, 1e-11)


@partial(jax.jit, static_argnums=0)
def second(f, x, dx):
    return jax.jvp(lambda x: jax.jvp(f, (x,), (dx,))[1], (x,), (dx,))[1]


@pytest.mark.integration
def test_second_derivatives_are_nan_at_repeated_singular_values():
    dx = np.random.default_rng(4).standard_normal((2, 3, 3))[0]

    def f(x):
        return stabilized_sign(x, 0.7)

    distinct = np.diag([3.0, 2.0, 1.0]) + 0.1 * np.random.default_rng(5).standard_normal((3, 3))
    first = jax.jit(lambda x: jax.jvp(f, (x,), (jnp.asarray(dx),))[1])
    close(second(f, distinct, dx), directional(first, distinct, dx, 1e-3), 1e-9)
    for values in ([2.0, 2.0, 1.0], [2.0, 0.0, 0.0]):
        assert np.isnan(second(f, np.diag(values), dx)).any()
        # The polar factor itself is differentiated twice where it is differentiable once.
        assert np.isfinite(second(polar, np.diag(values), dx)).all()


@pytest.mark.integration
def test_rtol_decides_the_rank():
    x = np.diag([1.0, 1e-3, 1e-9, 0.0])
    for rtol, rank in ((None, 3), (1e-6, 2), (1e-2, 1)):
        kept = np.diag([1.0] * rank + [0.0] * (4 - rank))
        close(power(x, 0.0, rtol), kept)
        close(power(x, -1.0, rtol), kept @ np.linalg.pinv(x, rcond=1e-12), 1e-6)
        # From p = 1 on nothing is cut.
        close(power(x, 2.0, rtol), x @ x)


@pytest.mark.integration
def test_the_power_is_traced_mapped_and_differentiated():
    x = jnp.asarray(named("repeated-pair"))
    powers = jnp.linspace(-1, 2, 4)
    mapped = jax.jit(jax.vmap(lambda p: spectral_power(x, p)))(powers)
    for p, factor in zip(powers, mapped, strict=True):
        close(factor, power(x, p))
    slopes = jax.jit(jax.vmap(jax.grad(lambda p: jnp.sum(spectral_power(x, p) ** 2))))(powers)
    # d/dp Σ s^(2p) = 2 Σ s^(2p) log s
    s = np.array([2.0, 2.0, 0.5])
    close(slopes, [2 * np.sum(s ** (2 * p) * np.log(s)) for p in powers], 1e-10)


def test_batches_are_their_slices():
    x = np.random.default_rng(2).standard_normal((2, 2, 4, 3))
    batched = np.asarray(power(x, 0.5))
    for i in np.ndindex(2, 2):
        close(batched[i], power(x[i], 0.5))
    assert power(np.zeros((2, 0, 3)), 0.5).shape == (2, 0, 3)


@pytest.mark.integration
def test_schatten_norms():
    x = np.random.default_rng(3).standard_normal((3, 5))
    norm = jax.jit(schatten_norm)
    s = np.linalg.svd(x, compute_uv=False)
    for p in (0.5, 1.0, 2.0, 4.0):
        assert norm(x, p) == pytest.approx(np.sum(s**p) ** (1 / p), rel=1e-13)
        assert norm(1e200 * x, p) == pytest.approx(1e200 * float(norm(x, p)), rel=1e-13)
    assert norm(x, np.inf) == pytest.approx(s[0], rel=1e-13)
    assert norm(0 * x, 3.0) == 0
    # The gradient of ‖x‖_p^p / p is U S^(p-1) Vᵀ, also at equal singular values.
    gradient = jax.jit(jax.grad(lambda y: schatten_norm(y, 3.0) ** 3 / 3))
    for y in (x, named("repeated-pair")):
        close(gradient(y), power(y, 2.0), 1e-11)


@pytest.mark.usefixtures("unchecked")
def test_wrong_inputs_are_named():
    with pytest.raises(ValueError, match=r"got shape \(3,\); add an axis"):
        spectral.spectral_power(jnp.ones(3), 1.0)
    with pytest.raises(ValueError, match="float32 or float64, got bfloat16; convert with"):
        spectral.stabilized_sign(jnp.ones((2, 2), jnp.bfloat16), 1.0)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_matrix_that_is_not_finite_goes_to_nan_and_no_other(bad):
    x = np.random.default_rng(0).standard_normal((2, 4, 3))
    x[1, 0, 0] = x[1, 1, 0] = bad
    x[1, 3] = 0
    found = np.asarray(power(x, 0.5))
    close(found[0], power(x[0], 0.5))
    assert np.isnan(found[1]).all()
