"""Muon against Keller Jordan's steps in numpy, optax.contrib.muon and torch.optim.Muon; and which
leaves it takes.
"""

import math
from contextlib import nullcontext

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
import pytest

from specjax import optim
from tests.reference import muon as reference

RATE, WEIGHT_DECAY, STEPS = 0.1, 0.05, 5
pytestmark = pytest.mark.filterwarnings("ignore:muon without a layout")
every_shape = pytest.mark.parametrize("shape", [(4, 4), (4, 9), (9, 4)], ids=str)
every_precision = pytest.mark.parametrize(
    ("bits", "tolerance"), [pytest.param(32, 2e-4, marks=pytest.mark.integration), (64, 1e-7)]
)


def problem(shape, bits=64):
    rng = np.random.default_rng(0)
    draw = rng.standard_normal((STEPS + 1, *shape)).astype(f"float{bits}")
    return draw[0], draw[1:]


def weights(transform, params, gradients):
    """The parameters after each gradient."""
    state, step, history = transform.init(params), jax.jit(transform.update), []
    for g in gradients:
        updates, state = step(g, state, params)
        params = optax.apply_updates(params, updates)
        history.append(params)
    return history


def close(left, right, tolerance):
    np.testing.assert_allclose(np.stack(left), np.stack(right), rtol=0, atol=tolerance)


@every_shape
@every_precision
def test_it_takes_keller_jordans_steps(shape, bits, tolerance):
    with jax.enable_x64(True):
        weight, gradients = problem(shape, bits)
        ours = weights(
            optim.jordan_muon(
                RATE, weight_decay=WEIGHT_DECAY, muon_weight_dimension_numbers=optim.OUT_IN
            ),
            jnp.asarray(weight),
            gradients,
        )
        sgd = weights(
            optim.jordan_muon(
                RATE,
                convention="sgd",
                weight_decay=WEIGHT_DECAY,
                muon_weight_dimension_numbers=optim.OUT_IN,
            ),
            jnp.asarray(weight),
            gradients,
        )
    expected = reference.run(weight.astype(float), gradients.astype(float), RATE, WEIGHT_DECAY)
    close(ours, expected, tolerance)
    close(sgd, expected, tolerance)


def test_steps_are_keller_jordans_while_momentum_warms_up():
    betas = np.linspace(0.5, 0.95, STEPS)
    with jax.enable_x64(True):
        weight, gradients = problem((4, 9))
        muon = optim.inject_hyperparams(optim.muon)(
            RATE,
            beta=lambda t: jnp.asarray(betas)[t],
            weight_decay=WEIGHT_DECAY,
            muon_weight_dimension_numbers=optim.OUT_IN,
            bias_correction=False,
        )
        ours = weights(muon, jnp.asarray(weight), gradients)
    close(ours, reference.run(weight, gradients, RATE, WEIGHT_DECAY, betas), 1e-7)


@every_shape
@every_precision
@pytest.mark.parametrize(("nesterov", "rms"), [(True, None), (False, 0.2)])
def test_it_takes_the_steps_of_optax(shape, bits, tolerance, nesterov, rms):
    with jax.enable_x64(bits == 64):
        weight, gradients = problem(shape, bits)
        params = {"w": jnp.asarray(weight), "b": jnp.asarray(weight[0])}
        gradients = [{"w": jnp.asarray(g), "b": jnp.asarray(g[1])} for g in gradients]
        theirs = weights(
            optax.contrib.muon(
                RATE, nesterov=nesterov, weight_decay=WEIGHT_DECAY, consistent_rms=rms
            ),
            params,
            gradients,
        )
        ours = weights(
            optim.muon(RATE, nesterov=nesterov, weight_decay=WEIGHT_DECAY, consistent_rms=rms),
            params,
            gradients,
        )
    for name in params:
        close([p[name] for p in ours], [p[name] for p in theirs], tolerance)


def test_it_takes_the_steps_of_optax_on_a_kernel_of_four_axes():
    dims = optax.contrib.MuonDimensionNumbers((0, 2), 3)
    kernel, gradients = problem((2, 3, 4, 5), 32)
    params, gradients = {"k": jnp.asarray(kernel)}, [{"k": jnp.asarray(g)} for g in gradients[:2]]
    theirs = weights(
        optax.contrib.muon(RATE, muon_weight_dimension_numbers={"k": dims}), params, gradients
    )
    ours = weights(
        optim.jordan_muon(RATE, bias_correction=True, muon_weight_dimension_numbers={"k": dims}),
        params,
        gradients,
    )
    close([p["k"] for p in ours], [p["k"] for p in theirs], 2e-4)


@every_shape
@pytest.mark.parametrize(
    ("bits", "tolerance", "adjust", "scale"),
    [
        (16, 2e-2, "original", "sqrt_max_1_out_over_in"),
        (32, 2e-4, "match_rms_adamw", "point_two_sqrt_max"),
        (64, 1e-7, "original", "sqrt_max_1_out_over_in"),
    ],
    ids=["bf16", "f32", "f64"],
)
def test_it_takes_the_steps_of_torch(shape, bits, tolerance, adjust, scale, monkeypatch):
    """torch iterates in bfloat16, here `bits=16`; for the others that conversion is taken out."""
    torch = pytest.importorskip("torch")
    if bits > 16:
        monkeypatch.setattr(torch.Tensor, "bfloat16", lambda tensor: tensor.clone())
    weight, gradients = problem(shape, max(bits, 32))
    parameter = torch.nn.Parameter(torch.tensor(weight))
    optimizer = torch.optim.Muon(
        [parameter], lr=RATE, weight_decay=WEIGHT_DECAY, adjust_lr_fn=adjust
    )
    theirs = []
    for g in gradients:
        parameter.grad = torch.tensor(g)
        optimizer.step()
        theirs.append(parameter.detach().numpy().copy())
    with jax.enable_x64(True) if bits == 64 else nullcontext():
        transform = optim.jordan_muon(
            RATE, scale=scale, weight_decay=WEIGHT_DECAY, muon_weight_dimension_numbers=optim.OUT_IN
        )
        ours = weights(transform, jnp.asarray(weight), gradients)
    close(ours, theirs, tolerance)


