"""Experiments measure the same at a width and padded to a larger one.

Every sweep checks this at its own narrowest width, in test_smoke too. These configurations are odd
sizes, which are no multiples of anything.
"""

import jax
import numpy as np
import pytest
import xarray as xr

from specjax import experiments, sweep
from specjax.sizes import Size
from specjax.sweep._dataset import trailing_dims
from specjax.sweep._measurement import flat_outputs

PADDED = 11
WIDTHS = (5, 6, 7, 8, 9)

# An odd width below PADDED for the narrowest point of each sweep, and small fixed sizes.
SMALL = {
    "figure-2": {"d0s": WIDTHS, "d1s": WIDTHS, "d2s": WIDTHS, "samples": 4},
    "matrix-factorization": {"ks": WIDTHS, "small_ks": (5, 6)},
    "deep-linear": {"small_widths": (3,), "widths": WIDTHS, "growing_widths": WIDTHS},
    "relu-off-diagonal": {"d0s": (5, 6), "angle_d0s": WIDTHS},
    "target": {"ks": (7, 8, 9, 10, 11), "narrow_ks": (7, 8), "d1s": WIDTHS},
    "dominance": {"widths": WIDTHS, "linear_widths": (5, 6)},
    "row-normalization": {"widths": (9, 10, 11, 12, 13), "noise_widths": WIDTHS, "steps": 2},
    "figure-1": {"widths": WIDTHS, "drawn_width": 5},
    "orthogonalizer-error": {"widths": (5, 6, 7, 8)},
    "memory-one-step": {
        "n": 60,
        "dims": (5, 6),
        "fit_from": 5,
        "alphas": (1.5, 2.0),
        "descent_n": 30,
        "descent_dims": (5, 6),
    },
    "memory-lambda": {"n": 60, "dims": (5, 6), "spectrum_n": 60},
    "memory-logits": {"n": 60, "dims": (5, 6, 7), "items": (0, 9)},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_padding_changes_nothing_that_is_measured(name, monkeypatch):
    compared = []

    def run(measure, over, **_):
        ((swept, axis),) = over.items()
        width = axis.points[0]
        plain, padded = (
            jax.jit(lambda key, at=at: flat_outputs(measure, key, {swept: at}))(jax.random.key(7))
            for at in (width, Size(PADDED, width))
        )
        assert plain.keys() == padded.keys()
        for quantity, expected in plain.items():
            found = np.asarray(padded[quantity])
            # The drawn blocks keep the extent of the weight.
            found, beyond = found[tuple(map(slice, expected.shape))], found
            assert np.sum(np.abs(beyond)) == pytest.approx(np.sum(np.abs(found)), rel=1e-6)
            # Sums of float32 in another order, which lose digits where they cancel; the errors of
            # exact methods are rounding.
            np.testing.assert_allclose(
                found,
                expected,
                rtol=1e-3,
                atol=1e-5 * np.max(np.abs(expected)) + 1e-12,
                err_msg=quantity,
            )
            compared.append(quantity)
        return xr.Dataset(
            {q: (trailing_dims(q, array.ndim), np.asarray(array)) for q, array in plain.items()}
        )

    monkeypatch.setattr(sweep, "run", run)
    experiment = experiments.load(name)
    experiment.run(type(experiment.at("smoke"))(**SMALL[name]))
    assert compared
