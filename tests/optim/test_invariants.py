"""One list of transformations, many invariants."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from specjax import optim
from specjax.spectral import spectral_power
from tests.optim.registry import (
    DECOMPOSING,
    EXTRA,
    ITERATION,
    TRANSFORMS,
    mixed_tree,
    parameters,
    steps,
    tree,
)

pytestmark = pytest.mark.filterwarnings("ignore:muon without a layout")
every_transform = pytest.mark.parametrize("name", parameters({name: name for name in TRANSFORMS}))
PARAMS = tree(0)
GRADIENTS = [tree(1), tree(2)]


@cache
def two_steps(name):
    """Updates and state after both gradients, in one program."""
    return steps(TRANSFORMS[name](), PARAMS, GRADIENTS)


@cache
def compiled(name):
    """The functions of a transformation, compiled, and the list that gets an entry for each trace
    of its update.
    """
    transform, traces = optax.with_extra_args_support(TRANSFORMS[name]()), []

    @jax.jit
    def update(gradient, state, params):
        traces.append(1)
        return transform.update(gradient, state, params, **EXTRA)

    return jax.jit(transform.init), update, traces


DIFFERENCES = ("hyperball", "clip_weights")
"""Their updates are differences of parameters, with the rounding of these even where they are
zero.
"""

UNDETERMINED = ("scale_by_soap",)
"""Their state has a basis of a null space, which is anyone's choice."""


def same(left, right, tolerance=2e-5):
    assert jax.tree.structure(left) == jax.tree.structure(right)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance), left, right
    )


@every_transform
@pytest.mark.parametrize(
    "dtype",
    [jnp.bfloat16, jnp.float16, pytest.param(jnp.float32, marks=pytest.mark.integration)],
    ids=["bf16", "f16", "f32"],
)
def test_shape_dtype_and_structure_are_kept(name, dtype):
    params = tree(0, dtype)
    updates, _ = jax.eval_shape(
        lambda *trees: steps(TRANSFORMS[name](), trees[0], trees[1:]), params, tree(1, dtype)
    )
    assert jax.tree.structure(updates) == jax.tree.structure(params)
    assert jax.tree.map(lambda x: (x.shape, x.dtype), updates) == jax.tree.map(
        lambda x: (x.shape, x.dtype), params
    )


@pytest.mark.integration
@every_transform
@pytest.mark.parametrize(
    ("of_params", "of_gradients"), [("float32", "bfloat16"), ("bfloat16", "float32")]
)
def test_updates_have_the_dtype_of_the_parameters(name, of_params, of_gradients):
    updates, _ = jax.eval_shape(
        lambda *trees: steps(TRANSFORMS[name](), trees[0], trees[1:]),
        tree(0, of_params),
        tree(1, of_gradients),
    )
    assert {x.dtype.name for x in jax.tree.leaves(updates)} == {of_params}


@pytest.mark.slow
@every_transform
def test_a_bfloat16_gradient_has_the_update_of_its_float32(name):
    """The digits that it lacks cost the step of a float32 parameter none."""
    init, update, _ = compiled(name)
    low = tree(1, "bfloat16")
    pair = [update(g, init(PARAMS), PARAMS)[0] for g in (low, optax.tree.cast(low, "float32"))]
    same(*pair, tolerance=1e-6)


EXTREMES = {"zero": 0.0, "tiny": 2.0**-14, "plain": 1.0, "huge": 2.0**11}
"""Factors on gradients near 1: the smallest normal float16, and one that leaves room for the norm
of a matrix in it.
"""


