"""What the log keeps, against the singular values of NumPy, and that steps stay as they are."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from specjax import optim
from specjax.spectral import SVD, NewtonSchulz
from tests.reference.optimizer_steps import newton_schulz

RNG = np.random.default_rng(0)
PARAMS = {
    "block": [{"query": RNG.standard_normal((6, 4))}],
    "stack": RNG.standard_normal((2, 3, 5)),
    "qkv": RNG.standard_normal((4, 10)),
    "bias": RNG.standard_normal(4),
}
LABELS = {"block": "matrix", "stack": "matrix", "qkv": "matrix", "bias": "other"}
GRADIENTS = [jax.tree.map(lambda x: RNG.standard_normal(x.shape), PARAMS) for _ in range(7)]
OPTIONS = {"labels": LABELS, "splits": {"qkv": (6, 4)}, "weight_decay": 0.1}
SCALE = "point_two_sqrt_max"


def numbers(m, o, scale):
    """From the definitions: m goes in, the factor o comes out, times the scale of its shape."""
    rank, gram = min(o.shape), o @ o.T if o.shape[0] <= o.shape[1] else o.T @ o
    s = np.linalg.svd(m, compute_uv=False)
    return {
        "update_rms": np.sqrt(np.mean((scale * o) ** 2)),
        "polar_defect": np.linalg.norm(gram - np.eye(rank)) / rank**0.5,
        "stable_rank": np.sum(s**2) / s[0] ** 2,
        "nuclear_rank": np.sum(m * o) ** 2 / np.sum(s**2),
    }


def matrices(tree):
    """The matrices of `PARAMS` by the names that the log gives them."""
    return {
        "block.0.query": tree["block"][0]["query"],
        "stack[0]": tree["stack"][0],
        "stack[1]": tree["stack"][1],
        "qkv.part0": tree["qkv"][:, :6],
        "qkv.part1": tree["qkv"][:, 6:],
    }


def states_of(optimizer, count, params=PARAMS, gradients=GRADIENTS):
    """The parameters and states after each of some steps."""
    params = jax.tree.map(jnp.asarray, params)
    state, step = optimizer.init(params), jax.jit(optimizer.update)
    found = []
    for gradient in gradients[:count]:
        updates, state = step(jax.tree.map(jnp.asarray, gradient), state, params)
        params = optax.apply_updates(params, updates)
        found.append((params, state))
    return found


@pytest.mark.integration
@pytest.mark.usefixtures("x64")
def test_numbers_are_those_of_the_definitions():
    optimizer = optim.muon(0.02, beta=0.9, scale=SCALE, log_every=1, **OPTIONS)
    momentum = optim.momentum(0.9, nesterov=True, bias_correction=True)
    kept = momentum.init(jax.tree.map(jnp.asarray, PARAMS))
    for gradient, (_, state) in zip(GRADIENTS[:3], states_of(optimizer, 3), strict=True):
        m, kept = momentum.update(jax.tree.map(jnp.asarray, gradient), kept)
        expected = {
            f"{name}/{key}": value
            for name, x in matrices(jax.tree.map(np.asarray, m)).items()
            for key, value in numbers(x, newton_schulz(x), 0.2 * max(x.shape) ** 0.5).items()
        }
        found = optim.logged(state)
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            # The power iteration bounds a norm from below, so its stable rank from above.
            tolerance = 0.02 if name.endswith("stable_rank") else 1e-9
            np.testing.assert_allclose(found[name], value, rtol=tolerance, err_msg=name)
            assert type(found[name]) is float


@pytest.mark.integration
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("shape", [(6, 4), (3, 5), (1, 7), (5, 5)])
def test_an_exact_method_has_no_defect(shape):
    x = RNG.standard_normal(shape)
    transform = optim.log_updates(optim.orthogonalize(SVD(), SCALE), scale=SCALE)
    _, state = transform.update({"w": jnp.asarray(x)}, transform.init({"w": jnp.asarray(x)}))
    found, s = optim.logged(state), np.linalg.svd(x, compute_uv=False)
    assert found["w/polar_defect"] < 1e-12
    np.testing.assert_allclose(found["w/nuclear_rank"], s.sum() ** 2 / np.sum(s**2), rtol=1e-9)
    np.testing.assert_allclose(found["w/stable_rank"], np.sum(s**2) / s[0] ** 2, rtol=0.02)


@pytest.mark.integration
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16], ids=str)
@pytest.mark.parametrize("every", [1, 3])
def test_steps_have_the_same_bits_with_a_log(every, dtype):
    params, gradients = (
        jax.tree.map(lambda x: jnp.asarray(x, dtype), tree) for tree in (PARAMS, GRADIENTS)
    )
    plain, with_log = (
        states_of(optim.muon(0.02, log_every=stride, **OPTIONS), 5, params, gradients)
        for stride in (None, every)
    )
    for (left, _), (right, _) in zip(plain, with_log, strict=True):
        jax.tree.map(np.testing.assert_array_equal, left, right)


@pytest.mark.integration
def test_a_stride_keeps_the_last_numbers():
    dense = [optim.logged(state) for _, state in states_of(_logging(1), 7)]
    sparse = [optim.logged(state) for _, state in states_of(_logging(3), 7)]
    for i, found in enumerate(sparse):
        assert found == dense[i - i % 3]
    assert sparse[3] != dense[4]


def _logging(every):
    return optim.muon(0.02, log_every=every, **OPTIONS)


def test_the_stride_is_a_branch_that_is_not_taken():
    """Else its products would be paid for in every step."""
    params = {"w": jnp.ones((4, 6))}
    optimizer = optim.log_updates(optax.identity(), 10)
    program = jax.make_jaxpr(optimizer.update)(params, optimizer.init(params), params)
    outside = {equation.primitive.name for equation in program.eqns}
    assert "cond" in outside
    assert "dot_general" not in outside


def test_numbers_are_nan_before_the_first_update():
    state = optim.muon(0.02, log_every=5, **OPTIONS).init(jax.tree.map(jnp.asarray, PARAMS))
    found = optim.logged(state)
    assert len(found) == 20
    assert all(np.isnan(value) for value in found.values())


@pytest.mark.integration
def test_a_zero_matrix_has_ranks_of_zero():
    zero = {"w": jnp.zeros((3, 4))}
    transform = optim.log_updates(optim.orthogonalize(NewtonSchulz(2)))
    _, state = transform.update(zero, transform.init(zero))
    found = optim.logged(state)
    np.testing.assert_allclose(found.pop("w/polar_defect"), 1.0, rtol=1e-6)
    assert found == {"w/update_rms": 0.0, "w/stable_rank": 0.0, "w/nuclear_rank": 0.0}


@pytest.mark.integration
def test_padding_does_not_count():
    x = RNG.standard_normal((6, 4)).astype("f")
    padded = np.pad(x, ((0, 3), (0, 2)))
    pair = []
    for leaf, sizes in ((x, None), (padded, optim.Fans(6, 4))):
        transform = optim.log_updates(optim.orthogonalize(SVD()), sizes=sizes)
        _, state = transform.update(
            {"w": jnp.asarray(leaf)}, transform.init({"w": jnp.asarray(leaf)})
        )
        pair.append(optim.logged(state))
    for name, value in pair[0].items():
        tolerance = 0.02 if name.endswith("stable_rank") else 1e-5
        np.testing.assert_allclose(pair[1][name], value, rtol=tolerance, atol=1e-6)


@pytest.mark.integration
@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_gradients_of_any_size_have_the_same_ranks(scale):
    x = RNG.standard_normal((6, 4)).astype("f")
    transform = optim.log_updates(optim.orthogonalize(SVD()))
    pair = [
        optim.logged(transform.update({"w": g}, transform.init({"w": g}))[1])
        for g in (jnp.asarray(x), jnp.asarray(x * np.float32(scale)))
    ]
    for name, value in pair[0].items():
        np.testing.assert_allclose(pair[1][name], value, rtol=1e-4, atol=1e-5)


@pytest.mark.integration
@pytest.mark.parametrize(
    "wrap",
    [
        lambda make: optax.MultiSteps(make(0.02), 1),
        lambda make: optim.inject_hyperparams(make)(learning_rate=0.02, log_every=2, labels=LABELS),
        lambda make: make(optax.constant_schedule(0.02)),
        lambda make: make(0.02, beta=optax.constant_schedule(0.95)),
        lambda make: optax.chain(optax.clip_by_global_norm(1.0), make(0.02)),
        lambda make: optax.apply_if_finite(make(0.02), 3),
    ],
    ids=["MultiSteps", "inject", "schedule", "schedule-of-beta", "chain", "apply_if_finite"],
)
@pytest.mark.usefixtures("standard_promotion")
def test_a_log_is_found_in_the_states_of_wrappers(wrap, request):
    make = partial(optim.muon, log_every=2, labels=LABELS)
    optimizer = wrap(optim.muon if "inject" in request.node.name else make)
    ((_, state),) = states_of(optimizer, 1)
    found = optim.logged(state)
    assert "block.0.query/polar_defect" in found
    assert not any(np.isnan(value) for value in found.values())


@pytest.mark.parametrize(
    "recipe", ["normuon", "adamuon", "nanochat", "modded_nanogpt", "mars_m", "jordan_muon"]
)
def test_every_recipe_takes_a_log(recipe):
    optimizer = getattr(optim, recipe)(0.02, log_every=2, labels=LABELS)
    params = jax.tree.map(jnp.asarray, PARAMS)
    assert "stack[1]/nuclear_rank" in optim.logged(optimizer.init(params))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: optim.log_updates(optax.identity(), 0), "at least 1 as every"),
        (lambda: optim.muon(0.1, log_every=0), "at least 1 as every"),
        (
            lambda: optim.muon(0.1, log_every=2, adaptive=True),
            "muon takes log_every= or adaptive=, not both",
        ),
        (lambda: optim.logged(optim.muon(0.1).init({"w": jnp.ones((2, 2))})), "logged needs the"),
        (lambda: optim.log_updates(optax.identity()).init({"b": jnp.ones(2)}), "needs matrices"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_what_cannot_be_logged_is_refused_in_one_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence) as refusal:
        call()
    assert "\n" not in str(refusal.value)
