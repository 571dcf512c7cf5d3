"""Losses at the best rate between the rates of a grid."""

import numpy as np
import pytest
import xarray as xr

from specjax import lab
from specjax.experiments.submitted.student_training import at_best_rate, inside

RATES = np.array([0.01, 0.03, 0.05, 0.2])
X = np.log(RATES)


def losses(bends, places, heights):
    """A parabola in log rate for each seed."""
    rows = [b * (X - x) ** 2 + h for b, x, h in zip(bends, places, heights, strict=True)]
    return xr.DataArray(rows, dims=("seed", "rate"), coords={"rate": RATES})


def test_losses_at_the_best_rate_are_those_of_parabolas():
    bends, places, heights = [1.0, 2.0, 0.5], np.log([0.02, 0.04, 0.05]), [0.3, -0.1, 0.2]
    found, place = at_best_rate(losses(bends, places, heights))
    assert place == 1
    # The mean of parabolas is one parabola, with its vertex at the weighted mean of the places.
    vertex = np.average(places, weights=bends)
    right = [b * (vertex - x) ** 2 + h for b, x, h in zip(bends, places, heights, strict=True)]
    np.testing.assert_allclose(found, right, rtol=1e-12)


@pytest.mark.parametrize(("places", "end"), [([0.001, 0.002], 0), ([2.0, 1.0], -1)])
def test_at_an_end_of_the_grid_the_losses_there_are_undecided(places, end):
    given = losses([1.0, 1.0], np.log(places), [0.0, 0.0])
    found, place = at_best_rate(given)
    np.testing.assert_allclose(found, given.isel(rate=end), rtol=1e-12)
    data = xr.Dataset({"loss": found, "place": place})
    judged = inside(lab.above(data["loss"], -1.0, "-1"), RATES.tolist(), data).judge({})
    assert judged.verdict == "inconclusive"
    assert ("smallest" if end == 0 else "largest") in judged.reason
