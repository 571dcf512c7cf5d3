"""MuonClip, the Muons of nanochat and modded-nanogpt, and MARS-M against NumPy over ten steps,
written from the authors' code: weights (out, in), one matrix at a time, in float64.
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
SHAPES = {"tall": (6, 4), "wide": (3, 5), "square": (5, 5), "b": (4,)}
GRADIENTS = [{k: RNG.standard_normal(shape) for k, shape in SHAPES.items()} for _ in range(STEPS)]
PARAMS = {name: RNG.standard_normal(shape) for name, shape in SHAPES.items()}
MATRICES = ("tall", "wide", "square")
OUT_IN = {"muon_weight_dimension_numbers": optim.OUT_IN}
LOGITS = [np.abs(RNG.standard_normal(2)) * 150 for _ in range(STEPS)]


def trained(optimizer, params=PARAMS, gradients=GRADIENTS, extra=None):
    params = jax.tree.map(jnp.asarray, params)
    state = optimizer.init(params)

    @jax.jit
    def step(params, state, gradient, given):
        updates, state = optimizer.update(gradient, state, params, **given)
        return optax.apply_updates(params, updates), state

    for i, gradient in enumerate(gradients):
        params, state = step(params, state, gradient, extra(i) if extra else {})
    return params


def momenta(gradients, beta, nesterov=True, corrected=False):
    m, results = 0.0, []
    for t, g in enumerate(gradients, 1):
        m = beta * m + (1 - beta) * g
        m_hat = m / (1 - beta**t) if corrected else m
        results.append((1 - beta) * g + beta * m_hat if nesterov else m_hat)
    return results


def adamw(w, gradients, b1, b2, eps, rate=RATE, decay=0.0):
    """torch's, without Nesterov's step."""
    m = v = 0.0
    for t, g in enumerate(gradients, 1):
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
        w = w * (1 - rate * decay)
        w = w - rate * (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + eps)
    return w


def muon_clip(w, gradients, heads=None, factor=newton_schulz, beta=0.95, power=0.5, tau=100.0):
    """Algorithm 1 of Kimi K2, for heads of two rows each."""
    m = 0.0
    for t, g in enumerate(gradients):
        m = beta * m + g
        w = w - RATE * (0.2 * max(w.shape) ** 0.5 * factor(m) + DECAY * w)
        if heads is not None:
            gamma = np.array([tau / s if s > tau else 1.0 for s in heads[t]])
            w = w * np.repeat(gamma**power, w.shape[0] // len(gamma))[:, None]
    return w


def five_steps_of_polar_express(x, divisor=1.01):
    coefficients = [
        (8.156554524902461, -22.48329292557795, 15.878769915207462),
        (4.042929935166739, -2.808917465908714, 0.5000178451051316),
        (3.8916678022926607, -2.772484153217685, 0.5060648178503393),
        (3.285753657755655, -2.3681294933425376, 0.46449024233003106),
        (2.3465413258596377, -1.7097828382687081, 0.42323551169305323),
    ]
    x = x / (np.linalg.norm(x) * divisor)
    for a, b, c in coefficients:
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


def nanochat(
    w,
    gradients,
    beta=0.95,
    beta2=0.9,
    decay=DECAY,
    factor=five_steps_of_polar_express,
    balanced=True,
    normed=True,
    longer=True,
    cautious=True,
    scaled_decay=True,
):
    """`muon_step_fused` of nanochat/optim.py."""
    v, scale = 0.0, max(1.0, w.shape[0] / w.shape[1]) ** 0.5
    axis = 1 if w.shape[0] >= w.shape[1] or not longer else 0
    for x in momenta(gradients, beta):
        if balanced:
            x = x * np.linalg.norm(x) / x.shape[0] ** 0.5 / np.linalg.norm(x, axis=1)[:, None]
        o = factor(x)
        if normed:
            o = o * min(o.shape) ** 0.5 / np.linalg.norm(o)
        v = beta2 * v + (1 - beta2) * np.mean(o**2, axis=axis, keepdims=True)
        u = o / np.sqrt(v)
        u = u * np.linalg.norm(o) / np.linalg.norm(u)
        mask = u * w >= 0 if cautious else 1.0
        rate = RATE * scale
        w = w - rate * u - (rate if scaled_decay else RATE) * decay * w * mask
    return w


def modded_nanogpt(
    w,
    gradients,
    beta=0.95,
    beta2=0.9,
    decay=DECAY,
    factor=lambda x: five_steps_of_polar_express(x, 1.02),
    longer=True,
    cautious=True,
    squared=True,
    scaled_decay=True,
    rates=None,
):
    """`_normuon_update` of modded-nanogpt's train_gpt.py: `polar_express` with the momentum,
    `_apply_normuon_variance_reduction` and `_cautious_wd_and_update_inplace`.
    """
    rows, columns = w.shape
    axis = -1 if rows >= columns or not longer else -2
    shape_mult, second, buffer = max(1.0, rows / columns) ** 0.5, 0.0, np.zeros_like(w)
    for t, g in enumerate(gradients):
        rate = RATE if rates is None else rates[t]
        buffer = buffer + (1 - beta) * (g - buffer)
        v = factor(g + beta * (buffer - g))
        mean = np.square(v).mean(axis, keepdims=True)
        norm = np.sqrt(mean.sum() * v.shape[axis])
        second = second + (1 - beta2) * (mean - second)
        step_size = 1 / np.sqrt(np.maximum(second, 1e-10))
        new_norm = np.sqrt((mean * v.shape[axis] * step_size**2).sum())
        v = v * step_size * (norm / np.maximum(new_norm, 1e-10))
        mask = v * w >= 0 if cautious else 1.0
        step = shape_mult * rate
        decayed = w * mask * (decay * rate if squared else decay) * (step if scaled_decay else rate)
        w = w - decayed - v * step
    return w


def mars_m(w, gradients, beta=0.95, gamma=0.025, from_zero=False, clip=True, factor=newton_schulz):
    """`MARS_M.step`, which starts from a zero gradient, and the paper, which does not."""
    m, before = 0.0, 0.0 if from_zero else gradients[0]
    for g in gradients:
        c = g + gamma * beta / (1 - beta) * (g - before)
        c = c / max(1.0, np.linalg.norm(c)) if clip else c
        m, before = beta * m + (1 - beta) * c, g
        w = w * (1 - RATE * DECAY) - RATE * 0.2 * max(w.shape) ** 0.5 * factor(m)
    return w


RECIPES = {
    "muon_clip": muon_clip,
    "nanochat": nanochat,
    "modded_nanogpt": modded_nanogpt,
    "mars_m": mars_m,
}
HEADS = {"tall": None, "wide": None, "square": None, "b": None}
ARGUMENTS = {"muon_clip": (HEADS,)}
ADAMW = {
    "muon_clip": (0.9, 0.95, 1e-8),
    "nanochat": (0.8, 0.95, 1e-10),
    "modded_nanogpt": (0.9, 0.99, 1e-10),
    "mars_m": (0.9, 0.95, 1e-8),
}


def made(name, **options):
    options = {"weight_decay": DECAY} | OUT_IN | options
    return getattr(optim, name)(RATE, *ARGUMENTS.get(name, ()), **options)


def of(name, leaf="tall", **how):
    return RECIPES[name](PARAMS[leaf], [g[leaf] for g in GRADIENTS], **how)


def no_logits(_):
    return {"max_logits": HEADS}


@pytest.mark.integration
@pytest.mark.parametrize(
    ("name", "options", "how"),
    [
        ("muon_clip", {}, {}),
        ("muon_clip", {"method": SVD()}, {"factor": polar}),
        ("muon_clip", {"beta": 0.8}, {"beta": 0.8}),
        ("nanochat", {}, {}),
        ("nanochat", {"method": SVD()}, {"factor": polar}),
        ("nanochat", {"beta": 0.8}, {"beta": 0.8}),
        ("nanochat", {"beta2": 0.5}, {"beta2": 0.5}),
        ("nanochat", {"weight_decay": 0.5}, {"decay": 0.5}),
        ("nanochat", {"ns_steps": 5}, {"factor": newton_schulz}),
        ("modded_nanogpt", {}, {}),
        ("modded_nanogpt", {"method": SVD()}, {"factor": polar}),
        ("modded_nanogpt", {"beta": 0.8}, {"beta": 0.8}),
        ("modded_nanogpt", {"beta2": 0.5}, {"beta2": 0.5}),
        ("modded_nanogpt", {"weight_decay": 5.0}, {"decay": 5.0}),
        ("mars_m", {}, {}),
        ("mars_m", {"method": SVD()}, {"factor": polar}),
        ("mars_m", {"beta": 0.8}, {"beta": 0.8}),
        ("mars_m", {"gamma": 0.5}, {"gamma": 0.5}),
    ],
)
def test_ten_steps_are_those_of_the_authors_code(name, options, how):
    found = trained(made(name, **options), extra=no_logits)
    for leaf in MATRICES:
        np.testing.assert_allclose(found[leaf], of(name, leaf, **how), rtol=1e-9, atol=1e-9)
    vectors = [g["b"] for g in GRADIENTS]
    expected = adamw(PARAMS["b"], vectors, *ADAMW[name])
    np.testing.assert_allclose(found["b"], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("muon_clip", {"beta": 0.9}),
        ("nanochat", {"balanced": False}),
        ("nanochat", {"normed": False}),
        ("nanochat", {"cautious": False}),
        ("nanochat", {"scaled_decay": False}),
        ("nanochat", {"beta2": 0.95}),
        ("nanochat", {"factor": newton_schulz}),
        ("modded_nanogpt", {"cautious": False}),
        ("modded_nanogpt", {"squared": False}),
        ("modded_nanogpt", {"scaled_decay": False}),
        ("modded_nanogpt", {"beta2": 0.95}),
        ("modded_nanogpt", {"factor": five_steps_of_polar_express}),
        ("mars_m", {"gamma": 0.0}),
        ("mars_m", {"clip": False}),
    ],
)
def test_the_nearest_wrong_formulas_are_far_away(name, wrong):
    assert np.abs(of(name) - of(name, **wrong)).max() > 1e-4


@pytest.mark.parametrize("name", ["nanochat", "modded_nanogpt"])
def test_moments_go_along_the_longer_side(name):
    assert np.abs(of(name, "wide") - of(name, "wide", longer=False)).max() > 1e-3


@pytest.mark.integration
def test_the_decay_of_modded_nanogpt_follows_the_squared_rate():
    rates = np.linspace(0.1, 0.02, STEPS)
    schedule = optax.linear_schedule(0.1, 0.02, STEPS - 1)
    found = trained(optim.modded_nanogpt(schedule, DECAY, **OUT_IN))
    for leaf in MATRICES:
        expected = of("modded_nanogpt", leaf, rates=rates)
        # optax's schedule is in float32.
        np.testing.assert_allclose(found[leaf], expected, rtol=1e-5, atol=1e-6)


BETAS = {  # `setup_optimizer` of nanochat/gpt.py, `param_table` of modded-nanogpt's train_gpt.py
    "nanochat": {"embedding": (0.8, 0.995), "readout": (0.8, 0.96), "other": (0.8, 0.95)},
    "modded_nanogpt": {"embedding": (0.5, 0.95), "readout": (0.5, 0.95), "other": (0.9, 0.99)},
}


@pytest.mark.integration
@pytest.mark.parametrize("name", BETAS)
def test_each_group_has_the_decays_of_the_code(name):
    groups = {"tall": "embedding", "wide": "matrix", "square": "readout", "b": "other"}
    found = trained(made(name, labels=groups))
    changed = trained(made(name, labels=groups, adam_b2={"readout": 0.5}))
    for leaf, group in groups.items():
        if group == "matrix":
            continue
        b1, b2 = BETAS[name][group]
        gradients = [g[leaf] for g in GRADIENTS]
        expected = adamw(PARAMS[leaf], gradients, b1, b2, 1e-10)
        np.testing.assert_allclose(found[leaf], expected, rtol=1e-9, atol=1e-9)
        expected = adamw(PARAMS[leaf], gradients, b1, 0.5 if group == "readout" else b2, 1e-10)
        np.testing.assert_allclose(changed[leaf], expected, rtol=1e-9, atol=1e-9)


def test_the_divisor_of_nanochat_matters():
    plain = of("nanochat", factor=lambda x: five_steps_of_polar_express(x, 1.0))
    assert np.abs(of("nanochat") - plain).max() > 1e-5


@pytest.mark.parametrize(("power", "threshold"), [(0.5, 100.0), (1.0, 100.0), (0.5, 40.0)])
def test_heads_are_clipped_after_the_step(power, threshold):
    """Two heads of three rows each, above and below the threshold."""
    assert {bool(s > threshold) for logits in LOGITS for s in logits} == {True, False}
    params = {"q": PARAMS["tall"].reshape(2, 3, 4), "out": PARAMS["square"]}
    gradients = [{"q": g["tall"].reshape(2, 3, 4), "out": g["square"]} for g in GRADIENTS]
    whole = optax.contrib.MuonDimensionNumbers(2, (0, 1))
    optimizer = optim.muon_clip(
        RATE,
        {"q": optim.Heads((0,), power), "out": None},
        threshold,
        weight_decay=DECAY,
        muon_weight_dimension_numbers={"q": whole, "out": optim.OUT_IN},
    )
    found = trained(
        optimizer, params, gradients, lambda i: {"max_logits": {"q": LOGITS[i], "out": None}}
    )
    expected = of("muon_clip", heads=LOGITS, power=power, tau=threshold)
    np.testing.assert_allclose(found["q"].reshape(6, 4), expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found["out"], of("muon_clip", "square"), rtol=1e-9, atol=1e-9)


def test_the_first_step_of_mars_is_that_of_the_paper():
    """The code starts from a zero gradient, which a clip to norm 1 hides."""
    np.testing.assert_allclose(of("mars_m"), of("mars_m", from_zero=True), rtol=1e-12)
    small = [{"tall": 0.01 * g["tall"]} for g in GRADIENTS]
    params = {"tall": PARAMS["tall"]}
    found = trained(made("mars_m"), params, small)["tall"]
    gradients = [g["tall"] for g in small]
    np.testing.assert_allclose(found, mars_m(params["tall"], gradients), rtol=1e-9, atol=1e-9)
    code = mars_m(params["tall"], gradients, from_zero=True)
    assert np.abs(found - code).max() > 1e-3


@pytest.mark.integration
def test_exact_mars_takes_the_gradient_at_the_parameters_before():
    before = [jax.tree.map(lambda g: 0.7 * g + 0.1, gradient) for gradient in GRADIENTS]
    optimizer = made("mars_m", exact=True, gamma=0.5)
    found = trained(optimizer, extra=lambda i: {"previous_gradient": before[i]})
    w, m = PARAMS["tall"], 0.0
    for g, old in zip(GRADIENTS, before, strict=True):
        c = g["tall"] + 0.5 * 0.95 / 0.05 * (g["tall"] - old["tall"])
        m = 0.95 * m + 0.05 * c / max(1.0, np.linalg.norm(c))
        w = w * (1 - RATE * DECAY) - RATE * 0.2 * 6**0.5 * newton_schulz(m)
    np.testing.assert_allclose(found["tall"], w, rtol=1e-9, atol=1e-9)
    vectors = [g["b"] for g in GRADIENTS]
    np.testing.assert_allclose(found["b"], adamw(PARAMS["b"], vectors, *ADAMW["mars_m"]), atol=1e-9)


@pytest.mark.integration
@pytest.mark.parametrize("name", RECIPES)
def test_parts_of_a_fused_leaf_step_as_leaves_of_their_own(name):
    whole = {"qk": PARAMS["tall"].T}
    parts = {"q": whole["qk"][:, :4], "k": whole["qk"][:, 4:]}
    fused = [{"qk": g["tall"].T} for g in GRADIENTS]
    alone = [{"q": g["qk"][:, :4], "k": g["qk"][:, 4:]} for g in fused]
    inside = {"muon_weight_dimension_numbers": optim.IN_OUT}
    heads = {"muon_clip": {"heads": None}}.get(name, {})
    make = getattr(optim, name)
    options = heads | inside | {"weight_decay": DECAY}
    found = trained(
        make(RATE, splits={"qk": (4, 2)}, **options), whole, fused, lambda _: {"max_logits": None}
    )
    expected = trained(make(RATE, **options), parts, alone, lambda _: {"max_logits": None})
    np.testing.assert_allclose(
        found["qk"], np.concatenate([expected["q"], expected["k"]], axis=1), atol=1e-12
    )


@pytest.mark.parametrize("name", RECIPES)
def test_routing_shows_leaves_and_scales(name):
    rows = optim.routing(made(name), jax.tree.map(jnp.asarray, PARAMS)).rows
    scale = {row.name: row.scales for row in rows}
    expected = (6 / 4) ** 0.5 if name in BETAS else 0.2 * 6**0.5
    assert scale["b"] == ()
    np.testing.assert_allclose(scale["tall"], expected)


@pytest.mark.integration
def test_nanochat_measures_the_active_part_of_padded_matrices():
    padded = jnp.asarray(np.pad(PARAMS["tall"], ((0, 3), (0, 2))))
    step = optim.nanochat(1.0, sizes=optim.Fans(6, 4))
    update, _ = step.update(padded, step.init(padded), padded)
    np.testing.assert_allclose(np.linalg.norm(update), 2, rtol=1e-6)
    assert not np.any(update[6:])


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: optim.nanochat(0.1, before=None), "nanochat sets before itself; leave it out"),
        (lambda: optim.nanochat(0.1, adaptive=True), "nanochat sets adaptive itself"),
        (lambda: optim.nanochat(0.1, beta2=1.0), r"needs a number in \[0, 1\) as beta, got 1.0"),
        (lambda: optim.modded_nanogpt(0.1, after=None), "modded_nanogpt sets after itself"),
        (
            lambda: optim.nanochat(0.1, adam_b2={"readout": 0.5}).init({"w": jnp.eye(2)}),
            'adam_b2 names "readout", but no leaf has this label',
        ),
        (lambda: optim.mars_m(0.1, before=None), "mars_m sets before itself; leave it out"),
        (lambda: optim.mars_m(0.1, beta=1.0), r"muon needs|momentum needs a number in \[0, 1\)"),
        (lambda: optim.muon_clip(0.1, None, -1.0), r"needs a number in \(0, inf\] as threshold"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_a_wrong_option_is_refused_in_one_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence) as refusal:
        call()
    assert "\n" not in str(refusal.value)


@pytest.mark.integration
def test_a_muon_clip_without_logits_is_refused():
    optimizer = optim.muon_clip(0.1, None)
    params = jax.tree.map(jnp.asarray, PARAMS)
    with pytest.raises(ValueError, match="qk_clip needs parameters and the largest logits"):
        optimizer.update(params, optimizer.init(params), params)
