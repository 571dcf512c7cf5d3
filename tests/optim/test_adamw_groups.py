"""Learning rates of AdamW by group: embedding, readout, and the rest."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from specjax import optim
from specjax.diagnostics import matrix_layout

RNG = np.random.default_rng(0)
SHAPES = {"table": (7, 4), "hidden": (4, 4), "gain": (4,), "head": (4, 7)}
PARAMS = {name: jnp.asarray(RNG.standard_normal(shape), "f") for name, shape in SHAPES.items()}
GRADIENTS = [
    {name: jnp.asarray(RNG.standard_normal(shape), "f") for name, shape in SHAPES.items()}
    for _ in range(5)
]
LABELS = {"table": "embedding", "hidden": "matrix", "gain": "other", "head": "readout"}
RATES = {"embedding": 0.3, "readout": 0.004, "other": 0.04}


def loss(p, tokens):
    return jnp.sum(jnp.tanh(p["table"][tokens] @ p["hidden"] * p["gain"][None]) @ p["head"])


LAYOUT = matrix_layout(loss, PARAMS, jnp.arange(3))
TO_ADAMW = LAYOUT.labelled(readout="other")


def trained(optimizer, names=SHAPES):
    params = {name: PARAMS[name] for name in names}
    state, step = optimizer.init(params), jax.jit(optimizer.update)
    for gradient in GRADIENTS:
        updates, state = step({name: gradient[name] for name in names}, state, params)
        params = optax.apply_updates(params, updates)
    return params


@pytest.mark.integration
@pytest.mark.parametrize(
    "routed", [{"layout": TO_ADAMW}, {"labels": LABELS}], ids=["layout", "labels"]
)
@pytest.mark.parametrize(
    "rates",
    [RATES, RATES | {"readout": optax.linear_schedule(0.1, 0.01, 4)}],
    ids=["numbers", "schedule"],
)
def test_each_group_has_its_rate(routed, rates):
    found = trained(optim.muon(0.02, adam_learning_rate=rates, adam_weight_decay=0.1, **routed))
    for name in ("table", "gain", "head"):
        own = optax.adamw(rates[LABELS[name]], weight_decay=0.1, nesterov=True)
        np.testing.assert_allclose(found[name], trained(own, [name])[name], rtol=1e-6, atol=1e-7)
    alone = trained(optim.muon(0.02), ["hidden"])["hidden"]
    np.testing.assert_allclose(found["hidden"], alone, rtol=1e-5, atol=1e-6)


NUMBERS = {
    "b1": {"embedding": 0.5, "readout": optax.linear_schedule(0.9, 0.5, 4)},
    "b2": {"embedding": 0.95, "other": 0.99},
    "weight_decay": {"readout": 0.3},
}


@pytest.mark.integration
@pytest.mark.parametrize("names", [["b1"], ["b2"], ["weight_decay"], list(NUMBERS)], ids=str)
def test_each_group_has_its_decays(names):
    """A number or a schedule for a group, and optax's default for the groups left out."""
    given = {f"adam_{name}": NUMBERS[name] for name in names}
    found = trained(optim.muon(0.02, layout=TO_ADAMW, adam_nesterov=False, **given))
    for leaf in ("table", "gain", "head"):
        chosen = {name: NUMBERS[name].get(LABELS[leaf]) for name in names}
        chosen = {k: v for k, v in chosen.items() if v is not None}
        own = optax.inject_hyperparams(optax.adamw)(0.02, **{"weight_decay": 0.0} | chosen)
        np.testing.assert_allclose(found[leaf], trained(own, [leaf])[leaf], rtol=1e-5, atol=1e-6)


@pytest.mark.integration
def test_a_group_that_is_left_out_has_the_rate_of_muon():
    found = trained(optim.muon(0.02, adam_learning_rate={"embedding": 0.3}, layout=TO_ADAMW))
    for name, rate in {"table": 0.3, "gain": 0.02, "head": 0.02}.items():
        own = trained(optax.adamw(rate, weight_decay=0, nesterov=True), [name])[name]
        np.testing.assert_allclose(found[name], own, rtol=1e-6, atol=1e-7)


@pytest.mark.integration
def test_one_rate_and_equal_rates_are_the_same():
    one = trained(optim.muon(0.02, adam_learning_rate=0.3, layout=TO_ADAMW))
    many = trained(optim.muon(0.02, adam_learning_rate=dict.fromkeys(RATES, 0.3), layout=TO_ADAMW))
    for name in one:
        np.testing.assert_allclose(one[name], many[name], rtol=1e-6, atol=1e-6)


