"""The associative-memory experiments: verdicts that follow from the data, and what their
configurations refuse.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from specjax.experiments.associative_memory import (
    item_counts,
    minibatch,
    minibatch_steps,
    one_step,
    resolution,
    sampled_items,
)
from specjax.theory import capacity, finite_capacity

CONFIG = one_step.Config(
    n=2000,
    dims=(48, 64, 96),
    fit_from=48,
    alphas=(1.5, 2.0),
    seeds=24,
    descent_n=200,
    descent_dims=(16, 32),
    descent_seeds=400,
)


def made_up(config, moved=0.0):
    """Counts of the formula, times (d/64)^moved, with the noise of one per cent, in the shape of a
    run.
    """
    rng = np.random.default_rng(0)

    def counts(optimizers, dims, n, seeds):
        coords = {
            "d": list(dims),
            "alpha": list(config.alphas),
            "optimizer": list(optimizers),
            "seed": np.arange(seeds),
        }
        frame = xr.DataArray(
            0.01 * rng.standard_normal([len(c) for c in coords.values()]), coords, list(coords)
        )
        values = [
            [[item_counts.expected(o, d, n, a) for o in optimizers] for a in config.alphas]
            for d in dims
        ]
        count = (
            (1 + frame)
            * xr.DataArray(values, dims=("d", "alpha", "optimizer"))
            * (frame.d / 64) ** moved
        )
        return xr.Dataset({"count": count, "prefix": count})

    capacities = counts(one_step.OPTIMIZERS, config.dims, config.n, config.seeds)
    descent = counts(("gd",), config.descent_dims, config.descent_n, config.descent_seeds)
    theorem = [
        [capacity.one_step_exponent(o, a) for a in config.alphas] for o in one_step.OPTIMIZERS
    ]
    dims = ("optimizer", "alpha", "seed")
    theorem = xr.DataArray(
        np.repeat(np.array(theorem)[..., None], 2, axis=-1),
        {"optimizer": list(one_step.OPTIMIZERS), "alpha": list(config.alphas)},
        dims,
    )
    lost = xr.where(theorem.optimizer == "gd", 0, 1 / (2 * theorem.alpha * 30))
    far = xr.Dataset({"theorem": theorem, "exponent": theorem - lost, "log_d": 30 + 0 * theorem})
    return {"capacity": capacities, "descent": descent.squeeze("optimizer"), "far": far}


def verdicts(experiment, config, data):
    return {
        statement.name: statement.find(config, data).verdict for statement in experiment.statements
    }


@pytest.mark.integration
def test_counts_by_the_formula_are_confirmed():
    found = verdicts(one_step.EXPERIMENT, CONFIG, made_up(CONFIG))
    # At these sizes the formula's own straight lines are steeper than the theorem's.
    refuted = {name for name, verdict in found.items() if verdict == "refuted"}
    assert refuted == {"straight-lines", "straight-lines-of-descent"}
    assert {verdict for name, verdict in found.items() if name not in refuted} == {"confirmed"}


@pytest.mark.integration
@pytest.mark.parametrize("by", [0.05, -0.05])
def test_no_exponent_that_is_off_is_confirmed(by):
    found = verdicts(one_step.EXPERIMENT, CONFIG, made_up(CONFIG, by))
    assert "confirmed" not in {found["exponents-by-formula"], found["descent-exponents-by-formula"]}
    far = verdicts(one_step.EXPERIMENT, CONFIG, made_up(CONFIG, 2 * by))
    assert {far["exponents-by-formula"], far["descent-exponents-by-formula"]} == {"refuted"}


@pytest.mark.integration
def test_the_order_of_the_optimizers_is_judged():
    data = made_up(CONFIG)
    count = data["capacity"]["count"]
    swapped = data["capacity"].assign(count=count.where(count["optimizer"] != "muon", count / 3))
    assert (
        verdicts(one_step.EXPERIMENT, CONFIG, {**data, "capacity": swapped})["muon-matches-newton"]
        == "refuted"
    )


@pytest.mark.integration
def test_every_alpha_has_its_own_samples():
    def of_alpha(key, _, alpha, twice):
        return {"draw": jax.random.normal(key), "twice": twice / alpha}

    def found(anew):
        of_seed = sampled_items.map_alphas(of_alpha, (1.5, 3.0), jnp.asarray([3.0, 6.0]), anew=anew)
        return sampled_items.run(of_seed, (4, 8), 2, jax.random.key(0), alpha=(1.5, 3.0))

    shared, anew = found(anew=False), found(anew=True)
    assert shared["draw"].dims == ("d", "seed", "alpha")
    assert np.unique(shared["draw"]).size == 4
    assert np.unique(anew["draw"]).size == 8
    np.testing.assert_array_equal(shared["twice"], 2.0)


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
    critical = minibatch.critical(xr.Dataset({"count": count}), "muon")
    np.testing.assert_allclose(np.exp(critical.mean("seed")), [8, 16], rtol=0.03)
    assert (critical.std("seed") > 0).all()


def test_what_small_batches_store_is_judged_by_what_they_saw():
    config = minibatch_steps.Config()
    noise = 1 + 0.02 * np.random.default_rng(0).standard_normal(
        (config.seeds, config.steps, len(config.batches))
    )
    t = np.arange(1, config.steps + 1)
    seen = np.array(
        [
            [finite_capacity.distinct_items(config.n, config.alpha, b * k) for b in config.batches]
            for k in t.tolist()
        ]
    )
    coords = {"seed": np.arange(config.seeds), "t": t, "batch": list(config.batches)}

    def found(count):
        named = {"count": count, "seen": np.broadcast_to(seen, noise.shape)}
        data = xr.Dataset({k: (("seed", "t", "batch"), v) for k, v in named.items()}, coords=coords)
        statements = [s for s in minibatch_steps.EXPERIMENT.statements if "figure-5b" in s.cites]
        return {s.name: s.find(config, {"capacity": data}).verdict for s in statements}

    # As many as fit, whatever the batch: one step with all samples stores as much as several with
    # parts of them.
    stored = found(np.minimum(seen, 50.0) * noise)
    assert {name for name, verdict in stored.items() if verdict != "confirmed"} == {
        "sample-efficiency-worsens"
    }
    fewer = found(seen**0.5 * noise)
    assert fewer["small-batches-are-stored"] == fewer["small-batches-rate"] == "refuted"


def test_the_cubic_iterate_is_that_of_the_lemma():
    z = np.linspace(0.01, 1.7, 50)
    once = 1.5 * z - 0.5 * z**3
    twice = 1.5 * once - 0.5 * once**3
    np.testing.assert_allclose(resolution.iterate("cubic", z, 2), twice, rtol=1e-12)
    # Lemma C.4: h(z)/z does not increase.
    assert np.all(np.diff(twice / z) <= 0)
