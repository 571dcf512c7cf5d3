"""The experiments on the preconditioning paper: the steps of the optimizers, verdicts that follow
the numbers, refusals.
"""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from specjax.cli import main
from specjax.experiments.preconditioning import (
    condition_number,
    curves,
    decoupling,
    preconditioners,
    runs,
    scalar_sequences,
    sign_gradient,
    theorems,
)
from specjax.models import conditioned


@pytest.mark.integration
@pytest.mark.usefixtures("x64")
def test_every_optimizer_takes_the_step_of_its_definition():
    def first_steps(kappa):
        key = jax.random.key(1)
        problem = conditioned.factorization(key, kappa, 4, 2, 2, 0.5)
        rate = jnp.asarray(0.5)
        taken = {}
        for name in runs.OPTIMIZERS:
            transform = runs.transformation(name, key, rate, problem, 0.9, 3)
            after, _ = conditioned.step(
                problem, transform, problem.start, transform.init(problem.start)
            )
            taken[name] = problem.start - after
        return problem.start, problem.gradient(problem.start), taken

    x, g, taken = (
        jax.tree.map(np.asarray, part) for part in jax.jit(first_steps)(jnp.asarray(5.0))
    )
    u, _, vt = np.linalg.svd(g, full_matrices=False)
    np.testing.assert_allclose(taken["muon-plateau"], 0.5 * u @ vt, atol=1e-12)
    np.testing.assert_allclose(taken["muon-momentum"], 0.5 * u @ vt, atol=1e-12)
    np.testing.assert_allclose(taken["sign"], 0.5 * np.sign(g), atol=1e-12)
    np.testing.assert_allclose(taken["adam"], 0.5 * np.sign(g), atol=1e-6)
    np.testing.assert_allclose(taken["gradient-descent"], 0.25 * g, atol=1e-12)
    np.testing.assert_allclose(taken["scaled"], 0.5 * g @ np.linalg.inv(x.T @ x), atol=1e-12)
    length = np.linalg.norm(taken["muon"], 2)
    assert 0.5 <= length <= 1
    np.testing.assert_allclose(taken["muon"], length * u @ vt, atol=1e-12)
    s = np.linalg.svd(taken["muon-newton-schulz"], compute_uv=False)
    assert np.all((s > 0.25) & (s < 0.65))


def of(experiment, name):
    return next(statement for statement in experiment.statements if statement.name == name)


def steps_by_kappa(**values):
    """Steps at κ = 10 and 1000 of 30 seeds, all equal."""
    each = {
        name: (("kappa", "seed"), np.repeat(np.asarray(pair, float)[:, None], 30, 1))
        for name, pair in values.items()
    }
    return {
        "flat": xr.Dataset(
            {name.replace("_", "-"): part for name, part in each.items()}, {"kappa": [10.0, 1e3]}
        )
    }


def test_abandoned_runs_count_as_slow_and_never_as_flat():
    config = condition_number.Config()
    given_up = float(config.limit)
    flat, grows = (
        of(condition_number.EXPERIMENT, name) for name in ("muon-flat", "newton-schulz-grows")
    )
    for muon, verdict in (
        ((100, 110), "confirmed"),
        ((100, 140), "refuted"),
        ((given_up, given_up), "refuted"),
    ):
        data = steps_by_kappa(muon=muon, muon_newton_schulz=(100, given_up))
        assert flat.judge(config, data).finding.verdict == verdict
    # Runs that were given up at both κ say nothing: they count as the bound, which is not above
    # itself.
    for slow, verdict in (
        ((100, given_up), "confirmed"),
        ((100, 110), "refuted"),
        ((given_up, given_up), "refuted"),
    ):
        data = steps_by_kappa(muon=(100, 100), muon_newton_schulz=slow)
        assert grows.judge(config, data).finding.verdict == verdict


def test_arrivals_that_depend_on_the_patience_give_no_verdict():
    config = curves.Config(kappas=(1.0, 10.0))
    statement, seeds = of(curves.EXPERIMENT, "plateau"), 30
    found = {}
    for name, patient in (("settings matter", -3.0), ("all arrive", -15.0)):
        values = np.full((1, len(curves.FACTORS), len(curves.PATIENCES), seeds), -15.0)
        values[:, :, 1::2] = patient
        smallest = xr.DataArray(
            values, dims=("kappa", "factor", "patience", "seed"), coords={"kappa": [10.0]}
        )
        axes = {"factor": list(curves.FACTORS), "patience": list(curves.PATIENCES)}
        slow = xr.DataArray(
            np.zeros((2, seeds, 3)), dims=("kappa", "seed", "step"), coords={"kappa": [1.0, 10.0]}
        )
        data = {
            "map": smallest.assign_coords(axes).to_dataset(name="smallest"),
            "context": slow.to_dataset(name="gradient-descent"),
        }
        found[name] = statement.judge(config, data)
    assert found["settings matter"].verdict == "inconclusive"
    assert found["settings matter"].finding.turns
    assert found["all arrive"].verdict == "confirmed"


