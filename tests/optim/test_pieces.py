"""Each piece against NumPy, written from its paper, one matrix at a time in float64; and what the
pieces are in their limits.
"""

import math
from functools import cache
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from specjax import optim
from specjax.sizes import Size
from specjax.spectral import SVD, inverse_root
from tests.reference.spectra import matrix_with, polar
from tests.wrong_calls import wrong_calls

pytestmark = pytest.mark.usefixtures("x64")
RNG = np.random.default_rng(0)
DRAWS = list(RNG.standard_normal((4, 5, 3)))
WEIGHT = RNG.standard_normal((5, 3))


def run(transform, updates, params=None, **extra):
    """What the transformation makes of each update, at the same parameters."""
    transform = optax.with_extra_args_support(transform)
    state = jax.jit(transform.init)(updates[0] if params is None else params)
    step, results = jax.jit(transform.update), []
    for u in updates:
        result, state = step(u, state, params, **extra)
        results.append(result)
    return results


def arrays(draws):
    return [jnp.asarray(x) for x in draws]


def close(found, expected, tolerance=1e-12):
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def normuon(factors, beta, axis):
    """The paper's algorithm for matrices whose neurons lie along the other axis, with the norm kept
    as in the published code.
    """
    v, results = 0.0, []
    for o in factors:
        v = beta * v + (1 - beta) * (o * o).mean(axis=axis, keepdims=True)
        scaled = o / np.sqrt(v)
        results.append(scaled * np.linalg.norm(o) / np.linalg.norm(scaled))
    return results


@pytest.mark.parametrize(
    ("per", "dims", "axis"),
    [
        ("output", optim.IN_OUT, 0),  # (5, 3) as (in, out): the mean over 5 inputs
        ("output", optim.OUT_IN, 1),
        ("longer", optim.IN_OUT, 1),
        ("longer", optim.OUT_IN, 1),
    ],
)
def test_neuron_moments_are_those_of_normuon(per, dims, axis):
    found = run(optim.scale_by_neuron_moment(0.9, per, dimension_numbers=dims), arrays(DRAWS))
    close(np.stack(found), normuon(DRAWS, 0.9, axis))


def test_neurons_of_a_square_matrix_are_its_outputs():
    square = [x[:3] for x in DRAWS]
    longer, output = (
        run(optim.scale_by_neuron_moment(0.9, per), arrays(square)) for per in ("longer", "output")
    )
    close(np.stack(longer), np.stack(output))


def test_normuon_has_the_norm_of_the_paper():
    """η̂ Ô of the paper is 0.2 √(m n) in norm, whatever the factor."""
    chain = optax.chain(
        optim.orthogonalize(SVD(), "point_two_sqrt_max"), optim.scale_by_neuron_moment()
    )
    for step in run(chain, arrays(DRAWS)):
        close(np.linalg.norm(step), 0.2 * math.sqrt(15))


@pytest.mark.integration
def test_a_stack_has_neurons_of_its_own_and_padding_changes_none():
    stack = np.stack(DRAWS)
    whole = run(optim.scale_by_neuron_moment(0.9), [jnp.asarray(stack), jnp.asarray(stack[::-1])])
    for i, pair in enumerate(zip(DRAWS, DRAWS[::-1], strict=True)):
        close(whole[1][i], normuon(pair, 0.9, 0)[1])
    padded = arrays(np.pad(DRAWS, ((0, 0), (0, 3), (0, 3))))
    found = np.asarray(run(optim.scale_by_neuron_moment(0.9), padded)[-1])
    close(found[:5, :3], normuon(DRAWS, 0.9, 0)[-1])
    assert not found[5:].any()
    assert not found[:, 3:].any()


