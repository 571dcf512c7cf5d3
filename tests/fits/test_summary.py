"""`fits.summarize` on laws that are known: what it fits, and what it says against the fit."""

import numpy as np
import pytest
import xarray as xr

from specjax import fits

D = 2.0 ** np.arange(3, 11)


def samples(means, noise=0.05, seeds=200):
    rng = np.random.default_rng(0)
    y = means * rng.normal(1, noise, (seeds, len(means)))
    return xr.DataArray(y, dims=("seed", "d"), coords={"d": D[: len(means)]}, name="norm")


def test_a_power_law_has_nothing_against_it():
    found = fits.summarize(samples(D**2), "d")
    assert found.fit.model == "power law"
    assert found.fit.interval[0] < 2 < found.fit.interval[1]
    assert found.against == ()
    assert "a d^b" in repr(found)


def test_a_logarithm_is_said_to_be_allowed():
    found = fits.summarize(samples(D / np.log(D)), "d")
    assert any("(log" in sentence for sentence in found.against)
    assert not any("(log" in sentence for sentence in fits.summarize(samples(D), "d").against)


def test_a_limit_is_said_to_be_allowed():
    found = fits.summarize(samples(2 + 3 / D), "d")
    assert "The data allow a limit above 0 as well." in found.against
    assert found.at_large_sizes.limit


def test_a_mean_that_is_not_positive_is_a_sentence():
    found = fits.summarize(samples(np.sin(D)), "d")
    assert found.fit is None
    assert any("positive means" in sentence for sentence in found.against)
    assert np.isfinite(found.means).all()


def test_a_given_model_is_fitted_though_the_data_choose_another():
    found = fits.summarize(samples(3 + D), "d", model="power law")
    assert found.fit.model == "power law"
    assert any("The data choose another model" in sentence for sentence in found.against)


def test_the_median_of_heavy_tails():
    # A Cauchy variable has no mean; its median grows as d.
    rng = np.random.default_rng(1)
    y = D * np.exp(rng.standard_cauchy((400, len(D))) / 20)
    data = xr.DataArray(y, dims=("seed", "d"), coords={"d": D})
    low, high = fits.summarize(data, "d", by="median").fit.interval
    assert low < 1 < high


def test_three_sizes_are_fitted_and_not_tested():
    with pytest.warns(fits.RoughFitWarning):
        found = fits.summarize(samples(D[:3]), "d")
    assert found.choice is None
    assert found.against == ("No model is tested with fewer than 4 sizes.",)


def test_plain_numbers_are_all_finite():
    found = fits.summarize(samples(np.sin(D)), "d").to_dict()
    numbers = [*found["means"], *found["stderrs"]]
    assert all(number is None or np.isfinite(number) for number in numbers)
    assert found["exponent"] is None


def test_the_curve_in_words_has_the_terms_that_were_fitted():
    # Of 1 - 3/x + 40/x², one correction is rejected, and two are not.
    x = 2.0 ** np.arange(3, 12)
    y = x * (1 - 3 / x + 40 / x**2) * np.random.default_rng(2).normal(1, 0.002, (400, len(x)))
    data = xr.DataArray(y, dims=("seed", "d"), coords={"d": x})
    found = fits.asymptotics(data, "d", significance=0.01)
    assert " + q x^-" in found.curve
