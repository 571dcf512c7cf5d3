"""Every transformation at every scale that its dtype holds, against NumPy in float64; and what must
not change its numbers.
"""

import math
import warnings
from functools import cache, lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from specjax import optim
from specjax.spectral import SVD
from tests.optim.registry import parameters
from tests.reference import optimizer_steps as by_hand
from tests.reference.spectra import matrix_with

pytestmark = pytest.mark.integration

STEPS = {
    "orthogonalize": (lambda: optim.orthogonalize(SVD()), lambda g, _: by_hand.polar(g[-1]), 0),
    "orthogonalize-iterated": (optim.orthogonalize, lambda g, _: by_hand.newton_schulz(g[-1]), 0),
    "normalize_rows": (optim.normalize_rows, lambda g, _: by_hand.unit(g[-1], 1), 0),
    "normalize_columns": (optim.normalize_columns, lambda g, _: by_hand.unit(g[-1], 0), 0),
    "spectral_descent": (
        lambda: optim.spectral_descent(2.0),
        lambda g, _: -np.linalg.svd(g[-1], compute_uv=False).sum() / 2 * by_hand.polar(g[-1]),
        1,
    ),
    "momentum": (lambda: optim.momentum(0.9), lambda g, _: by_hand.average(g, 0.9), 1),
    "momentum-sgd": (lambda: optim.momentum(0.9, "sgd"), lambda g, _: by_hand.plain_sum(g, 0.9), 1),
    "momentum-corrected": (
        lambda: optim.momentum(0.9, bias_correction=True),
        lambda g, _: by_hand.average(g, 0.9) / (1 - 0.9 ** len(g)),
        1,
    ),
    "muon": (
        lambda: optim.jordan_muon(0.1, method=SVD(), scale="none", labels="matrix"),
        lambda g, _: -0.1 * by_hand.polar(by_hand.average(g, 0.95, nesterov=True)),
        0,
    ),
    "rank_switch": (
        lambda: optim.rank_switch(optim.orthogonalize(SVD()), optax.identity()),
        lambda g, _: by_hand.polar(g[-1]) if g[-1].any() else g[-1],
        0,
    ),
    "scale_by_factor_gram": (
        optim.scale_by_factor_gram,
        lambda g, w: by_hand.over_gram(g[-1], w),
        -1,
    ),
    "scale_by_factor_gram-damped": (
        lambda: optim.scale_by_factor_gram(0.5),
        lambda g, w: by_hand.over_gram(g[-1], w, 0.5),
        None,
    ),
    "schatten_direction-1": (
        lambda: optim.schatten_direction(1.0),
        lambda g, _: by_hand.schatten(g[-1], 1),
        0,
    ),
    "schatten_direction-1.5": (
        lambda: optim.schatten_direction(1.5),
        lambda g, _: by_hand.schatten(g[-1], 1.5),
        0,
    ),
    "scale_by_neuron_moment": (
        lambda: optim.scale_by_neuron_moment(0.9),
        lambda g, _: by_hand.normuon(g, 0.9),
        1,
    ),
    "add_cautious_decay": (
        lambda: optim.add_cautious_decay(0.3),
        lambda g, w: g[-1] + 0.3 * np.where(np.sign(g[-1]) * np.sign(w) >= 0, w, 0),
        1,
    ),
    "hyperball": (lambda: optim.hyperball(0.1), lambda g, w: by_hand.hyperball(g[-1], w, 0.1), 1),
    "lift_to_floor": (
        lambda: optim.lift_to_floor(0.9),
        lambda g, w: by_hand.lifted(g[-1], w, 0.9),
        1,
    ),
    "clip_singular_values-hard": (
        lambda: optim.clip_singular_values(2.0),
        lambda g, _: by_hand.clipped(g[-1], 2.0, "hard"),
        None,
    ),
    "clip_singular_values-soft": (
        lambda: optim.clip_singular_values(2.0, "soft"),
        lambda g, _: by_hand.clipped(g[-1], 2.0, "soft"),
        None,
    ),
    "clip_weights": (
        lambda: optim.clip_weights(2.0),
        lambda g, w: by_hand.clipped(w + g[-1], 2.0, "hard") - w,
        None,
    ),
    "mars_correction": (
        lambda: optim.mars_correction(0.3, 0.9),
        lambda g, _: g[-1] + 0.3 * 0.9 / (1 - 0.9) * (g[-1] - g[-2]),
        1,
    ),
    "decay_on_plateau": (lambda: optim.decay_on_plateau(0.5, 1), lambda g, _: g[-1] / 4, 1),
    "qk_clip": (lambda: optim.qk_clip(1.0, optim.Heads(())), lambda g, w: 0.5 * (w + g[-1]) - w, 1),
    "scale_by_shampoo": (
        lambda: optim.scale_by_shampoo(0.9),
        lambda g, _: by_hand.shampoo(g, 0.9),
        0,
    ),
    "scale_by_shampoo-of-order-2": (
        lambda: optim.scale_by_shampoo(0.9, order=2),
        lambda g, _: by_hand.shampoo(g, 0.9, order=2),
        -1,
    ),
    "scale_by_shampoo-damped": (
        lambda: optim.scale_by_shampoo(0.9, damping=0.5),
        lambda g, _: by_hand.shampoo(g, 0.9, damping=0.5),
        None,
    ),
    "scale_by_soap": (
        lambda: optim.scale_by_soap(0.9, 0.8, every=1, eps=0.0),
        lambda g, _: by_hand.soap(g, 0.9, 0.8, 0.0),
        0,
    ),
    "scale_by_soap-eps": (
        lambda: optim.scale_by_soap(0.9, 0.8, every=1, eps=0.1),
        lambda g, _: by_hand.soap(g, 0.9, 0.8, 0.1),
        None,
    ),
}
"""By name a transformation, its last update in NumPy of the gradients of all steps and the
parameters, and the power of a common factor on gradients and parameters with which the update
grows, None where it is no power.
"""