def test_cautious_decay_is_its_formula_at_every_magnitude():
    u, x = DRAWS[0], WEIGHT
    (found,) = run(optim.add_cautious_decay(0.3), [jnp.asarray(u)], jnp.asarray(x))
    close(found, u + 0.3 * np.where(u * x >= 0, x, 0))
    # Products of these vanish in float32, and a zero does not have the opposite sign.
    u, x = jnp.float32([1e-30, -1e-30, 0.0, 1.0]), jnp.float32([1e-30, 1e-30, 2.0, 0.0])
    (found,) = run(optim.add_cautious_decay(1.0), [u], x)
    np.testing.assert_array_equal(found, jnp.float32([2e-30, -1e-30, 2.0, 1.0]))


@pytest.mark.usefixtures("standard_promotion")
def test_cautious_decay_follows_schedules_and_masks_as_in_optax():
    """Where all signs agree it is `optax.add_decayed_weights`."""
    tree = {"a": jnp.abs(WEIGHT), "b": jnp.abs(DRAWS[0])}
    arguments = optax.linear_schedule(0.5, 0.0, 4), {"a": True, "b": False}
    ours = run(optim.add_cautious_decay(*arguments), [tree] * 3, tree)
    theirs = run(optax.add_decayed_weights(*arguments), [tree] * 3, tree)
    jax.tree.map(close, ours, theirs)


@pytest.mark.integration
def test_hyperball_is_its_formula():
    def unit(x):
        return x / np.linalg.norm(x)

    rates = [0.1, 0.3, 0.2, 0.05]
    transform = optim.hyperball(lambda t: jnp.asarray(rates)[t])
    w, found = WEIGHT, jnp.asarray(WEIGHT)
    state, radius = jax.jit(transform.init)(found), np.linalg.norm(WEIGHT)
    step = jax.jit(transform.update)
    for rate, u in zip(rates, DRAWS, strict=True):
        w = radius * unit(w - rate * radius * unit(u))
        updates, state = step(jnp.asarray(1e-3 * u), state, found)
        found = found + updates
        close(found, w)


def test_each_matrix_of_a_stack_keeps_its_own_norm():
    stack, u = (
        jnp.asarray(np.stack(DRAWS) * np.array([1, 2, 3, 4])[:, None, None]),
        jnp.asarray(np.stack(DRAWS[::-1])),
    )
    (update,) = run(optim.hyperball(0.5), [u], stack)
    close(jnp.linalg.norm(stack + update, axis=(1, 2)), jnp.linalg.norm(stack, axis=(1, 2)))


@pytest.mark.parametrize("size", [1.0, 1e-30])
@pytest.mark.parametrize(
    ("per", "dims", "axis"),
    [("output", optim.IN_OUT, 0), ("output", optim.OUT_IN, 1), ("matrix", optim.IN_OUT, None)],
)
def test_updates_small_beside_weights_are_lifted_to_a_share(per, dims, axis, size):
    """max(1, τ ‖w‖ / ‖u‖) u: of these neurons, and matrices, some lie below the floor and some
    above, one is zero.
    """
    transform = optim.lift_to_floor(0.9, per, dimension_numbers=dims)
    for u in DRAWS:
        u = u.copy()
        u[1], u[:, 1] = 0.01 * u[1], 0.02 * u[:, 1]
        u[:, 2] = u[:, 2] if axis else 0
        norms = [np.linalg.norm(x, axis=axis, keepdims=True) for x in (WEIGHT, u)]
        factor = np.maximum(1, 0.9 * norms[0] / np.where(norms[1] > 0, norms[1], np.inf))
        (found,) = run(
            transform, [jnp.asarray(size * u, jnp.float32)], jnp.asarray(size * WEIGHT, jnp.float32)
        )
        close(found / size, factor * u, 1e-6)
    assert per == "matrix" or (factor > 1).any() != (factor > 1).all()


ORDERS = [0.5, 1.0, 1.25, 1.5, 2.0, 10.0, math.inf]


