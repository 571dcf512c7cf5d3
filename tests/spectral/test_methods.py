"""What each method promises: accuracy against the condition number, rank, padding, and the Gram form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import spectral
from specjax.spectral import CUBIC, MUON, QDWH, SVD, Newton, NewtonSchulz, PolarExpress, band
from specjax.spectral.methods.polynomials import gram_is_cheaper
from specjax.spectral.methods.qdwh import halley_weights
from tests.reference.spectra import matrix_with, named

polar = jax.jit(spectral.polar, static_argnums=1)
EXACT = {"svd": SVD(), "qdwh": QDWH(), "newton": Newton()}
NEW = {"qdwh": QDWH(), "newton": Newton(), "express": PolarExpress(8, 1e-2)}
exact_method = pytest.mark.parametrize("method", EXACT.values(), ids=EXACT)
new_method = pytest.mark.parametrize("method", NEW.values(), ids=NEW)
CONDITIONS = (1, 1e3, 1e6, 1e9, 1e12)


def close(measured, expected, tolerance=1e-11):
    np.testing.assert_allclose(measured, expected, rtol=0, atol=tolerance)


@exact_method
@pytest.mark.parametrize("shape", [(24, 24), (12, 40)], ids=str)
@pytest.mark.usefixtures("x64")
def test_accuracy_does_not_depend_on_the_condition_number(method, shape):
    """Orthonormal, and x = H P with H positive semidefinite, to a few roundings; the distance to U Vᵀ grows as it must."""
    for condition in CONDITIONS:
        values = np.geomspace(1, 1 / condition, min(shape))
        x = matrix_with(values, shape, 1)
        factor = np.asarray(polar(jnp.asarray(x), method))
        h = factor @ x.T
        assert np.linalg.norm(factor @ factor.T - np.eye(shape[0]), 2) < 1e-14
        assert np.linalg.norm(0.5 * (h + h.T) @ factor - x, 2) < 1e-14
        assert np.linalg.eigvalsh(0.5 * (h + h.T)).min() > -1e-15
        # Kenney and Laub's condition number of the factor.
        amplification = 2 / (values[-1] + values[-2]) if shape[0] == shape[1] else 1 / values[-1]
        exact = matrix_with(np.ones(min(shape)), shape, 1)
        assert np.linalg.norm(factor - exact, 2) < 3e-15 + 1e-15 * amplification


@exact_method
def test_accuracy_in_float32_up_to_1e5(method):
    for condition in (1, 1e3, 1e5):
        x = matrix_with(np.geomspace(1, 1 / condition, 24), (24, 24), 1).astype(np.float32)
        factor = np.asarray(polar(jnp.asarray(x), method), np.float64)
        assert np.linalg.norm(factor @ factor.T - np.eye(24), 2) < 5e-6
        h = factor @ x.T
        assert np.linalg.norm(0.5 * (h + h.T) @ factor - x, 2) < 5e-6


@new_method
@pytest.mark.usefixtures("x64")
def test_the_contract(method):
    """Agreement with the decomposition, transposition, sign, scale, batches, zero padding, zero and NaN."""
    rng = np.random.default_rng(0)
    for shape in ((4, 4), (3, 7), (6, 2)):
        x = jnp.asarray(rng.standard_normal((2, *shape)))
        factor = polar(x, method)
        close(factor, polar(x, SVD()), 1e-10)
        close(polar(jnp.swapaxes(x, 1, 2), method), jnp.swapaxes(factor, 1, 2))
        close(polar(-1e-200 * x, method), -factor)
        close(jax.jit(jax.vmap(lambda x: spectral.polar(x, method)))(x), factor, 1e-12)
        close(factor[0], polar(x[0], method), 1e-12)
        # Zero rows and columns in between, too.
        rows, columns = np.arange(shape[0]) * 2, np.arange(shape[1]) * 2 + 1
        padded = jnp.zeros((2 * shape[0], 2 * shape[1] + 1)).at[np.ix_(rows, columns)].set(x[0])
        result = np.array(polar(padded, method))
        close(result[np.ix_(rows, columns)], factor[0])
        result[np.ix_(rows, columns)] = 0
        assert not result.any()
        np.testing.assert_array_equal(polar(jnp.zeros(shape), method), np.zeros(shape))
        assert jnp.isnan(polar(x.at[0, 1, 1].set(jnp.nan), method)[0]).all()


@pytest.mark.usefixtures("x64")
def test_rank_deficient_matrices_go_to_the_partial_isometry_or_are_nan():
    for name in ("rank-deficient", "rank-deficient-tall"):
        x = jnp.asarray(named(name))
        close(polar(x, QDWH()), polar(x, SVD()), 1e-14)
        assert jnp.isnan(polar(x, Newton())).all()
    # Active 2×4 and 4×2 blocks in one wide matrix: the second has more nonzero rows than rank.
    block = np.random.default_rng(1).standard_normal((4, 2))
    padded = jnp.zeros((5, 9)).at[:4, :2].set(block)
    close(polar(padded, QDWH())[:4, :2], polar(jnp.asarray(block), SVD()), 1e-14)
    assert jnp.isnan(polar(padded, Newton())).any()


@pytest.mark.usefixtures("x64")
def test_qdwh_keeps_what_is_above_rtol_and_drops_what_is_far_below():
    x = jnp.diag(jnp.asarray([1.0, 1e-3, 1e-8, 1e-16]))
    for rtol, rank in ((None, 3), (1e-6, 2), (1e-2, 1)):
        close(polar(x, QDWH(rtol)), np.diag([1.0] * rank + [0.0] * (4 - rank)), 1e-14)
    for rtol in (1e-12, 1e-6, 1e-2):
        x = jnp.diag(jnp.asarray([1.0, rtol * 1.01, rtol * 0.1]))
        close(polar(x, QDWH(rtol)), np.diag([1.0, 1.0, 0.0]), 1e-14)


def test_halley_weights():
    """Six steps from 1e-16 (Nakatsukasa, Bai and Gygi); the limit is Halley's own iteration (3, 1, 3)."""
    weights = halley_weights(1e-16, 2.0**-52)
    assert len(weights) == 6
    close(halley_weights(1 - 1e-9, 1e-12)[-1], (3, 1, 3), 1e-6)
    s = np.geomspace(1e-16, 1, 1001)
    for a, b, c in weights:
        s = s * (a + b * s**2) / (1 + c * s**2)
    close(s, np.ones(1001), 1e-14)


