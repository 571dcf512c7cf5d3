"""Every experiment measures the same at a width of its own and padded to a larger one: padding is
no part of any model.
"""

import jax
import numpy as np
import pytest
import xarray as xr

from specjax import experiments, sweep
from specjax.sizes import Size
from specjax.sweep.dataset import trailing_dims
from specjax.sweep.measurement import flat_outputs

PADDED = 11

# An odd width below PADDED for the narrowest point of each sweep, and small fixed sizes.
SMALL = {
    "figure-2": {
        "d0s": (5, 6, 7, 8, 9),
        "d1s": (5, 6, 7, 8, 9),
        "d2s": (5, 6, 7, 8, 9),
        "samples": 4,
    },
    "matrix-factorization": {"ks": (5, 6, 7, 8, 9), "small_ks": (5, 6)},
    "deep-linear": {
        "small_widths": (3,),
        "widths": (5, 6, 7, 8, 9),
        "growing_widths": (5, 6, 7, 8, 9),
    },
    "relu-off-diagonal": {"d0s": (5, 6), "angle_d0s": (5, 6, 7, 8, 9)},
    "target": {"ks": (7, 8, 9, 10, 11), "narrow_ks": (7, 8), "d1s": (5, 6, 7, 8, 9)},
    "dominance": {"widths": (5, 6, 7, 8, 9), "linear_widths": (5, 6)},
    "row-normalization": {
        "widths": (9, 10, 11, 12, 13),
        "noise_widths": (5, 6, 7, 8, 9),
        "steps": 2,
    },
    "figure-1": {"widths": (5, 6, 7, 8, 9), "drawn_width": 5},
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


# Experiments at fixed sizes, and those whose widths are static: spectra and counts of matrices of
# another size are other problems.
STATIC = (
    "preconditioning",
    "spectral_criterion",
    "claims",
    "scaling",
    "field",
    "table_c7",
    "target_erasure",
    "what_decides",
    "filter_training",
)
# Experiments of the associative memory that measure with the functions of the three above, and
# those whose own tests pad them.
ALIKE = (
    "multi_step",
    "thresholded",
    "minibatch",
    "minibatch_steps",
    "anisotropy",
    "best_filter",
    "capacity_constants",
)
PADDED_BY_THEIR_TESTS = ("recall_transformer", "after_initialization")
UNPADDED = STATIC + ALIKE + PADDED_BY_THEIR_TESTS


def test_only_experiments_without_padded_widths_are_left_out():
    left_out = {
        name
        for name, module in experiments.MODULES.items()
        if any(part in module.split(".") for part in UNPADDED)
    }
    assert set(experiments.names()) - left_out == set(SMALL)


# Every sweep that pads asks it of its narrowest point itself, in test_smoke too; here it is asked
# at sizes that are no multiples.
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
