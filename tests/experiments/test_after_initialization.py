"""Training after initialization: four optimizers against loops of their own, what is measured of V,
padding, and the choice of steps.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import xarray as xr

from specjax import optim, sizes
from specjax.experiments.outer_product import after_initialization as experiment
from specjax.experiments.outer_product import after_initialization_training as training
from specjax.experiments.outer_product.after_initialization_training import (
    HELD_OUT,
    LIMIT,
    MATRICES,
    RULES,
    WATCHED,
)
from specjax.models import mlp
from specjax.sizes import Size

WIDTH, PADDED, ENDS, BATCH, STEPS, STRETCHES, DECAY = 8, 11, 5, 6, 2, 2, 0.8
RATES = {"gd": 12.0, "adam": 0.1, "muon": 0.2, "rows": 0.4}
KEY = jax.random.key(3)


@pytest.fixture(scope="module")
def runs():
    """A padded run, and the same with a step size at which Muon diverges, in one program."""

    @jax.jit
    @jax.vmap
    def run(rates):
        ends, width = Size(PADDED - 2, ENDS), Size(PADDED, WIDTH)
        return training.train(
            KEY,
            width,
            ends,
            list(rates),
            stretches=STRETCHES,
            steps=STEPS,
            batch=BATCH,
            decay=DECAY,
        )

    diverging = RATES | {"muon": 400.0}
    return run(jnp.asarray([list(rates.values()) for rates in (RATES, diverging)]))


def scaled(formula):
    """A transformation that multiplies each matrix (out, in) by a formula of its outputs and
    inputs.
    """
    return optax.stateless(
        lambda updates, _: jax.tree.map(lambda u: formula(*u.shape) * u, updates)
    )


@pytest.fixture(scope="module")
def by_optax():
    """Held-out losses and V of every optimizer after each step, in a loop of its own on weights
    without padding; and the first gradient.
    """
    orthogonalized = optim.orthogonalize(scale="sqrt_out_over_in", dimension_numbers=optim.OUT_IN)
    normalized = scaled(lambda m, n: np.sqrt(min(m, n) / n))
    optimizers = {
        "gd": optax.chain(optax.trace(DECAY), scaled(lambda m, n: (1 - DECAY) * m / n)),
        "adam": optax.chain(
            optax.scale_by_adam(DECAY, training.SECOND_DECAY),
            scaled(lambda m, n: np.sqrt(m / n / max(m, n))),
        ),
        "muon": optax.chain(optax.trace(DECAY), orthogonalized),
        "rows": optax.chain(optax.trace(DECAY), optim.normalize_rows(), normalized),
    }
    dims = (ENDS, WIDTH, WIDTH, ENDS)
    *weights, target = training._matrices(sizes.stream(KEY, "weights and target"), (*dims, ENDS))
    count = HELD_OUT + BATCH * STEPS * STRETCHES
    x = sizes.normal(sizes.stream(KEY, "inputs"), (count, ENDS))
    batches = [
        x[HELD_OUT + t * BATCH : HELD_OUT + (t + 1) * BATCH] for t in range(STEPS * STRETCHES)
    ]

    @jax.jit
    def loss(weights, x):
        return jnp.mean((mlp.forward(weights, x) - x @ target.T) ** 2) / 2

    gradient = jax.jit(jax.grad(loss))
    losses, momenta = {}, {}
    for name, optimizer in optimizers.items():
        own, state = tuple(weights), jax.jit(optimizer.init)(tuple(weights))
        update = jax.jit(optimizer.update)
        losses[name], momenta[name] = [], []
        for t, batch in enumerate(batches):
            moves, state = update(gradient(own, batch), state)
            own = jax.tree.map(
                lambda w, move, t=t, name=name: w - RATES[name] / np.sqrt(t + 1) * move, own, moves
            )
            losses[name].append(float(loss(own, x[:HELD_OUT])))
            momenta[name].append(optax.tree.get(state, "mu" if name == "adam" else "trace"))
    return (
        float(loss(tuple(weights), x[:HELD_OUT])),
        losses,
        momenta,
        gradient(tuple(weights), batches[0]),
    )


@pytest.mark.slow
def test_losses_are_those_of_optax_without_padding(runs, by_optax):
    start, losses, _, _ = by_optax
    assert float(runs["start"][0]) == pytest.approx(start, rel=1e-5)
    for index, rule in enumerate(RULES):
        expected = [losses[rule][(place + 1) * STEPS - 1] for place in range(STRETCHES)]
        np.testing.assert_allclose(runs["loss"][0, :, index], expected, rtol=1e-3)
        assert abs(expected[-1] / start - 1) > 0.02
    assert len({round(losses[rule][-1], 3) for rule in RULES}) == len(RULES)


def of(matrix):
    """Ratio and distance of a matrix, by its singular value decomposition."""
    v = np.asarray(matrix, float)
    p, m = v @ v.T, len(v)
    u, s, wt = np.linalg.svd(v, full_matrices=False)
    factor = u[:, s > 1e-5 * s[0]] @ wt[s > 1e-5 * s[0]]
    norms = np.linalg.norm(v, axis=1, keepdims=True)
    rows = v / np.where(norms > 0, norms, 1)
    cosine = np.sum(rows * factor) / np.linalg.norm(rows) / np.linalg.norm(factor)
    return (np.abs(p).sum() - np.trace(p)) / (m * (m - 1)) / (np.trace(p) / m), np.sqrt(
        1 - cosine**2
    )


@pytest.mark.slow
def test_ratio_and_distance_are_of_the_momentum_in_the_state(runs, by_optax):
    _, _, momenta, first = by_optax
    for layer in range(len(MATRICES)):
        found = runs["first_ratio"][0, layer], runs["first_distance"][0, layer]
        np.testing.assert_allclose(found, of(first[layer]), rtol=2e-3)
        for index, rule in enumerate(WATCHED):
            for place in range(STRETCHES):
                found = (
                    runs["ratio"][0, place, index, layer],
                    runs["distance"][0, place, index, layer],
                )
                np.testing.assert_allclose(
                    found, of(momenta[rule][(place + 1) * STEPS - 1][layer]), rtol=2e-3
                )


@pytest.mark.slow
def test_noise_is_gaussian_and_not_the_weights(runs):
    dims = (ENDS, WIDTH, WIDTH, ENDS)
    for name, same in (("noise", True), ("weights and target", False)):
        for layer, matrix in enumerate(training._matrices(sizes.stream(KEY, name), dims)):
            found = runs["noise_ratio"][0, layer], runs["noise_distance"][0, layer]
            assert np.allclose(found, of(matrix), rtol=1e-3) is same


@pytest.mark.slow
def test_a_diverging_run_stops_alone(runs):
    muon = RULES.index("muon")
    others = [i for i in range(len(RULES)) if i != muon]
    np.testing.assert_array_equal(runs["loss"][0][:, others], runs["loss"][1][:, others])
    assert all(np.isfinite(array).all() for array in runs.values())
    assert float(runs["loss"][1, -1, muon]) == LIMIT


CONFIG = experiment.Config(
    widths=(8, 16, 32), seeds=6, choosing=2, stretches=2, steps=4, factors=(0.5, 1.0, 2.0, 4.0)
)
BEST = {"gd": (1, 2), "adam": (2, 1), "muon": (1, 1), "rows": (3, 0)}
"""Of each rule, the place of the best factor at either length."""


@pytest.fixture
def made():
    """A sweep, made up: losses least at `BEST`, larger in the samples that choose; quantities that
    say which run they are of.
    """
    shape = (len(CONFIG.widths), len(CONFIG.factors), CONFIG.choosing + CONFIG.seeds, 2)
    best = np.array(list(BEST.values())).T
    loss = 10.0 ** (np.abs(np.arange(4)[:, None, None] - best) - 2)[None, :, None] * np.ones(
        (*shape, 4)
    )
    loss[:, :, : CONFIG.choosing] *= 7
    dims = ("width", "factor", "seed", "length")
    which = np.arange(4.0)[None, :, None, None, None, None] * np.ones((*shape, 2, 3))
    widths = np.asarray(CONFIG.widths, float)[:, None, None, None, None, None]
    one = (("width", "factor", "seed", "matrix"), np.ones((*shape[:3], 3)))
    data = {
        "loss": ((*dims, "rule"), loss),
        "start": (dims[:3], np.ones(shape[:3])),
        "ratio": ((*dims, "watched", "matrix"), 2.0**which),
        "distance": ((*dims, "watched", "matrix"), widths**0.3 * np.ones_like(which)),
    } | dict.fromkeys(("first_ratio", "first_distance", "noise_ratio", "noise_distance"), one)
    coordinates = {"width": list(CONFIG.widths), "factor": list(CONFIG.factors), "length": [4, 8]}
    coordinates |= {"rule": list(RULES), "watched": list(WATCHED), "matrix": list(MATRICES)}
    return experiment.judged(CONFIG, xr.Dataset(data, coordinates))


def test_step_sizes_are_chosen_per_length_on_other_samples(made):
    assert made.sizes["seed"] == CONFIG.seeds
    np.testing.assert_allclose(made["left"], -2)
    for rule, places in BEST.items():
        assert made["factor_chosen"].sel(rule=rule, width=8).values.tolist() == [
            CONFIG.factors[i] for i in places
        ]
        for length, place in zip((4, 8), places, strict=True):
            ends = made["left_at_ends"].sel(rule=rule, length=length)
            np.testing.assert_allclose(ends, min(place, 3 - place) - 2)
            if rule in WATCHED:
                np.testing.assert_allclose(made["ratio"].sel(watched=rule, length=length), place)


def test_an_exponent_is_that_of_a_power(made):
    np.testing.assert_allclose(experiment.per_doubling(made, "distance"), 0.3, rtol=1e-6)
    flat = experiment.select_widths("distance", 0)(CONFIG, made)
    np.testing.assert_allclose(experiment.per_doubling(flat, "distance"), 0, atol=1e-12)


def test_step_sizes_at_an_end_of_the_grid_are_not_inside(made):
    inside = made.sel(rule=["gd", "adam", "muon"])
    assert experiment.step_sizes_inside.find(CONFIG, inside).verdict == "confirmed"
    rng = np.random.default_rng(0)
    at_end = made.sel(rule=["rows"])
    noisy = at_end.assign(left=at_end["left"] + 1e-3 * rng.standard_normal(at_end["left"].shape))
    assert experiment.step_sizes_inside.find(CONFIG, noisy).verdict != "confirmed"


def test_the_gap_is_of_the_largest_width_and_of_pairs_of_draws(made):
    lag = xr.DataArray([0.1, 0.2, 0.4], dims="width", coords={"width": made["width"]})
    scatter = xr.DataArray(np.random.default_rng(0).standard_normal(CONFIG.seeds), dims="seed")
    left = made["left"] + scatter + lag * (made["rule"] == "rows")
    data = made.assign(left=left.transpose(*made["left"].dims))
    np.testing.assert_allclose(experiment.gap(data), lag.broadcast_like(experiment.gap(data)))
    assert experiment.rows_reach_muon.find(CONFIG, data).verdict == "refuted"
    assert experiment.gap_shrinks_with_width.judge(CONFIG, data).verdict == "refuted"
