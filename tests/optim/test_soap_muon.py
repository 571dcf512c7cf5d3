"""SOAP-Muon against NumPy, written from the record's `Muon.step`: weights (out, in), one matrix at
a time, in float64.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from specjax import optim
from tests.optim.test_muon_recipes import adamw, momenta, trained
from tests.reference.optimizer_steps import eigenbasis, grams, isotropic, next_basis

pytestmark = [pytest.mark.usefixtures("x64"), pytest.mark.slow]
RNG = np.random.default_rng(3)
STEPS, RATE = 10, 0.05
SHAPES = {"w": (5, 5), "zero": (5, 5), "tall": (6, 4), "wide": (3, 5), "b": (4,)}
GRADIENTS = [{k: RNG.standard_normal(shape) for k, shape in SHAPES.items()} for _ in range(STEPS)]
PARAMS = {k: RNG.standard_normal(shape) for k, shape in SHAPES.items()} | {"zero": np.zeros((5, 5))}
OUT_IN = {"muon_weight_dimension_numbers": optim.OUT_IN}


def schatten_4(x):
    return np.linalg.norm(x @ x.T) ** 0.5


def twelve_steps(x):
    x = x / schatten_4(x)
    for _ in range(12):
        gram = x @ x.T
        x = 2 * x + (-1.5 * gram + 0.5 * gram @ gram) @ x
    return x


def preconditioned(gradients, beta=0.95, beta2=0.9, every=1, of_gradient=False, free=False):
    """What is orthogonalized in each step; `free` is V as published in a null space."""
    results, bases, v = [], None, 0.0
    for t, (g, d) in enumerate(zip(gradients, momenta(gradients, beta), strict=True)):
        if bases is None:
            results.append(d)
            sides = [(1 - beta2) * h for h in grams(g)]
            bases = [eigenbasis(h) for h in sides]
            continue
        (left, no_left), (right, no_right) = bases
        rotated = left.T @ d @ right
        squares = (left.T @ g @ right if of_gradient else rotated) ** 2
        if not free:
            squares = isotropic(isotropic(squares, no_left).T, no_right).T
        v = beta2 * v + (1 - beta2) * squares
        results.append(left @ (rotated / np.sqrt(v)) @ right.T)
        sides = [beta2 * old + (1 - beta2) * new for old, new in zip(sides, grams(g), strict=True)]
        if t % every == 0:
            shares, bases = zip(*map(next_basis, sides, bases), strict=True)
            v = shares[0].T @ v @ shares[1]
    return results


def soap_muon(
    w,
    gradients,
    decay=0.025,
    floor=0.3825,
    outward=0.5,
    pinned=True,
    by_row=True,
    decay_first=False,
    rate=RATE,
    **how,
):
    for x in preconditioned(gradients, **how):
        u = twelve_steps(x) * max(1.0, w.shape[0] / w.shape[1]) ** 0.5
        radius = max(np.linalg.norm(w), 1e-8)
        coefficient = np.sum(u * w) / max(np.sum(w * w), 1e-12)
        if coefficient < 0:
            u = u - (1 - outward) * coefficient * w
        axis = 1 if by_row else None
        norms = [np.linalg.norm(a, axis=axis, keepdims=True).clip(1e-8) for a in (w, u)]
        u = u * np.maximum(floor * norms[0] / norms[1], 1)
        target = max(radius - rate * np.sum(u * w) / radius, 1e-8)
        kept = 1 - rate * decay * (u * w > 0)
        w = w * kept if decay_first else w
        w = w - rate * u
        w = w * target / max(np.linalg.norm(w), 1e-8) if pinned else w
        w = w if decay_first else w * kept
    return w


def of(name="w", **how):
    return soap_muon(PARAMS[name], [g[name] for g in GRADIENTS], **how)


@pytest.mark.parametrize(
    ("options", "how"),
    [
        ({}, {}),
        ({"weight_decay": 0.5}, {"decay": 0.5}),
        ({"floor": 1.5}, {"floor": 1.5}),
        ({"beta2": 0.5}, {"beta2": 0.5}),
        ({"beta": 0.8}, {"beta": 0.8}),
        ({"outward": 0.0}, {"outward": 0.0}),
        ({"every": 3}, {"every": 3}),
        ({"learning_rate": 0.0}, {"rate": 0.0}),
    ],
    ids=str,
)
def test_ten_steps_are_those_of_the_record(options, how):
    found = trained(
        optim.soap_muon(**{"learning_rate": RATE} | OUT_IN | options), PARAMS, GRADIENTS
    )
    for name in ("w", "zero", "tall", "wide"):
        np.testing.assert_allclose(found[name], of(name, **how), rtol=1e-7, atol=1e-9)
    vectors = [g["b"] for g in GRADIENTS]
    rate = options.get("learning_rate", RATE)
    expected = adamw(PARAMS["b"], vectors, 0.8, 0.99, 1e-10, rate)
    np.testing.assert_allclose(found["b"], expected, rtol=1e-9, atol=1e-9)


def test_square_matrices_need_no_mean_over_a_null_space():
    """So these steps are those of the record as it is published."""
    np.testing.assert_allclose(of(free=True), of(), rtol=1e-12)


@pytest.mark.parametrize(
    "wrong",
    [
        {"beta2": 0.95},
        {"of_gradient": True},  # V of the gradient, as in SOAP
        {"outward": 1.0},
        {"by_row": False},
        {"floor": 1e-9},
        {"pinned": False},
        {"decay": 0.0},
        {"decay_first": True},
        {"every": 2},
    ],
    ids=str,
)
def test_the_nearest_wrong_formulas_are_far_away(wrong):
    assert np.abs(of() - of(**wrong)).max() > 1e-5


def test_parts_of_a_fused_leaf_have_bases_and_radii_of_their_own():
    params = {"qk": np.concatenate([PARAMS["w"].T, PARAMS["tall"].T[:, :5].repeat(2, 0)[:5]], 1)}
    gradients = [{"qk": np.concatenate([g["w"].T, g["zero"]], axis=1)} for g in GRADIENTS]
    parts = {"q": params["qk"][:, :5], "k": params["qk"][:, 5:]}
    alone = [{"q": g["qk"][:, :5], "k": g["qk"][:, 5:]} for g in gradients]
    found = trained(optim.soap_muon(RATE, splits={"qk": (5, 5)}), params, gradients)
    expected = trained(optim.soap_muon(RATE), parts, alone)
    np.testing.assert_allclose(
        found["qk"], np.concatenate([expected["q"], expected["k"]], axis=1), atol=1e-10
    )


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: optim.soap_muon(0.1, sizes=None), "soap_muon sets sizes itself; leave it out"),
        (lambda: optim.soap_muon(0.1, floor=0.0), r"needs a number in \(0, inf\) as floor"),
        (lambda: optim.soap_muon(0.1, beta2=1.0), r"soap_muon needs a number in \[0, 1\) as beta2"),
        (
            lambda: optim.soap_muon(0.1, every=0),
            "soap_muon needs a whole number of at least 1 as every",
        ),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_a_wrong_option_is_refused_in_one_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence) as refusal:
        call()
    assert "\n" not in str(refusal.value)


def test_a_schedule_reaches_the_radius():
    rate = optax.linear_schedule(RATE, 0.0, 3)
    found = trained(optim.soap_muon(rate, **OUT_IN), PARAMS, GRADIENTS[:5])
    frozen = trained(optim.soap_muon(rate, **OUT_IN), PARAMS, GRADIENTS[:4])
    np.testing.assert_array_equal(found["w"], frozen["w"])
    assert all(bool(jnp.all(jnp.isfinite(x))) for x in jax.tree.leaves(found))
