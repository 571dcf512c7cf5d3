"""Norms by squaring: below the norm by no more than is said, exact behind a gap, and zero for
zero.
"""

import jax
import numpy as np
import pytest

from specjax.spectral import gram_power_norm
from tests.reference.spectra import matrix_with

pytestmark = pytest.mark.usefixtures("x64")


@pytest.fixture(scope="module")
def measured():
    """Flat, nearly flat, worst-case and gapped spectra, wide and tall, with ‖X‖_op² = 9."""
    k = 30
    worst = np.full(k, 1 - np.log(k) / 2**gram_power_norm.SQUARINGS / 2)
    worst[0] = 1
    spectra = {
        "flat": np.ones(k),
        "ramp": np.linspace(1, 0.5, k),
        "worst": np.sqrt(worst),
        "gap": np.r_[1, np.full(k - 1, 0.5)],
    }
    with jax.enable_x64(True):
        matrices = {
            (name, shape): 3 * matrix_with(spectrum, shape, 0)
            for name, spectrum in spectra.items()
            for shape in ((30, 50), (50, 30))
        }
        found = jax.jit(
            lambda xs: {
                n: (gram_power_norm.squared_norm(x), gram_power_norm.stable_rank_above(x))
                for n, x in xs.items()
            }
        )(matrices)
        return spectra, found


@pytest.mark.integration
def test_the_norm_is_too_small_by_less_than_is_said(measured):
    spectra, found = measured
    for (name, _), (norm, rank) in found.items():
        shortfall = 1 - float(norm) / 9
        assert -1e-12 < shortfall < np.log(30) / 2**gram_power_norm.SQUARINGS, name
        exact = np.sum(spectra[name] ** 2) / spectra[name][0] ** 2
        assert float(rank) == pytest.approx(exact / (1 - shortfall), rel=1e-9)
    for name in ("flat", "gap"):
        assert float(found[name, (30, 50)][0]) == pytest.approx(9, rel=1e-9)
    # The bound is of the right size: a spectrum comes near to half of it.
    assert (
        1 - float(found["worst", (30, 50)][0]) / 9 > 0.2 * np.log(30) / 2**gram_power_norm.SQUARINGS
    )


@pytest.mark.integration
def test_batches_and_zero():
    x = np.random.default_rng(0).standard_normal((3, 4, 6))
    x[1] = 0
    squared_norm = jax.jit(gram_power_norm.squared_norm)
    norms = np.asarray(squared_norm(x))
    np.testing.assert_allclose(norms, [squared_norm(one) for one in x], rtol=1e-12)
    assert norms[1] == 0
    assert float(jax.jit(gram_power_norm.stable_rank_above)(x)[1]) == 0