# Each dtype has two programs. What bfloat16 alone spoils, averages whose decay is near 1, has tests
# of its own.
@pytest.mark.integration
@pytest.mark.parametrize("half", ["float16", pytest.param("bfloat16", marks=pytest.mark.slow)])
@every_transform
def test_half_precision_is_the_float32_update_rounded(name, half):
    """The first update of parameters rounded to half precision; AdamW's in muon is the one of the
    stack.
    """
    init, update, _ = compiled(name)
    for factor in EXTREMES.values():
        low = jax.tree.map(lambda x, f=factor: (x * f).astype(half), tree(1)), tree(0, half)
        wide = optax.tree.cast(low, "float32")
        pair = [update(gradient, init(params), params)[0] for gradient, params in (low, wide)]
        half_is_float32_rounded(name, half, *pair)


def half_is_float32_rounded(name, half, low, wide):
    for a, b, parameter in zip(
        *map(jax.tree.leaves, jax.tree.map(np.asarray, (low, wide, PARAMS))), strict=True
    ):
        assert np.all(np.isfinite(b))
        # A polynomial method rounds its operands, and so do its products: not only the result is
        # rounded.
        rounding = 16 * float(jnp.finfo(half).eps) * np.abs(b).max()
        if name in DIFFERENCES:
            rounding += 2 * float(jnp.finfo("float32").eps) * np.abs(parameter).max()
        np.testing.assert_allclose(a.astype(float), b, rtol=0, atol=rounding)


@every_transform
def test_state_and_updates_keep_their_types_on_a_tree_of_several(name):
    """Three steps of a scan, which refuses a carry that changes its type; the numbers of the
    transformation traced arrays.
    """
    transform, params = optax.with_extra_args_support(TRANSFORMS[name]()), mixed_tree(0)

    def step(carry, gradient):
        params, state = carry
        updates, state = transform.update(gradient, state, params, **EXTRA)
        assert jax.tree.map(lambda x: x.dtype, updates) == jax.tree.map(lambda x: x.dtype, params)
        return (optax.apply_updates(params, updates), state), None

    gradients = jax.tree.map(lambda *x: np.stack(x), *(mixed_tree(i) for i in range(1, 4)))
    jax.eval_shape(lambda: jax.lax.scan(step, (params, transform.init(params)), gradients))


@pytest.mark.integration
@every_transform
def test_the_state_keeps_its_types_and_is_not_retraced(name):
    init, update, traces = compiled(name)
    _, state = update(GRADIENTS[0], init(PARAMS), PARAMS)
    traces.clear()
    updates, state = update(GRADIENTS[1], state, PARAMS)
    assert not traces
    if name not in UNDETERMINED:
        same((updates, state), two_steps(name))


@pytest.mark.integration
@every_transform
def test_it_can_be_vmapped_over_seeds(name):
    init, update, _ = compiled(name)

    @jax.jit
    @jax.vmap
    def over_seeds(gradient):
        return update(gradient, init(PARAMS), PARAMS)[0]

    batched = over_seeds(jax.tree.map(lambda *x: np.stack(x), *GRADIENTS))
    for i, gradient in enumerate(GRADIENTS):
        same(
            jax.tree.map(lambda x, i=i: np.asarray(x)[i], batched),
            update(gradient, init(PARAMS), PARAMS)[0],
        )


INSIDE_OPTAX = (
    "orthogonalize",
    "normalize_rows",
    "normalize_columns",
    "spectral_descent",
    "momentum-ema-nesterov",
    "momentum-ema-nesterov-corrected",
    "muon",
    "rank_switch",
    "scale_by_factor_gram",
    "decay_on_plateau",
    "schatten_direction",
    "scale_by_neuron_moment",
    "add_cautious_decay",
    "hyperball",
    "clip_singular_values",
    "clip_weights",
    "mars_correction",
    "scale_by_dion",
    "scale_by_shampoo",
)


# Five programs each: of two of a kind one is a slow test.
SLOW_INSIDE = (
    *DECOMPOSING,
    "rank_switch",
    "hyperball",
    "normalize_columns",
    "momentum-ema-nesterov-corrected",
)


