"""The choice between four models: its distances are scipy's, its tests calibrated under coupling,
its rule the stated one.
"""

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import curve_fit

from specjax.fits import choose_model
from specjax.fits._model_choice import Candidate, _choose
from tests.fits.samples import X, array, coupled, exact, heavy_tailed, independent

CURVES = {
    "power law": lambda x: 3 * x**-0.5,
    "subleading": lambda x: 3 * x**-0.5 * (1 + 20 / x),
    "offset": lambda x: 1 + 30 / x,
}


def _precise(rng, seeds, curve):
    """Widths that move together by 50 % and each alone by 1e-5: the exponents of least misfit are a
    needle in all those searched.
    """
    shared, own = rng.normal(size=seeds), rng.normal(size=(len(X), seeds))
    return array(curve(X)[:, None] * np.exp(0.5 * shared + 1e-5 * own))


@pytest.mark.parametrize("make", [coupled, independent, _precise])
def test_misfits_are_scipys_chi_square_with_the_whole_covariance(make):
    data = make(np.random.default_rng(1), 60, CURVES["subleading"])
    means, covariance = data.values.mean(axis=1), np.cov(data.values) / 60
    models = {
        "power law": (lambda x, a, b: a * x**b, (3, -0.6)),
        "subleading": (lambda x, a, b, c: a * x**b * (1 + c / x), (3, -0.5, 20)),
        "offset": (lambda x, e, a, b: e + a * x**b, (0.1, 10, -1)),
    }
    choice = choose_model(data, "d")
    *powers, logarithm = choice.candidates
    # The logarithm of that model is linear.
    columns = np.stack([np.ones_like(X), np.log(X), np.log(np.log(X))], axis=1)
    inverse = np.linalg.inv(covariance / np.outer(means, means))
    best = np.linalg.solve(columns.T @ inverse @ columns, columns.T @ inverse @ np.log(means))
    residual = np.log(means) - columns @ best
    assert logarithm.misfit == pytest.approx(residual @ inverse @ residual, rel=1e-4)
    for candidate in powers:
        function, start = models[candidate.model]
        best, _ = curve_fit(function, X, means, p0=start, sigma=covariance, maxfev=10_000)
        residual = means - function(X, *best)
        chi_square = residual @ np.linalg.solve(covariance, residual)
        assert candidate.misfit == pytest.approx(chi_square, rel=1e-4)
        k = 6 - len(start)
        assert candidate.p_misfit == pytest.approx(
            stats.f.sf((60 - k) / (59 * k) * candidate.misfit, k, 60 - k)
        )


@pytest.mark.parametrize(
    ("make", "seeds"), [(coupled, 60), (independent, 400), (heavy_tailed, 2000)]
)
@pytest.mark.parametrize("truth", ["power law", "subleading"])
def test_the_model_that_made_the_data_is_chosen(make, seeds, truth):
    choice = choose_model(
        make(np.random.default_rng(2), seeds, CURVES[truth]), "d", significance=1e-3
    )
    assert choice.model == truth
    assert truth in choice.reason


def test_enough_seeds_separate_an_offset_from_a_subleading_term():
    choice = choose_model(coupled(np.random.default_rng(3), 4000, lambda x: 1 + 30 / x**0.5), "d")
    assert choice.model == "offset"
    assert choice.reason.endswith("all others are contradicted.")


def test_a_logarithm_is_found_where_powers_are_contradicted():
    """The case d / log d: a power of 0.88 was confirmed, and 1 refuted, by a fit that its own test
    rejected.
    """
    d = 2.0 ** np.arange(5, 15)
    noise = 1 + 0.1 * np.random.default_rng(0).standard_normal((10, 2000))
    choice = choose_model(array((d / np.log(d))[:, None] * noise, d), "d")
    assert choice.model == "logarithm"
    assert [candidate.p_misfit < 1e-30 for candidate in choice.candidates] == [
        True,
        True,
        True,
        False,
    ]


