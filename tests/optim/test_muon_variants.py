"""NorMuon and AdaMuon against NumPy over ten steps, written from the authors' code: weights (out,
in), one matrix at a time, in float64.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from specjax import optim
from specjax.spectral import SVD
from tests.reference.optimizer_steps import newton_schulz, polar

pytestmark = pytest.mark.usefixtures("x64")
RNG = np.random.default_rng(0)
STEPS, RATE, DECAY = 10, 0.05, 0.2
GRADIENTS = [
    {"w": RNG.standard_normal((6, 4)), "wide": RNG.standard_normal((3, 5)), "b": RNG.random(4)}
    for _ in range(STEPS)
]
PARAMS = {"w": RNG.standard_normal((6, 4)), "wide": RNG.standard_normal((3, 5)), "b": RNG.random(4)}


def trained(optimizer, params=PARAMS, gradients=GRADIENTS):
    params = jax.tree.map(jnp.asarray, params)
    state, step = optimizer.init(params), jax.jit(optimizer.update)
    for gradient in gradients:
        updates, state = step(jax.tree.map(jnp.asarray, gradient), state, params)
        params = optax.apply_updates(params, updates)
    return params


def momenta(gradients, beta, nesterov=True, corrected=False):
    m, results = 0.0, []
    for t, g in enumerate(gradients, 1):
        m = beta * m + (1 - beta) * g
        own = (1 - beta**t, 1 - beta ** (t + 1)) if corrected else (1, 1)
        results.append((1 - beta) * g / own[0] + beta * m / own[1] if nesterov else m)
    return results


def normuon(w, gradients, axis=1, factor=newton_schulz, beta2=0.95, same_norm=True, **how):
    """`normuon_update` of the authors: the mean over the last axis, which are the inputs."""
    v = 0.0
    for m in momenta(gradients, 0.95, **how):
        o = factor(m)
        v = beta2 * v + (1 - beta2) * np.mean(o * o, axis=axis, keepdims=True)
        u = o / np.sqrt(v)
        u = u * np.linalg.norm(o) / np.linalg.norm(u) if same_norm else u
        u = u * max(1, w.shape[0] / w.shape[1]) ** 0.5
        w = w * (1 - RATE * DECAY) - RATE * u
    return w


def adamuon(w, gradients, sign=np.sign, factor=newton_schulz, square=np.square, **how):
    """Algorithm 1, and with `nesterov` the authors' code for GPT-2."""
    v, beta, eps = 0.0, 0.95, 1e-8
    for m in momenta(gradients, beta, **how):
        o = factor(sign(m))
        v = beta * v + (1 - beta) * square(o)
        u = o / (np.sqrt(v) + eps)
        u = 0.2 * w.size**0.5 / np.linalg.norm(u) * u
        w = w - RATE * (u + DECAY * w)
    return w


def adamw(w, gradients, rate):
    """AdamW as `muon` has it by default, with its Nesterov step (Dozat 2016)."""
    m = v = 0.0
    for t, g in enumerate(gradients, 1):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        ahead = 0.9 * m / (1 - 0.9 ** (t + 1)) + 0.1 * g / (1 - 0.9**t)
        w = w - rate * ahead / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    return w


RECIPES = {"normuon": normuon, "adamuon": adamuon}


def of(name, gradients_of="w", **how):
    return RECIPES[name](PARAMS[gradients_of], [g[gradients_of] for g in GRADIENTS], **how)


OUT_IN = {"weight_decay": DECAY, "muon_weight_dimension_numbers": optim.OUT_IN}


@pytest.mark.integration
@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("options", [{}, {"nesterov": False}, {"method": SVD()}], ids=str)
def test_ten_steps_are_those_of_the_authors_code(name, options):
    found = trained(getattr(optim, name)(RATE, **OUT_IN, **options))
    how = {"factor": polar} if "method" in options else options
    for leaf in ("w", "wide"):
        np.testing.assert_allclose(found[leaf], of(name, leaf, **how), rtol=0, atol=1e-9)
    vectors = [g["b"] for g in GRADIENTS]
    if options.get("nesterov", True):
        np.testing.assert_allclose(found["b"], adamw(PARAMS["b"], vectors, RATE), atol=1e-9)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("normuon", {"axis": 0}),  # the mean over the outputs
        ("normuon", {"axis": (0, 1)}),  # Muon itself
        ("normuon", {"beta2": 0.9}),
        ("normuon", {"same_norm": False}),
        ("normuon", {"nesterov": False}),
        ("normuon", {"corrected": True}),
        ("adamuon", {"sign": lambda m: m}),  # version 1
        ("adamuon", {"square": lambda o: np.mean(o * o)}),  # no second moment
        ("adamuon", {"square": lambda o: np.mean(o * o, axis=1, keepdims=True)}),  # NorMuon's
        ("adamuon", {"nesterov": False}),
        ("adamuon", {"corrected": True}),
    ],
)
def test_the_nearest_wrong_formulas_are_far_away(name, wrong):
    assert np.abs(of(name) - of(name, **wrong)).max() > 1e-3


