"""Verdicts follow from the numbers: the same experiments, judged on data that were tampered with."""

import numpy as np
import pytest
import xarray as xr

from specjax import experiments
from specjax.experiments.outer_product.layers import LAYERS

pytestmark = pytest.mark.integration

WIDTHS = (16, 32, 64, 128, 256)


def verdicts(experiment, config, data):
    return {check.name: check.verdict for check in experiment.checks(config, data)}


def noisy(curve, dims, noise=0.02, seeds=100):
    """A curve in the width with independent relative noise over seeds."""
    values = np.asarray(curve, float)[:, None] * (
        1 + noise * np.random.default_rng(0).standard_normal((len(curve), seeds))
    )
    return xr.DataArray(values, {dims[0]: list(WIDTHS), "seed": np.arange(seeds)}, dims)


def test_a_hessian_with_anything_off_its_blocks_is_refuted():
    experiment = experiments.load("figure-1")
    config = type(experiment.scales["smoke"])(widths=WIDTHS, metric_widths=WIDTHS)
    falling, flat, zero = 3 / np.sqrt(WIDTHS), np.full(5, 0.4), np.zeros(5)

    def shares(curves):
        return xr.Dataset({layer: noisy(curve, ("width", "seed")) for layer, curve in curves.items()})

    output = {"linear_output": zero, "relu_output": zero}
    hessian = shares({"factorization": falling, "linear_hidden": flat, "relu_hidden": flat} | output)
    metric = shares({layer: falling if layer == "factorization" else flat for layer in LAYERS})
    found = verdicts(experiment, config, {"hessian": hessian, "metric": metric})
    assert all(found[name] == ("refuted" if name in experiment.refuted else "confirmed") for name in found)
    hessian["relu_output"][1, 3] = 1e-4
    hessian["linear_hidden"] = hessian["factorization"]
    metric["factorization"] = metric["relu_output"]
    turned = verdicts(experiment, config, {"hessian": hessian, "metric": metric})
    changed = {name: verdict for name, verdict in turned.items() if verdict != found[name]}
    assert changed == {
        "relu-output-hessian": "refuted",
        "linear-hidden-hessian": "confirmed",
        "factorization-metric": "refuted",
    }


def test_row_normalization_is_judged_at_the_step_it_names():
    experiment = experiments.load("row-normalization")
    config = type(experiment.scales["smoke"])(widths=WIDTHS, steps=2)
    falling, flat = 0.8 / np.sqrt(WIDTHS), np.full(5, 0.4)

    def training(curves):
        return {
            "training": xr.Dataset(
                {
                    layer: xr.concat([noisy(curve, ("width", "seed")) for curve in curves[layer]], "step")
                    for layer in LAYERS
                }
            )
        }

    def steps(initial, trained):
        return dict.fromkeys(LAYERS, (initial, flat, trained))

    found = verdicts(experiment, config, training(steps(falling, flat)))
    for layer in (name.replace("_", "-") for name in LAYERS):
        assert (found[f"{layer}-initial"], found[f"{layer}-trained"]) == ("confirmed", "refuted")
    assert found["factorization-initial-rate"] == "confirmed"
    found = verdicts(experiment, config, training(steps(flat, falling)))
    for layer in (name.replace("_", "-") for name in LAYERS):
        assert (found[f"{layer}-initial"], found[f"{layer}-trained"]) == ("refuted", "confirmed")
    assert found["factorization-initial-rate"] == "refuted"