@pytest.mark.usefixtures("x64")
def test_newton_that_has_not_converged_is_nan():
    x = jnp.diag(jnp.asarray([1.0, 0.3, 1e-3]))
    assert jnp.isnan(polar(x, Newton(2))).all()
    close(polar(x, Newton(9)), np.eye(3), 1e-14)


@pytest.mark.usefixtures("x64")
def test_polar_express_ends_in_its_band():
    for method in (PolarExpress(5), PolarExpress(5, 1e-2), PolarExpress(4, 1e-3, 1.02, 0.0)):
        values = np.geomspace(1, method.lower, 40)
        x = matrix_with(values, (40, 40), 2)
        lo, hi = band(method.polynomials(), method.lower / np.linalg.norm(values))
        ends = np.linalg.svd(polar(jnp.asarray(x), method), compute_uv=False)
        assert lo - 1e-12 < ends.min()
        assert ends.max() < hi + 1e-12
        # Far closer to 1 than Muon's steps for the same spectrum.
        muon = np.linalg.svd(polar(jnp.asarray(x), NewtonSchulz(method.steps)), compute_uv=False)
        assert 1 - ends.min() < 0.95 * (1 - muon.min())


@pytest.mark.parametrize("steps", [2, 6])
@pytest.mark.usefixtures("x64")
def test_the_gram_form_is_the_standard_form(steps):
    x = jnp.asarray([matrix_with(np.geomspace(1, 1 / k, 16), (16, 80), 3) for k in (10, 1e4, 1e8)])
    for form in (lambda g: NewtonSchulz(steps, gram=g), lambda g: PolarExpress(steps, gram=g)):
        gram, standard = polar(x, form(True)), polar(x, form(False))
        close(gram, standard, 1e-12)
        np.testing.assert_array_equal(polar(x, form(None)), gram if gram_is_cheaper((16, 80), steps) else standard)
        padded = polar(jnp.pad(x, ((0, 0), (0, 2), (0, 3))), form(True))
        close(padded[:, :16, :80], gram, 1e-13)
        assert not padded[:, 16:].any()


@pytest.mark.parametrize(
    "form", [lambda g: NewtonSchulz(gram=g), lambda g: PolarExpress(8, gram=g)], ids=["muon", "pe"]
)
def test_the_gram_form_in_float32_on_ill_conditioned_input(form):
    for condition in (1e3, 1e5, 1e7):
        x = jnp.asarray(matrix_with(np.geomspace(1, 1 / condition, 32), (32, 128), 3), jnp.float32)
        gram, standard = polar(x, form(True)), polar(x, form(False))
        assert jnp.linalg.norm(gram - standard) < 2e-4 * jnp.linalg.norm(standard)


def test_the_gram_form_is_taken_where_it_has_fewer_operations():
    assert not gram_is_cheaper((64, 96), 5)
    assert gram_is_cheaper((64, 97), 5)
    assert not gram_is_cheaper((64, 10**6), 1)


def test_any_callable_is_a_method():
    def first_column(x):
        return jnp.zeros_like(x).at[:, 0].set(x[:, 0])

    x = jnp.asarray(named("tall"), jnp.float32)
    scaled = x / jnp.max(jnp.abs(x))
    close(spectral.polar(x, first_column), jnp.zeros_like(x).at[0].set(scaled[0]), 1e-6)
    close(spectral.polar(x, lambda x: SVD()(x)), spectral.polar(x), 0)


@pytest.mark.usefixtures("unchecked")
def test_wrong_methods_are_named():
    x = jnp.ones((2, 3))
    with pytest.raises(ValueError, match=r"a method such as SVD\(\) or a callable array -> array, got 'svd'"):
        spectral.polar(x, "svd")
    with pytest.raises(ValueError, match="or a callable array -> array, got <class"):
        spectral.polar(x, SVD)
    with pytest.raises(ValueError, match=r"took float32\[2, 3\] to float32\[2, 2\]; return an array like"):
        spectral.polar(x, lambda x: x @ x.T)
    with pytest.raises(ValueError, match="steps >= 1, got steps=0"):
        Newton(0)
    with pytest.raises(ValueError, match="0 < rtol < 1, got rtol=0"):
        QDWH(0)
    for arguments, message in (
        ({"steps": 0}, "steps >= 1"),
        ({"lower": 0.0}, "0 < lower < 1"),
        ({"safety": 0.9}, "safety >= 1"),
        ({"cushion": 1.0}, "0 <= cushion < 1"),
    ):
        with pytest.raises(ValueError, match=message):
            PolarExpress(**arguments)
    assert NewtonSchulz(2, (MUON, CUBIC)).polynomials() == (MUON, CUBIC)
