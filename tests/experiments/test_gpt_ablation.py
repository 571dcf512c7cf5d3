"""The GPT of Table 2 and the switch: its rules of a step, verdicts on runs made up for them, what it refuses."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import xarray as xr

from specjax.experiments.spectral_criterion import gpt_ablation as experiment
from specjax.experiments.spectral_criterion import gpt_ablation_runs as runs
from specjax.models import transformer
from specjax.models.transformer import Sequences
from specjax.optim.switch import nuclear_rank
from specjax.training import text

CONFIG = runs.Config(
    width=8,
    blocks=2,
    heads=1,
    context=8,
    batch=2,
    steps=2,
    records=2,
    stretches=2,
    table_rate=0.02,
    adamw_rate=0.01,
    out_rate=0.1,
)
FACTORS = {"adamw": 2.0, "out": 3.0, "muon": 0.5, "sgd": 4.0}
SEEDS = 8


@pytest.fixture(scope="module", autouse=True)
def promotion():
    # Optax's Adam does not run under strict promotion.
    with jax.numpy_dtype_promotion("standard"):
        yield


@pytest.fixture(scope="module")
def updates():
    """The first update of every rule for one gradient, of the switch with stable ranks that choose, and the gradient."""

    @jax.jit
    def first():
        blocks = transformer.init(jax.random.key(0), CONFIG.architecture("gated")).blocks
        gradient = jax.tree.map(lambda w: jnp.sin(7 * w), blocks)
        found = {}
        for arm in runs.FIXED:
            one = runs.rule(arm, CONFIG, "gated", FACTORS)
            found[arm] = one.update(gradient, one.init(blocks), blocks)[0]
        switch = runs.rule("switch", CONFIG, "gated", FACTORS)
        state = switch.init(blocks)
        for name, rank in (("always", 0.0), ("never", 1e9)):
            ranks = jax.tree.map(lambda w, rank=rank: jnp.full(w.shape[0], rank), blocks)
            found[name] = switch.update(gradient, state, blocks, stable_ranks=ranks)[0]
        return found, gradient

    return first()


@pytest.mark.integration
def test_muon_on_w_out_takes_its_step_there_and_adamw_elsewhere(updates):
    found, _ = updates
    for name, update in vars(found["out"]).items():
        other = "muon" if name == "down" else "adamw"
        expected = FACTORS["out"] / FACTORS[other] * getattr(found[other], name)
        np.testing.assert_allclose(update, expected, rtol=1e-4, atol=1e-7)


@pytest.mark.integration
def test_rules_have_their_base_rates_and_factors(updates):
    found, gradient = updates
    for name, g in vars(gradient).items():
        steps = {arm: getattr(found[arm], name) for arm in runs.FIXED}
        np.testing.assert_allclose(steps["adamw"], -CONFIG.adamw_rate * 2 * np.sign(g), rtol=1e-2)
        np.testing.assert_allclose(steps["sgd"], -CONFIG.sgd_rates[1] * 4 * g, rtol=1e-5)
        rows, columns = g.shape[1:]
        rate = CONFIG.out_rate if name == "down" else CONFIG.muon_rate
        size = rate * 0.5 * np.sqrt(max(1, rows / columns))
        singular = np.linalg.svd(steps["muon"], compute_uv=False) / size
        assert singular.max() < 1.25
        assert np.median(singular) > 0.6


def test_the_switch_has_the_steps_of_muon_and_of_sgd(updates):
    found, _ = updates
    for name, arm in (("always", "muon"), ("never", "sgd")):
        for switched, fixed in zip(jax.tree.leaves(found[name]), jax.tree.leaves(found[arm]), strict=True):
            np.testing.assert_allclose(switched, fixed, rtol=1e-5, atol=1e-8)


def test_nuclear_ranks_by_products_are_those_of_singular_values():
    """Spectra from flat to k^-2; the largest error of a rank counts."""
    rng = np.random.default_rng(2)
    spectra = np.arange(1, 17) ** -np.array([0.0, 0.5, 1.0, 2.0])[:, None]
    u, v = (np.linalg.qr(rng.standard_normal((4, n, 16)))[0] for n in (16, 24))
    x = jnp.asarray((u * spectra[:, None]) @ v.swapaxes(1, 2), jnp.float32)
    expected = spectra.sum(axis=1) ** 2 / (spectra**2).sum(axis=1)
    np.testing.assert_allclose(jax.jit(lambda x: nuclear_rank(x, runs.NUCLEAR))(x), expected, rtol=1e-3)


@pytest.mark.integration
def test_training_is_that_of_a_plain_loop_and_the_switch_follows_the_ranks():
    """Two steps of AdamW on everything, written out, and the choices by singular values of gradients and inputs at the first step."""
    config = dataclasses.replace(CONFIG, blocks=1, adamw_rate=CONFIG.table_rate / 2)
    data = jnp.asarray(np.frombuffer(b"a small text, read again and again by a small model" * 3, np.uint8))
    key = jax.random.key(3)

    # All in one program: compiling is most of the time.
    @jax.jit
    def trained():
        found = runs.train(key, config, "plain", data, ("adamw", "switch"), FACTORS, lambda model: model, records=1)
        model_key, batch_key = jax.random.split(key)
        model = first = transformer.init(model_key, config.architecture("plain"))
        steps = optax.adamw(lambda t: config.table_rate * (1 - t / 2), b2=runs.SECOND_DECAY)
        state, read = steps.init(model), []
        for t in range(2):
            tokens = text.draw(data, jax.random.fold_in(batch_key, t), config.batch, config.context)
            gradient = jax.grad(transformer.loss)(model, Sequences(tokens))
            update, state = steps.update(gradient, state, model)
            model = optax.apply_updates(model, update)
            read.append((gradient, tokens))
        return found, model, (first, *read[0])

    found, looped, (first, gradient, tokens) = trained()
    for one, expected in zip(jax.tree.leaves(found.observed), jax.tree.leaves(looped), strict=True):
        np.testing.assert_allclose(one[0, 0], expected, rtol=1e-3, atol=1e-5)

    ratios = _ratios(first, gradient, np.asarray(tokens[:, :-1]))
    assert found.spectral.shape == (2, len(runs.matrices("plain")))
    for name, took in zip(runs.matrices("plain"), found.spectral[0], strict=True):
        if name in ratios:
            assert took == (ratios[name] >= 1), (name, ratios[name])


def _ratios(model, gradient, tokens):
    """nr(G)/st(A) of the three maps that read the normalized embedding, in numpy."""
    stream = np.asarray(model.embedding)[tokens] + np.asarray(model.positions)[: tokens.shape[1]]
    a = stream.reshape(-1, stream.shape[-1])
    a = a / np.sqrt(np.mean(a**2, axis=1, keepdims=True))
    s = np.linalg.svd(a, compute_uv=False)
    stable = np.sum(s**2) / s[0] ** 2
    found = {}
    for name in ("query", "key", "value"):
        s = np.linalg.svd(np.asarray(getattr(gradient.blocks, name))[0], compute_uv=False)
        found[name] = s.sum() ** 2 / np.sum(s**2) / stable
    return found


def test_both_kinds_have_as_many_weights():
    counts = []
    for kind in runs.ACTIVATIONS:
        model = jax.eval_shape(
            lambda key, kind=kind: transformer.init(key, CONFIG.architecture(kind)), jax.random.key(0)
        )
        counts.append(sum(leaf.size for leaf in jax.tree.leaves(model)))
    assert counts[0] == counts[1]


def report(kind, seeds=SEEDS, *, gains, rank, noise=0.01, level=2.0):
    """Last losses `level` less the gain of each arm over AdamW, with noise that all arms share and a hundredth of it that they do not."""
    rng = np.random.default_rng(0)
    names = list(runs.matrices(kind))
    shared = noise * rng.standard_normal((seeds, 1, 1))
    loss = level - np.asarray([gains[arm] for arm in runs.ARMS]) + shared
    loss = np.concatenate([loss + 0.5, loss], axis=1) + noise / 100 * rng.standard_normal((seeds, 2, len(runs.ARMS)))
    ranks = rank * np.exp(0.02 * rng.standard_normal((seeds, 2, len(runs.ARMS), len(names), 2)))
    return xr.Dataset(
        {
            "loss": (("seed", "step", "arm"), loss),
            "stable_rank": (("seed", "step", "arm", "matrix", "block"), ranks),
            "spectral": (("seed", "update", "matrix"), np.ones((seeds, 2, len(names)))),
            "entropy": ((), 3.0),
        },
        {"arm": list(runs.ARMS), "matrix": names, "step": [1, 2], **FACTORS},
    )


GAINS = {"adamw": 0.0, "out": 0.12, "muon": 0.2, "sgd": -0.3, "switch": 0.25}


def verdicts(plain=None, gated=None):
    data = {
        "plain_report": report("plain", **{"gains": GAINS, "rank": 3.0} | (plain or {})),
        "gated_report": report("gated", **{"gains": GAINS | {"out": 0.06}, "rank": 6.0} | (gated or {})),
    }
    return {check.name: check.verdict for check in experiment.checks(CONFIG, data)}


@pytest.mark.parametrize(
    ("kind", "change", "names"),
    [
        ("plain", {"level": 3.2}, {"plain-learns"}),
        ("plain", {"gains": GAINS | {"switch": 0.2}}, {"plain-switch-beats-spectral"}),
        (
            "gated",
            {"gains": GAINS | {"out": 0.06, "switch": -0.4}},
            {"gated-switch-beats-spectral", "gated-switch-beats-euclidean"},
        ),
        ("gated", {"gains": GAINS | {"out": 0.003, "muon": 0.01}}, {"gated-muon-gains"}),
    ],
)
def test_verdicts_follow_the_numbers(kind, change, names):
    assert set(verdicts().values()) == {"confirmed"}
    found = verdicts(**{kind: change})
    assert {name for name, verdict in found.items() if verdict != "confirmed"} == names
    assert all(found[name] == "refuted" for name in names)


def test_the_standard_error_of_a_fraction_is_its_deviation_between_experiments():
    """50 seeds with correlated gains, 4000 times: the deviation of the estimates has a relative error of about 1/√8000."""
    rng = np.random.default_rng(1)
    whole = 0.2 + 0.05 * rng.standard_normal((4000, 50))
    part = 0.1 + 0.3 * (whole - 0.2) + 0.02 * rng.standard_normal(whole.shape)
    estimates = [experiment.ratio_of(p, w) for p, w in zip(part, whole, strict=True)]
    deviation = np.std([one.value for one in estimates], ddof=1)
    # Independent errors of both would give 0.0217, without those of the whole 0.0177; to first order it is 0.0158.
    assert np.mean([one.stderr for one in estimates]) == pytest.approx(deviation, rel=0.05)


def test_factors_are_those_of_the_lowest_mean_loss():
    loss = np.full((3, 2, 4), 2.0)
    loss[[2, 0, 1, 1], :, [0, 1, 2, 3]] = 1.5
    loss[0, 0, 3], loss[0, 1, 3] = 0.5, runs.LIMIT  # one run diverged
    losses = xr.Dataset({"loss": (("factor", "seed", "arm"), loss)}, {"factor": [0.5, 1.0, 2.0]})
    assert runs.chosen_factors(losses) == {"adamw": 2.0, "out": 0.5, "muon": 1.0, "sgd": 1.0}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"heads": 3}, r"The heads must divide the width"),
        ({"records": 1}, r"steps must be a multiple of records >= 2, got 2 and 1\."),
        ({"steps": 3}, r"steps must be a multiple of records >= 2, got 3 and 2\."),
        ({"batch": 0}, r"batch and stretches must be at least 1, got 0 and 2\."),
        ({"out_rate": 0.0}, r"Rates must be positive, of SGD one for each kind of perceptron, got"),
        ({"sgd_rates": (1.0,)}, r"Rates must be positive, of SGD one for each kind of perceptron, got"),
        ({"factors": ()}, r"factors must be different positive numbers, got \(\)\."),
        ({"factors": (1.0, 1.0)}, r"factors must be different positive numbers"),
        ({"factors": (1.0, -1.0)}, r"factors must be different positive numbers"),
        ({"selection_seeds": 0}, r"selection_seeds must be at least 1, got 0\."),
        ({"seeds": 1}, r"seeds must be at least 2"),
    ],
)
def test_configurations_that_could_not_be_judged_are_refused(changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        dataclasses.replace(CONFIG, **changes)


def test_a_text_that_cannot_be_read_is_refused_before_compilation(tmp_path):
    with pytest.raises(ValueError, match=r"cannot be read"):
        runs.run(dataclasses.replace(CONFIG, text=str(tmp_path / "missing.txt")))
