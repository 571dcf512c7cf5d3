"""The fourteen claims: every check comes out the other way on data where its statement is false (or, if it is false, true).

The data are those of a small run in which one quantity has been replaced by another of the same run, mostly the one that the
check uses as its control.
"""

import importlib.util
import json
import re
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from specjax import experiments
from specjax.cli import main
from specjax.experiments.claims.contract import outcome
from specjax.experiments.claims.experiment import CLAIMS, PAGE_HEADER, data_of

EXPERIMENT = experiments.load("claims")
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "papers" / "claims.md"
OPPOSITE = {"confirmed": "refuted", "refuted": "confirmed"}


def put(name, target, source):
    """The data with one variable of a dataset replaced: by another, by an array, or by a function of the dataset."""

    def changed(data):
        found = data[name]
        values = found[source].values if isinstance(source, str) else source(found) if callable(source) else source
        return {
            **data,
            name: found.assign({target: found[target].copy(data=np.broadcast_to(values, found[target].shape))}),
        }

    return changed


def decaying(errors):
    """A sequence of errors that falls by a tenth in every step: linear convergence."""
    return np.broadcast_to(0.9 ** np.arange(errors["inverse"].shape[-1]), errors["inverse"].shape)


def one_negative(dispersion):
    """The excesses, of which a single one is below zero."""
    excess = dispersion["excess"].values.copy()
    excess[0, 7] = -0.01
    return excess


def well_specified(scores):
    return scores["gaussian.gap"].values[..., :1, :1]


