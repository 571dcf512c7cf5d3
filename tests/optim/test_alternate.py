"""Polar factors every few steps: MuonBP and SignMuon against NumPy over ten steps, blocks one by
one, and which of the two transformations advances.
"""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from specjax import optim
from specjax.spectral import SVD, NewtonSchulz
from tests.reference.optimizer_steps import newton_schulz, polar

pytestmark = pytest.mark.usefixtures("x64")
RNG = np.random.default_rng(0)
STEPS, RATE, BETA = 10, 0.05, 0.9
SHAPES = {"tall": (8, 4), "wide": (3, 6), "stack": (2, 4, 4)}
GRADIENTS = [{k: RNG.standard_normal(shape) for k, shape in SHAPES.items()} for _ in range(STEPS)]
PARAMS = {name: RNG.standard_normal(shape) for name, shape in SHAPES.items()}
HALVES = optim.Blocks(1, 2)


def trained(optimizer, params=PARAMS, gradients=GRADIENTS):
    params = jax.tree.map(jnp.asarray, params)
    state, step = optimizer.init(params), jax.jit(optimizer.update)
    for gradient in gradients:
        updates, state = step(gradient, state, params)
        params = optax.apply_updates(params, updates)
    return params


def each_matrix(function, x, *rest):
    if x.ndim == 2:
        return function(x, *rest)
    return np.stack([function(*each) for each in zip(x, *rest, strict=True)])


def muon_bp(w, gradients, period=5, cut=2, factor=polar, rate_of_blocks=1.0):
    """The algorithm of arXiv 2510.16981 for a matrix (in, out) cut in columns: t mod P = 0 is a
    full step; each factor has 0.2 times the root of the longer side of what is factored.
    """
    m = np.zeros_like(w)
    for t, g in enumerate(gradients):
        m = BETA * m + g
        full = t % period == 0
        blocks = [m] if full else np.split(m, cut, axis=1)
        steps = [0.2 * max(block.shape) ** 0.5 * factor(block) for block in blocks]
        w = w - RATE * (1.0 if full else rate_of_blocks) * np.concatenate(steps, axis=1)
    return w


def sign_muon(w, gradients, period=5, share=0.01):
    """`LionMuon.step` of lion_muon.py with beta1 = beta2 and five steps of Newton-Schulz."""
    m = np.zeros_like(w)
    for count, g in enumerate(gradients):
        update = m * BETA + g * (1 - BETA)
        if count % period == 0:
            w = w - RATE * newton_schulz(update) * 0.2 * max(update.shape) ** 0.5
        else:
            w = w - RATE * share * np.sign(update)
        m = BETA * m + (1 - BETA) * g
    return w


def expected(reference, leaf, **how):
    def of(w, *gradients):
        return reference(w, gradients, **how)

    return each_matrix(of, PARAMS[leaf], *(g[leaf] for g in GRADIENTS))


def chained(every, between, method, convention="ema", **how):
    return optax.chain(
        optim.momentum(BETA, convention),
        optim.alternate(every, optim.orthogonalize(method, "point_two_sqrt_max"), between),
        optax.scale_by_learning_rate(RATE, **how),
    )


@pytest.mark.integration
@pytest.mark.parametrize("period", [2, 5])
@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_ten_steps_are_those_of_muon_bp(period, rate):
    blocks = optim.orthogonalize_blocks(HALVES, SVD(), "point_two_sqrt_max")
    between = optax.chain(blocks, optax.scale(rate))
    found = trained(chained(period, between, SVD(), "sgd"))
    for leaf in SHAPES:
        right = expected(muon_bp, leaf, period=period, rate_of_blocks=rate)
        np.testing.assert_allclose(found[leaf], right, rtol=1e-9, atol=1e-9)


@pytest.mark.integration
@pytest.mark.parametrize("period", [2, 5])
def test_ten_steps_are_those_of_sign_muon(period):
    signs = optax.chain(optax.scale_by_sign(), optax.scale(0.01))
    found = trained(chained(period, signs, NewtonSchulz(5)))
    for leaf in SHAPES:
        right = expected(sign_muon, leaf, period=period)
        np.testing.assert_allclose(found[leaf], right, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("reference", "wrong"),
    [
        (muon_bp, {"period": 2}),
        (muon_bp, {"cut": 1}),
        (muon_bp, {"rate_of_blocks": 0.5}),
        (sign_muon, {"period": 2}),
        (sign_muon, {"share": 0.02}),
    ],
)
def test_the_nearest_wrong_algorithms_are_far_away(reference, wrong):
    right = expected(reference, "tall")
    assert np.abs(right - expected(reference, "tall", **wrong)).max() > 1e-3


