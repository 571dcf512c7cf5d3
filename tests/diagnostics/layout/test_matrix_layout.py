"""`matrix_layout` against what a person says of every leaf of models as people write them."""

from collections import namedtuple
from importlib.util import find_spec

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from optax.contrib import MuonDimensionNumbers

from specjax import optim
from specjax.diagnostics import matrix_layout
from tests.diagnostics.layout import frameworks
from tests.diagnostics.layout.models import (
    BATCH,
    EXPERTS,
    HIDDEN,
    LAYERS,
    MODELS,
    TEXT,
    D,
    by_product,
    fused,
    scanned_transformer,
    shaped,
    weighted_experts,
)

OF_FRAMEWORKS = [
    pytest.param(
        make,
        id=name,
        marks=[
            pytest.mark.skipif(find_spec(framework) is None, reason=f"{framework} is not installed")
        ],
    )
    for framework, models in frameworks.MODELS.items()
    for name, make in models.items()
]
EQUINOX = [
    pytest.param(make, id=name, marks=pytest.mark.integration)
    for name, make in MODELS.items()
    if "equinox" in name
]
OWN = [pytest.param(make, id=name) for name, make in MODELS.items() if "equinox" not in name]


@pytest.fixture(autouse=True)
def as_users_write():
    """Models of users add a bias to a batch, and numbers of one dtype to another."""
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        yield


def in_words(row):
    """A row in the words of the truth."""
    if row.label == "other":
        return row.kind
    widths, turns = (
        row.splits if isinstance(row.splits, optim.Interleaved) else (row.splits or (), 1)
    )
    splits = (
        " / " + f"{turns} turns of " * (turns > 1) + " ".join(map(str, widths)) if widths else ""
    )
    return " ".join(row.axes) + splits


@pytest.mark.parametrize("make", [*OWN, *EQUINOX, *OF_FRAMEWORKS])
def test_every_leaf_is_what_a_person_says(make):
    loss, params, batch, truth = make()
    layout = matrix_layout(loss, params, batch)
    assert {row.name: in_words(row) for row in layout.rows} == truth, str(layout)


def test_heads_readouts_and_reasons_are_told():
    rows = {row.name: row for row in matrix_layout(*scanned_transformer()[:3]).rows}
    assert [name for name, row in rows.items() if row.readout] == ["head"]
    heads = {f"blocks.{name}" for name in ("query", "key", "value", "out")}
    assert {name: row.heads for name, row in rows.items() if row.heads} == dict.fromkeys(heads, 2)
    assert rows["blocks.query"].matrices == ((4, 8, 6),)
    assert (
        rows["blocks.query"].reason
        == "multiplies activations; axis 0 counts the layers of a scan; 2 heads in its outputs"
    )
    assert (
        "tied readout"
        in {row.name: row for row in matrix_layout(*fused()[:3]).rows}["embedding"].reason
    )


@pytest.mark.integration
def test_a_layout_goes_straight_into_muon():
    """One step on the fused model moves what is a matrix by factors whose parts have singular
    values 1, each part of its own.
    """
    loss, shapes, _, _ = fused()
    rng = np.random.default_rng(0)
    params = {
        name: jnp.asarray(rng.standard_normal(x.shape, np.float32)) for name, x in shapes.items()
    }
    tokens = jnp.asarray(rng.integers(0, 11, TEXT.shape, np.int32))
    layout = matrix_layout(loss, params, tokens)
    optimizer = optim.jordan_muon(
        1.0,
        scale="none",
        method=lambda x: jnp.linalg.qr(x.T)[0].T,
        labels=layout.labels,
        muon_weight_dimension_numbers=layout.dimension_numbers,
        splits=layout.splits,
    )

    @jax.jit
    def step(params):
        return optimizer.update(jax.grad(loss)(params, tokens), optimizer.init(params), params)[0]

    updates = jax.device_get(step(params))
    for part in (*np.split(updates["qkv"], [8, 12], axis=1), *np.moveaxis(updates["three"], 1, 0)):
        # QR makes the shorter side orthonormal.
        gram = part @ part.T if part.shape[0] <= part.shape[1] else part.T @ part
        assert np.allclose(gram, np.eye(len(gram)), atol=1e-4)
    by_routing = {row.name: row.matrices for row in optim.routing(optimizer, params).rows}
    assert by_routing == {
        row.name: row.matrices if row.label == "matrix" else () for row in layout.rows
    }


