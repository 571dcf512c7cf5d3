"""The experiments on the preconditioning paper: early finishers, tuning, verdicts that follow the numbers, refusals."""

import re
from decimal import Decimal, localcontext

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import xarray as xr

from specjax import sizes
from specjax.cli import main
from specjax.experiments.preconditioning import (
    condition_number,
    curves,
    decoupling,
    many_digits,
    preconditioners,
    runs,
    scalar_sequences,
    sign_gradient,
    theorems,
)
from specjax.models import in_context_regression, matrix_factorization
from specjax.theory.preconditioning import scalar


@pytest.mark.usefixtures("x64")
def test_runs_that_arrive_early_do_not_stop_the_others():
    # x ← x/2 from 2^n arrives below 1 after n + 1 steps; one that diverges to NaN stops with its error.
    def steps(start):
        problem = runs.Problem(
            start=jnp.full((1, 1), start),
            gradient=lambda x: x,
            loss=lambda x: jnp.sum(x**2),
            residual=lambda x: x,
            length=jnp.ones(()),
            curvature=jnp.ones(()),
        )
        return runs.steps_to(problem, optax.with_extra_args_support(optax.scale(-0.5)), 0.99, 50)

    found = jax.jit(jax.vmap(steps))(2.0 ** jnp.asarray([0.0, 3.0, 20.0, 80.0]))
    np.testing.assert_array_equal(found.steps, [1, 4, 21, 50])
    np.testing.assert_allclose(found.error[:3], 0.5)
    lost = jax.jit(steps)(jnp.asarray(jnp.nan))
    assert int(lost.steps) == 0
    assert np.isnan(lost.error)


@pytest.mark.usefixtures("x64")
def test_every_optimizer_takes_the_step_of_its_definition():
    def first_steps(kappa):
        key = jax.random.key(1)
        problem = runs.factorization(key, kappa, 4, 2, 2, 0.5)
        rate = jnp.asarray(0.5)
        taken = {}
        for name in runs.OPTIMIZERS:
            transform = runs.transformation(name, key, rate, problem, 0.9, 3)
            after, _ = runs.step(problem, transform, problem.start, transform.init(problem.start))
            taken[name] = problem.start - after
        return problem.start, problem.gradient(problem.start), taken

    x, g, taken = (jax.tree.map(np.asarray, part) for part in jax.jit(first_steps)(jnp.asarray(5.0)))
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


@pytest.mark.integration
@pytest.mark.usefixtures("x64")
def test_padding_the_columns_changes_no_curve():
    def errors(k, name):
        problem = runs.wide_factorization(jax.random.key(0), jnp.asarray(10.0), 4, 2, k, 0.1)
        transform = runs.transformation(name, jax.random.key(1), jnp.asarray(0.23), problem)
        return runs.along(problem, transform, 30, problem.error)

    for name in ("muon-plateau", "gradient-descent", "sign"):
        plain, padded = jax.jit(lambda name=name: [errors(k, name) for k in (3, sizes.Size(6, 3))])()
        np.testing.assert_allclose(padded, plain, rtol=1e-6, err_msg=name)


@pytest.mark.usefixtures("x64")
def test_problems_have_their_minimum_where_the_error_is_zero_and_their_curvature():
    def at(problem, minimum):
        return problem.error(minimum), problem.loss(minimum), jnp.max(jnp.abs(problem.gradient(minimum)))

    key, kappa = jax.random.key(2), jnp.asarray(7.0)
    context = runs.in_context(key, kappa, 4)
    zero = context.residual(jnp.zeros((4, 4))) * -kappa
    np.testing.assert_allclose(at(context, zero), 0, atol=1e-12)
    assert float(context.error(context.start)) == pytest.approx(np.linalg.norm(zero) / 7)
    regression = runs.regression(key, kappa, 3, 4)
    best = -regression.residual(regression.start) * regression.length
    np.testing.assert_allclose(at(regression, best), 0, atol=1e-12)
    assert float(regression.error(regression.start)) == pytest.approx(1)
    diagonal = np.asarray(runs.in_context(key, kappa, 4, rotated=False).gradient(jnp.eye(4)))
    np.testing.assert_array_equal(diagonal, np.diag(np.diagonal(diagonal)))