@cache
def schatten_directions(shape, dtype="float64", size=1.0):
    """Of the first sample for every order, which is traced, in one program; scaled by shape."""
    g = jnp.asarray(DRAWS[0].reshape(shape) * size, dtype)
    sweep = jax.jit(
        jax.vmap(lambda p: run(optim.schatten_direction(p, "sqrt_out_over_in"), [g])[0])
    )
    return np.asarray(sweep(jnp.asarray(ORDERS)), float) * (shape[0] / shape[1]) ** 0.5


@pytest.mark.parametrize("shape", [(5, 3), (3, 5)], ids=str)
def test_a_schatten_direction_has_norm_one_and_largest_product(shape):
    """By Hölder: ⟨G, D⟩ is the dual norm (Σ s^q)^(1/q), which no matrix of Schatten-p norm 1
    exceeds; s_1 for quasi-norms.
    """
    g = DRAWS[0].reshape(shape)
    s = np.linalg.svd(g, compute_uv=False)
    for p, d in zip(ORDERS, schatten_directions(shape), strict=True):
        values = np.linalg.svd(d, compute_uv=False)
        values = values[values > 1e-12]  # roots magnify rounding errors
        q = 1.0 if p == math.inf else math.inf if p <= 1 else p / (p - 1)
        close(values[0] if p == math.inf else np.sum(values**p) ** (1 / p), 1.0, 1e-9)
        close(np.sum(g * d), np.linalg.norm(s, q), 1e-9)


def test_schatten_directions_in_their_limits():
    g = DRAWS[0]
    u, _, vt = np.linalg.svd(g, full_matrices=False)
    limits = {
        0.5: np.outer(u[:, 0], vt[0]),
        1.0: np.outer(u[:, 0], vt[0]),
        2.0: g / np.linalg.norm(g),
        math.inf: u @ vt,
    }
    for p, found in zip(ORDERS, schatten_directions((5, 3)), strict=True):
        close(found, limits.get(p, found), 1e-9)


@pytest.mark.parametrize("size", [2.0**-14, 2.0**10])
def test_a_schatten_direction_ignores_magnitude_and_precision(size):
    low, high = schatten_directions((5, 3), "float16", size), schatten_directions((5, 3))
    close(low[2:], high[2:], 2e-2)


SPECTRUM = [5.0, 2.0, 0.1]
MATRIX = matrix_with(SPECTRUM, (4, 3), 1)
CURVES = {"hard": lambda s, c: np.minimum(s, c), "soft": lambda s, c: s / np.sqrt(1 + (s / c) ** 2)}


def mapped(x, function):
    u, s, vt = np.linalg.svd(x, full_matrices=False)
    return u * function(s) @ vt


@pytest.mark.parametrize("kind", CURVES)
@pytest.mark.parametrize("dims", [optim.IN_OUT, optim.OUT_IN], ids=["in-out", "out-in"])
def test_clipping_maps_the_singular_values(kind, dims):
    ratio = 3 / 4 if dims == optim.IN_OUT else 4 / 3
    expected = mapped(MATRIX, lambda s: CURVES[kind](s, 1.5 * ratio**0.5))
    arguments = (1.5, kind, "sqrt_out_over_in")
    (found,) = run(
        optim.clip_singular_values(*arguments, dimension_numbers=dims), [jnp.asarray(MATRIX)]
    )
    close(found, expected)
    (update,) = run(
        optim.clip_weights(*arguments, dimension_numbers=dims),
        [jnp.asarray(MATRIX - 0.3)],
        jnp.full((4, 3), 0.3),
    )
    close(0.3 + update, expected)


def test_clipping_leaves_small_updates_and_sees_padded_sizes():
    (found,) = run(optim.clip_singular_values(5.1), [jnp.asarray(MATRIX)])
    close(found, MATRIX)
    fans = optim.Fans(Size(8, 4), Size(8, 3))
    padded = jnp.asarray(np.pad(MATRIX, ((0, 4), (0, 5))))
    found = np.asarray(
        run(optim.clip_singular_values(1.5, scale="sqrt_out_over_in", sizes=fans), [padded])[0]
    )
    close(found[:4, :3], mapped(MATRIX, lambda s: np.minimum(s, 1.5 * (3 / 4) ** 0.5)))
    assert not found[4:].any()
    assert not found[:, 3:].any()