def test_leaves_of_another_container_are_found_by_name():
    """As the state of a flax module, and a part of the parameters."""
    weights = {"first": jnp.ones((4, 8)), "bias": jnp.ones(8), "table": jnp.ones((8, 3))}
    layout = matrix_layout(
        lambda p, x: jnp.sum(jnp.tanh(x @ p["first"] + p["bias"]) @ p["table"]),
        weights,
        jnp.ones((2, 4)),
    ).labelled(readout="other")
    muon = optim.muon(0.1, layout=layout)
    container = namedtuple("Container", ("table", "bias", "first"))(**weights)
    assert {row.name: row.optimizer for row in optim.routing(muon, container).rows} == {
        "first": "matrix",
        "bias": "other",
        "table": "other",
    }
    assert len(optim.routing(muon, {"first": weights["first"]}).rows) == 1
    with pytest.raises(ValueError, match=r"^The layout has no leaf second, only bias, first"):
        muon.init({"second": jnp.ones((4, 8))})


@pytest.mark.integration
def test_a_flax_module_goes_in_as_a_whole():
    """Its optimizer sees the state of its parameters, without random counters."""
    nnx = pytest.importorskip("flax.nnx")
    model = nnx.Sequential(
        nnx.Linear(4, 8, rngs=nnx.Rngs(0)),
        nnx.Dropout(0.5, rngs=nnx.Rngs(1)),
        nnx.Linear(8, 3, rngs=nnx.Rngs(2)),
    )

    def loss(model, x):
        return jnp.sum(model(x) ** 2)

    muon = optim.muon(0.1, layout=matrix_layout(loss, model, jnp.ones((2, 4))))
    optimizer = nnx.Optimizer(model, muon, wrt=nnx.Param)
    before = loss(nnx.view(model, deterministic=True), jnp.ones((2, 4)))
    optimizer.update(model, nnx.grad(loss)(model, jnp.ones((2, 4))))
    assert loss(nnx.view(model, deterministic=True), jnp.ones((2, 4))) < before


def test_large_models_cost_nothing():
    """Seventy billion parameters, none of which exists."""
    d, layers = 8192, 80

    def loss(p, x):
        def block(x, p):
            return (
                x + jax.nn.silu(x @ p["gate"]) * (x @ p["up"]) @ p["down"].T + (x @ p["square"]),
                None,
            )

        return jnp.mean(lax.scan(block, x, p)[0] ** 2)

    params = {
        **{name: shaped(layers, d, 3 * d, dtype=jnp.bfloat16) for name in ("gate", "up")},
        "down": shaped(layers, d, 3 * d, dtype=jnp.bfloat16),
        "square": shaped(layers, d, d, dtype=jnp.bfloat16),
    }
    layout = matrix_layout(loss, params, shaped(4, d, dtype=jnp.bfloat16))
    assert {row.name: " ".join(row.axes) for row in layout.rows} == {
        "down": "batch out in",
        "gate": "batch in out",
        "square": "batch in out",
        "up": "batch in out",
    }


@pytest.mark.usefixtures("unchecked")
def test_labels_of_readouts_and_kinds_can_be_chosen():
    layout = matrix_layout(*scanned_transformer()[:3])
    other = layout.labelled(readout="other")
    assert layout.labels["head"] == "matrix"
    assert other.labels["head"] == "other"
    assert other.labels["blocks"] == layout.labels["blocks"]
    with pytest.raises(
        ValueError, match="Unknown kind of leaves 'embedding'; choose one of readout, linear"
    ):
        layout.labelled(embedding="other")
    with pytest.raises(ValueError, match=r"A label is .* got 'adam'"):
        layout.labelled(readout="adam")
    with pytest.raises(
        ValueError,
        match="The leaf embedding cannot be labelled a matrix: its entries are looked up",
    ):
        layout.labelled(lookup="matrix")


def test_two_readings_are_said_and_either_can_be_chosen():
    loss, params, batch, _ = weighted_experts(by_product)
    layout = matrix_layout(loss, params, batch)
    readings = {row.name: row.other_reading for row in layout.rows}
    whole = {"wi_1": MuonDimensionNumbers(2, (1, 3)), "wo": MuonDimensionNumbers((1, 2), 3)}
    assert readings == dict.fromkeys(readings) | whole | {"wi_0": whole["wi_1"]}
    assert str(layout).count("axis 1 counts experts, or gated heads of one matrix") == 3
    chosen = layout.with_leaf("wo", readings["wo"]).with_leaf("gate", None)
    found = {row.name: row for row in optim.routing(optim.muon(0.1, layout=chosen), params).rows}
    assert found["wo"].matrices == ((LAYERS, EXPERTS * HIDDEN, D),)
    assert found["gate"].optimizer == "other"
    assert found["wi_0"].matrices == ((LAYERS * EXPERTS, D, HIDDEN),)