def of(experiment, name):
    return next(statement for statement in experiment.statements if statement.name == name)


def steps_by_kappa(**values):
    """Steps at κ = 10 and 1000 of 30 seeds, all equal."""
    each = {
        name: (("kappa", "seed"), np.repeat(np.asarray(pair, float)[:, None], 30, 1)) for name, pair in values.items()
    }
    return {"flat": xr.Dataset({name.replace("_", "-"): part for name, part in each.items()}, {"kappa": [10.0, 1e3]})}


def test_runs_that_were_given_up_pass_for_slow_and_never_for_flat():
    config = condition_number.Config()
    given_up = float(config.limit)
    flat, grows = (of(condition_number.EXPERIMENT, name) for name in ("muon-flat", "newton-schulz-grows"))
    for muon, verdict in (((100, 110), "confirmed"), ((100, 140), "refuted"), ((given_up, given_up), "refuted")):
        data = steps_by_kappa(muon=muon, muon_newton_schulz=(100, given_up))
        assert flat.judge(config, data).finding.verdict == verdict
    for slow, verdict in (((100, given_up), "confirmed"), ((100, 110), "refuted"), ((given_up, given_up), "refuted")):
        data = steps_by_kappa(muon=(100, 100), muon_newton_schulz=slow)
        assert grows.judge(config, data).finding.verdict == verdict


def test_arrivals_that_come_and_go_with_the_patience_are_no_verdict():
    config = curves.Config(kappas=(1.0, 10.0))
    statement, seeds = of(curves.EXPERIMENT, "plateau"), 30
    found = {}
    for name, patient in (("settings matter", -3.0), ("all arrive", -15.0)):
        values = np.full((1, len(curves.FACTORS), len(curves.PATIENCES), seeds), -15.0)
        values[:, :, 1::2] = patient
        smallest = xr.DataArray(values, dims=("kappa", "factor", "patience", "seed"), coords={"kappa": [10.0]})
        axes = {"factor": list(curves.FACTORS), "patience": list(curves.PATIENCES)}
        slow = xr.DataArray(np.zeros((2, seeds, 3)), dims=("kappa", "seed", "step"), coords={"kappa": [1.0, 10.0]})
        data = {
            "map": smallest.assign_coords(axes).to_dataset(name="smallest"),
            "context": slow.to_dataset(name="gradient-descent"),
        }
        found[name] = statement.judge(config, data)
    assert found["settings matter"].verdict == "inconclusive"
    assert found["settings matter"].finding.turns
    assert found["all arrive"].verdict == "confirmed"


@pytest.mark.usefixtures("x64")
def test_the_plateau_of_the_map_is_that_of_the_optimizer():
    config = curves.Config(context_d=3, steps=100)

    def smallest(key):
        posed = runs.in_context(key, jnp.asarray(10.0), 3)
        # At a factor of 0.8 the loss comes to levels at which rounding decides whether it has improved, and two programs part.
        transform = runs.transformation("muon-plateau", key, jnp.asarray(0.23), posed, plateau=(0.5, 2))
        ours = curves._smallest_with(config, posed, jnp.asarray(0.5), jnp.asarray(2))
        return ours, jnp.log10(jnp.min(runs.along(posed, transform, 100, posed.error)))

    ours, theirs = np.asarray([jax.jit(smallest)(jax.random.key(seed)) for seed in (1, 3)]).T
    # One other decision moves it by tenths.
    np.testing.assert_allclose(ours, theirs, atol=1e-4)
    assert np.ptp(ours) > 1


def test_the_best_division_into_two_blocks_is_found_in_any_order_of_the_columns():
    rng = np.random.default_rng(0)
    blocks = np.zeros((5, 5))
    blocks[:2, :2], blocks[2:, 2:] = rng.uniform(1, 2, (2, 2)), rng.uniform(1, 2, (3, 3))
    order = rng.permutation(5)
    joined = blocks.copy()
    joined[0, 4] = joined[4, 0] = 0.1
    found = preconditioners._outside(jnp.asarray(np.stack([blocks[order][:, order], joined[order][:, order]])))
    np.testing.assert_allclose(found, [0, 0.02 / np.sum(joined**2)], atol=1e-6)


