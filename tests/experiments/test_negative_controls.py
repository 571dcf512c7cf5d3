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


def test_one_draw_decides_dominance_by_its_slope_and_its_margin():
    experiment = experiments.load("dominance")
    config = type(experiment.scales["smoke"])(widths=WIDTHS)
    falling, flat = 3 / np.sqrt(WIDTHS), np.full(5, 0.4)

    def draws(slopes, margin):
        columns = {f"{layer}.ratio": noisy(slopes[layer], ("width", "seed")) for layer in LAYERS}
        margins = {f"{layer}.margin": noisy(np.full(5, 0.1), ("width", "seed")) for layer in LAYERS}
        margins["relu_hidden.margin"][2, 7] = margin
        return {"draws": xr.Dataset({**columns, **margins})}

    as_found = {layer: falling if layer == "factorization" else flat for layer in LAYERS}
    found = verdicts(experiment, config, draws(as_found, 0.0))
    assert all(found[name] == ("refuted" if name in experiment.refuted else "confirmed") for name in found)
    turned = {layer: flat if layer == "factorization" else falling for layer in LAYERS}
    found = verdicts(experiment, config, draws(turned, -0.01))
    for layer in LAYERS:
        name = f"{layer.replace('_', '-')}-draw-vanishes"
        assert found[name] == ("refuted" if layer == "factorization" else "confirmed")
    assert found["factorization-draw-rate"] == "refuted"
    assert (found["relu-hidden-rank-bound"], found["linear-hidden-rank-bound"]) == ("refuted", "confirmed")


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


def test_the_table_follows_its_estimators():
    experiment = experiments.load("table-c7")
    config = type(experiment.scales["smoke"])(inits=2000, sampled_inits=200, samples=100)
    # d_1/4 and d_0 d_2/4π; of the diagonals only the paired differences are looked at.
    values = {"g2_diagonal": 1.2e4, "g2_coefficient": 5.0, "g1_diagonal": 2400.0, "g1_off_diagonal": 300 / (4 * np.pi)}
    spread = np.random.default_rng(0).standard_normal(2000)
    exact = xr.Dataset({q: (("d0", "seed"), v * (1 + 0.05 * spread[None])) for q, v in values.items()})
    exact = exact.assign_coords(d0=[25], seed=np.arange(2000))
    # Two signs alternating: a noise whose mean over the 200 seeds is exactly zero.
    noise = xr.DataArray(0.001 * (-1.0) ** np.arange(200), {"seed": np.arange(200)}, "seed")
    cross = {q: exact[q].isel(seed=slice(200)) * (1 + noise) for q in values}
    cross = {q: c + exact[q].isel(seed=slice(200)).mean() - c.mean() for q, c in cross.items()}

    def data(exact, bias):
        sampled = {f"cross.{q}": c for q, c in cross.items()}
        batch = cross["g1_diagonal"] + 30 * noise + bias
        return {"exact": exact, "sampled": xr.Dataset({**sampled, "batch.g1_diagonal": batch})}

    found = verdicts(experiment, config, data(exact, bias=0.5))
    assert found["g2-coefficient-closed-form"] == found["g1-off-diagonal-closed-form"] == "confirmed"
    assert all(found[f"{q.replace('_', '-')}-autodiff"] == "confirmed" for q in values)
    assert found["g1-diagonal-batch-bias"] == "refuted"

    off = exact.assign(g2_coefficient=0.9 * exact["g2_coefficient"], g1_off_diagonal=1.2 * exact["g1_off_diagonal"])
    found = verdicts(experiment, config, data(off, bias=0.0))
    for quantity in ("g2-coefficient", "g1-off-diagonal"):
        assert found[f"{quantity}-closed-form"] == found[f"{quantity}-autodiff"] == "refuted"
    assert found["g2-diagonal-autodiff"] == found["g1-diagonal-autodiff"] == "confirmed"
    assert found["g1-diagonal-batch-bias"] == "confirmed"