PARAMS = {
    "w": jnp.ones((2, 3)),
    "head": jnp.ones((3, 2)),
    "b": jnp.ones(3),
    "stack": jnp.ones((2, 2, 3)),
}


@pytest.mark.parametrize(
    ("arguments", "matrices"),
    [
        ({}, {"w", "head"}),
        ({"muon_weight_dimension_numbers": optim.OUT_IN}, {"w", "head"}),
        (
            {
                "muon_weight_dimension_numbers": {
                    "w": optim.IN_OUT,
                    "head": None,
                    "b": None,
                    "stack": optim.IN_OUT,
                }
            },
            {"w", "stack"},
        ),
        (
            {
                "muon_weight_dimension_numbers": lambda p: jax.tree.map(
                    lambda x: None if x.ndim == 1 else optim.OUT_IN, p
                )
            },
            {"w", "head", "stack"},
        ),
        (
            {"labels": {"w": "matrix", "head": "other", "b": "other", "stack": "matrix"}},
            {"w", "stack"},
        ),
        ({"labels": lambda p: {name: "matrix" if name == "w" else "other" for name in p}}, {"w"}),
        ({"muon_weight_dimension_numbers": optax.contrib.MuonDimensionNumbers(1, 2)}, {"stack"}),
        (
            {"muon_weight_dimension_numbers": optax.contrib.MuonDimensionNumbers(-3, (1, -1))},
            {"stack"},
        ),
    ],
    ids=[
        "default",
        "layout",
        "numbers",
        "function-of-numbers",
        "labels",
        "function-of-labels",
        "axes-of-a-stack",
        "three-axes",
    ],
)
def test_who_is_a_matrix(arguments, matrices):
    transform = optim.jordan_muon(0.1, fallback=optax.set_to_zero(), **arguments)
    updates = jax.jit(lambda params: transform.update(params, transform.init(params), params)[0])(
        PARAMS
    )
    assert {name for name, x in updates.items() if np.any(x)} == matrices


def test_wrong_leaves_and_labels_are_refused():
    with pytest.raises(ValueError, match=r"leaf n of dtype int32.*is_inexact_array"):
        optim.jordan_muon(0.1).init({"n": jnp.ones((2, 2), jnp.int32)})
    with pytest.raises(
        ValueError, match=r"""labels must be among matrix, .*, other, got \["'adam'"\]"""
    ):
        optim.jordan_muon(0.1, labels={"w": "adam"}).init({"w": jnp.ones((2, 2))})
    with pytest.raises(ValueError, match=r"leaf dropout\.p of type float; leave it out with"):
        optim.jordan_muon(0.1).init({"w": jnp.ones((2, 2)), "dropout": {"p": 0.1}})


@pytest.mark.integration
def test_weight_decay_can_be_masked_and_never_touches_the_others():
    transform = optim.jordan_muon(
        0.1,
        weight_decay=0.5,
        weight_decay_mask={"w": True, "head": False, "b": True, "stack": True},
    )
    updates = jax.jit(
        lambda p: transform.update(optax.tree.zeros_like(p), transform.init(p), p)[0]
    )(PARAMS)
    np.testing.assert_allclose(updates["w"], -0.05 * np.asarray(PARAMS["w"]), rtol=1e-6)
    assert not any(np.any(updates[name]) for name in ("head", "b", "stack"))


@pytest.mark.parametrize("rate", [None, 1j, math.nan, math.inf, "0.1", True, np.ones(2)], ids=repr)
@pytest.mark.usefixtures("unchecked")
def test_a_learning_rate_is_one_finite_number(rate):
    """None climbed the loss, and 1j did nothing."""
    with pytest.raises(ValueError, match=r"^muon needs [^\n]* learning_rate[^\n]*$"):
        optim.jordan_muon(rate)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("of_params", "of_gradients"),
    [
        ("float32", "bfloat16"),
        ("bfloat16", "float32"),
        ("float32", "float16"),
        ("bfloat16", "float16"),
    ],
)
def test_updates_have_the_dtype_of_the_parameters(of_params, of_gradients):
    """Half of the digits of a gradient do not cost the step more: optax's step in float32."""
    rng = np.random.default_rng(1)
    params = {"w": rng.standard_normal((8, 12)), "b": rng.standard_normal(12)}
    gradients = jax.tree.map(lambda x: jnp.asarray(0.3 * x + 0.1, of_gradients), params)
    params = jax.tree.map(lambda x: jnp.asarray(x, of_params), params)
    ours, theirs = optim.muon(RATE), optax.contrib.muon(RATE)
    found, _ = ours.update(gradients, ours.init(params), params)
    wide, wide_params = (
        jax.tree.map(lambda x: x.astype(jnp.float32), tree) for tree in (gradients, params)
    )
    with jax.numpy_dtype_promotion("standard"):
        expected, _ = theirs.update(wide, theirs.init(wide_params), wide_params)
    assert jax.tree.map(lambda x: x.dtype, found) == jax.tree.map(lambda x: x.dtype, params)
    tolerance = 0.02 if of_params == "bfloat16" else 2e-5
    for name in params:
        np.testing.assert_allclose(
            np.asarray(found[name], float), np.asarray(expected[name], float), atol=tolerance * RATE
        )
