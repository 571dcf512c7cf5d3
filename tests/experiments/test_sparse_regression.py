"""Sparse regression: its verdicts on runs made up for them, its intervals of counts, what it refuses, and a run of its own."""

import dataclasses

import numpy as np
import pytest
import xarray as xr
from scipy.stats import binom

from specjax.experiments import load
from specjax.experiments.counts import MISSED, share_of
from specjax.experiments.spectral_criterion import sparse_regression as experiment
from specjax.experiments.spectral_criterion.sparse_training import LIMIT, METHODS, Config, runs_of

CONFIG = Config(iterations=20, gated_iterations=20, records=2, seeds=16, gated_seeds=(16, 12))


def training(dim, lead, diverged, third, ratio):
    """Points of a sweep: losses 10^-lead under SpecGD against 1, the last `diverged` draws of it diverge, st(A_3) times `third`.

    All ranks at the start are 4 times `ratio`. One number of `lead`, `diverged` and `ratio` for each point.
    """
    points, draws, rng = len(lead), 16, np.random.default_rng(0)
    data = {}
    for method in METHODS:
        loss = np.ones((points, draws, 20))
        lasted = np.full((points, draws), 20)
        stable = np.full((points, draws, 2, 4), 4.0)
        stable[:, :, 1, 3] *= third
        nuclear = stable.copy()
        for point in range(points):
            noise = 0.01 * rng.standard_normal((draws, 1))
            stable[point, :, 0] *= ratio[point] * 10**noise
            nuclear[point, :, 0] *= ratio[point] * 10**noise
            if method == "spectral":
                loss[point] = 10 ** (-lead[point] + noise)
                lost = draws - diverged[point]
                loss[point, lost:, 5:] = LIMIT
                lasted[point, lost:] = 5
        stable[:, :, 1] *= np.exp(0.001 * rng.standard_normal((points, draws, 1)))
        for name, values, dims in (
            ("loss", loss, ("t",)),
            ("lasted", lasted, ()),
            ("stable_rank", stable, ("r", "l")),
            ("nuclear_rank", nuclear, ("r", "l")),
        ):
            data[f"{method}.{name}"] = ((dim, "seed", *dims), values)
    return xr.Dataset(data)


def starts(ratio, growth):
    ranks = np.ones((4, 10, 4)) * np.exp(0.01 * np.random.default_rng(1).standard_normal((4, 10, 1)))
    scales = ratio * growth ** np.linspace(-1, 0, 4)
    data = {
        "stable_rank": (("d", "seed", "l"), ranks),
        "nuclear_rank": (("d", "seed", "l"), scales[:, None, None] + 0 * ranks),
    }
    return xr.Dataset(data, coords={"d": list(CONFIG.starts)})


def verdicts(**changes):
    made = {
        "starts": {"ratio": 3.0, "growth": 2.0},
        "training": {"lead": (0.8, 0.8), "diverged": (0, 9), "third": 1.0, "ratio": (1.0, 1.0)},
        "gated": {"lead": (0.8, 0.8, 0.4), "diverged": (9, 0, 0), "third": 0.5, "ratio": (1.0, 1.0, 1.2)},
    }
    for name, change in changes.items():
        made[name] |= change
    data = {
        "starts": starts(**made["starts"]),
        "training": training("rate", **made["training"]),
        "gated": training("n", **made["gated"]),
    }
    return {check.name: check.verdict for check in experiment.checks(CONFIG, data)}


def test_runs_that_are_as_the_paper_says_have_the_expected_verdicts():
    refuted = experiment.EXPERIMENT.refuted
    assert verdicts() == {name: "refuted" if name in refuted else "confirmed" for name in verdicts()}


@pytest.mark.parametrize(
    ("sweep", "change", "names"),
    [
        ("starts", {"ratio": 0.9}, {"rule-at-start"}),
        ("starts", {"growth": 1.0}, {"rule-grows-with-size"}),
        ("training", {"lead": (-0.2, 0.8)}, {"spectral-ahead"}),
        ("training", {"diverged": (0, 1)}, {"large-step-diverges"}),
        ("training", {"diverged": (7, 9)}, {"small-step-lasts"}),
        ("training", {"third": 7.0}, {"stable-ranks-stay-low"}),
        ("gated", {"diverged": (1, 0, 0)}, {"gated-large-step-diverges"}),
        ("gated", {"lead": (0.8, 0.8, 0.9)}, {"gated-lead-shrinks"}),
        ("gated", {"lead": (0.8, -0.1, -0.5)}, {"gated-spectral-ahead"}),
        ("gated", {"ratio": (1.0, 1.2, 1.0)}, {"gated-stable-ranks-grow", "gated-nuclear-ranks-grow"}),
        ("gated", {"third": 1.5}, {"gated-third-layer-falls"}),
    ],
)
def test_other_runs_have_the_opposite_verdict(sweep, change, names):
    expected, found = verdicts(), verdicts(**{sweep: change})
    assert {name for name in expected if found[name] != expected[name]} == names
    assert all(found[name] == "refuted" for name in names)