def test_qk_clip_scales_the_heads_that_exceed_the_threshold():
    """Layers 2, heads 3; queries (layer, model, head, width), keys (layer, head, model, width), and
    a rotary query of power 1.
    """
    queries, keys = RNG.standard_normal((2, 4, 3, 5)), RNG.standard_normal((2, 3, 4, 5))
    params = {"q": queries, "k": keys, "qr": queries, "v": keys, "b": np.ones(3)}
    steps = jax.tree.map(lambda x: 0.1 * np.cos(x), params)
    largest = np.array([[50.0, 100.0, 400.0], [-900.0, 101.0, 1e6]])
    heads = {
        "q": optim.Heads((0, 2)),
        "k": optim.Heads((1, 0)),
        "qr": optim.Heads((0, -2), 1.0),
        "v": None,
        "b": None,
    }
    logits = {"q": largest, "k": largest.T, "qr": largest, "v": None, "b": None}
    (found,) = run(
        optim.qk_clip(100.0, heads),
        [jax.tree.map(jnp.asarray, steps)],
        jax.tree.map(jnp.asarray, params),
        max_logits=jax.tree.map(jnp.asarray, logits),
    )
    gamma = np.array([[1, 1, 0.25], [1, 100 / 101, 1e-4]])
    root = gamma**0.5
    expected = {
        "q": root[:, None, :, None] * (queries + steps["q"]) - queries,
        "k": root[:, :, None, None] * (keys + steps["k"]) - keys,
        "qr": gamma[:, None, :, None] * (queries + steps["qr"]) - queries,
        "v": steps["v"],
        "b": steps["b"],
    }
    for name, update in expected.items():
        close(found[name], update)


def test_parts_of_a_leaf_have_powers_of_their_own():
    """`_clip_mla_weight` of MaxText's qk_clip_utils.py: queries (rank, head, 3 + 2) with two rotary
    entries, and keys (rank, head, 3 + 4) beside values.
    """
    tau, largest = 10.0, np.array([5.0, 40.0])
    params = {"wq_b": RNG.standard_normal((6, 2, 5)), "wkv_b": RNG.standard_normal((6, 2, 7))}
    powers = {"wq_b": [0.5] * 3 + [1.0] * 2, "wkv_b": [0.5] * 3 + [0.0] * 4}
    heads = {name: optim.Heads((1,), jnp.array(power)) for name, power in powers.items()}
    zero = jax.tree.map(jnp.zeros_like, params)
    logits = dict.fromkeys(params, jnp.asarray(largest))
    (found,) = run(
        optim.qk_clip(tau, heads), [zero], jax.tree.map(jnp.asarray, params), max_logits=logits
    )
    scale = np.minimum(1.0, tau / largest)[:, None]
    for name, w in params.items():
        tail = w[..., 3:] * scale if name == "wq_b" else w[..., 3:]
        expected = np.concatenate([w[..., :3] * np.sqrt(scale), tail], axis=-1)
        close(w + found[name], expected)


def test_the_logits_of_the_clipped_weights_are_at_the_threshold():
    """What it is for: the same tokens, a step of zero, and the largest logit is τ afterwards."""
    x, params = (
        RNG.standard_normal((7, 4)),
        {"q": RNG.standard_normal((4, 3, 5)), "k": RNG.standard_normal((4, 3, 5))},
    )

    def largest(params):
        q, k = (np.einsum("td,dhw->htw", x, params[name]) for name in ("q", "k"))
        return np.einsum("hiw,hjw->hij", q, k).max(axis=(1, 2))

    before = largest(params)
    heads = {name: optim.Heads((1,)) for name in params}
    zero = jax.tree.map(jnp.zeros_like, params)
    logits = {name: jnp.asarray(before) for name in params}
    (update,) = run(
        optim.qk_clip(12.0, heads), [zero], jax.tree.map(jnp.asarray, params), max_logits=logits
    )
    assert before.max() > 12 > before.min()
    close(
        largest({name: params[name] + np.asarray(update[name]) for name in params}),
        np.minimum(before, 12.0),
    )