@pytest.mark.integration
@pytest.mark.parametrize("name", parameters({name: name for name in INSIDE_OPTAX}, SLOW_INSIDE))
@pytest.mark.usefixtures("standard_promotion")
def test_it_works_inside_optax(name):
    """chain, partition, masked, MultiSteps and apply_if_finite give what the transformation alone
    gives.
    """
    make = TRANSFORMS[name]
    alone, _ = two_steps(name)
    same(
        steps(optax.chain(optax.identity(), make(), optax.scale(-1.0)), PARAMS, GRADIENTS)[0],
        jax.tree.map(jnp.negative, alone),
    )
    same(steps(optax.apply_if_finite(make(), 3), PARAMS, GRADIENTS)[0], alone)

    mask = {"first": True, "nested": False, "stack": True, "row": False}
    wanted = {**alone, "nested": GRADIENTS[1]["nested"], "row": GRADIENTS[1]["row"]}
    same(steps(optax.masked(make(), mask), PARAMS, GRADIENTS)[0], wanted)
    labels = {key: "here" if inside else "there" for key, inside in mask.items()}
    same(
        steps(
            optax.partition({"here": make(), "there": optax.identity()}, labels), PARAMS, GRADIENTS
        )[0],
        wanted,
    )

    twice = [g for g in GRADIENTS for _ in range(2)]
    same(steps(optax.MultiSteps(make(), 2), PARAMS, twice)[0], alone)


@pytest.mark.integration
@every_transform
def test_an_unrolled_step_can_be_differentiated(name):
    transform = optax.with_extra_args_support(TRANSFORMS[name]())

    @jax.jit
    @jax.value_and_grad
    def objective(scale):
        moved = jax.tree.map(lambda g: scale * g + jnp.sin(scale + g), GRADIENTS[0])
        updates, _ = transform.update(moved, transform.init(PARAMS), PARAMS, **EXTRA)
        return sum(jnp.sum(jnp.cos(u)) for u in jax.tree.leaves(updates))

    h = 1e-2
    (below, _), (_, derivative), (above, _) = (
        objective(jnp.float32(0.5 + shift)) for shift in (-h, 0, h)
    )
    np.testing.assert_allclose(derivative, (above - below) / (2 * h), rtol=5e-2, atol=5e-2)


def labelled(params):
    return {name: "matrix" if name == "first" else "other" for name in params}


INJECTED = {
    "muon": (optim.muon, {"learning_rate": 0.1, "weight_decay": 0.01}),
    "muon-schedule": (optim.muon, {"learning_rate": optax.linear_schedule(0.1, 0.0, 10)}),
    "muon-corrected": (optim.muon, {"learning_rate": 0.1, "bias_correction": True}),
    "muon-method": (optim.muon, {"learning_rate": 0.1, "method": ITERATION}),
    "muon-labels": (optim.muon, {"learning_rate": 0.1, "labels": labelled, "method": ITERATION}),
    "muon-mask": (
        optim.muon,
        {"learning_rate": 0.1, "weight_decay_mask": lambda p: jax.tree.map(jnp.ndim, p)},
    ),
    "orthogonalize": (optim.orthogonalize, {"scale": "sqrt_out_over_in"}),
    "orthogonalize-scale": (optim.orthogonalize, {"scale": lambda i, o: i + 2 * o}),
    "normalize_rows": (optim.normalize_rows, {}),
    "spectral_descent": (optim.spectral_descent, {"curvature": 2.0, "method": ITERATION}),
    "momentum": (optim.momentum, {"beta": 0.9, "nesterov": True}),
    "momentum-sgd": (optim.momentum, {"beta": 0.9, "convention": "sgd", "nesterov": True}),
    "momentum-corrected": (
        optim.momentum,
        {"beta": 0.9, "nesterov": True, "bias_correction": True},
    ),
    "scale_by_factor_gram": (optim.scale_by_factor_gram, {"damping": 0.5}),
    "decay_on_plateau": (optim.decay_on_plateau, {"factor": 0.5, "patience": 1}),
    "schatten_direction": (optim.schatten_direction, {"p": 1.5}),
    "scale_by_neuron_moment": (optim.scale_by_neuron_moment, {"beta": 0.9, "per": "longer"}),
    "add_cautious_decay": (optim.add_cautious_decay, {"weight_decay": 0.1}),
    "hyperball": (optim.hyperball, {"learning_rate": optax.linear_schedule(0.1, 0.0, 10)}),
    "clip_singular_values": (optim.clip_singular_values, {"limit": 2.0, "kind": "soft"}),
    "clip_weights": (optim.clip_weights, {"limit": 2.0}),
    "mars_correction": (optim.mars_correction, {"gamma": 0.5, "beta": 0.9}),
    "scale_by_shampoo": (optim.scale_by_shampoo, {"beta": 0.9, "every": 2}),
}
injected_ones = pytest.mark.parametrize(("make", "arguments"), parameters(INJECTED))