def test_losses_that_coincide_are_confirmed_to():
    assert verdicts(gated={"lead": (0.8, 0.4, 0.0)})["gated-large-batch-coincides"] == "confirmed"


def test_a_run_in_which_no_draw_lasts_has_no_mean():
    with pytest.raises(ValueError, match=r"Only 1 draws last under both methods; lower the step sizes or add seeds\."):
        verdicts(training={"diverged": (15, 15)})


def test_leads_and_ranks_are_of_the_lasting_draws():
    runs = runs_of(training("rate", (0.5, 0.5), (3, 0), 1.0, (1.0, 1.0)), "rate", 0)
    assert runs.lasting().tolist() == list(range(13))
    assert runs.lead(19).shape == (13,)
    assert runs.lead(19).mean() == pytest.approx(0.5, abs=0.02)
    assert runs.ranks("gd", "stable_rank").shape == (13, 2, 4)


def test_a_point_of_fewer_draws_has_no_others():
    sweep = training("n", (0.5, 0.5), (0, 3), 1.0, (1.0, 1.0)).assign_coords(seeds=("n", [5, 16]))
    fewer, all_draws = (runs_of(sweep, "n", i) for i in range(2))
    assert (fewer.lead(19).shape, all_draws.lead(19).shape) == ((5,), (13,))
    assert (fewer.diverged("spectral").size, all_draws.diverged("spectral").sum()) == (5, 3)


@pytest.mark.parametrize(("hits", "draws"), [(0, 8), (3, 12), (12, 12), (1, 200)])
def test_the_interval_of_a_share_is_that_of_the_binomial_tails(hits, draws):
    """At its ends the number of hits is in the last MISSED/2 of the distribution, by sums of binomial probabilities."""
    share = share_of(hits, draws)
    assert share.low <= share.value <= share.high
    if hits < draws:
        assert binom.cdf(hits, draws, share.high) == pytest.approx(MISSED / 2, rel=1e-6)
    if hits > 0:
        assert binom.sf(hits - 1, draws, share.low) == pytest.approx(MISSED / 2, rel=1e-6)
    assert (share.low == 0) == (hits == 0)
    assert (share.high == 1) == (hits == draws)


@pytest.mark.usefixtures("unchecked")
def test_a_share_of_nothing_is_refused():
    for hits, draws in ((0, 0), (3, 2), (-1, 4)):
        with pytest.raises(ValueError, match=f"0 <= hits <= draws, got {hits} of {draws}"):
            share_of(hits, draws)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"inputs": 2},
            r"x_1 x_2 x_3 needs inputs and starts of at least 3, .*, got 2, \(8, 16, 32, 64\), 96 and 96\.",
        ),
        ({"starts": (64, 8)}, r"starts needs 2 or more different sizes in ascending order"),
        ({"gd_rates": (0.1,)}, r"gd_rates and spectral_rates need 2 positive step sizes each, got \(0\.1,\) and"),
        ({"spectral_rates": (0.1, -1.0)}, r"gd_rates and spectral_rates need 2 positive step sizes each"),
        ({"gated_gd_rates": (0.1, 0.1)}, r"gated_gd_rates and gated_spectral_rates need 3 positive step sizes"),
        (
            {"gated_samples": (96, 192, 384)},
            r"gated_samples and gated_seeds are two numbers each, got \(96, 192, 384\) and",
        ),
        ({"iterations": 25}, r"iterations must be a multiple of records >= 2, and at least 10, got 25 and 10\."),
        ({"gated_seeds": (9, 2)}, r"gated_seeds must be at least 3, for the runs that last, got \(9, 2\)\."),
        ({"seed": -1}, r"seed must be from 0 to"),
    ],
)
def test_configurations_that_could_not_be_judged_are_refused(changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        dataclasses.replace(load("sparse-regression").at("quick"), **changes)