@pytest.mark.parametrize(
    ("name", "numbers", "sentence"),
    [
        ("up", None, "The layout has no leaf 'up', only gate, "),
        (
            "wo",
            MuonDimensionNumbers(1, 4),
            "The dimension numbers of the leaf wo need different",
        ),
    ],
)
def test_a_leaf_that_is_set_wrongly_is_refused(name, numbers, sentence):
    layout = matrix_layout(*weighted_experts(by_product)[:3])
    with pytest.raises(ValueError, match=f"^{sentence}"):
        layout.with_leaf(name, numbers)


def test_leaves_that_are_no_parameters_are_passed_through():
    def loss(p, batch):
        assert p["name"] == "relu"
        return jnp.mean((batch[0] @ p["w"] * p["count"] - batch[1]) ** 2)

    params = {"w": shaped(8, 1), "count": shaped(dtype=jnp.int32), "name": "relu"}
    layout = matrix_layout(loss, params, BATCH)
    assert layout.labels == {"w": "matrix", "count": None, "name": None}


def test_closed_over_arrays_are_data_if_the_batch_has_none():
    x = jnp.ones((7, 8))

    def loss(p, _):
        return jnp.mean(((x * p["gain"]) @ p["w"]) ** 2)

    layout = matrix_layout(loss, {"gain": shaped(8), "w": shaped(8, 2)}, None)
    assert {row.name: in_words(row) for row in layout.rows} == {"gain": "gain", "w": "in out"}


@pytest.mark.usefixtures("unchecked")
def test_a_loss_that_cannot_be_read_is_refused():
    with pytest.raises(
        ValueError,
        match=r"program depends on the values of the batch's leaf kept, as with a boolean mask",
    ):
        matrix_layout(
            lambda w, b: jnp.sum((b["x"] @ w)[b["kept"]]),
            shaped(8, 1),
            {"x": BATCH[0], "kept": shaped(7, dtype=bool)},
        )
    with pytest.raises(ValueError, match="program depends on the values of the batch's leaf 1, as"):
        matrix_layout(
            lambda w, b: jnp.sum(b[0] @ w) if b[1][0, 0] > 0 else 0.0, shaped(8, 1), BATCH
        )
    with pytest.raises(
        ValueError, match="program depends on the values of the parameters or the batch"
    ):
        matrix_layout(lambda w, b: jnp.sum(b[0] @ w) if w[0, 0] > 0 else 0.0, shaped(8, 1), BATCH)


def test_without_a_layout_muon_warns_of_stacks():
    params = {"blocks": {"w": jnp.ones((3, 4, 5)), "b": jnp.ones((3, 5))}, "head": jnp.ones((5, 2))}
    with pytest.warns(
        UserWarning,
        match=r"blocks\.w \(3, 4, 5\).*stacked vectors for matrices: blocks\.b \(3, 5\); pass",
    ):
        optim.jordan_muon(0.1).init(params)
    labels = jax.tree.map(lambda _: "other", params)
    optim.jordan_muon(0.1, labels=labels).init(params)
    optim.jordan_muon(0.1).init({"head": jnp.ones((5, 2)), "bias": jnp.ones(2)})


def test_an_axis_that_two_branches_use_in_two_ways_is_the_first():
    """A tied autoencoder: the same matrix there and, transposed, back."""
    layout = matrix_layout(
        lambda w, x: jnp.mean((jnp.tanh(x @ w) @ w.T - x) ** 2), shaped(8, 3), shaped(7, 8)
    )
    (row,) = layout.rows
    assert (row.name, in_words(row)) == ("the only leaf", "in out")


def test_keys_in_a_batch_are_data():
    def loss(p, batch):
        x, key = batch
        kept = jax.random.bernoulli(key, 0.9, x.shape)
        return jnp.mean((jnp.where(kept, x, 0) * p["gain"]) @ p["w"])

    params = {"gain": shaped(8), "w": shaped(8, 2)}
    layout = matrix_layout(loss, params, (shaped(7, 8), jax.random.key(0)))
    assert {row.name: in_words(row) for row in layout.rows} == {"gain": "gain", "w": "in out"}
