"""`orthogonalizer-error`: its scalar predictions by other routes, and verdicts that follow from the data."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import experiments
from specjax.experiments.orthogonalizer import error
from specjax.sizes import Size, normal
from tests.reference.muon import COEFFICIENTS, newton_schulz
from tests.reference.spectra import matrix_with

WIDTHS = (32, 64, 128, 256, 512, 1024)


@pytest.fixture(scope="module")
def smoke(smoke_data):
    """The experiment with its smallest configuration and the data of that."""
    experiment = experiments.load("orthogonalizer-error")
    return experiment, experiment.scales["smoke"], smoke_data(experiment.name)["sweep"]


@pytest.mark.parametrize("spectrum", error.POWERS)
@pytest.mark.parametrize("width", [16, 48])
def test_the_scalar_map_is_what_the_matrix_iteration_does(spectrum, width):
    values = np.arange(1.0, width + 1) ** -error.POWERS[spectrum]
    x, exact = (matrix_with(v, (width, width), 3) for v in (values, np.ones(width)))
    for name, steps in (("muon-5", 5), ("muon-10", 10)):
        measured = np.sum(newton_schulz(x, steps) * exact) / width
        (predicted,) = error.predicted_alignment(name, spectrum, (width,))
        assert predicted == pytest.approx(measured, rel=1e-9)


def test_the_claim_on_the_inverse_square_spectrum():
    """0.84 at W = 32, 0.04 at W = 1024, and a shift of about -0.9, to the digits of the claim."""
    alignment = error.predicted_alignment("muon-5", "k^-2", WIDTHS)
    assert (round(alignment[0], 2), round(alignment[-1], 2)) == (0.84, 0.04)
    slope = np.polyfit(np.log(WIDTHS), np.log(alignment), 1)[0]
    assert round(slope, 1) == -0.9
    assert error.predicted_shift("muon-5", "k^-2", WIDTHS) == pytest.approx(slope, abs=1e-12)
    # What is lost has no end: Σ p(s_k) converges, so that the alignment comes to fall as 1/W.
    far = error.predicted_alignment("muon-5", "k^-2", (2**14, 2**15))
    assert np.log2(far[1] / far[0]) == pytest.approx(-1, abs=0.01)


def test_the_quarter_circle_is_the_spectrum_of_a_gaussian_matrix():
    width, draws = 100, 20
    rng = np.random.default_rng(0)
    alignments = []
    for _ in range(draws):
        g = rng.standard_normal((width, width))
        u, _, vt = np.linalg.svd(g)
        alignments.append(np.sum(newton_schulz(g) * (u @ vt)) / width)
    stderr = np.std(alignments, ddof=1) / np.sqrt(draws)
    (predicted,) = error.predicted_alignment("muon-5", "gaussian", (width,))
    # Tells it from the values 0.85 and 0.98 at half and twice the width's scale, say; the law holds up to 1/W.
    assert stderr < 0.003
    assert abs(np.mean(alignments) - predicted) < 4 * stderr + 0.5 / width


def test_the_largest_shift_is_the_largest_that_a_band_allows():
    widths = (16, 32, 64, 128)
    lo, hi = 0.7, 1.3
    log = np.log(widths)
    shifts = [np.polyfit(log, np.log(values), 1)[0] for values in product((lo, hi), repeat=len(widths))]
    weights = error._slope(widths)
    assert 0.5 * np.sum(np.abs(weights)) * np.log(hi / lo) == pytest.approx(max(shifts), rel=1e-12)
    # On a flat spectrum s / ‖s‖ is between 1/√128 and 1/√16: what Muon's steps make of numbers in between.
    ends = np.linspace(128**-0.5, 16**-0.5, 20_001)
    a, b, c = COEFFICIENTS
    for _ in range(5):
        ends = a * ends + b * ends**3 + c * ends**5
    expected = 0.5 * np.sum(np.abs(weights)) * np.log(ends.max() / ends.min())
    assert error.largest_shift("muon-5", "flat", widths) == pytest.approx(expected, rel=1e-5)
    assert error.largest_shift("polar-express-8", "flat", widths) < 1e-9


def test_the_factors_are_haar_distributed():
    """Orthogonal on the active block, and with the signs that make a QR factorization unique."""
    with jax.enable_x64(True):
        key = jax.random.key(0)
        plain = np.asarray(error._haar(normal(key, (5, 5)), 5))
        padded = np.asarray(error._haar(normal(key, (Size(8, 5), Size(8, 5))), Size(8, 5)))
        z = np.asarray(normal(key, (5, 5)))
        draws = np.asarray(error._haar(jnp.asarray(np.random.default_rng(0).standard_normal((4000, 2, 2))), 2))
    np.testing.assert_allclose(plain @ plain.T, np.eye(5), atol=1e-14)
    np.testing.assert_allclose(padded[:5, :5], plain, atol=1e-14)
    assert not padded[5:].any()
    assert not padded[:, 5:].any()
    # Qᵀ Z is upper triangular with a positive diagonal: the QR factorization whose Q is Haar-distributed (Mezzadri 2007).
    r = plain.T @ z
    assert np.all(np.diag(r) > 0)
    np.testing.assert_allclose(np.tril(r, -1), 0, atol=1e-14)
    # Without the signs the mean of an entry would be far from 0, its value for every Haar distribution.
    assert np.all(np.abs(draws.mean(axis=0)) < 4 * np.sqrt(1 / 2 / 4000))


def verdicts(experiment, config, sweep):
    return {check.name: check.verdict for check in experiment.checks(config, {"sweep": sweep})}


def changed(sweep, variable, factor, *, method, spectrum):
    """The data with one method's values on one spectrum multiplied by a function of the width."""
    here = (sweep["orthogonalizer"] == method) & (sweep["spectrum"] == spectrum)
    values = sweep[variable]
    return sweep.assign({variable: values.where(~here, values * factor(sweep["width"])).transpose(*values.dims)})