each = pytest.mark.parametrize("name", parameters({name: name for name in STEPS}))
EXTRA = {"stable_ranks": 0.0, "value": 1.0, "max_logits": 4.0}
COUNT = 3  # gradients


def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape)


@cache
def trees():
    """The gradients of all steps, and last the parameters: a tree of matrices of all shapes each,
    in float64.
    """
    return [
        {
            "entry": normal(i, 1, 1),
            "row": normal(10 + i, 1, 3),
            "column": normal(20 + i, 4, 1),
            "wide": normal(30 + i, 3, 5),
            "tall": normal(40 + i, 6, 4),
            "square": normal(50 + i, 4, 4) + 3 * np.eye(4),
            "stack": normal(60 + i, 2, 5, 3),
            "zero row": normal(70 + i, 5, 2) * np.array([1, 1, 0, 1, 1])[:, None],
            "rank one": np.outer(normal(80 + i, 4), normal(90 + i, 2)),
            "repeated": matrix_with([2.0, 2.0, 2.0], (3, 3), 7),
            "zero": np.zeros((2, 2)),
            "not finite": np.full((2, 2), 1.0 if i == COUNT else np.nan),
        }
        for i in range(COUNT + 1)
    ]


@lru_cache(maxsize=1)  # a program for every test would fill the memory of the process
def compiled(name, dtype):
    """The last of all updates, as one function of the gradients and parameters. A dtype has a
    function of its own, as has its scope.
    """
    del dtype
    transform = optax.with_extra_args_support(STEPS[name][0]())

    @jax.jit
    def run(gradients, params):
        def step(state, gradient):
            update, state = transform.update(gradient, state, params, **EXTRA)
            return state, update

        updates = jax.lax.scan(
            step, transform.init(params), jax.tree.map(lambda *x: jnp.stack(x), *gradients)
        )[1]
        return jax.tree.map(lambda x: x[-1], updates)

    return run


def at_scale(factor, dtype):
    *gradients, params = [
        jax.tree.map(lambda x: jnp.asarray(x * factor, dtype), tree) for tree in trees()
    ]
    return gradients, params


def expected(name, gradients, params):
    """The updates in NumPy of the numbers as they are in their dtype; None for a leaf of which the
    update is not determined.
    """
    *wide, w = [
        jax.tree.map(lambda x: np.asarray(x, np.float64), tree) for tree in (*gradients, params)
    ]
    return {
        key: of_leaf(name, [g[key] for g in wide], w[key])
        for key in w
        if key not in (*UNDETERMINED.get(name, ()), "not finite")
    }


def of_leaf(name, gradients, w):
    if w.ndim == 2:
        return STEPS[name][1](gradients, w)
    return np.stack([of_leaf(name, [g[i] for g in gradients], w[i]) for i in range(len(w))])