@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf])
def test_a_logit_that_is_not_finite_is_seen_in_its_own_head(bad):
    w = jnp.ones((2, 3, 2))
    (update,) = run(
        optim.qk_clip(1.0, optim.Heads((1,))), [w], w, max_logits=jnp.array([0.5, bad, -jnp.inf])
    )
    np.testing.assert_array_equal(jnp.isnan(update).all(axis=(0, 2)), [False, True, False])
    close(update[:, [0, 2]], jnp.ones((2, 2, 2)))


def test_mars_adds_the_last_change_of_the_gradient():
    factor = 0.3 * 0.9 / (1 - 0.9)
    expected = [DRAWS[0]] + [g + factor * (g - last) for last, g in pairwise(DRAWS)]
    close(np.stack(run(optim.mars_correction(0.3, 0.9), arrays(DRAWS))), expected)
    (found,) = run(
        optim.mars_correction(0.3, 0.9, exact=True),
        arrays(DRAWS[:1]),
        previous_gradient=jnp.asarray(DRAWS[1]),
    )
    close(found, DRAWS[0] + factor * (DRAWS[0] - DRAWS[1]))


def test_mars_with_gamma_one_is_the_recursive_momentum_of_storm():
    """m_t = β (m_{t-1} + g_t - g'_t) + (1 - β) g_t (Cutkosky and Orabona 2019), the sentence of the
    paper behind the formula.
    """
    beta, m = 0.9, np.zeros((5, 3))
    for last, g in zip([DRAWS[0], *DRAWS], DRAWS, strict=False):
        m = beta * (m + g - last) + (1 - beta) * g
    close(
        run(optax.chain(optim.mars_correction(1.0, beta), optim.momentum(beta)), arrays(DRAWS))[-1],
        m,
    )


def power(h, exponent, floor=1e-10):
    values, vectors = np.linalg.eigh(h)
    return vectors @ np.diag(np.where(values > floor, np.abs(values) ** exponent, 0)) @ vectors.T


@pytest.mark.integration
@pytest.mark.parametrize(("decay", "order"), [(0.8, 4), (1.0, 4), (0.8, 2)])
def test_shampoo_is_its_formula(decay, order):
    left, right, weight, expected = 0.0, 0.0, 0.0, []
    for g in DRAWS:
        left, right, weight = decay * left + g @ g.T, decay * right + g.T @ g, decay * weight + 1
        expected.append(power(left / weight, -1 / order) @ g @ power(right / weight, -1 / order))
    close(np.stack(run(optim.scale_by_shampoo(decay, order=order), arrays(DRAWS))), expected, 1e-8)


@pytest.mark.integration
def test_shampoo_begins_with_the_polar_factor_and_keeps_roots():
    g = DRAWS[0]
    found = run(optim.scale_by_shampoo(0.9, every=3), arrays([g, 2 * g, 3 * g, 3 * g]))
    close(np.stack(found[:3]), np.stack([polar(g), 2 * polar(g), 3 * polar(g)]), 1e-8)
    mean = (0.9**3 + 4 * 0.9**2 + 9 * 0.9 + 9) / (0.9**3 + 0.9**2 + 0.9 + 1)
    close(found[3], 3 / mean**0.5 * polar(g), 1e-8)