@pytest.mark.integration
def test_a_schedule_elsewhere_and_a_traced_rate_fit_in():
    def head(rate):
        rates = RATES | {"readout": rate}
        beta = optax.constant_schedule(0.95)
        return trained(optim.muon(0.02, beta=beta, adam_learning_rate=rates, labels=LABELS))["head"]

    plain = trained(optim.muon(0.02, adam_learning_rate=RATES, labels=LABELS))["head"]
    found = jax.vmap(head)(jnp.array([0.004, 0.04]))
    np.testing.assert_allclose(found[0], plain, rtol=1e-5, atol=1e-6)
    assert np.abs(found[1] - plain).max() > 1e-2


@pytest.mark.integration
def test_injected_rates_of_groups_stay_as_they_are():
    """optax makes float32 arrays of the other numbers, also of 0.999."""
    injected = optim.inject_hyperparams(optim.muon)(
        learning_rate=0.02, adam_learning_rate=RATES, layout=TO_ADAMW
    )
    plain = trained(optim.muon(0.02, adam_learning_rate=RATES, layout=TO_ADAMW))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4),
        trained(injected),
        plain,
    )


def test_routing_shows_the_group_of_each_rate():
    optimizer = optim.muon(0.02, adam_learning_rate=RATES, layout=TO_ADAMW)
    table = optim.routing(optimizer, PARAMS)
    groups = {row.name: row.group for row in table.rows}
    assert groups == {"table": "embedding", "hidden": "", "gain": "other", "head": "readout"}
    assert [line.split()[-1] for line in str(table).splitlines()] == [
        "rate",
        "other",
        "readout",
        "1",
        "embedding",
    ]
    plain = optim.routing(optim.muon(0.02, adam_learning_rate=0.3, layout=TO_ADAMW), PARAMS)
    assert "rate" not in str(plain)
    assert not any(row.group for row in plain.rows)


@pytest.mark.integration
def test_jordans_groups_have_rates_and_plain_adamw():
    """torch's AdamW without Nesterov's step, with the decays of Keller Jordan's code."""
    rates = {"embedding": 0.3, "readout": optax.linear_schedule(0.1, 0.01, 4)}
    found = trained(optim.jordan_muon(0.02, adam_learning_rate=rates, labels=LABELS))
    for name, rate in {"table": 0.3, "gain": 0.02, "head": rates["readout"]}.items():
        own = optax.adamw(rate, b1=0.9, b2=0.95, eps=1e-10, weight_decay=0)
        np.testing.assert_allclose(found[name], trained(own, [name])[name], rtol=1e-6, atol=1e-7)
    one = trained(optim.jordan_muon(0.02, labels=LABELS))
    own = optax.adamw(0.02, b1=0.9, b2=0.95, eps=1e-10, weight_decay=0)
    np.testing.assert_allclose(one["head"], trained(own, ["head"])["head"], rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(found["hidden"], one["hidden"])


def test_a_fallback_stands_in_for_jordans_adamw():
    found = trained(optim.jordan_muon(0.02, fallback=optax.sgd(0.1), labels=LABELS))
    expected = PARAMS["gain"] - 0.1 * sum(gradient["gain"] for gradient in GRADIENTS)
    np.testing.assert_allclose(found["gain"], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"adam_learning_rate": {"unembedding": 0.1}},
            "Unknown group 'unembedding' in adam_learning_rate; choose among embedding, readout,"
            " other.",
        ),
        (
            {"adam_learning_rate": {"other": "0.1"}},
            "muon needs a finite number as adam_learning_rate['other'], got '0.1'.",
        ),
        (
            {"adam_b1": {"vectors": 0.9}},
            "Unknown group 'vectors' in adam_b1; choose among embedding, readout, other.",
        ),
        (
            {"adam_learning_rate": RATES, "layout": LAYOUT},
            'adam_learning_rate names "readout", but no leaf has this label; take'
            ' layout=layout.labelled(readout="other") or labels=, or leave it out.',
        ),
        (
            {"adam_learning_rate": RATES},
            'adam_learning_rate names "embedding", but no leaf has this label;'
            " layout=specjax.diagnostics.matrix_layout(loss, params, batch) or labels= finds it, or"
            " leave it out.",
        ),
        (
            {"adam_learning_rate": RATES, "fallback": optax.sgd(0.1)},
            "muon takes fallback= or adam_learning_rate=, not both; leave one out.",
        ),
    ],
)
def test_a_rate_that_no_leaf_can_have_is_refused(options, sentence):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        optim.muon(0.02, **options).init(PARAMS)


def test_a_rate_for_vectors_may_stay_without_leaves():
    """Many models have no biases and gains."""
    found = optim.muon(0.02, adam_learning_rate={"other": 0.1}, labels="matrix")
    found.init({"hidden": PARAMS["hidden"]})
