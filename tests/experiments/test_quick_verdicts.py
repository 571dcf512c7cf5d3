"""`specjax reproduce` at its default scale: every verdict as expected, and the results on disk as promised."""

import json
import math
import subprocess
import sys
from pathlib import Path

import matplotlib.image
import pytest
import xarray as xr

from specjax import experiments

pytestmark = pytest.mark.integration

KEYS = {"name", "source", "statement", "predicted", "measured", "interval", "verdict", "rule", "record"}

# What the papers have wrong, and beside it what holds.
CORRECTED = {
    "matrix-factorization": [("corollary-1-printed", "corollary-1")],
    "table-c7": [("theory-column", "off-diagonal"), ("no-batch-bias", "batch-bias")],
    "relu-off-diagonal": [("leading-term-alone", "off-diagonal")],
    "deep-linear": [(f"order-{layers}-printed", f"order-{layers}") for layers in ("first", "hidden", "output")],
    "claims-bias": [("growth", "decay-of-bias")],
    "claims-integrability": [("curl", "no-circulation"), ("mixed-products-as-printed", "mixed-products")],
    "claims-reparametrization": [("gradient-as-printed", "gradient"), ("half-whitening", "full-whitening")],
    "one-step-comparison": [
        ("rule-one-stable-rank", "rule-two-stable-ranks"),
        ("smooth-steps-printed", "smooth-steps-corrected"),
    ],
    "sparse-regression": [("largest-rank-printed", "largest-rank")],
    "rank-switch": [
        ("relu-shared-rule-ahead-of-spectral", "relu-shared-spectral-keeps-up"),
        ("gated-shared-rule-ahead-of-spectral", "gated-shared-spectral-keeps-up"),
        ("features-own-rule-ahead-of-spectral", "features-own-spectral-keeps-up"),
    ],
    "relu-features": [
        ("mean-printed", "mean-corrected"),
        ("spike-printed", "spike-corrected"),
        ("cross-covariance-printed", "cross-covariance-corrected"),
    ],
    "gradient-rank-window": [
        ("window-without-large-spike", "window-with-large-spike"),
        ("theorem-3-9-printed", "theorem-3-9-corrected"),
        ("cost-relative-printed", "cost-relative-corrected"),
    ],
}
# Statements that hold whatever else is found to be wrong, by the names a reader looks them up by.
CONFIRMED = {
    "table-c7": {"closed-form", "off-diagonal", "half-batches"},
    "figure-2": {
        "off-diagonal",
        "alpha",
        "autodiff",
        "sublinear",
        "g2-diagonal-d1",
        "g2-coefficient-d1",
        "g1-diagonal-d2",
        "g1-off-diagonal-d0",
        "g1-off-diagonal-d1",
    },
    "matrix-factorization": {"theorem-1", "diagonal-order", "off-diagonal-order", "one-draw"},
    "target": {"narrow", "rates", "constants", "mostly-without-target"},
    "relu-off-diagonal": {"kappa-limits", "odd-activation"},
    "dominance": {
        "factorization-draw-vanishes",
        "factorization-draw-rate",
        "linear-hidden-limit",
        "linear-output-limit",
        "linear-hidden-rank-bound",
    },
    "row-normalization": {"factorization-initial", "factorization-trained", "factorization-rate", "noise-limit"},
    "figure-1": {"hessian-factorization", "hessian-output", "hessian-hidden-grows", "metric-factorization"},
    "orthogonalizer-error": {"alignment-scalar", "exact-exponent", "muon-5-k2-shift"},
    "condition-number": {"muon-flat", "context-muon-flat", "cubic", "flow", "gradient-descent-beats-muon"},
    "muon-convergence": {"one-prefactor", "many", "almost-surely", "one-prefactor-context"},
    "convergence-curves": {"muon-over-kappa", "arriving", "stranded"},
    "decoupling": {"exact", "context-exact", "repels"},
    "preconditioner-maps": {"identity", "stacked"},
    "sign-gradient-lower-bounds": {"factorization-bound", "regression-bound"},
    "figures-14-and-15": {"realizable-before", "realizable-after", "teacher-student-before", "teacher-student-after"},
    "gradient-rank-window": {"window-linear", "window-logarithmic"},
    "relu-features": {"cross-bulk-rank", "cross-bulk-remainder"},
    "sparse-regression": {"rule-at-start", "spectral-ahead", "gated-spectral-ahead"},
    "memory-one-step": {
        "counts-by-formula",
        "exponents-by-formula",
        "descent-by-formula",
        "descent-exponents-by-formula",
        "exponents-far-out",
        "superposition",
    },
    "memory-multi-step": {"muon-second-step-gains", "thresholded-second-step-gains"},
    "memory-minibatch": {"small-batches-are-stored", "critical-batch-of-muon", "muon-has-the-larger-batch"},
    "memory-minibatch-steps": {"small-batches-exponent", "sample-efficiency-worsens"},
    "memory-anisotropy": {"newton-is-invariant", "isotropic-counts", "muon-loses-its-exponent"},
    "memory-lambda": {"resolution-as-polar", "sharp-resolution-is-polar", "s-bulk"},
    "memory-logits": {"slope", "signal-order", "signal-bound", "interactions", "loss-is-the-mass-left"},
    "rank-switch": {"features-shared-rule-ahead-of-spectral", "control-rule-is-euclidean"},
    "after-initialization": {
        "learned",
        "step-sizes-inside",
        "muon-ahead-of-adam",
        "ratio-falls",
        "ratio-of-noise-falls",
    },
    "recall-transformer": {
        "task-is-solvable",
        "muon-learns",
        "muon-above-adamw",
        "muon-above-sgd",
        "muon-robust-outputs",
    },
    "gpt-telemetry": {
        "perceptrons-far-below",
        "gradients-have-large-ranks",
        "inequality",
        "not-from-the-start",
        "no-fall",
    },
}
REFUTED = {
    "target": {"target-is-left", "left-is-aligned", "real-preconditioner"},
    "muon-convergence": {"moderate-start"},
    "memory-one-step": {"straight-lines-of-descent"},
    "dominance": {"linear-hidden-draw-vanishes", "relu-hidden-draw-vanishes"},
    "row-normalization": {"linear-hidden-initial", "relu-hidden-trained", "noise-vanishes"},
    "figure-1": {"hessian-linear-hidden", "hessian-relu-hidden"},
    "orthogonalizer-error": {"muon-5-exponent"},
    "preconditioner-maps": {"blocks"},
    "figures-3-and-11": {"relu-rule-along-spectral"},
    "sparse-regression": {"gated-large-batch-coincides"},
    "recall-transformer": {"alike-when-uniform"},
    "after-initialization": {"distance-falls", "nearer-than-noise"},
}