@pytest.mark.integration
@pytest.mark.parametrize("name", RECIPES)
def test_fused_matrices_step_as_leaves_of_their_own(name):
    make = getattr(optim, name)
    parts = {"q": PARAMS["w"][:, :3], "k": PARAMS["w"][:, 3:]}
    split = [{"q": g["w"][:, :3], "k": g["w"][:, 3:]} for g in GRADIENTS]
    whole = {"qk": PARAMS["w"]}
    fused = trained(make(RATE, splits={"qk": (3, 1)}), whole, [{"qk": g["w"]} for g in GRADIENTS])
    alone = trained(make(RATE), parts, split)
    np.testing.assert_allclose(
        fused["qk"], np.concatenate([alone["q"], alone["k"]], axis=1), atol=1e-12
    )
    mixed = trained(make(RATE), whole, [{"qk": g["w"]} for g in GRADIENTS])
    assert np.abs(mixed["qk"] - fused["qk"]).max() > 1e-3


@pytest.mark.integration
@pytest.mark.parametrize("per", ["output", "longer"])
def test_neurons_of_parts_have_moments_of_their_own(per):
    leaf = np.stack([g["w"] for g in GRADIENTS[:2]])
    split = {"qk": optim.Interleaved((1, 1), 2)}
    step = optim.scale_by_neuron_moment(per=per, splits=split)
    both, state = step.update({"qk": jnp.asarray(leaf)}, step.init({"qk": jnp.asarray(leaf)}))
    alone = optim.scale_by_neuron_moment(per=per)
    for i in range(2):
        part = jnp.asarray(leaf[..., i::2])
        found, kept = alone.update(part, alone.init(part))
        np.testing.assert_allclose(both["qk"][..., i::2], found, atol=1e-12)
        np.testing.assert_allclose(state.rms["qk"][i], kept.rms, atol=1e-12)


@pytest.mark.parametrize("name", RECIPES)
def test_a_layout_routes_the_whole_recipe(name):
    optimizer = getattr(optim, name)(
        RATE, labels={"w": "matrix", "wide": "embedding", "b": "other"}
    )
    rows = optim.routing(optimizer, jax.tree.map(jnp.asarray, PARAMS)).rows
    assert {row.name: row.optimizer for row in rows} == {
        "w": "matrix",
        "wide": "other",
        "b": "other",
    }
    wide = [g["wide"] for g in GRADIENTS]
    expected = adamw(PARAMS["wide"], wide, RATE)
    np.testing.assert_allclose(trained(optimizer)["wide"], expected, atol=1e-9)


@pytest.mark.integration
def test_adamuon_measures_padded_matrices_by_their_active_part():
    padded = jnp.asarray(np.pad(PARAMS["w"], ((0, 3), (0, 2))))
    step = optim.adamuon(1.0, sizes=optim.Fans(6, 4))
    update, _ = step.update(padded, step.init(padded), padded)
    np.testing.assert_allclose(np.linalg.norm(update), 0.2 * 24**0.5, rtol=1e-6)
    assert not np.any(update[6:])


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: optim.normuon(0.1, after=None), "normuon sets after itself; leave it out"),
        (lambda: optim.adamuon(0.1, scale="none"), "adamuon sets scale itself; leave it out"),
        (lambda: optim.adamuon(0.1, 1.0), r"adamuon needs a number in \[0, 1\) as beta, got 1.0"),
        (lambda: optim.adamuon(0.1, eps=0), r"adamuon needs a number in \(0, inf\) as eps, got 0"),
        (
            lambda: optim.normuon(0.1, per="row"),
            "needs one of 'output', 'longer' as per, got 'row'",
        ),
        (lambda: optim.normuon(0.1, 1.0), r"needs a number in \[0, 1\) as beta, got 1.0"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_a_wrong_option_is_refused_in_one_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence) as refusal:
        call()
    assert "\n" not in str(refusal.value)
