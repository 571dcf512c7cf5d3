"""The rule (1.5) followed: the transformation of `optim` against the experiment's own steps, and how leads and rates are judged."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import xarray as xr

from specjax import optim, spectral
from specjax.diagnostics import activation_stable_ranks
from specjax.experiments.spectral_criterion import rank_switch as experiment
from specjax.experiments.spectral_criterion.rank_switch_runs import (
    CAP,
    LARGEST_GAIN,
    WAYS,
    Config,
    Outcome,
    chosen_rates,
    lead,
    linear_problem,
    methods_of,
    network_problem,
    outcome_of,
    rates_by,
    sooner,
    with_rates,
)
from specjax.models import layerwise_descent, mlp
from specjax.models.layerwise_descent import CRITERION, EUCLIDEAN, SPECTRAL
from specjax.theory.one_step import spectral_direction

RATE, STEPS = 0.05, 10


def by_activations(step):
    """A transformation whose step of a block is made of its gradient, st(A) and ‖A‖_F²/n."""

    def update(updates, state, _params=None, *, stable_ranks, squares, **_):
        return jax.tree.map(step, updates, stable_ranks, squares), state

    return optax.GradientTransformationExtraArgs(lambda _: optax.EmptyState(), update)


@pytest.mark.integration
def test_the_transformation_goes_the_way_of_the_experiment():
    """`optim.rank_switch` fed by `activation_stable_ranks`, with the step sizes of the paper, against `descend` at the rule."""
    keys = jax.random.split(jax.random.key(0), 3)
    batch = (
        jax.random.normal(keys[0], (12, 5)) * jnp.asarray([[2.0, 1, 1, 1, 0.5]]),
        jax.random.normal(keys[1], (12, 1)),
    )
    # Larger weights than the default, so that ten steps tell the methods apart.
    params = tuple(1.4 * w for w in mlp.init(keys[2], (5, 8, 8, 1), "relu_squared", distribution="uniform"))

    def model(params, batch):
        return 2 * mlp.loss(params, batch, "relu_squared")

    transform = optim.rank_switch(
        by_activations(lambda g, _, squares: -RATE * spectral_direction(g) / squares),
        by_activations(lambda g, rank, squares: -RATE * g * rank / squares),
    )

    def step(carry, _):
        params, state = carry
        loss, gradients = jax.value_and_grad(model)(params, batch)
        squares = tuple(jnp.mean(jnp.sum(a**2, axis=1)) for a in mlp.layer_inputs(params, batch[0], "relu_squared"))
        ranks = activation_stable_ranks(model, params, batch, steps=200)
        updates, state = transform.update(gradients, state, params, stable_ranks=ranks, squares=squares)
        return (optax.apply_updates(params, updates), state), (loss, jnp.stack(state.took_spectral))

    def descend(threshold):
        return layerwise_descent.descend(
            params,
            batch,
            "relu_squared",
            jnp.asarray(RATE),
            thresholds=jnp.full(3, threshold),
            records=1,
            every=STEPS,
            limit=1e3,
        )

    @jax.jit
    def both(params):
        _, steps = jax.lax.scan(step, (params, transform.init(params)), length=STEPS)
        return steps, jax.vmap(descend)(jnp.asarray([CRITERION, SPECTRAL, EUCLIDEAN]))

    (losses, took), own = jax.tree.map(np.asarray, both(params))
    # Norms by power iteration on one side, by squaring on the other.
    np.testing.assert_allclose(losses, own.loss[0], rtol=1e-4)
    np.testing.assert_array_equal(took, own.took_spectral[0])
    assert np.all(np.abs(own.loss[1:, -1] / losses[-1] - 1) > 1e-2)
    assert 0 < took[:, :2].sum() < took[:, :2].size


LENGTH, DRAWS = 20, 12
CONFIG = Config(seeds=DRAWS)
GAINS = {
    "relu": {"euclidean": 0.1, "internal": 0.6, "spectral": 0.6, "rule": 0.3, "double": 0.1},
    "gated": {"euclidean": 0.1, "internal": 0.5, "spectral": 0.5, "rule": 0.25, "double": 0.1},
    "features": {"euclidean": 3.0, "spectral": (3.4, 4.5), "rule": (4.0, 4.5), "double": 3.8},
    "control": {"euclidean": 6.0, "spectral": (2.5, 3.0), "rule": 6.0, "double": 6.0},
}
"""log10 of the first over the last loss at the first two rates; at the third every run diverges."""


def made(regime, gains, shares=0.5):
    """Runs whose losses fall geometrically by the given gains, the same in every draw but for noise, and diverge at the last rate."""
    methods, rng = methods_of(regime), np.random.default_rng(0)
    noise = 0.01 * rng.standard_normal((DRAWS, 1))
    loss = np.empty((3, DRAWS, len(methods), LENGTH))
    for i, method in enumerate(methods):
        gain = np.broadcast_to(gains[method], 2)
        for rate in range(2):
            loss[rate, :, i] = 10 ** (-(gain[rate] + noise) * np.linspace(0, 1, LENGTH))
    loss[2], lasted = 1.0, np.full((3, DRAWS, len(methods)), LENGTH)
    loss[2, ..., 5:], lasted[2] = 1e3, 5
    dims = ("rate", "seed", "method")
    ranks = np.ones((3, DRAWS, len(methods), 2, 1))
    return xr.Dataset(
        {
            "loss": ((*dims, "t"), loss),
            "lasted": (dims, lasted),
            "share": ((*dims, "block"), np.full((3, DRAWS, len(methods), 1), shares)),
            "stable_rank": ((*dims, "record", "block"), ranks),
            "nuclear_rank": ((*dims, "record", "block"), ranks),
        }
    )


def data_of(gains=GAINS, features=0.5, control=0.0):
    linear = [made("features", gains["features"], features), made("control", gains["control"], control)]
    return {
        "relu": made("relu", gains["relu"]),
        "gated": made("gated", gains["gated"]),
        "linear": xr.concat(linear, xr.Variable("control", [0, 1])),
    }


def verdicts(**changes):
    return {check.name: check.verdict for check in experiment.checks(CONFIG, data_of(**changes))}


def changed(regime, method, gain):
    return {"gains": GAINS | {regime: GAINS[regime] | {method: gain}}}


def test_runs_as_they_were_measured_have_the_expected_verdicts():
    found = verdicts()
    refuted = experiment.EXPERIMENT.refuted
    assert found == {name: "refuted" if name in refuted else "confirmed" for name in found}
    assert refuted <= set(found)


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (changed("relu", "euclidean", 0.6), {"relu-shared-spectral-ahead-of-euclidean"}),
        (
            changed("gated", "rule", 0.8),
            {f"gated-{way}-{what}" for way in WAYS for what in ("rule-ahead-of-spectral", "spectral-keeps-up")},
        ),
        (changed("features", "spectral", (4.2, 4.5)), {"features-shared-rule-ahead-of-spectral"}),
        (
            changed("features", "rule", (4.0, 4.9)),
            {"features-own-rule-ahead-of-spectral", "features-own-spectral-keeps-up"},
        ),
        (
            changed("control", "spectral", 6.0),
            {"control-shared-rule-ahead-of-spectral", "control-own-rule-sooner-than-spectral"},
        ),
        ({"control": 0.1}, {"control-rule-is-euclidean"}),
        ({"features": 0.98}, {"features-rule-takes-both"}),
    ],
)
def test_other_runs_have_the_opposite_verdict(change, names):
    expected, found = verdicts(), verdicts(**change)
    assert {name for name in expected if found[name] != expected[name]} == names


def test_tables_and_figure_are_of_every_method():
    gains, leads, ranks = experiment.tables(CONFIG, data_of())
    assert len(gains.rows) == sum(len(methods_of(regime)) for regime in GAINS) == len(leads.rows) + len(ranks.rows)
    figure = experiment.plot(CONFIG, data_of())
    assert [len(axes.lines) for axes in figure.axes[:4]] == [5, 5, 4, 4]


def test_the_linear_maps_alone():
    config, data = dataclasses.replace(CONFIG, networks=()), {"linear": data_of()["linear"]}
    found = {check.name: check.verdict for check in experiment.checks(config, data)}
    assert found == {name: verdict for name, verdict in verdicts().items() if name.startswith(("features", "control"))}
    assert len(experiment.tables(config, data)[2].rows) == 2
    assert len(experiment.plot(config, data).axes) == 4


def test_problems_are_those_described():
    """Weights U(-1, 1)/√fan_in and x_1 x_2 x_3; nr(∇L(0)) above st(X) on features, below it in the control."""
    params, (x, y) = network_problem(jax.random.key(0), "swiglu", 40, 5, 30)
    assert [w.shape for w in params] == [(60, 5), (60, 30), (60, 30), (1, 30)]
    for w in params:
        scaled = np.abs(np.asarray(w)) * np.sqrt(w.shape[1])
        assert 0.9 < scaled.max() <= 1
        assert abs(scaled.mean() - 0.5) < 4 * np.sqrt(1 / 12 / w.size)
    np.testing.assert_allclose(y[:, 0], x[:, 0] * x[:, 1] * x[:, 2], rtol=1e-6)
    for control, above in ((0, True), (1, False)):
        ((w,), (x, y)) = linear_problem(jax.random.key(1), 32, jnp.asarray(control))
        assert not np.any(w)
        ratio = spectral.nuclear_rank(y.T @ x) / spectral.stable_rank(x)
        assert ratio > 1.2 if above else ratio < 0.8


def test_a_gain_is_that_of_a_run_that_lasts():
    outcome = outcome_of(data_of(), "control")
    index = methods_of("control").index
    assert np.all(outcome.gain[:2, index("rule")] <= LARGEST_GAIN)
    assert outcome.gain[0, index("spectral")].mean() == pytest.approx(2.5, abs=0.02)
    assert not outcome.gain[2].any()
    assert outcome.diverged[2].all()
    assert not outcome.diverged[:2].any()
    # 10^(-2.5 t/19) first is below 10⁻² at t = 16, and never where the run diverges.
    assert np.median(outcome.reached[0, index("spectral")]) == 16
    assert np.all(outcome.reached[2] == LENGTH)


def test_no_draw_is_judged_at_a_rate_that_it_helped_to_choose():
    gain = np.zeros((3, 2, 6))
    # The even draws of the first method gain with rate 2, the odd ones with rate 1; the second method with rate 0.
    gain[2, 0, ::2] = gain[1, 0, 1::2] = gain[0, 1] = 1.0
    rates = chosen_rates(gain)
    assert rates.tolist() == [[1, 2] * 3, [0] * 6]
    assert with_rates(gain, rates).tolist() == [[0.0] * 6, [1.0] * 6]
    assert not rates_by("shared", Outcome(gain, gain, gain > 0)).any()


def test_leads_are_paired_and_capped():
    methods = methods_of("control")
    gain = np.zeros((2, len(methods), 4))
    gain[0, methods.index("rule")] = [0.1, 0.3, 5.0, 0.2]
    gain[0, methods.index("euclidean")] = [0.1, 0.2, 1.0, 0.3]
    outcome = Outcome(gain, 2.0 ** (1 + gain), gain > 0)
    differences = np.asarray([0.0, 0.1, CAP, -0.1])
    found = lead(outcome, "control", "shared", "rule", "euclidean")
    assert found.mean == pytest.approx(differences.mean())
    assert found.stderr == pytest.approx(differences.std(ddof=1) / 2)
    assert (found.low, found.high) == pytest.approx((found.mean - 4 * found.stderr, found.mean + 4 * found.stderr))
    # Twice the iterations are one power of two later.
    assert sooner(outcome, "control", "shared", "rule", "euclidean").mean == pytest.approx(
        -np.mean([0.0, 0.1, 4.0, -0.1])
    )


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"networks": ("relu", "tanh")}, r"networks are different ones of relu, gated, got \('relu', 'tanh'\)\."),
        ({"inputs": 2}, r"x_1 x_2 x_3 needs inputs of at least 3, .*, got 2, "),
        ({"relu_rates": (0.1,)}, r"relu_rates needs two or more different positive rates, got \(0\.1,\)\."),
        ({"linear_rates": (0.5, 0.5)}, r"linear_rates needs two or more different positive rates"),
        ({"iterations": 25}, r"iterations must be a multiple of 10, got 25\."),
        ({"seeds": 5}, r"seeds must be an even number from 4 on, for two halves, got 5\."),
        ({"seed": -1}, r"seed must be from 0 to"),
    ],
)
def test_configurations_that_could_not_be_judged_are_refused(changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        dataclasses.replace(CONFIG, **changes)