@pytest.mark.integration
def test_verdicts_follow_the_data(smoke):
    experiment, config, sweep = smoke
    found = verdicts(experiment, config, sweep)
    assert all(found[name] == ("refuted" if name in experiment.refuted else "confirmed") for name in found)

    tampered = {
        # Less than would make the exponent look right.
        "muon-5-k2-shift": (lambda w: (w / 8.0) ** 0.1, "advance", "muon-5", "k^-2"),
        "polar-express-8-k2-shift": (lambda w: (w / 8.0) ** -0.05, "advance", "polar-express-8", "k^-2"),
        "muon-5-gaussian-shift": (lambda w: (w / 8.0) ** -0.3, "advance", "muon-5", "gaussian"),
        "polar-express-12-k2-control": (lambda w: (w / 8.0) ** 0.001, "advance", "polar-express-12", "k^-2"),
        "muon-5-flat-control": (lambda w: (w / 8.0) ** -0.3, "advance", "muon-5", "flat"),
        "alignment-scalar": (lambda w: 1 + 1e-5 * (w == 16), "polar_error.alignment", "cubic-15", "k^-1"),
    }
    for name, (factor, variable, method, spectrum) in tampered.items():
        turned = verdicts(experiment, config, changed(sweep, variable, factor, method=method, spectrum=spectrum))
        assert {other for other in found if turned[other] != found[other]} == {name}, name
        assert turned[name] == "refuted"


@pytest.mark.integration
def test_an_exact_factor_with_another_exponent_is_refuted(smoke):
    experiment, config, sweep = smoke
    moved = changed(sweep, "advance", lambda w: (w / 8.0) ** -0.3, method="exact", spectrum="k^-2")
    assert verdicts(experiment, config, moved)["exact-exponent"] == "refuted"
    straight = changed(sweep, "advance", lambda w: (w / 8.0) ** 0.331, method="muon-5", spectrum="k^-2")
    assert verdicts(experiment, config, straight)["muon-5-exponent"] == "confirmed"