@pytest.mark.integration
@pytest.mark.usefixtures("x64")
def test_drawn_schedules_never_increase_and_differ():
    found = np.asarray(
        jax.vmap(lambda key: sign_gradient.drawn_schedule(key, 500))(
            jax.random.split(jax.random.key(0), 60)
        )
    )
    assert found.shape == (60, 500)
    assert np.all(np.diff(found) <= 0)
    assert np.all((found[:, 0] >= 1 / 16) & (found[:, 0] <= 1 / 8))
    last = found[:, -1] / found[:, 0]
    # Powers fall by 500^(-3/4) at least; staircases and plateaus do much less, or more.
    assert np.any(last > 0.05)
    assert np.any(last < 1e-4)


SENTENCES = [
    (condition_number, {"d": 2}, "A target of shape (2, 2) has a rank from 1 to 2, got r=3."),
    (
        condition_number,
        {"kappas": (0.5, 10.0)},
        "kappas needs 2 or more different numbers in ascending order, each at least 1",
    ),
    (condition_number, {"kappas": (10.0,)}, "kappas needs 2 or more different numbers"),
    (
        condition_number,
        {"cubic_kappas": (2.0, 4.0)},
        "cubic_kappas needs 5 or more different numbers",
    ),
    (
        condition_number,
        {"slow_kappas": (2.0, 10.0, 20.0)},
        "slow_kappas needs 1 as its first number, got (2.0, 10.0, 20.0).",
    ),
    (condition_number, {"rho": 0.5}, "The decay rho must be in [0.6667, 1)"),
    (condition_number, {"accuracy": 1e-15}, "accuracy must be a finite number between 1e-13 and 1"),
    (condition_number, {"limit": 0}, "limit must be at least 1, got 0."),
    (condition_number, {"context_d": 1}, "context_d must be at least 2"),
    (condition_number, {"seeds": 9}, "seeds must be at least 20, got 9."),
    (condition_number, {"seed": -1}, "seed must be from 0 to 2^32 - 1"),
    (theorems, {"ks": (8,)}, "ks must be below d=8"),
    (theorems, {"ks": (2,)}, "A factor with k=2 columns cannot reach"),
    (theorems, {"ks": ()}, "ks needs different sizes in ascending order, each at least 1, got ()."),
    (theorems, {"wide": 7}, "wide must be at least d=8"),
    (theorems, {"accuracy": 1e-15}, "accuracy must be a finite number between 1e-13 and 1"),
    (theorems, {"seeds": 2}, "seeds must be at least 24, got 2."),
    (decoupling, {"k": 7}, "A factor with k=7 columns cannot reach a target of rank r=8"),
    (decoupling, {"kappa": 0.0}, "kappa must be a finite number of at least 1, got 0.0."),
    (decoupling, {"steps": 10}, "steps must be at least 60, got 10."),
    (scalar_sequences, {"seeds": 1}, "seeds must be at least 100, got 1."),
    (
        sign_gradient,
        {"kappas": (30.0, 20.0, 40.0, 50.0)},
        "kappas needs 4 or more different numbers in ascending",
    ),
    (
        sign_gradient,
        {"kappas": (0.5, 20.0, 40.0, 50.0)},
        "kappas needs 4 or more different numbers in ascending",
    ),
    (sign_gradient, {"trials": 1}, "trials must be at least 10, got 1."),
    (sign_gradient, {"seeds": 9}, "seeds must be at least 10, got 9."),
    (curves, {"ks": (1, 2)}, "A factor with k=1 columns cannot reach"),
    (curves, {"ks": ()}, "ks needs 2 or more different sizes in ascending order"),
    (curves, {"fixed_kappa": 0.5}, "fixed_kappa must be a finite number of at least 1, got 0.5."),
    (
        preconditioners,
        {"times": (0, 3)},
        "times needs 2 or more different sizes in ascending order",
    ),
    (preconditioners, {"r": 1}, "r must be at least 2"),
]


@pytest.mark.parametrize(
    ("module", "changes", "sentence"), SENTENCES, ids=lambda value: str(value)[-40:]
)
def test_a_configuration_that_cannot_be_judged_is_refused(module, changes, sentence):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}") as refusal:
        module.Config(**changes)
    assert re.fullmatch(r"[^\n]+\.", str(refusal.value))


LINES = {
    "condition-number --kappas 0.5,10": (
        "kappas needs 2 or more different numbers in ascending order, each at least 1"
    ),
    "condition-number --rho 0.5": "The decay rho must be in [0.6667, 1)",
    "muon-convergence --ks 2": "A factor with k=2 columns cannot reach",
    "muon-convergence --kappas 1,0.1": (
        "kappas needs different numbers in ascending order, each at least 1"
    ),
    "convergence-curves --ks 1,2": "A factor with k=1 columns cannot reach",
    "decoupling --kappa 0": "kappa must be a finite number of at least 1, got 0.0.",
    "sign-gradient-lower-bounds --kappas=-10,20,40,50": (
        "kappas needs 4 or more different numbers in ascending order, each at least 1"
    ),
    "preconditioner-maps --r 1": "r must be at least 2",
    "scalar-sequences --seeds 1": "seeds must be at least 100, got 1.",
}


def test_the_command_line_says_the_same_and_runs_nothing(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("specjax.sweep.executor.compile_program", None)
    for line, sentence in LINES.items():
        assert main(["run", *line.split(), "--out", str(tmp_path / "results")]) == 2, line
        output = capsys.readouterr()
        assert output.out == ""
        assert output.err.startswith(f"specjax: {sentence}")
        assert re.fullmatch(r"[^\n]+\.\n", output.err)
    assert list(tmp_path.iterdir()) == []
