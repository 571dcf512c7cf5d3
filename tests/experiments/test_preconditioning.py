"""The experiments on the preconditioning paper: the steps of the optimizers, verdicts that follow
the numbers, refusals.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from specjax.experiments.preconditioning import condition_number, curves, runs, sign_gradient
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