def test_a_curve_that_is_none_of_the_four_is_said_to_be_none():
    choice = choose_model(
        coupled(
            np.random.default_rng(4), 100, lambda x: x**-0.5 * (1 + 0.3 * np.sin(3 * np.log(x)))
        ),
        "d",
    )
    assert choice.model is None
    assert "so are all models with a term more" in choice.reason


@pytest.mark.integration
def test_tests_are_exact_for_normal_data():
    """With 9 seeds the statistics are far from χ²; Hotelling's and Rao's distributions give
    p-values that are uniform still.
    """
    rng = np.random.default_rng(5)
    mean = CURVES["power law"](X)
    root = np.linalg.cholesky(0.9 + 0.1 * np.eye(6)) * (0.05 * mean)[:, None]
    data = exact(mean, 9)
    plain, term = [], []
    for _ in range(60):
        noisy = data + root @ rng.normal(size=(6, 9))
        with pytest.warns(UserWarning, match="below 10"):
            candidates = choose_model(noisy, "d").candidates
        plain.append(candidates[0].p_misfit)
        term.append(candidates[1].p_term)
    for ps in (plain, term):
        assert stats.kstest(ps, "uniform").pvalue > 1e-3
    # The same T² taken for χ² of 4 degrees of freedom, as a formula without the estimated
    # covariance has it, is far off.
    misfits = stats.f.isf(plain, 4, 5) * 8 * 4 / 5
    assert stats.kstest(stats.chi2.sf(misfits, 4), "uniform").pvalue < 1e-6


def _candidates(plain, subleading, offset, logarithm=(2.0, 0.5, 0.5)):
    return (
        Candidate("power law", 20.0, plain, None),
        Candidate("subleading", *subleading),
        Candidate("offset", *offset),
        Candidate("logarithm", *logarithm),
    )


@pytest.mark.parametrize(
    ("candidates", "model"),
    [
        (_candidates(0.0126, (9.0, 0.01, 0.0126), (5.0, 0.2, 0.0126)), "power law"),
        (_candidates(0.0124, (9.0, 0.2, 0.5), (5.0, 0.3, 0.5)), "offset"),
        (_candidates(0.5, (5.0, 0.2, 0.0124), (9.0, 0.1, 0.5)), "subleading"),
        (_candidates(0.5, (5.0, 0.2, 0.5), (9.0, 0.1, 0.5), (2.0, 0.5, 0.0124)), "subleading"),
        (_candidates(0.001, (5.0, 0.049, 0.5), (9.0, 0.05, 0.5)), "offset"),
        # With the smallest misfit a logarithm is still the last to be taken.
        (_candidates(0.001, (5.0, 0.049, 0.001), (9.0, 0.01, 0.001)), "logarithm"),
        (_candidates(0.001, (5.0, 0.049, 0.001), (9.0, 0.01, 0.001), (2.0, 0.01, 0.001)), None),
    ],
)
def test_the_rule(candidates, model):
    assert _choose(candidates, 0.05).model == model


def test_refusals():
    data = coupled(np.random.default_rng(6), 20, CURVES["power law"])
    with pytest.raises(ValueError, match="at least 4 points"):
        choose_model(data.isel(d=slice(3)), "d")
    with (
        pytest.warns(UserWarning, match="6 seeds"),
        pytest.raises(ValueError, match="more seeds than widths, got 6"),
    ):
        choose_model(data.isel(seed=slice(6)), "d")
    with pytest.raises(ValueError, match="none at d=16"):
        choose_model(exact(3 * X**-0.5, 20), "d")
    with pytest.raises(ValueError, match="move together exactly"):
        choose_model(exact(3 * X**-0.5, 20) * (1 + data["seed"]), "d")
    with pytest.raises(ValueError, match="significance needs to be between 0 and 1"):
        choose_model(data, "d", significance=5.0)