CONTROLS = {
    "claim-1-printed-independent": put("gradients", "independent", "skewed"),
    "claim-1-corrected-without-replacement": put("gradients", "without_replacement", "skewed"),
    "claim-1-corrected-marginals": put("gradients", "skewed", "independent"),
    "claim-2-printed-full-row-rank": put("forms", "wide.left", "wide.control"),
    "claim-2-printed-inverse": put("forms", "smallest", np.array(0.1)),
    "claim-2-printed-thin": put("forms", "thin", "deficient.left"),
    "claim-2-corrected-pseudo-inverse": put("forms", "deficient.right", "thin"),
    "claim-3-printed-normalization": put("vectors", "gradient", "control"),
    "claim-3-printed-preconditioner": put("vectors", "expectation", "no_noise"),
    "claim-3-corrected-per-sample": put("vectors", "per_sample", "expectation"),
    "claim-4-printed-mixed-products": put("jacobian", "mixed", np.array([0.5, -0.5])),
    "claim-4-printed-skew-part": put("jacobian", "asymmetry", lambda d: d["newton_schulz"].values[..., None]),
    "claim-4-corrected-mixed-products": put("jacobian", "mixed", np.array([0.5, -0.5])),
    "claim-4-corrected-symmetric": put("jacobian", "asymmetry", lambda d: d["newton_schulz"].values[..., None]),
    "claim-4-corrected-semidefinite": put("jacobian", "smallest_eigenvalue", np.array(-0.1)),
    "claim-4-corrected-potential": put("jacobian", "potential", "potential_control"),
    "claim-4-corrected-newton-schulz": put("jacobian", "newton_schulz", "fixed_scale"),
    "claim-4-corrected-normalizer": put("jacobian", "fixed_scale", "newton_schulz"),
    "claim-5-printed-mse": put("errors", "plain", "debiased"),
    "claim-5-corrected-start": put("errors", "started", "plain"),
    "claim-5-corrected-debiased": put("errors", "debiased", "plain"),
    "claim-6-printed-threshold": put("search", "first_gain", lambda d: d["first_gain"].values + 1),
    "claim-6-printed-sufficient": put("search", "first_gain", np.array(2.0)),
    "claim-6-printed-otherwise": put("search", "first_gain", lambda d: np.where(d["excess"].values > 1, 2.0, 1.0)),
    "claim-6-printed-inequality": put("search", "printed_wrong", "corrected_wrong"),
    "claim-6-corrected-inequality": put("search", "corrected_wrong", "printed_wrong"),
    "claim-6-corrected-first-step": put("search", "first_step_excess", "excess"),
    "claim-6-corrected-debiased": put("search", "debiased_gain", "plain_gain"),
    "claim-7-printed-regular": put("scores", "gaussian.gap", "gaussian.fisher"),
    "claim-7-printed-any-model": put("scores", "misspecified.gap", well_specified),
    "claim-7-corrected-gaps": put("scores", "misspecified.gap", well_specified),
    "claim-8-printed-limit-full-rank": put("limits", "full_rank", "rank_one"),
    "claim-8-printed-limit-every-mean": put("limits", "rank_one", "full_rank"),
    # The noise counted twice.
    "claim-8-corrected-moment": put(
        "limits",
        "outer_product",
        lambda d: d["outer_product"].values + 0.75 * np.eye(4) / d["k"].values[:, None, None, None],
    ),
    "claim-8-printed-proportional": put("alignment", "along.left_error", "beside.left_error"),
    "claim-8-printed-only": put("alignment", "beside.left_error", "along.left_error"),
    "claim-8-corrected-sufficient": put("alignment", "beside.left_error", "along.left_error"),
    "claim-8-corrected-necessary": put("alignment", "tall.left_error", "beside.left_error"),
    "claim-8-corrected-direction": put("alignment", "along.left_misaligned", "tall.left_misaligned"),
    "claim-8-corrected-smoothed": put("alignment", "wide.left_formula", "wide.left_error"),
    "claim-8-corrected-full-matrix": put("alignment", "wide.full_formula", "wide.left_error"),
    "claim-9-printed-growth": put("decay", "along", lambda d: d["along"].values * d["k"].values[:, None] ** 2),
    "claim-9-corrected-decay": put("decay", "along", lambda d: d["along"].values * d["k"].values[:, None]),
    # D² in place of D²/2, and d in place of d - 1.
    "claim-9-corrected-coefficient": put("decay", "bias", lambda d: 2 * d["bias"].values),
    "claim-9-corrected-vector": put("decay", "vector", lambda d: 6 / 5 * d["vector"].values),
    "claim-9-corrected-homogeneous": put("decay", "sum", "sum_control"),
    "claim-9-corrected-sum-of-ortho": put("averaging", "mean_of_ortho.mean", "jackknife.mean"),
    "claim-9-corrected-unbiased": put("averaging", "mean_of_ortho_few.mean", "ortho_of_mean_few.mean"),
    "claim-9-corrected-jackknife": put("averaging", "jackknife.mean", "ortho_of_mean.mean"),
    "claim-10-printed-invariant": put("dispersion", "congruence", "euclidean"),
    "claim-10-printed-zero": put("dispersion", "equal", "arithmetic"),
    "claim-10-printed-positive": put("dispersion", "arithmetic", "equal"),
    "claim-10-printed-variance": put("dispersion", "excess", "karcher_congruence"),
    "claim-10-corrected-karcher-less": put("dispersion", "excess", one_negative),
    "claim-10-corrected-inversion": put("dispersion", "karcher_inversion", "inversion"),
    "claim-10-corrected-tight": put(
        "dispersion", "excess", lambda d: d["excess"].values * d["tightness"].values[:, None]
    ),
    "claim-10-corrected-definite": put("dispersion", "indefinite_finite", "definite_finite"),
    "claim-11-printed-quadratic": put("errors", "inverse", decaying),
    "claim-11-printed-neighbourhood": put("errors", "inverse", decaying),
    "claim-11-printed-accuracy": put("errors", "gram", "inverse"),
    # What they are at κ = 10.
    "claim-11-printed-float16": put("errors", "float16", lambda d: d["float16"].values[:1]),
    "claim-11-printed-float32": put("errors", "float32", lambda d: d["float32"].values[:1]),
    "claim-11-corrected-recursion": put("errors", "inverse", decaying),
    "claim-11-corrected-steps": put("errors", "balanced", "inverse"),
    "claim-11-corrected-accuracy": put("errors", "inverse", "gram"),
    "claim-11-corrected-full-rank": put("errors", "deficient_finite", "full_rank_finite"),
    "claim-12-corrected-chain-rule": put("steps", "chain_rule", "as_printed"),
    "claim-12-printed-gradient": put("steps", "as_printed", "inverted"),
    "claim-12-printed-half-whitening": put("steps", "half_step", "quarter_step"),
    "claim-12-corrected-gradient": put("steps", "inverted", "as_printed"),
    "claim-12-corrected-full-whitening": put("steps", "full_step", "half_step"),
    "claim-12-corrected-quarter-power": put("steps", "quarter_step", "half_step"),
    "claim-12-corrected-residual": put(
        "residual", "distance", lambda d: d["distance"].values * d["columns"].values[:, None] ** 0.5
    ),
    "claim-13-printed-column": put("loops", "column", "full_rank"),
    "claim-13-printed-curl": put("loops", "ortho", "swirl"),
    "claim-13-corrected-circulation": put("loops", "ortho", "newton_schulz"),
    "claim-13-corrected-newton-schulz": put("loops", "newton_schulz", "ortho"),
    "claim-13-corrected-rank-one": put("loops", "rank_one", "full_rank"),
    "claim-13-corrected-higher-rank": put("loops", "full_rank", "rank_one"),
    "claim-14-printed-population-hessian": put("losses", "robust.curvature", "robust.squared"),
    "claim-14-printed-only-nll": put("losses", "exponential.squared", "bounded.squared"),
    "claim-14-printed-mean-slope": put("losses", "bounded.slope", "robust.slope"),
    "claim-14-corrected-variance": put("losses", "bounded.squared", "exponential.squared"),
}
"""For each check, data on which its verdict must be the opposite one."""