@pytest.mark.integration
def test_inverse_roots_and_their_derivatives():
    x = jnp.asarray(DRAWS[0])
    close(jax.jit(lambda x: inverse_root(x @ x.T, 2) @ x)(x), polar(DRAWS[0]), 1e-9)
    h = np.asarray(x).T @ np.asarray(x)
    close(jax.jit(lambda h: inverse_root(h, 3, 0.5))(h), power(h + 0.5 * np.eye(3), -1 / 3), 1e-12)
    # Repeated and zero eigenvalues: along the identity the root of c H is c^(-1/2) that of H.
    flat = np.diag([2.0, 2.0, 0.0])
    root, change = jax.jit(lambda h: jax.jvp(lambda h: inverse_root(h, 2), (h,), (h,)))(flat)
    close(change, -0.5 * root)


def soap(gradients, b1, b2, every, eps=1e-8):
    """The paper's algorithm with the start of the published code, moments in the order of the
    bases.
    """
    m, v = np.zeros((3, 3)), np.zeros((3, 3))
    sides = [(1 - b2) * gradients[0] @ gradients[0].T, (1 - b2) * gradients[0].T @ gradients[0]]
    bases = [np.linalg.eigh(h)[1][:, ::-1] for h in sides]
    steps = [np.zeros((3, 3))]
    for t, g in enumerate(gradients[1:], 1):
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * (bases[0].T @ g @ bases[1]) ** 2
        adam = (bases[0].T @ m @ bases[1] / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + eps)
        steps.append(bases[0] @ adam @ bases[1].T)
        sides = [
            b2 * old + (1 - b2) * new for old, new in zip(sides, (g @ g.T, g.T @ g), strict=True)
        ]
        if t % every == 0:
            orders = [np.argsort(-np.diag(q.T @ h @ q)) for h, q in zip(sides, bases, strict=True)]
            bases = [
                np.linalg.qr((h @ q)[:, i])[0] for h, q, i in zip(sides, bases, orders, strict=True)
            ]
            v = v[orders[0]][:, orders[1]]
    return steps


@pytest.mark.integration
@pytest.mark.parametrize("every", [1, 2])
def test_soap_is_its_algorithm(every):
    """Square gradients: the basis of a null space, which other shapes have, is anyone's choice."""
    square = [x[:3] @ np.diag([1.0, 2.0, 3.0]) for x in DRAWS] + [x[2:] for x in DRAWS]
    found = run(optim.scale_by_soap(0.9, 0.8, every=every), arrays(square))
    close(np.stack(found), np.stack(soap(square, 0.9, 0.8, every)), 1e-8)


@pytest.mark.integration
def test_the_recipe_of_the_speedruns_is_their_step():
    """Nesterov momentum, polar factor, neurons of the longer side, cautious decay; weights (out,
    in), the shape's factor on the rate.
    """
    rate, decay, beta, beta2 = 0.05, 0.2, 0.9, 0.8
    factor = max(1.0, 5 / 3) ** 0.5
    chain = optax.chain(
        optim.momentum(beta, nesterov=True),
        optim.orthogonalize(SVD(), dimension_numbers=optim.OUT_IN),
        optim.scale_by_neuron_moment(beta2, "longer", dimension_numbers=optim.OUT_IN),
        optim.add_cautious_decay(decay),
        optax.scale_by_learning_rate(rate * factor),
    )
    w, found, m, ahead = WEIGHT, jnp.asarray(WEIGHT), np.zeros((5, 3)), []
    state, step = jax.jit(chain.init)(found), jax.jit(chain.update)
    for g in DRAWS:
        m = beta * m + (1 - beta) * g
        ahead.append(polar((1 - beta) * g + beta * m))
        u = normuon(ahead, beta2, 1)[-1]
        w = w - rate * factor * (u + decay * w * (u * w >= 0))
        updates, state = step(jnp.asarray(g), state, found)
        found = optax.apply_updates(found, updates)
        close(found, w, 1e-11)


