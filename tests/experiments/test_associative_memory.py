"""The associative-memory experiments: verdicts that follow from the data, and what their configurations refuse."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from specjax import experiments
from specjax.experiments.associative_memory import minibatch, minibatch_steps, one_step, resolution, sweeps
from specjax.theory import capacity, finite_capacity

MEMORY = [name for name in experiments.names() if name.startswith("memory-")]


def made_up(config, exponent_shift):
    """Counts that follow the formula, times d^shift, with one per cent of noise, in the shape of a run."""
    rng = np.random.default_rng(0)
    shape = (len(config.dims), config.seeds, len(config.alphas), len(one_step.OPTIMIZERS))
    count = np.empty(shape)
    for k, d in enumerate(config.dims):
        for i, alpha in enumerate(config.alphas):
            for j, optimizer in enumerate(one_step.OPTIMIZERS):
                mean = sweeps.expected(optimizer, d, config.n, alpha) * float(d) ** exponent_shift
                count[k, :, i, j] = mean * (1 + 0.01 * rng.standard_normal(config.seeds))
    dims = ("d", "seed", "alpha", "optimizer")
    coords = {
        "d": list(config.dims),
        "seed": np.arange(config.seeds),
        "alpha": list(config.alphas),
        "optimizer": list(one_step.OPTIMIZERS),
    }
    values = {"count": (dims, count), "prefix": (dims, count)}
    return {"capacity": xr.Dataset(values, coords=coords)}


@pytest.fixture(scope="module")
def config():
    return one_step.Config(n=4000, dims=(48, 64, 96, 128), fit_from=48, alphas=(1.5, 2.0))


def test_counts_by_the_formula_are_confirmed_and_other_exponents_refuted(config):
    found = {c.name: c for c in one_step.checks(config, made_up(config, 0.0)) if not c.name.startswith("gd-exponent")}
    assert {check.verdict for check in found.values()} == {"confirmed"}
    for alpha in config.alphas:
        exponent = capacity.one_step_exponent("muon", alpha)
        name = f"muon-exponent-alpha-{alpha:g}".replace(".", "-")
        assert found[name].predicted == exponent
        assert found[name].measured == pytest.approx(exponent, abs=0.02)
    # Off by half the distance to the next candidate.
    moved = {check.name: check for check in one_step.checks(config, made_up(config, -1 / (4 * 1.5)))}
    wrong = [name for name in found if "-exponent-alpha-" in name]
    assert {moved[name].verdict for name in wrong} == {"refuted"}
    assert len(wrong) == 4


def test_the_order_of_the_optimizers_is_judged(config):
    data = made_up(config, 0.0)
    count = data["capacity"]["count"]
    swapped = count.where(count["optimizer"] != "muon", count / 3)
    found = {c.name: c.verdict for c in one_step.checks(config, {"capacity": data["capacity"].assign(count=swapped)})}
    assert found["muon-matches-newton"] == "refuted"


def test_critical_batches_are_where_half_the_count_is_reached():
    dims, seeds = [16, 32], 12
    batches = [2.0, 4.0, 8.0, 16.0, 32.0, np.inf]
    means = np.array([[1, 2, 4, 6, 8, 8], [1, 2, 3, 6, 10, 12]], float)
    noise = 1 + 0.01 * np.random.default_rng(0).standard_normal((2, seeds, 6))
    count = xr.DataArray(
        (means[:, None] * noise)[..., None],
        dims=("d", "seed", "batch", "optimizer"),
        coords={"d": dims, "batch": batches, "optimizer": ["muon"]},
    )
    critical = minibatch._critical({"capacity": xr.Dataset({"count": count})}, "muon")
    np.testing.assert_allclose(critical.mean("seed"), [8, 16], rtol=0.03)
    assert (critical.std("seed") > 0).all()


def test_what_small_batches_store_is_judged_by_what_they_saw():
    config = minibatch_steps.Config()
    noise = 1 + 0.02 * np.random.default_rng(0).standard_normal((config.seeds, config.steps, len(config.batches)))
    t = np.arange(1, config.steps + 1)
    seen = np.array(
        [[finite_capacity.distinct_items(config.n, config.alpha, b * k) for b in config.batches] for k in t.tolist()]
    )
    coords = {"seed": np.arange(config.seeds), "t": t, "batch": list(config.batches)}

    def verdicts(count):
        named = {"count": count, "seen": np.broadcast_to(seen, noise.shape)}
        data = xr.Dataset({k: (("seed", "t", "batch"), v) for k, v in named.items()}, coords=coords)
        return {check.name: check.verdict for check in minibatch_steps.checks(config, {"capacity": data})}

    stored = np.minimum(seen, 50.0)  # as many as fit
    found = verdicts(stored * noise)
    assert set(found.values()) - {"confirmed"} == {"refuted"}
    # A capacity that does not depend on the batch: one step with all samples stores as much as several with parts of them.
    assert [name for name, verdict in found.items() if verdict == "refuted"] == ["sample-efficiency-worsens"]
    fewer = verdicts(seen**0.5 * noise)
    assert fewer["small-batches-store-what-they-see"] == "refuted"
    assert fewer["small-batches-exponent"] == "refuted"


def test_the_cubic_iterate_is_that_of_the_lemma():
    z = np.linspace(0.01, 1.7, 50)
    once = 1.5 * z - 0.5 * z**3
    twice = 1.5 * once - 0.5 * once**3
    found = np.asarray(resolution._cubic(jnp.asarray(z, jnp.float32), jnp.asarray(2)))
    np.testing.assert_allclose(found, twice, rtol=1e-4, atol=1e-6)
    # Lemma C.4: h(z)/z does not increase.
    assert np.all(np.diff(twice / z) <= 0)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("name", "changes", "sentence"),
    [
        *((name, {"n": 1}, "n must be at least 2 items, got 1.") for name in MEMORY),
        *((name, {"seeds": 3}, "seeds must be at least 10, for intervals of the exponents, got 3.") for name in MEMORY),
        *((name, {"seed": -1}, "seed must be from 0 to 2^32 - 1, got -1.") for name in MEMORY),
        *(
            (name, {"dims": (8, 16)}, "dims needs 4 or more different sizes in ascending order")
            for name in MEMORY
            if name != "memory-minibatch-steps"
        ),
        ("memory-one-step", {"n": 100}, "n must exceed the largest of dims="),
        ("memory-one-step", {"alphas": (1.0, 2.0)}, "The exponents hold for power laws with finite α > 1, got α=1.0."),
        ("memory-one-step", {"alphas": (1.5,)}, "alphas needs 2 or more different exponents in ascending order"),
        ("memory-one-step", {"fit_from": 96}, "dims from fit_from on needs 4 or more different sizes"),
        ("memory-minibatch", {"alpha": 0.5}, "The exponents hold for power laws with finite α > 1, got α=0.5."),
        ("memory-minibatch", {"batches": (0, 2, 4, 8)}, "batches needs 4 or more different sizes from 1 up"),
        ("memory-minibatch", {"batches": (512, 1024, 2048, 4096)}, "batches needs four or more of fewer than d/4"),
        ("memory-minibatch-steps", {"d": 3}, "d must be at least 4, got 3."),
        ("memory-minibatch-steps", {"batches": (0, 64)}, "batches needs 2 or more different sizes from 1 up"),
        ("memory-minibatch-steps", {"steps": 3}, "steps must be at least 4, for a fit over steps, got 3."),
        (
            "memory-minibatch-steps",
            {"batches": (4, 100, 250)},
            "The largest of batches=(4, 100, 250) must be the one before it",
        ),
        (
            "memory-minibatch-steps",
            {"batches": (64, 128)},
            "The smallest of batches=(64, 128) needs to hold fewer than d/2 = 32",
        ),
        ("memory-minibatch-steps", {"rate": -1.0}, "rate must be positive and finite, got -1.0."),
        ("memory-lambda", {"factors": (0.1, 1.0)}, "factors needs 0 and larger ones in ascending order"),
        ("memory-lambda", {"factors": (0.0, 10.0)}, "factors needs 1, the λ of Theorem 3.1"),
        ("memory-lambda", {"cubic_steps": (0,)}, "cubic_steps needs positive numbers of steps, got (0,)."),
        ("memory-logits", {"items": (-1,)}, "items must be from 0 to n - 1 ="),
        ("memory-logits", {"spikes": (1.0, 2.0, 3.0)}, "spikes needs 0 and two or more larger ones"),
        ("memory-logits", {"largest": 1}, "largest must be from 2 to n="),
        ("memory-multi-step", {"steps": 1}, "steps must be at least 2, for several steps, got 1."),
        ("memory-multi-step", {"rate": 0.0}, "rate must be positive and finite, got 0.0."),
        ("memory-anisotropy", {"kappas": (0.5, 1.0)}, "kappas needs 0 and larger powers in ascending order"),
        ("memory-anisotropy", {"ridge": -1.0}, "ridge must be finite and not negative, got -1.0."),
    ],
)
def test_bad_configurations_are_refused_in_a_sentence(name, changes, sentence):
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        dataclasses.replace(experiments.load(name).scales["quick"], **changes)
    assert str(refused.value).startswith(sentence)


def test_there_are_seven_of_them():
    assert len(MEMORY) == 7