@pytest.mark.integration
def test_every_check_has_the_expected_verdict_and_the_opposite_one_on_its_control(smoke_data):
    config = EXPERIMENT.scales["smoke"]
    data = smoke_data("claims")
    checks = EXPERIMENT.checks(config, data)
    found = {check.name: check.verdict for check in checks}
    assert found == {check.name: EXPERIMENT.expected(check) for check in checks}
    assert EXPERIMENT.refuted <= set(found)
    assert all("-printed-" in name for name in EXPERIMENT.refuted)

    turned = {}
    for name, change in CONTROLS.items():
        claim = CLAIMS[int(name.split("-")[1])]
        judged = claim.checks(config, change(data_of(claim, data)))
        turned[name] = next(check.verdict for check in judged if check.name == name)
    assert turned == {name: OPPOSITE[verdict] for name, verdict in found.items()}

    verdicts = {row[0]: row[2] for row in EXPERIMENT.tables(config, data)[0].rows}
    assert verdicts == {f"{n}. {claim.title}": outcome(n, checks) for n, claim in CLAIMS.items()}
    the_page_has_these_verdicts(verdicts)


def the_page_has_these_verdicts(verdicts):
    """The committed table is of a larger run, whose numbers `test_the_page_is_in_step` compares; the verdicts are the same."""
    lines = [line.strip("| ").split(" | ") for line in PAGE.read_text().splitlines() if re.match(r"\| \d+\. ", line)]
    assert {line[0].replace("\\", ""): line[2] for line in lines} == verdicts
    assert all(len(line) == len(PAGE_HEADER) for line in lines)


def test_the_claims_are_the_fourteen():
    assert list(CLAIMS) == list(range(1, 15))
    for claim in CLAIMS.values():
        assert claim.deciding.startswith(f"claim-{claim.number}-")


@pytest.mark.integration
def test_only_the_claims_asked_for_are_run(tmp_path, capsys):
    assert main(["run", "claims", "--only", "6,5", "--scale", "smoke", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert set(re.findall(r"claim-(\d+)-", printed)) == {"5", "6"}
    with xr.open_datatree(tmp_path / "claims" / "data.nc", engine="h5netcdf") as tree:
        assert set(tree.children) == {"claim-5-errors", "claim-6-search"}
    assert main(["run", "claims", "--only", "15", "--out", str(tmp_path)]) == 2
    assert "only takes different numbers of claims from 1 to 14" in capsys.readouterr().err


def test_the_tables_of_a_result_go_to_their_places(tmp_path):
    table = {"title": "Verdicts", "header": ["a_b", "c"], "rows": [["x | y", "z"]]}
    others = [{"title": f"Claim {n}: t", "header": ["h"], "rows": [[str(n)]]} for n in (8, 9)]
    folder = tmp_path / "claims"
    assert main(["run", "claims", "--only", "6", "--scale", "smoke", "--out", str(tmp_path)]) == 0
    (folder / "tables.json").write_text(json.dumps([table, *others]))
    with_table = script().with_table
    places = [f"<!-- {p} -->\nold\n<!-- end of {p} -->" for p in ("verdicts", "directions", "averages")]
    written = with_table("\n\n".join(["before", *places, "after"]), folder)
    assert (
        "| a\\_b | c |\n| --- | --- |\n| x \\| y | z |\n<!-- end of verdicts -->\n\n<!-- directions -->\n| h |"
        in written
    )
    assert "old" not in written
    assert written.startswith("before\n\n")
    assert written.endswith("\n\nafter")
    with pytest.raises(ValueError, match="'Claim 8' needs to be once"):
        with_table("\n".join([places[0], places[2]]), folder)


def script():
    spec = importlib.util.spec_from_file_location("claims_page", ROOT / "scripts" / "claims_page.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_page_is_in_step(tmp_path):
    with_table = script().with_table
    assert main(["run", "claims", "--out", str(tmp_path)]) == 0
    assert with_table(PAGE.read_text(), tmp_path / "claims") == PAGE.read_text()