@pytest.mark.integration
@injected_ones
def test_injected_hyperparameters_change_nothing(make, arguments):
    plain, _ = steps(make(**arguments), PARAMS, GRADIENTS)
    injected, _ = steps(optim.inject_hyperparams(make)(**arguments), PARAMS, GRADIENTS)
    same(injected, plain)


@injected_ones
def test_injected_hyperparameters_keep_the_types_of_a_mixed_tree(make, arguments):
    """Numbers that are arrays promote what they are multiplied with: the state would change its
    type in the second step.
    """
    injected, params = optim.inject_hyperparams(make)(**arguments), mixed_tree(0)

    def step(state, gradient):
        updates, state = injected.update(gradient, state, params, value=1.0)
        assert jax.tree.map(lambda x: x.dtype, updates) == jax.tree.map(lambda x: x.dtype, params)
        return state, None

    gradients = jax.tree.map(lambda *x: np.stack(x), *(mixed_tree(i) for i in range(1, 4)))
    jax.eval_shape(lambda: jax.lax.scan(step, injected.init(params), gradients))


def test_injected_decays_near_one_survive_bfloat16_parameters():
    """0.999 in bfloat16 is 1: an average that never moves."""
    gradient = jnp.ones((2, 2), jnp.bfloat16)
    injected = optim.inject_hyperparams(optim.momentum)(0.999)
    update, _ = injected.update(gradient, injected.init(gradient), gradient)
    np.testing.assert_allclose(update.astype(float), 1e-3, rtol=4e-3)


def test_injected_muon_can_be_differentiated_in_reverse():
    injected = optim.inject_hyperparams(optim.muon)(learning_rate=0.1)

    @jax.jit
    @jax.value_and_grad
    def loss(rate):
        state = injected.init(PARAMS)
        state.hyperparams["learning_rate"] = rate
        updates, _ = injected.update(GRADIENTS[0], state, PARAMS)
        return optax.tree.norm(optax.apply_updates(PARAMS, updates), squared=True)

    h = 1e-2
    (below, _), (_, derivative), (above, _) = (
        loss(jnp.float32(0.1 + shift)) for shift in (-h, 0, h)
    )
    np.testing.assert_allclose(derivative, (above - below) / (2 * h), rtol=1e-2)


@pytest.mark.integration
def test_a_sweep_over_learning_rate_and_decay_is_one_program():
    traces = []

    def run(rate, decay, curvature):
        traces.append(1)
        both = [optim.jordan_muon(rate, beta=decay), optim.spectral_descent(curvature, ITERATION)]
        return [steps(transform, PARAMS, GRADIENTS, {})[0] for transform in both]

    sweep = jax.jit(jax.vmap(run))
    sweep(*jnp.array([[0.01, 0.02], [0.9, 0.95], [1.0, 2.0]]))
    rates, decays, curvatures = jnp.array([[0.1, 0.2], [0.8, 0.7], [3.0, 4.0]])
    swept = sweep(rates, decays, curvatures)
    assert len(traces) == 1
    for i in range(2):
        alone = run(float(rates[i]), float(decays[i]), float(curvatures[i]))
        same(jax.tree.map(lambda x, i=i: x[i], swept), alone)