@pytest.mark.integration
@pytest.mark.parametrize(
    ("dims", "grid", "name"),
    [
        (optim.IN_OUT, (2, 1), "tall"),
        (optim.OUT_IN, (2, 4), "tall"),
        (optim.IN_OUT, (3, 2), "wide"),
    ],
)
def test_each_block_is_a_matrix_of_its_own(dims, grid, name):
    transform = optim.orthogonalize_blocks(
        optim.Blocks(*grid), SVD(), "sqrt_out_over_in", dimension_numbers=dims
    )
    g = PARAMS[name] if dims is optim.IN_OUT else PARAMS[name].T
    w = jnp.asarray(PARAMS[name])
    found, _ = transform.update(w, transform.init(w))
    rows = [
        np.concatenate(
            [(b.shape[1] / b.shape[0]) ** 0.5 * polar(b) for b in np.split(row, grid[1], axis=1)],
            axis=1,
        )
        for row in np.split(g, grid[0], axis=0)
    ]
    right = np.concatenate(rows)
    np.testing.assert_allclose(found, right if dims is optim.IN_OUT else right.T, atol=1e-12)


@pytest.mark.integration
def test_blocks_may_differ_between_leaves_and_split_matrices():
    params = jax.tree.map(jnp.asarray, PARAMS)
    grids = {"tall": optim.Blocks(4, 1), "wide": optim.Blocks(1, 3), "stack": optim.Blocks(1, 1)}
    whole = optim.orthogonalize_blocks(grids, SVD())
    found, _ = whole.update(params, whole.init(params))
    for name, grid in grids.items():
        one = optim.orthogonalize_blocks(grid, SVD())
        alone, _ = one.update(params[name], one.init(params[name]))
        np.testing.assert_allclose(found[name], alone, atol=1e-12)
    fused = optim.orthogonalize_blocks(HALVES, SVD(), splits={"wide": (2, 4)})
    found, _ = fused.update({"wide": params["wide"]}, fused.init({"wide": params["wide"]}))
    columns = [polar(PARAMS["wide"][:, a:b]) for a, b in ((0, 1), (1, 2), (2, 4), (4, 6))]
    np.testing.assert_allclose(found["wide"], np.concatenate(columns, axis=1), atol=1e-12)


def test_only_the_state_of_the_one_that_is_due_advances():
    transform = optim.alternate(3, optax.scale_by_adam(), optax.trace(0.5))
    params = jnp.ones(2)
    state = transform.init(params)
    for k in range(7):
        before = state
        _, state = jax.jit(transform.update)(params, state, params)
        same = jax.tree.map(jnp.array_equal, before, state)
        assert all(jax.tree.leaves(same.between)) == (k % 3 == 0)
        assert all(jax.tree.leaves(same.first)) == (k % 3 != 0)
    assert state.first.count == 3


@pytest.mark.integration
def test_muon_routes_around_the_polar_factor():
    """Vectors go to AdamW, matrices to the alternation, with the axes that muon gives it."""
    params = {"w": PARAMS["tall"], "b": PARAMS["tall"][:, 0]}
    gradients = [{"w": g["tall"], "b": g["tall"][:, 0]} for g in GRADIENTS]

    def around(full, **axes):
        blocks = optim.orthogonalize_blocks(HALVES, SVD(), "point_two_sqrt_max", **axes)
        return optim.alternate(5, full, blocks)

    options = {"muon_weight_dimension_numbers": optim.OUT_IN, "scale": "point_two_sqrt_max"}
    options |= {"convention": "sgd", "nesterov": False, "bias_correction": False}
    optimizer = optim.muon(RATE, beta=BETA, method=SVD(), around=around, **options)
    found = trained(optimizer, params, gradients)
    right = muon_bp(PARAMS["tall"].T, [g["tall"].T for g in GRADIENTS]).T
    np.testing.assert_allclose(found["w"], right, rtol=1e-9, atol=1e-9)
    own = trained(
        optim.muon(RATE, nesterov=False), {"b": params["b"]}, [{"b": g["b"]} for g in gradients]
    )
    np.testing.assert_allclose(found["b"], own["b"], rtol=1e-9)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: optim.alternate(1, optax.identity(), optax.identity()),
            "alternate needs a whole number of at least 2 as every, got 1",
        ),
        (
            lambda: optim.orthogonalize_blocks(optim.Blocks(1, 3)).init(jnp.ones((4, 8))),
            "orthogonalize_blocks cannot cut a matrix of 4 inputs and 8 outputs into (1, 3) equal"
            " blocks.",
        ),
        (
            lambda: optim.orthogonalize_blocks(None).init(jnp.ones((4, 8))),
            "blocks of orthogonalize_blocks are Blocks(inputs, outputs), got None.",
        ),
        (
            lambda: optim.muon(0.1, log_every=2, around=lambda full, **_: full),
            "muon takes log_every= or around=, not both; leave one out.",
        ),
    ],
)
def test_a_wrong_alternation_is_refused_in_one_sentence(call, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)) as refusal:
        call()
    assert "\n" not in str(refusal.value)
