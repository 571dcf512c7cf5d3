"""`orthogonalizer-error`: its scalar predictions by other routes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.experiments.orthogonalizer import error
from specjax.sizes import Size, normal
from tests.reference.muon import newton_schulz
from tests.reference.spectra import matrix_with

WIDTHS = (32, 64, 128, 256, 512, 1024)


@pytest.mark.parametrize("power", error.POWERS.values())
@pytest.mark.parametrize("width", [16, 48])
def test_the_scalar_map_is_what_the_matrix_iteration_does(power, width):
    values = np.arange(1.0, width + 1) ** -power
    x, exact = (matrix_with(v, (width, width), 3) for v in (values, np.ones(width)))
    for name, steps, fewer in (("muon-5", 5, 0), ("muon-10", 10, 0), ("muon-5", 4, 1)):
        measured = np.sum(newton_schulz(x, steps) * exact) / width
        assert error.predicted_alignment(name, power, width, fewer) == pytest.approx(
            measured, rel=1e-9
        )


def test_the_claim_on_the_inverse_square_spectrum():
    """0.84 at W = 32, 0.04 at W = 1024, and a shift of about -0.9, to the digits of the claim."""
    alignment = [error.predicted_alignment("muon-5", 2, width) for width in WIDTHS]
    assert (round(alignment[0], 2), round(alignment[-1], 2)) == (0.84, 0.04)
    expected = np.polyfit(np.log(WIDTHS), np.log(alignment), 1)[0]
    assert round(expected, 2) == -0.89
    shift = error.predicted_shift(2)(error.Config(widths=WIDTHS), None)
    assert float(shift.sel(orthogonalizer="muon-5")) == pytest.approx(expected, abs=1e-12)
    # What is lost has no end: Σ p(s_k) converges, so that the alignment comes to fall as 1/W.
    far = [error.predicted_alignment("muon-5", 2, width) for width in (2**14, 2**15)]
    assert np.log2(far[1] / far[0]) == pytest.approx(-1, abs=0.01)


@pytest.mark.integration
def test_the_factors_are_haar_distributed():
    """Orthogonal on the active block, and with the signs that make a QR factorization unique."""
    with jax.enable_x64(True):
        key = jax.random.key(0)
        plain = np.asarray(error._haar(normal(key, (5, 5)), 5))
        padded = np.asarray(error._haar(normal(key, (Size(8, 5), Size(8, 5))), Size(8, 5)))
        z = np.asarray(normal(key, (5, 5)))
        draws = np.asarray(
            error._haar(jnp.asarray(np.random.default_rng(0).standard_normal((4000, 2, 2))), 2)
        )
    np.testing.assert_allclose(plain @ plain.T, np.eye(5), atol=1e-14)
    np.testing.assert_allclose(padded[:5, :5], plain, atol=1e-14)
    assert not padded[5:].any()
    assert not padded[:, 5:].any()
    # Qᵀ Z is upper triangular with a positive diagonal: the QR factorization whose Q is
    # Haar-distributed (Mezzadri 2007).
    r = plain.T @ z
    assert np.all(np.diag(r) > 0)
    np.testing.assert_allclose(np.tril(r, -1), 0, atol=1e-14)
    # Without the signs the mean of an entry would be far from 0, its value for every Haar
    # distribution.
    assert np.all(np.abs(draws.mean(axis=0)) < 4 * np.sqrt(1 / 2 / 4000))
