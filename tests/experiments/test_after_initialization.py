"""Training after initialization: the four optimizers against loops of their own, what is measured of V, padding, and the verdicts."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import xarray as xr

from specjax import optim
from specjax.experiments.outer_product import after_initialization as experiment
from specjax.experiments.outer_product import after_initialization_analysis as analysis
from specjax.experiments.outer_product import after_initialization_gpt as gpt_experiment
from specjax.experiments.outer_product.after_initialization_problems import (
    GPT_KINDS,
    GPT_TABLES,
    RELU_MATRICES,
    Texts,
    gpt,
    relu_network,
)
from specjax.experiments.outer_product.after_initialization_training import OPTIMIZERS, SECOND_DECAY, train
from specjax.models import mlp
from specjax.sizes import Size
from specjax.training import text

WIDTH, PADDED, D_IN, D_OUT, BATCH, STEPS, DECAY, LIMIT = 8, 11, 5, 3, 6, 4, 0.8, 10.0
RECORDS = (1, STEPS)
RATES = {"gd": 6.0, "adam": 0.1, "muon": 0.2, "rows": 0.4}
KEY = jax.random.key(3)


@pytest.fixture(scope="module")
def runs():
    """A padded run, and the same with a step size at which Muon diverges, in one program."""

    @jax.jit
    @jax.vmap
    def run(rates):
        problem = relu_network(KEY, *(Size(PADDED, size) for size in (WIDTH, D_IN, D_OUT)), batch=BATCH, steps=STEPS)
        return train(problem, list(rates), records=RECORDS, decay=DECAY, limit=LIMIT)

    diverging = RATES | {"muon": 400.0}
    return run(jnp.asarray([list(rates.values()) for rates in (RATES, diverging)]))


def scaled(formula):
    """A transformation that multiplies each matrix (out, in) by a formula of its outputs and inputs."""
    return optax.stateless(lambda updates, _: jax.tree.map(lambda u: formula(*u.shape) * u, updates))


@pytest.fixture(scope="module")
def by_optax():
    """Held-out losses and the last V of every optimizer, each in a loop of its own on weights without padding."""
    dims = (D_IN, WIDTH, WIDTH, WIDTH, D_OUT)
    orthogonalized = optim.orthogonalize(scale="sqrt_out_over_in", dimension_numbers=optim.OUT_IN)
    normalized = scaled(lambda m, n: np.sqrt(min(m, n) / n))
    optimizers = {
        "gd": optax.chain(optax.trace(DECAY), scaled(lambda m, n: (1 - DECAY) * m / n)),
        "adam": optax.chain(optax.scale_by_adam(DECAY, SECOND_DECAY), scaled(lambda m, n: np.sqrt(m / n / max(m, n)))),
        "muon": optax.chain(optax.trace(DECAY), orthogonalized),
        "rows": optax.chain(optax.trace(DECAY), optim.normalize_rows(), normalized),
    }

    def loss(weights, batch):
        x, y = batch
        return jnp.mean((mlp.forward(weights, x) - y) ** 2) / 2

    @jax.jit
    def everything():
        problem = relu_network(KEY, WIDTH, D_IN, D_OUT, batch=BATCH, steps=STEPS)
        weights = tuple(w[:m, :n] for w, n, m in zip(problem.params, dims, dims[1:], strict=False))

        def step(now, t):
            x, y = problem.batch(t)
            after = {}
            for name, optimizer in optimizers.items():
                own, state = now[name]
                moves, state = optimizer.update(jax.grad(loss)(own, (x[:, :D_IN], y[:, :D_OUT])), state)
                rate = RATES[name] * (1 - t / STEPS)
                after[name] = jax.tree.map(lambda w, move, rate=rate: w - rate * move, own, moves), state
            return after, None

        start = {name: (weights, optimizer.init(weights)) for name, optimizer in optimizers.items()}
        end, _ = jax.lax.scan(step, start, jnp.arange(STEPS))
        x, y = (a[:, :n] for a, n in zip(problem.held_out, (D_IN, D_OUT), strict=True))
        losses = {name: loss(own, (x, y)) for name, (own, _) in end.items()}
        momenta = {name: optax.tree.get(end[name][1], "mu" if name == "adam" else "trace") for name in end}
        return loss(weights, (x, y)), losses, momenta

    with jax.numpy_dtype_promotion("standard"):  # optax's Adam raises a float to an int
        return everything()


@pytest.mark.integration
def test_losses_are_those_of_optax_without_padding(runs, by_optax):
    start, losses, _ = by_optax
    found = dict(zip(OPTIMIZERS, runs.loss[0, -1], strict=True))
    for name, loss in losses.items():
        assert float(found[name]) == pytest.approx(float(loss), rel=1e-3)
        assert abs(float(loss / start) - 1) > 0.02
    assert len({round(float(loss), 3) for loss in losses.values()}) == len(losses)


@pytest.mark.integration
def test_ratio_and_distance_are_those_of_the_momentum_in_the_state_of_optax(runs, by_optax):
    _, _, momenta = by_optax
    for index, name in enumerate(OPTIMIZERS):
        for layer, momentum in enumerate(momenta[name]):
            v = np.asarray(momentum, float)
            p, m = v @ v.T, len(v)
            ratio = (np.abs(p).sum() - np.trace(p)) / (m * (m - 1)) / (np.trace(p) / m)
            u, s, wt = np.linalg.svd(v, full_matrices=False)
            factor = u[:, s > 1e-5 * s[0]] @ wt[s > 1e-5 * s[0]]
            norms = np.linalg.norm(v, axis=1, keepdims=True)
            rows = v / np.where(norms > 0, norms, 1)
            cosine = np.sum(rows * factor) / np.linalg.norm(rows) / np.linalg.norm(factor)
            assert float(runs.ratio[0, -1, index, layer]) == pytest.approx(ratio, rel=1e-3)
            assert float(runs.error[0, -1, index, layer]) == pytest.approx(np.sqrt(1 - cosine**2), rel=2e-3)


def test_a_diverging_run_stops_alone(runs):
    muon = list(OPTIMIZERS).index("muon")
    for array in runs:
        others = [i for i in range(array.shape[2]) if i != muon]
        np.testing.assert_array_equal(array[0][:, others], array[1][:, others])
        assert np.isfinite(array).all()
    assert float(runs.loss[1, -1, muon]) == LIMIT


@pytest.mark.slow
def test_padding_changes_nothing_in_a_gpt():
    contents = text.load()
    texts = Texts(contents.train, text.stretches(contents.validation, 2, 5), context=5, batch=2)

    @jax.jit
    def run(rates):
        return [
            train(gpt(KEY, width, texts, blocks=2), list(rates), records=RECORDS, decay=DECAY, limit=50.0)
            for width in (6, Size(8, 6))
        ]

    plain, padded = run(jnp.asarray([1.0, 0.1, 0.1, 0.1]))
    for expected, array in zip(plain, padded, strict=True):
        np.testing.assert_allclose(array, expected, rtol=5e-3)
    assert plain.ratio.shape == (2, 5, 2 * len(GPT_KINDS) + len(GPT_TABLES))
    assert len(np.unique(plain.loss)) == plain.loss.size


WIDTHS = (8, 16, 32, 64)
CONFIG = experiment.Config(widths=WIDTHS, seeds=14, choosing=4, factors=(0.5, 1.0, 2.0), records=(1, 16))


def made(ratio=0.0, error=0.1, noise=0.7, fall=0.9, lead=0.0, edge=False):
    """Runs of a regime, made up.

    Exponents of ratio and distance in the width, that of the ratio of noise being -1/2; the distance of noise over the others', and that at
    the last step over that at the first; log 10 of row normalization's loss over Muon's; whether the best step size is the largest.
    """
    rng = np.random.default_rng(0)
    factors = len(CONFIG.factors)
    shape = (len(WIDTHS), factors, CONFIG.seeds)
    wide = np.asarray(WIDTHS, float)[:, None, None, None, None, None]
    scatter = 10 ** (0.003 * rng.standard_normal((*shape, 2, 5, 4)))
    distance = 0.5 * (wide / WIDTHS[-1]) ** error * scatter
    distance[..., 1, :, :] *= fall
    distance[..., len(OPTIMIZERS), :] *= noise
    worse = np.abs(np.arange(factors) - (factors - 1 if edge else 1))
    loss = np.broadcast_to(worse[None, :, None, None, None], (*shape, 2, len(OPTIMIZERS))).astype(float)
    loss = loss + 0.003 * rng.standard_normal(loss.shape)
    loss[..., list(OPTIMIZERS).index("rows")] += lead
    # The draws that choose the step sizes do not judge.
    loss[:, :, : CONFIG.choosing, :, list(OPTIMIZERS).index("rows")] += 5
    dims = ("width", "factor", "seed", "record")
    ratios = 0.3 * wide**ratio * scatter
    ratios[..., len(OPTIMIZERS), :] *= wide[..., 0, :] ** (-0.5 - ratio)
    data = {
        "loss": ((*dims, "optimizer"), 10**loss),
        "ratio": ((*dims, "momentum", "matrix"), ratios),
        "error": ((*dims, "momentum", "matrix"), distance),
    }
    coordinates = {"width": list(WIDTHS), "factor": list(CONFIG.factors), "record": [1, 16]}
    return xr.Dataset(data, coordinates | {"matrix": list(RELU_MATRICES)})


def verdicts(**changes):
    data = {regime: made(**changes) for regime in experiment.REGIMES}
    found = {check.name: check.verdict for check in experiment.checks(CONFIG, data)}
    # Both regimes have the same data here, and losses are judged in one.
    grouped = {name.removeprefix("growing-"): verdict for name, verdict in found.items() if name.startswith("growing-")}
    fixed = {name.removeprefix("fixed-"): verdict for name, verdict in found.items() if name.startswith("fixed-")}
    assert fixed == {name: verdict for name, verdict in grouped.items() if name != "rows-train-like-muon"}
    return grouped


MOMENTS = ("initial", *OPTIMIZERS)
TRUE = {"ratio-noise", "farther-than-noise", "distance-grows", "training-brings-nearer", "rows-train-like-muon"}


@pytest.fixture(scope="module")
def expected():
    return verdicts()


def test_runs_that_are_as_measured_refute_what_is_conjectured(expected):
    assert expected == dict.fromkeys(analysis.REFUTED, "refuted") | dict.fromkeys(TRUE, "confirmed")


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"ratio": -0.5}, {f"ratio-{moment}" for moment in MOMENTS}),
        ({"error": -0.5}, {"distance-grows", *(f"distance-{moment}" for moment in (*MOMENTS, "noise"))}),
        ({"noise": 1.3}, {"farther-than-noise"}),
        ({"fall": 1.1}, {"training-brings-nearer"}),
        ({"lead": 0.1}, {"rows-train-like-muon"}),
        ({"lead": -0.1}, {"rows-train-like-muon"}),
    ],
)
def test_other_runs_have_the_opposite_verdict(changes, names, expected):
    found = verdicts(**changes)
    assert {name for name in expected if found[name] != expected[name]} == names


def test_step_sizes_are_chosen_by_the_draws_that_do_not_judge():
    inside, outside = (analysis.judged(made(edge=edge), CONFIG.choosing) for edge in (False, True))
    assert np.all(inside.factors == 1.0)
    assert np.all(outside.factors == 2.0)
    assert not inside.at_edge.any()
    assert outside.at_edge.all()
    assert inside.loss.shape == (4, 4, CONFIG.seeds - CONFIG.choosing, 2)
    # The 5 added for the choosing draws is not in it.
    assert np.abs(inside.loss).max() < 0.02


def test_matrices_of_one_kind_are_averaged():
    data = made().assign_coords(matrix=["up block 1", "up block 2", "down block 1", "down block 2"])
    data["ratio"] = data["ratio"].copy(data=np.broadcast_to([1.0, 3.0, 5.0, 11.0], data["ratio"].shape))
    runs = analysis.judged(data, CONFIG.choosing)
    assert runs.kinds == ("up", "down")
    np.testing.assert_allclose(2 ** runs.ratio[..., 0], 2.0)
    np.testing.assert_allclose(2 ** runs.ratio[..., 1], 8.0)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"widths": (8, 16, 32)}, r"widths needs 4 or more different sizes"),
        ({"widths": (8, 16, 32, 33)}, r"widths must be even, since half of them are inputs, got \(8, 16, 32, 33\)\."),
        ({"choosing": 5}, r"choosing must be at least 1 and leave 10 of the seeds to judge, got 5 of 14\."),
        ({"records": (2, 16)}, r"records must start at 1, where V is the first gradient, got \(2, 16\)\."),
        ({"records": (1,)}, r"records needs 2 or more different sizes"),
        ({"batch": 0}, r"batch must be at least 1, got 0\."),
        ({"momentum": 1.0}, r"momentum must be in \[0, 1\), got 1\.0\."),
        ({"rates": (0.1, 0.1)}, r"rates needs 4 positive step sizes, of gd, adam, muon, rows, got \(0\.1, 0\.1\)\."),
        ({"factors": (1.0, 0.5)}, r"factors must be positive and ascending, got \(1\.0, 0\.5\)\."),
        ({"factors": (1.0, float("inf"))}, r"factors must be positive and ascending"),
        ({"seed": -1}, r"seed must be from 0 to"),
    ],
)
def test_configurations_that_could_not_be_judged_are_refused(changes, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}"):
        dataclasses.replace(CONFIG, **changes)


def test_a_gpt_without_blocks_is_refused():
    with pytest.raises(ValueError, match=r"^blocks, context and stretches must be at least 1, got 0, 16 and 2\.$"):
        gpt_experiment.Config(blocks=0)