def relative_error(name, found, right, params):
    """The largest error of a leaf beside its largest entry, or that of the parameters of which the
    update is a difference.
    """
    size = np.abs(right).max()
    if name in DIFFERENCES:
        size = max(size, np.abs(np.asarray(params, np.float64)).max())
    return (
        np.abs(np.asarray(found, np.float64) - right).max() / size if size else np.abs(found).max()
    )


UNDETERMINED = {
    "scale_by_soap": ("repeated",),
    "scale_by_soap-eps": ("repeated",),
    "clip_singular_values-hard": ("rank one",),
    "clip_singular_values-soft": ("rank one",),
    "clip_weights": ("rank one",),
}
"""Leaves of which an update is not determined: repeated eigenvalues have no basis of their own, and
SOAP depends on it. Singular values that are rounding may exceed a limit, and their vectors are
anyone's.
"""

DIFFERENCES = ("clip_weights", "hyperball", "qk_clip")
"""Their updates are differences of parameters, with the rounding of these."""


KEEPING = ("momentum", "add_cautious", "mars", "decay_on", "qk_clip", "lift_to", "rank_switch")
"""Entrywise steps, of which an entry that is not finite spoils no other, and those that leave such
a matrix to another step.
"""

ROOTS = ("scale_by_shampoo", "scale_by_soap", "scale_by_factor_gram")
"""Their errors are those of an inverse: rounding times the ratio of eigenvalues, up to some
hundreds here.
"""


def errors(name, factor, dtype):
    """The relative error of each leaf whose update is determined, in units of the rounding of the
    dtype.
    """
    gradients, params = at_scale(factor, dtype)
    found = jax.tree.map(np.asarray, compiled(name, str(dtype))(gradients, params))
    assert name.startswith(KEEPING) or np.isnan(found["not finite"].astype(float)).all()
    right = {key: x for key, x in expected(name, gradients, params).items() if x is not None}
    assert len(right) >= 5
    rounding = float(jnp.finfo(dtype).eps)
    return {
        key: relative_error(name, found[key], x, params[key]) / rounding for key, x in right.items()
    }


@pytest.fixture(autouse=True)
def quiet():
    """Muon warns of the stack, which is labelled a matrix here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@each
def test_float32_steps_are_right_at_every_scale(name):
    most = 100 if name.startswith(ROOTS) else 500 if name == "orthogonalize-iterated" else 30
    for factor in (1e-30, 1e-20, 1e-10, 1.0, 1e10, 1e19, 1e30):
        found = errors(name, factor, jnp.float32)
        assert max(found.values()) < most, (factor, found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "factors"),
    [("bfloat16", (1e-30, 1e-10, 1.0, 1e10, 1e30)), ("float16", (2.0**-12, 1.0, 2.0**10))],
    ids=["bf16", "f16"],
)
@each
def test_half_precision_steps_are_right_within_their_range(name, dtype, factors):
    """Rounded once, and iterations in half precision at each step; what exceeds the range of
    float16 is infinite, and not compared.
    """
    for factor in factors:
        with np.errstate(over="ignore"):
            gradients, params = at_scale(factor, dtype)
            largest = max(
                np.abs(x).max(initial=0)
                for x in expected(name, gradients, params).values()
                if x is not None
            )
        if dtype == "float16" and not 1e-3 < largest < 6e4:
            continue
        found = errors(name, factor, jnp.dtype(dtype))
        assert max(found.values()) < (40 if name == "orthogonalize-iterated" else 8), (
            factor,
            found,
        )


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@each
def test_float64_steps_are_those_at_scale_one_times_a_power(name):
    """At 2^±660, of which no square is a float64; NumPy's formulas are compared at 1."""
    *_, degree = STEPS[name]
    found = errors(name, 1.0, jnp.float64)
    assert max(found.values()) < 1e9, found
    if degree is None:
        return
    run = compiled(name, "float64")
    one = run(*at_scale(1.0, jnp.float64))
    for exponent in (-660, 660):
        scaled = run(*at_scale(2.0**exponent, jnp.float64))
        for key in one.keys() - {"not finite", *UNDETERMINED.get(name, ())}:
            again = np.asarray(scaled[key]) * 2.0 ** (-degree * exponent)
            np.testing.assert_allclose(
                again, one[key], rtol=1e-6, atol=1e-6 * np.abs(one[key]).max(), err_msg=key
            )


EQUIVARIANT = (
    "orthogonalize",
    "spectral_descent",
    "schatten",
    "clip_singular",
    "scale_by_shampoo",
    "scale_by_soap",
)


