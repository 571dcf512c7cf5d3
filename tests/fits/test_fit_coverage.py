"""Intervals, bands and p-values of fits hold what they promise, in simulations with known truth
(minutes; `pytest -m slow`).
"""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats

from specjax.fits import choose_model, drop_smallest, fit_offset, fit_power_law
from tests.fits.samples import Curve, X, coupled, heavy_tailed, independent

pytestmark = pytest.mark.slow

FITS = 1000  # a coverage of 95 % has a standard error of 0.7 %
FAR = np.array([8.0, 64.0, 2048.0])  # two of them beyond the widths


def _power_law(x):
    return 3 * x**-0.5


def _subleading(x):
    return 3 * x**-0.5 * (1 + 20 / x)


def _offset(x):
    return 1 + 30 / x


def _no_offset(x):
    return 30 / x


@dataclass(frozen=True)
class Case:
    """A kind of noise, a number of seeds, the truth and how it is fitted.

    `bands`: whether bands are demanded as well. A mean of 60 lognormal samples is itself so skewed
    that no percentile interval of it covers 95 %; an exponent is a difference of such means, of
    which the skewness cancels.
    """

    make: object
    seeds: int
    curve: Curve
    exponent: float
    fit: object
    bands: bool = True


def _line(data):
    return fit_power_law(data, "d")


def _line_and_term(data):
    return fit_power_law(data, "d", subleading=True)


def _above_offset(data):
    return fit_offset(data, "d")


def _ragged(rng, seeds, curve):
    """Coupled widths of which the larger have fewer seeds."""
    data = coupled(rng, seeds, curve)
    counts = [seeds, seeds, seeds // 2, seeds // 4, seeds // 4, seeds // 8]
    return data.assign_coords(seeds=("d", counts))


CASES = {
    "coupled": Case(coupled, 60, _power_law, -0.5, _line),
    "coupled, 20 seeds": Case(coupled, 20, _power_law, -0.5, _line),
    "coupled, own seeds": Case(_ragged, 120, _power_law, -0.5, _line),
    "independent": Case(independent, 60, _power_law, -0.5, _line),
    "lognormal": Case(heavy_tailed, 60, _power_law, -0.5, _line, bands=False),
    "lognormal, 1000 seeds": Case(heavy_tailed, 1000, _power_law, -0.5, _line),
    "subleading, coupled": Case(coupled, 60, _subleading, -0.5, _line_and_term),
    "subleading, independent": Case(independent, 2000, _subleading, -0.5, _line_and_term),
    "offset, coupled": Case(coupled, 60, _offset, -1, _above_offset),
    "offset, independent": Case(independent, 500, _offset, -1, _above_offset),
    "offset, lognormal": Case(heavy_tailed, 2000, _offset, -1, _above_offset),
    "offset of zero": Case(coupled, 200, _no_offset, -1, _above_offset),
}


def _share(low, truth, high):
    return np.mean((low <= truth) & (truth <= high), axis=0)


@pytest.mark.parametrize("name", CASES)
def test_intervals_bands_and_p_values(name):
    case = CASES[name]
    rng = np.random.default_rng(1)
    fits = [case.fit(case.make(rng, case.seeds, case.curve)) for _ in range(FITS)]
    shares = {"exponent": _share(*_around([fit.interval for fit in fits], case.exponent))}
    if case.fit is _above_offset:
        offset = 0.0 if case.curve is _no_offset else 1.0
        shares["offset"] = _share(*_around([fit.offset_interval for fit in fits], offset))
        shares["prefactor"] = _share(*_around([fit.prefactor_interval for fit in fits], 30.0))
    elif case.fit is _line:
        low, high = np.moveaxis(np.array([fit.local_intervals for fit in fits]), -1, 0)
        shares |= {f"local {i}": share for i, share in enumerate(_share(low, -0.5, high))}
    for x, share in zip(
        FAR, _share(*_around([fit.band(FAR) for fit in fits], case.curve(FAR))), strict=True
    ):
        shares[f"band at {x:g}"] = share
    low, high = np.moveaxis(np.array([fit.band(X, simultaneous=True) for fit in fits]), 1, 0)
    shares["whole band"] = np.mean(((low <= case.curve(X)) & (case.curve(X) <= high)).all(axis=1))
    print(f"\n{name}: " + ", ".join(f"{what} {share:.3f}" for what, share in shares.items()))
    if not case.bands:
        shares = {what: share for what, share in shares.items() if "band" not in what}
    assert {what: share for what, share in shares.items() if not 0.92 <= share <= 0.98} == {}

    ps = np.array([fit.p_value(case.exponent) for fit in fits])
    # At 1.95/√1000 two distributions differ at the level of 0.1 %.
    assert stats.kstest(ps, "uniform").statistic < 1.95 / np.sqrt(FITS)


def _around(ends, truth):
    ends = np.array(ends)
    return ends[:, 0], truth, ends[:, 1]


def test_shifts_of_dropped_widths():
    rng = np.random.default_rng(2)
    dropped = [
        drop_smallest(coupled(rng, 60, _power_law), "d").isel(d=slice(1, None)) for _ in range(FITS)
    ]
    low, high = (
        np.array([each[end].values for each in dropped]) for end in ("shift_low", "shift_high")
    )
    shares = _share(low, 0.0, high)
    assert ((shares >= 0.92) & (shares <= 0.98)).all(), shares


@pytest.mark.parametrize(
    ("make", "seeds"), [(coupled, 60), (coupled, 12), (independent, 60), (heavy_tailed, 200)]
)
def test_a_power_law_is_kept_as_often_as_the_rule_says(make, seeds):
    rng = np.random.default_rng(3)
    choices = [choose_model(make(rng, seeds, _power_law), "d") for _ in range(FITS)]
    plain, *others = (
        np.array([choice.candidates[i].p_misfit for choice in choices]) for i in range(3)
    )
    terms = [np.array([choice.candidates[i].p_term for choice in choices]) for i in (1, 2)]
    rejected = {
        "misfit": np.mean(plain < 0.05),
        "with a term": np.mean(others[0] < 0.05),
        "with an offset": np.mean(others[1] < 0.05),
        "term": np.mean(terms[0] < 0.05),
        "offset": np.mean(terms[1] < 0.05),
    }
    print(f"\n{make.__name__}, {seeds} seeds: {rejected}")
    assert {what: share for what, share in rejected.items() if not 0.02 <= share <= 0.08} == {}
    assert np.mean([choice.model == "power law" for choice in choices]) >= 0.95 - 4 * np.sqrt(
        0.95 * 0.05 / FITS
    )