# Every push has all of them at their smoke scale, and these few as a user runs them.
SHORT = {"claims-polar", "mean-strength", "scalar-sequences"}


@pytest.mark.parametrize(
    "name", [name if name in SHORT else pytest.param(name, marks=pytest.mark.slow) for name in experiments.names()]
)
def test_reproduce_confirms_what_holds_and_refutes_what_does_not(name, optimized_environment, tmp_path):
    # In a process of its own, whose programs are the optimized ones of a user's.
    command = [Path(sys.executable).with_name("specjax"), "reproduce", "--only", name, "--out", tmp_path]
    # The limit is for programs that wait for each other for ever.
    done = subprocess.run(command, env=optimized_environment, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / name / "checks.json").read_text())
    every_verdict_is_the_expected_one(name, found)
    checks_have_the_keys_of_the_contract(found)
    result_files_can_be_read(name, tmp_path / name)
    the_facts_of_the_paper_have_their_verdicts(name, found)
    for page in ("report.md", "report.html"):
        text = (tmp_path / page).read_text()
        assert all(check["name"] in text for check in found)


def every_verdict_is_the_expected_one(name, found):
    experiment = experiments.load(name)
    judged = {check["name"]: check["verdict"] for check in found if check["name"] not in experiment.held_open}
    assert judged == {check: "refuted" if check in experiment.refuted else "confirmed" for check in judged}, name
    # A name that no check has would expect nothing.
    assert experiment.refuted | experiment.held_open <= {check["name"] for check in found}, name


def the_facts_of_the_paper_have_their_verdicts(name, found):
    verdicts = {check["name"]: check["verdict"] for check in found}
    for printed, corrected in CORRECTED.get(name, []):
        assert (verdicts[printed], verdicts[corrected]) == ("refuted", "confirmed")
    for facts, verdict in ((CONFIRMED, "confirmed"), (REFUTED, "refuted")):
        assert {verdicts[statement] for statement in facts.get(name, ())} <= {verdict}


def checks_have_the_keys_of_the_contract(found):
    for check in found:
        assert set(check) == KEYS
        numbers = [check["measured"], check["predicted"], *(check["interval"] or [])]
        assert all(number is None or math.isfinite(number) for number in numbers)
        assert isinstance(check["measured"], float)


def result_files_can_be_read(name, folder):
    record = json.loads((folder / "config.json").read_text())
    config = experiments.load(name).scales["quick"]
    assert (record["name"], record["scale"], record["seed"]) == (name, "quick", config.seed)
    assert set(record["config"]) == set(vars(config))
    assert matplotlib.image.imread(folder / "figure.png").ndim == 3
    with xr.open_datatree(folder / "data.nc", engine="h5netcdf") as tree:
        assert tree.children
        assert all(node.to_dataset().sizes["seed"] >= 1 for node in tree.children.values())