def test_a_sweep_over_the_schatten_power_is_one_program():
    """U Sᵖ Vᵀ as the method: p = 0 is the polar factor, p = 1 the gradient over its scale."""
    traces = []

    @jax.jit
    @jax.vmap
    def run(power):
        traces.append(1)
        transform = optim.orthogonalize(lambda x: spectral_power(x / jnp.linalg.norm(x), power))
        return transform.update(GRADIENTS[0]["first"], transform.init(PARAMS["first"]))[0]

    run(jnp.array([0.25, 0.5]))
    polar, gradient = run(jnp.array([0.0, 1.0]))
    assert len(traces) == 1
    x = np.asarray(GRADIENTS[0]["first"])
    u, _, vt = np.linalg.svd(x, full_matrices=False)
    np.testing.assert_allclose(polar, u @ vt, atol=1e-5)
    np.testing.assert_allclose(gradient, x / np.linalg.norm(x), atol=1e-6)


@pytest.mark.integration
def test_a_step_that_is_not_finite_is_skipped_and_the_state_kept():
    spoiled = jax.tree.map(lambda x: x.at[0].set(jnp.nan), GRADIENTS[0])
    transform = optax.apply_if_finite(optim.jordan_muon(0.1, method=ITERATION), 3)
    skipping, state = steps(transform, PARAMS, [GRADIENTS[0], spoiled, GRADIENTS[1]], {})
    same(skipping, steps(optim.jordan_muon(0.1, method=ITERATION), PARAMS, GRADIENTS, {})[0])
    assert state.total_notfinite == 1
    nothing, _ = steps(transform, PARAMS, [spoiled], {})
    assert all(jnp.all(x == 0) for x in jax.tree.leaves(nothing))


LEARNERS = {
    "muon": lambda: optim.jordan_muon(optax.linear_schedule(0.3, 0.0, 200)),
    "orthogonalize": lambda: optax.chain(
        optim.orthogonalize(), optax.scale_by_learning_rate(optax.linear_schedule(0.3, 0.0, 200))
    ),
    "normalize_rows": lambda: optax.chain(
        optim.normalize_rows(), optax.scale_by_learning_rate(optax.linear_schedule(0.3, 0.0, 200))
    ),
    "normalize_columns": lambda: optax.chain(
        optim.normalize_columns(),
        optax.scale_by_learning_rate(optax.linear_schedule(0.3, 0.0, 200)),
    ),
    "momentum": lambda: optax.chain(
        optim.momentum(0.9, nesterov=True), optax.scale_by_learning_rate(0.3)
    ),
    "spectral_descent": lambda: optim.spectral_descent(4.0, ITERATION),
    "rank_switch": lambda: optim.rank_switch(
        optim.spectral_descent(4.0, ITERATION), optax.sgd(0.5), ITERATION
    ),
}


@pytest.mark.parametrize("make", LEARNERS.values(), ids=LEARNERS)
def test_it_solves_matrix_least_squares(make):
    """½ ‖X W - Y‖² with orthonormal columns of X: curvature 1 in the Frobenius norm, 4 (the rank)
    in the spectral norm.
    """
    target, x = tree(3)["first"], jnp.linalg.qr(jax.random.normal(jax.random.key(4), (12, 4)))[0]
    transform = optax.with_extra_args_support(make())

    def step(carry, _):
        weight, state = carry
        gradient = x.T @ (x @ weight - x @ target)
        updates, state = transform.update(gradient, state, weight, stable_ranks=2.0)
        return (weight + updates, state), None

    start = jnp.zeros_like(target)
    (weight, _), _ = jax.jit(
        lambda: jax.lax.scan(step, (start, transform.init(start)), length=200)
    )()
    assert jnp.linalg.norm(weight - target) < 0.02 * jnp.linalg.norm(target)