@pytest.mark.usefixtures("x64")
def test_drawn_schedules_never_increase_and_differ():
    found = np.asarray(
        jax.vmap(lambda key: sign_gradient.drawn_schedule(key, 500))(jax.random.split(jax.random.key(0), 60))
    )
    assert found.shape == (60, 500)
    assert np.all(np.diff(found) <= 0)
    assert np.all((found[:, 0] >= 1 / 16) & (found[:, 0] <= 1 / 8))
    last = found[:, -1] / found[:, 0]
    # Powers fall by 500^(-3/4) at least; staircases and plateaus do much less, or more.
    assert np.any(last > 0.05)
    assert np.any(last < 1e-4)


def test_decimals_have_the_polar_factor_of_numpy_and_many_more_digits():
    x = np.random.default_rng(0).standard_normal((5, 4, 4)) * np.geomspace(1, 1e-6, 4)
    u, _, vt = np.linalg.svd(x)
    with localcontext(prec=60):
        found = many_digits.polar(many_digits.decimals(x))
        excess = found @ found.swapaxes(-1, -2) - many_digits.decimals(np.eye(4))
    np.testing.assert_allclose(found.astype(float), u @ vt, atol=1e-9)
    assert np.abs(excess).max() < Decimal("1e-55")


def test_decimals_have_a_polar_factor_of_matrices_that_rounding_made_singular():
    # Rows that are equal to the last digit, as gradients at the end of a run with 16 digits; and a gradient of 0.
    rows = np.random.default_rng(0).standard_normal((2, 4))
    x = np.stack([rows[[0, 0, 1, 1]] * [[1.0], [-1.0], [1.0], [2.0]], np.zeros((4, 4))]) * 1e-16
    for digits in (16, 100):
        with localcontext(prec=digits):
            found = many_digits.polar(many_digits.decimals(x)).astype(float)
        np.testing.assert_allclose(found @ found.swapaxes(1, 2), [np.eye(4)] * 2, atol=1e-14)
        # X = U H with H positive semidefinite, H² = Xᵀ X, is what makes U a polar factor of X.
        h = found[0].T @ x[0]
        np.testing.assert_allclose(h, h.T, atol=1e-30)
        np.testing.assert_allclose(h @ h, x[0].T @ x[0], atol=1e-45)
        assert np.linalg.eigvalsh((h + h.T) / 2).min() > -1e-30


@pytest.mark.usefixtures("x64")
def test_runs_with_many_digits_are_those_of_the_models_and_begin_as_in_float64():
    basis = np.linalg.qr(np.random.default_rng(1).standard_normal((3, 3)))[0]
    m, x = (basis * [1.0, 0.3, 0.1]) @ basis.T, np.random.default_rng(2).standard_normal((3, 3))
    for ours, model in (
        (many_digits.factorization, matrix_factorization),
        (many_digits.in_context, in_context_regression),
    ):
        np.testing.assert_allclose(ours(m, x), model.gradient(jnp.asarray(x), jnp.asarray(m)), atol=1e-12)
    # A slow decay, at which rounding is amplified: 8 digits lose what 40 keep.
    rates, spectrum = 0.7 * 0.9 ** np.arange(40)[None], np.array([1.0, 0.3, 0.1])
    problem = many_digits.factorization, basis[None], spectrum, 0.5, rates
    (few, _), (many, errors) = (many_digits.from_scalars(*problem, digits) for digits in (8, 40))
    assert few.shape == many.shape == (1, 40)
    assert few[0, 0] < 1e-6
    assert few.max() > 1e-6
    assert many.max() < 1e-20
    x = scalar.factorization_path(jnp.full(3, 0.5), jnp.asarray(spectrum), jnp.asarray(rates[0]))[-1]
    np.testing.assert_allclose(errors[0, -1], np.linalg.norm(np.asarray(x) ** 2 - spectrum), rtol=1e-9)


