"""Losses at the best rate between the rates of a grid."""

import numpy as np
import pytest
import xarray as xr

from specjax.experiments.submitted.student_training import at_best_rate

RATES = np.array([0.01, 0.03, 0.05, 0.2])
X = np.log(RATES)


def losses(bends, places, heights):
    """A parabola in log rate for each seed."""
    rows = [b * (X - x) ** 2 + h for b, x, h in zip(bends, places, heights, strict=True)]
    return xr.DataArray(rows, dims=("seed", "rate"), coords={"rate": RATES})


def test_losses_at_the_best_rate_are_those_of_parabolas():
    bends, places, heights = [1.0, 2.0, 0.5], np.log([0.02, 0.04, 0.05]), [0.3, -0.1, 0.2]
    found = at_best_rate(losses(bends, places, heights))
    # The mean of parabolas is one parabola, with its vertex at the weighted mean of the places.
    vertex = np.average(places, weights=bends)
    right = [b * (vertex - x) ** 2 + h for b, x, h in zip(bends, places, heights, strict=True)]
    np.testing.assert_allclose(found, right, rtol=1e-12)


def test_a_best_rate_at_the_end_of_the_grid_is_refused():
    with pytest.raises(ValueError, match="at an end for a rule"):
        at_best_rate(losses([1.0, 1.0], np.log([0.001, 0.002]), [0.0, 0.0]))