WRONG_CALLS = r"""
optim.scale_by_neuron_moment(1.0)
    a number in \[0, 1\) as beta, got 1.0
optim.scale_by_neuron_moment(per="row")
    one of 'output', 'longer' as per, got 'row'
optim.schatten_direction(0.0)
    a number in \(0, inf\] as p, got 0.0
optim.clip_singular_values(0.0)
    a number in \(0, inf\] as limit, got 0.0
optim.clip_weights(1.0, "firm")
    one of 'hard', 'soft' as kind, got 'firm'
optim.mars_correction(0.1, 1.0)
    a number in \[0, 1\) as beta, got 1.0
optim.scale_by_shampoo(1.1)
    a number in \[0, 1\] as beta, got 1.1
optim.scale_by_shampoo(order=0)
    a number in \(0, inf\) as order, got 0
optim.scale_by_shampoo(every=0)
    a whole number of at least 1 as every, got 0
optim.scale_by_soap(0.9, 1.0)
    a number in \[0, 1\) as b2, got 1.0
optim.scale_by_soap(every=0)
    a whole number of at least 1 as every, got 0
inverse_root(jnp.ones((2, 3)), 2)
    square matrices in the last two axes, got shape \(2, 3\)
inverse_root(jnp.ones((2, 2)), 0)
    a number in \(0, inf\) as order, got 0
optim.qk_clip(-1.0, None)
    a number in \(0, inf\] as threshold, got -1.0
run(optim.clip_weights(0.1), arrays(DRAWS))
    clip_weights needs the parameters
run(optim.add_cautious_decay(0.1), arrays(DRAWS))
    add_cautious_decay needs the parameters
run(optim.mars_correction(exact=True), arrays(DRAWS))
    previous_gradient=tree
run(optim.qk_clip(1.0, None), arrays(DRAWS), WEIGHT)
    max_logits=tree
run(optim.qk_clip(1.0, 1), [WEIGHT], WEIGHT, max_logits=1.0)
    Heads\(\(axis, ...\)\) or None, got 1 for
run(optim.qk_clip(1.0, {"q": optim.Heads((2,))}), [{"q": WEIGHT}], {"q": WEIGHT}, max_logits=1.0)
    leaf q need different axes below 2 \(its shape is \(5, 3\)\), got \(2,\)
run(optim.qk_clip(1.0, optim.Heads((1,), np.ones(4))), [WEIGHT], WEIGHT, max_logits=np.ones(3))
    The power of the Heads of the leaf .* must broadcast to its shape \(5, 3\), got shape \(4,\).
run(optim.qk_clip(1.0, {"q": optim.Heads((1,))}), [{"q": WEIGHT}], {"q": WEIGHT}, max_logits=1.0)
    leaf q need the shape \(3,\) of its axes \(1,\), got shape \(\)
"""


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("call", "sentence"), wrong_calls(WRONG_CALLS))
def test_wrong_calls_are_refused_in_one_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence) as refusal:
        eval(call)
    assert "\n" not in str(refusal.value)
    assert str(refusal.value).endswith(".")


@pytest.mark.integration
@pytest.mark.parametrize(
    "make", [optim.scale_by_neuron_moment, optim.scale_by_shampoo, optim.mars_correction]
)
def test_a_state_keeps_its_dtype_where_64_bits_are_enabled(make):
    step, x = make(), jnp.ones((3, 4), jnp.float32)
    before = step.init(x)
    _, after = step.update(x, before, x)
    assert jax.tree.map(lambda a: a.dtype, after) == jax.tree.map(lambda a: a.dtype, before)


def test_mars_leaves_the_first_gradient_of_half_precision_params():
    gradient = jnp.asarray(DRAWS[0], jnp.float32)
    step, params = optim.mars_correction(1.0, 0.9), gradient.astype(jnp.bfloat16)
    found, _ = step.update(gradient, step.init(params), params)
    np.testing.assert_array_equal(found, gradient.astype(jnp.bfloat16))