SENTENCES = [
    (condition_number, {"d": 2}, "A target of shape (2, 2) has a rank from 1 to 2, got r=3."),
    (condition_number, {"kappas": (0.5, 10.0)}, "A condition number is the largest eigenvalue over"),
    (condition_number, {"kappas": (10.0,)}, "kappas needs 2 or more different condition numbers"),
    (condition_number, {"cubic_kappas": (2.0, 4.0)}, "cubic_kappas needs 5 or more different condition numbers"),
    (condition_number, {"slow_kappas": (2.0, 10.0, 20.0)}, "slow_kappas needs 1 first, where gradient descent wins"),
    (condition_number, {"rho": 0.5}, "The decay rho must be in [0.6667, 1)"),
    (condition_number, {"accuracy": 1e-15}, "accuracy must be from 1e-13"),
    (condition_number, {"limit": 0}, "limit must be at least 1, got 0."),
    (condition_number, {"context_d": 1}, "context_d must be at least 2"),
    (condition_number, {"seeds": 9}, "seeds must be at least 20, got 9."),
    (condition_number, {"seed": -1}, "seed must be from 0 to 2^32 - 1"),
    (theorems, {"ks": (8,)}, "ks must be below d=8"),
    (theorems, {"ks": (2,)}, "A factor with k=2 columns cannot reach"),
    (theorems, {"ks": ()}, "ks needs different sizes in ascending order, each at least 1, got ()."),
    (theorems, {"wide": 7}, "wide must be at least d=8"),
    (theorems, {"accuracy": 1e-15}, "accuracy must be from 1e-13"),
    (theorems, {"seeds": 2}, "seeds must be at least 24, got 2."),
    (decoupling, {"k": 7}, "A factor with k=7 columns cannot reach a target of rank r=8"),
    (decoupling, {"kappa": 0.0}, "A condition number is the largest eigenvalue over"),
    (decoupling, {"steps": 10}, "steps must be at least 60, got 10."),
    (scalar_sequences, {"seeds": 1}, "seeds must be at least 100, got 1."),
    (sign_gradient, {"kappas": (30.0, 20.0, 40.0, 50.0)}, "kappas needs 4 or more different condition numbers"),
    (sign_gradient, {"kappas": (0.5, 20.0, 40.0, 50.0)}, "A condition number is the largest eigenvalue over"),
    (sign_gradient, {"trials": 1}, "trials must be at least 10, got 1."),
    (sign_gradient, {"seeds": 9}, "seeds must be at least 10, got 9."),
    (curves, {"ks": (1, 2)}, "A factor with k=1 columns cannot reach"),
    (curves, {"ks": ()}, "ks needs 2 or more different sizes in ascending order"),
    (curves, {"fixed_kappa": 0.5}, "A condition number is the largest eigenvalue over"),
    (preconditioners, {"times": (0, 3)}, "times needs 2 or more different sizes in ascending order"),
    (preconditioners, {"r": 1}, "r must be at least 2"),
]


@pytest.mark.parametrize(("module", "changes", "sentence"), SENTENCES, ids=lambda value: str(value)[-40:])
def test_a_configuration_that_cannot_be_judged_is_refused(module, changes, sentence):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}") as refusal:
        module.Config(**changes)
    assert re.fullmatch(r"[^\n]+\.", str(refusal.value))


LINES = {
    "condition-number --kappas 0.5,10": "A condition number is the largest eigenvalue over",
    "condition-number --rho 0.5": "The decay rho must be in [0.6667, 1)",
    "muon-convergence --ks 2": "A factor with k=2 columns cannot reach",
    "muon-convergence --kappas 1,0.1": "kappas needs 1 or more different condition numbers",
    "convergence-curves --ks 1,2": "A factor with k=1 columns cannot reach",
    "decoupling --kappa 0": "A condition number is the largest eigenvalue over",
    "sign-gradient-lower-bounds --kappas=-10,20,40,50": "kappas needs one or more different finite numbers between 0",
    "preconditioner-maps --r 1": "r must be at least 2",
    "scalar-sequences --seeds 1": "seeds must be at least 100, got 1.",
}


def test_the_command_line_says_the_same_and_runs_nothing(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("specjax.sweep.execution.compile_program", None)
    for line, sentence in LINES.items():
        assert main(["run", *line.split(), "--out", str(tmp_path / "results")]) == 2, line
        output = capsys.readouterr()
        assert output.out == ""
        assert output.err.startswith(f"specjax: {sentence}")
        assert re.fullmatch(r"[^\n]+\.\n", output.err)
    assert list(tmp_path.iterdir()) == []