@pytest.mark.parametrize(
    "name", parameters({name: name for name in STEPS if name.startswith(EQUIVARIANT)})
)
def test_spectral_steps_turn_with_their_matrices(name):
    """u(P G Q) = P u(G) Q for orthogonal P and Q; of SOAP since its bases turn, but for their
    signs, with the gradients.
    """
    gradients, params = at_scale(1.0, jnp.float32)
    keys = ("wide", "tall", "square", "rank one")
    sides = {
        key: [
            np.linalg.qr(normal(i, n, n))[0].astype(np.float32)
            for i, n in enumerate(params[key].shape, 7)
        ]
        for key in keys
    }

    def turned(tree):
        return {
            key: sides[key][0] @ x @ sides[key][1] if key in keys else x for key, x in tree.items()
        }

    run = compiled(name, "float32")
    straight, found = run(gradients, params), run([turned(g) for g in gradients], turned(params))
    for key in keys:
        wanted = turned(straight)[key]
        np.testing.assert_allclose(
            found[key], wanted, rtol=0, atol=2e-3 * np.abs(wanted).max(), err_msg=key
        )


def stepped(name, state, gradient, params):
    return jax.jit(optax.with_extra_args_support(STEPS[name][0]()).update)(
        gradient, state, params, **EXTRA
    )


@each
def test_a_stack_is_its_matrices_and_states_can_be_donated(name):
    """The same numbers for a stack as for each matrix alone, after a way through NumPy, and where
    the state's memory is given up.
    """
    transform = optax.with_extra_args_support(STEPS[name][0]())
    *gradients, params = [
        {
            "stack": jnp.asarray(tree["stack"], jnp.float32),
            **{str(i): jnp.asarray(x, jnp.float32) for i, x in enumerate(tree["stack"])},
        }
        for tree in trees()
    ]
    update = jax.jit(transform.update)
    giving = jax.jit(transform.update, donate_argnums=1)
    kept, stored, given = transform.init(params), transform.init(params), transform.init(params)
    for gradient in gradients:
        found, kept = update(gradient, kept, params, **EXTRA)
        again, stored = update(
            gradient, jax.tree.map(lambda x: jnp.asarray(np.asarray(x)), stored), params, **EXTRA
        )
        away, given = giving(gradient, given, params, **EXTRA)
    for one, two, three in zip(*map(jax.tree.leaves, (found, again, away)), strict=True):
        np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(one, three)
    for i, matrix in enumerate(np.asarray(found["stack"])):
        np.testing.assert_allclose(
            matrix, found[str(i)], rtol=1e-5, atol=1e-5 * np.abs(matrix).max()
        )


@pytest.mark.slow
def test_soap_is_stable_where_its_averages_lack_rank():
    """Three gradients of 3 × 8 leave a null space; times 1 + 1e-6 the third step changed by two
    thirds.
    """
    gradients = [jax.random.normal(jax.random.key(i), (3, 8)) for i in range(3)]
    step = optim.scale_by_soap(0.9, 0.8, every=1)

    def third(factor):
        state = step.init(gradients[0])
        for gradient in gradients:
            found, state = step.update(factor * gradient, state)
        return found

    change = jnp.abs(third(1 + 1e-6) - third(1.0)).max() / jnp.abs(third(1.0)).max()
    assert change < 1e-4


def test_what_needs_no_clipping_comes_back_bit_for_bit():
    x = jnp.asarray(normal(3, 4, 6), jnp.float32)
    w = jnp.asarray(normal(4, 4, 6), jnp.float32)
    for kind, limit in (("hard", 100.0), ("soft", math.inf)):
        step = optim.clip_singular_values(limit, kind)
        np.testing.assert_array_equal(step.update(x, step.init(x))[0], x)
        step = optim.clip_weights(limit, kind)
        np.testing.assert_array_equal(step.update(x, step.init(w), w)[0], x)


def test_muon_of_small_float16_gradients_is_that_of_float32():
    x = jnp.asarray(normal(3, 3, 4), jnp.float32)
    for momentum_dtype in (None, jnp.float32):
        step = optim.jordan_muon(1.0, scale="none", mu_dtype=momentum_dtype)
        for size in (1.0, 1e-6, 1e-7):
            half = (x * size).astype(jnp.float16)
            exact = step.update(half.astype(jnp.float32), step.init(x), x)[0]
            found = step.update(half, step.init(half), half)[0]
            np.testing.assert_allclose(found.astype(np.float32), exact, atol=2e-3)
