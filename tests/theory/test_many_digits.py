"""Decimal arithmetic against NumPy's float64, and more digits where it has no more."""

from decimal import Decimal, localcontext

import jax.numpy as jnp
import numpy as np
import pytest

from specjax.models import in_context_regression, matrix_factorization
from specjax.theory.preconditioning import many_digits, scalar


def test_decimals_have_numpys_polar_factor_and_many_more_digits():
    x = np.random.default_rng(0).standard_normal((5, 4, 4)) * np.geomspace(1, 1e-6, 4)
    u, _, vt = np.linalg.svd(x)
    with localcontext(prec=60):
        found = many_digits.polar(many_digits.decimals(x))
        excess = found @ found.swapaxes(-1, -2) - many_digits.decimals(np.eye(4))
    np.testing.assert_allclose(found.astype(float), u @ vt, atol=1e-9)
    assert np.abs(excess).max() < Decimal("1e-55")


def test_decimals_have_polar_factors_of_nearly_singular_matrices():
    # Rows that are equal to the last digit, as gradients at the end of a run with 16 digits; and a
    # gradient of 0.
    rows = np.random.default_rng(0).standard_normal((2, 4))
    x = np.stack([rows[[0, 0, 1, 1]] * [[1.0], [-1.0], [1.0], [2.0]], np.zeros((4, 4))]) * 1e-16
    for digits in (16, 100):
        with localcontext(prec=digits):
            found = many_digits.polar(many_digits.decimals(x)).astype(float)
        np.testing.assert_allclose(found @ found.swapaxes(1, 2), [np.eye(4)] * 2, atol=1e-14)
        # X = U H with H positive semidefinite, H² = Xᵀ X, is what makes U a polar factor of X.
        h = found[0].T @ x[0]
        np.testing.assert_allclose(h, h.T, atol=1e-30)
        np.testing.assert_allclose(h @ h, x[0].T @ x[0], atol=1e-45)
        assert np.linalg.eigvalsh((h + h.T) / 2).min() > -1e-30


@pytest.mark.usefixtures("x64")
def test_runs_with_many_digits_begin_as_in_float64():
    basis = np.linalg.qr(np.random.default_rng(1).standard_normal((3, 3)))[0]
    m, x = (basis * [1.0, 0.3, 0.1]) @ basis.T, np.random.default_rng(2).standard_normal((3, 3))
    for ours, model in (
        (many_digits.factorization, matrix_factorization),
        (many_digits.in_context, in_context_regression),
    ):
        np.testing.assert_allclose(
            ours(m, x), model.gradient(jnp.asarray(x), jnp.asarray(m)), atol=1e-12
        )
    # A slow decay, at which rounding is amplified: 8 digits lose what 40 keep.
    rates, spectrum = 0.7 * 0.9 ** np.arange(40)[None], np.array([1.0, 0.3, 0.1])
    problem = many_digits.factorization, basis[None], spectrum, 0.5, rates
    (few, _), (many, errors) = (many_digits.beside_scalars(*problem, digits) for digits in (8, 40))
    assert few.shape == many.shape == (1, 40)
    assert few[0, 0] < 1e-6
    assert few.max() > 1e-6
    assert many.max() < 1e-20
    x = scalar.factorization_path(jnp.full(3, 0.5), jnp.asarray(spectrum), jnp.asarray(rates[0]))[
        -1
    ]
    np.testing.assert_allclose(
        errors[0, -1], np.linalg.norm(np.asarray(x) ** 2 - spectrum), rtol=1e-9
    )
