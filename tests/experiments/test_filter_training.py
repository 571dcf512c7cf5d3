"""Filters inside Muon: which they are, how rates are chosen, and that verdicts follow the
numbers.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import xarray as xr

from specjax import optim, sizes, spectral
from specjax.experiments.beyond import filtered_muon
from specjax.experiments.beyond.filter_training import EXPERIMENT, FILTERS
from specjax.models import transformer

CONFIG = EXPERIMENT.at("quick")
SMOKE = EXPERIMENT.at("smoke")


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("polar", spectral.SVD()),
        ("ℓ = 0.25", spectral.Tikhonov(0.25)),
        ("ℓ = 0.5", spectral.Tikhonov(0.5)),
        ("ℓ = 1", spectral.Tikhonov(1.0)),
        ("gradient", spectral.Tikhonov(1e4)),
    ],
)
def test_filters_are_the_methods_of_their_names(name, same):
    x = jnp.asarray(np.random.default_rng(0).standard_normal((5, 8)), jnp.float32)
    share, power, _ = FILTERS[name]
    found = filtered_muon.filtered_by(jnp.asarray(share), jnp.asarray(power), x)
    np.testing.assert_allclose(found, spectral.polar(x, same), atol=2e-6)


@pytest.mark.integration
def test_small_values_alone_are_forgotten_by_a_root():
    u, s, v = np.linalg.svd(np.random.default_rng(1).standard_normal((4, 6)), full_matrices=False)
    h = s / np.sqrt(s**2 + np.median(s) ** 2)
    expected = u * (h / np.sqrt(np.mean(h**2))) @ v
    share, power, _ = FILTERS["small only"]
    x = jnp.asarray((u * s) @ v, jnp.float32)
    np.testing.assert_allclose(
        filtered_muon.filtered_by(jnp.asarray(share), jnp.asarray(power), x), expected, atol=2e-6
    )


@pytest.mark.integration
def test_a_rate_is_chosen_for_every_length_by_other_draws(monkeypatch):
    """Losses are least at 0.02 after the first length and at 0.06 after the second, times what a
    filter has over the polar factor.
    """
    by_share = {(f.share, f.power): f.rate for f in FILTERS.values()}

    def made_up(key, _task, _steps, share, power, rate):
        of = sum(
            jnp.where((share == jnp.asarray(a)) & (power == jnp.asarray(b)), c, 0.0)
            for (a, b), c in by_share.items()
        )
        loss = jnp.abs(jnp.log(rate / of) - jnp.log(jnp.asarray([0.02, 0.06])))
        return {"loss": loss, "accuracy": jnp.stack([rate, rate]) + 1e-4 * jax.random.uniform(key)}

    monkeypatch.setattr(filtered_muon, "trained", made_up)
    found = filtered_muon.judged(
        lambda *_: None, CONFIG, (1, 2), (0.007, 0.02, 0.06, 0.18), 3, jax.random.key(0)
    )
    assert found["loss"].sizes == {"seed": 3, "filter": 6, "step": 2}
    assert (found["place"] == xr.DataArray([1, 2], dims="step")).all()
    expected = np.outer([f.rate for f in FILTERS.values()], [0.02, 0.06])
    # Seeds differ, so that these are samples and not one of them three times.
    np.testing.assert_allclose(
        found["accuracy"].transpose("seed", "filter", "step"), [expected] * 3, atol=1.1e-4
    )
    assert (found["accuracy"].std("seed") > 0).all()


@pytest.mark.slow
def test_a_training_is_that_of_muon_with_the_method():
    """Three steps, one by one, by the optimizer that a user would write."""
    task = filtered_muon.recalling(SMOKE, jax.random.key(1))
    key, rate = jax.random.key(2), 0.03
    share, power, _ = FILTERS["ℓ = 0.5"]
    muon = optim.jordan_muon(
        rate,
        beta=0.9,
        method=spectral.Tikhonov(0.5),
        scale="point_two_sqrt_max",
        muon_weight_dimension_numbers=optim.OUT_IN,
        labels=transformer.labels,
        fallback=optax.adamw(0.02, 0.9, 0.99, weight_decay=0.0),
    )
    found = filtered_muon.trained(key, task, (3,), *map(jnp.asarray, (share, power, rate)))

    @jax.jit
    def step(model, state, t):
        batch = task.batch(jax.random.fold_in(sizes.stream(key, "batches"), t))
        updates, state = muon.update(jax.grad(transformer.loss)(model, batch), state, model)
        return optax.apply_updates(model, updates), state

    model = jax.jit(lambda: transformer.init(sizes.stream(key, "weights"), task.architecture))()
    state = jax.jit(muon.init)(model)
    for t in range(3):
        model, state = step(model, state, t)
    expected = jax.jit(transformer.loss)(model, task.held_out)
    np.testing.assert_allclose(found["loss"], [expected], rtol=1e-5)


def made_up(recall=(0.1, 0.12, 0.12, -0.05, -0.2), gpt=(-0.01, -0.02, -0.01, 0.02, 0.1), place=1):
    """By how much each filter but the first is above it, with noise that all share and a tenth of
    it that they do not.
    """
    rng, labels = np.random.default_rng(0), {"filter": list(FILTERS), "step": [1, 2]}

    def of(base, leads):
        noise = 0.05 * rng.standard_normal((16, 1, 2)) + 0.005 * rng.standard_normal((16, 6, 2))
        return ("seed", "filter", "step"), base + np.asarray([0, *leads])[None, :, None] + noise

    def of_rates(rates):
        return ("filter", "step"), np.full((6, 2), min(place, len(rates) - 1))

    return {
        "recall": xr.Dataset(
            {"accuracy": of(0.5, recall), "place": of_rates(CONFIG.recall_rates)}, labels
        ),
        "gpt": xr.Dataset({"loss": of(2.5, gpt), "place": of_rates(CONFIG.gpt_rates)}, labels),
    }


def verdicts(data):
    return {judged.statement.name: judged.verdict for judged in EXPERIMENT.judge(CONFIG, data)}


@pytest.mark.integration
def test_every_statement_holds_of_the_numbers_as_they_are():
    assert set(verdicts(made_up()).values()) == {"confirmed"}


@pytest.mark.parametrize(
    ("data", "names"),
    [
        (made_up(recall=(0.1, -0.02, 0.12, -0.05, -0.2)), {"recalls-more"}),
        (made_up(recall=(0.1, 0.12, 0.12, 0.0, -0.2)), {"large-values-are-forgotten"}),
        (made_up(gpt=(-0.01, -0.02, -0.13, 0.02, 0.1)), {"changes-little"}),
        (made_up(gpt=(0.13, -0.02, -0.01, 0.02, 0.1)), {"changes-little"}),
        (made_up(gpt=(-0.01, 0.02, -0.01, 0.02, 0.1)), {"gains-a-little"}),
    ],
)
def test_verdicts_follow_the_numbers(data, names):
    assert {name for name, verdict in verdicts(data).items() if verdict != "confirmed"} == names


@pytest.mark.parametrize("place", [0, 9])
def test_a_rate_at_an_end_of_its_grid_decides_nothing(place):
    assert set(verdicts(made_up(place=place)).values()) == {"inconclusive"}
