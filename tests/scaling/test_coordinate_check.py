"""The coordinate check: every quantity is NumPy's, textbook exponents come out, and wrong
parametrizations are caught.
"""

import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import xarray as xr
from matplotlib import pyplot as plt

from specjax import optim, scaling
from specjax.fits import RoughFitWarning
from specjax.scaling._coordinates import QUANTITIES
from specjax.sizes import stream
from tests.wrong_calls import wrong_calls

D, OUT, SAMPLES = 8, 4, 6
X = jax.random.normal(jax.random.key(7), (SAMPLES, D))
Y = jax.random.normal(jax.random.key(8), (SAMPLES, OUT))
BATCH = (X, Y)
WIDTHS = (16, 48, 144, 432)


def network(hidden=lambda width: width**-0.5, last=lambda width: width**-0.5):
    """A network of three layers, weights stored as (out, in), with standard deviations of its
    weights.
    """

    def build(key, width):
        first, second, third = jax.random.split(key, 3)
        return {
            "first": jax.random.normal(first, (width, D)) * D**-0.5,
            "hidden": jax.random.normal(second, (width, width)) * hidden(width),
            "last": jax.random.normal(third, (OUT, width)) * last(width),
        }

    return build


def forward(model, x):
    h = jax.nn.relu(x @ model["first"].T)
    return jax.nn.relu(h @ model["hidden"].T) @ model["last"].T


def loss(model, batch):
    x, y = batch
    return jnp.mean((forward(model, x) - y) ** 2)


def loss_over_width(model, batch):
    """With the output multiplier of μP."""
    x, y = batch
    return jnp.mean((forward(model, x) / model["last"].shape[1] - y) ** 2)


def by_layer(**factors):
    """Adam with a rate for each layer: the factors are functions of the width."""

    def optimizer(rate, width):
        return optax.partition(
            {
                name: optax.adam(rate * factors.get(name, lambda _: 1.0)(width))
                for name in ("first", "hidden", "last")
            },
            {name: name for name in ("first", "hidden", "last")},
        )

    return optimizer


def muon(scale, dimension_numbers=optim.OUT_IN):
    return lambda rate: optim.jordan_muon(
        rate, scale=scale, muon_weight_dimension_numbers=dimension_numbers
    )


def one_over(width):
    return 1 / width


MUP = {
    "build": network(last=lambda _: 1.0),
    "loss": loss_over_width,
    "optimizer": by_layer(hidden=one_over),
}
SGD = {"optimizer": optax.sgd}
ADAM = {"optimizer": optax.adam}
SPECTRAL = {"optimizer": muon("sqrt_out_over_in"), "build": network(last=one_over)}
# Exponents of ΔW x after one step, of the first, the hidden and the last layer (Yang and Hu 2021
# for gradient descent and Adam; a polar factor has norm 1, and with inputs in its row space ΔW x
# has the norm of x times the scale).
KNOWN = {
    "gradient descent": (SGD, (-0.5, 0.5, 1.0)),
    "Adam": (ADAM, (0.0, 1.0, 1.0)),
    "μP": (MUP, (0.0, 0.0, 0.0)),
    "Muon, spectral scale": (SPECTRAL, (0.0, 0.0, 0.0)),
    "Muon, no scale": ({"optimizer": muon("none")}, (-0.5, 0.0, 0.5)),
}
MISTAKES = {
    "μP without the output multiplier": (MUP | {"loss": loss}, "last", "grows"),
    "Adam's rate not scaled": (MUP | {"optimizer": optax.adam}, "hidden", "grows"),
    "Adam's rate scaled twice": (
        MUP | {"optimizer": by_layer(hidden=lambda width: width**-2.0)},
        "hidden",
        "vanishes",
    ),
    "the first layer's rate scaled too": (
        MUP | {"optimizer": by_layer(first=one_over, hidden=one_over)},
        "first",
        "vanishes",
    ),
    "Muon with the scale of another layout": (
        SPECTRAL | {"optimizer": muon("sqrt_out_over_in", optim.IN_OUT)},
        "last",
        "grows",
    ),
    "Muon with Keller Jordan's scale": (
        SPECTRAL | {"optimizer": muon("sqrt_max_1_out_over_in")},
        "last",
        "grows",
    ),
    "hidden weights of variance 1": (
        MUP | {"build": network(hidden=lambda _: 1.0, last=lambda _: 1.0)},
        "hidden",
        "grows",
    ),
}


def check(build=None, loss=loss, optimizer=optax.sgd, **settings):
    settings = {"rate": 1e-3, "widths": WIDTHS, "batch": BATCH, "steps": 1} | settings
    return scaling.coordinate_check(build or network(), loss, optimizer, progress=False, **settings)


def rms(x):
    return np.sqrt(np.mean(np.asarray(x, np.float64) ** 2))


@pytest.fixture(scope="module")
def small():
    """Two steps of gradient descent on batches that are drawn, at tiny widths."""

    def draw(key):
        return jax.random.normal(key, (SAMPLES, D)), Y

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RoughFitWarning)
        return draw, check(
            MUP["build"],
            loss_over_width,
            rate=0.3,
            widths=(4, 6, 8),
            steps=2,
            num_seeds=3,
            batch=draw,
            key=jax.random.key(5),
        )


@pytest.mark.integration
def test_every_quantity_is_that_of_numpy(small):
    draw, found = small
    build, seed, width = MUP["build"], 2, 6
    key = jax.random.fold_in(jax.random.key(5), seed)
    weights = jax.jit(build, static_argnums=1)(stream(key, "weights"), width)
    gradient = jax.jit(jax.grad(loss_over_width))
    start = model = {name: np.asarray(w) for name, w in weights.items()}
    for step in range(2):
        batch = draw(jax.random.fold_in(stream(key, "batches"), step))
        gradients = gradient(model, batch)
        model = {
            name: np.asarray(w) - 0.3 * np.asarray(gradients[name]) for name, w in model.items()
        }
    # All on the first step's batch.
    x = np.asarray(draw(jax.random.fold_in(stream(key, "batches"), 0))[0])

    def inputs(model):
        first = np.maximum(x @ model["first"].T, 0)
        return {"first": x, "hidden": first, "last": np.maximum(first @ model["hidden"].T, 0)}

    now, before = inputs(model), inputs(start)
    for place, name in enumerate(("first", "hidden", "last")):
        w, update = model[name], model[name] - start[name]
        after = 1 / width if name == "last" else 1.0
        expected = {
            "input": rms(now[name]),
            "input_change": rms(now[name] - before[name]),
            "output": rms(after * now[name] @ w.T),
            "output_change": rms(after * (now[name] @ w.T - before[name] @ start[name].T)),
            "update_output": rms(after * now[name] @ update.T),
            "weight_rms": rms(w),
            "update_rms": rms(update),
            "weight_norm": np.linalg.norm(w, 2),
            "update_norm": np.linalg.norm(update, 2),
        }
        assert list(expected) == list(QUANTITIES)
        assert str(found.data.layer.values[place]) == name
        at = found.data.sel(width=width, seed=seed, step=2).isel(layer=place)
        for quantity, number in expected.items():
            # A power iteration is a lower bound.
            assert float(at[quantity]) == pytest.approx(
                number, rel=2e-2 if "norm" in quantity else 1e-4, abs=1e-6
            ), quantity


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore::specjax.fits.RoughFitWarning")
def test_layers_of_one_shape_keep_their_places():
    entries = {"a": 1.0, "b": 2.0, "c": 3.0, "d": 5.0}

    def build(_, width):
        shapes = {"a": (width, width), "b": (2 * width, width), "c": (width, 2 * width)}
        shapes["d"] = shapes["a"]
        return {name: jnp.full(shapes[name], entry) for name, entry in entries.items()}

    def product(model, widths):
        x = jnp.ones((model["a"].shape[0], SAMPLES)) / widths
        return jnp.mean((model["d"] @ (model["c"] @ (model["b"] @ (model["a"] @ x)))) ** 2)

    found = check(build, product, rate=1e-20, widths=(4, 6, 8), num_seeds=2, batch=jnp.array(8.0))
    first = found.data.sel(width=8, step=0).isel(seed=0)
    assert first.layer.values.tolist() == ["a", "b", "c", "d"]
    assert first["weight_rms"].values.tolist() == pytest.approx([1, 2, 3, 5])
    # Matrices of rank one, from x = 1/8: 1, 16, 16 · 16 · 3, and 8 · 5 times that.
    assert first["weight_norm"].values.tolist() == pytest.approx(
        [8, 2 * 8 * 2**0.5, 3 * 8 * 2**0.5, 40], rel=1e-4
    )
    assert first["output"].values.tolist() == pytest.approx([1, 16, 768, 30720])


@pytest.mark.integration
def test_before_training_nothing_has_changed(small):
    _, found = small
    for row in found.at(0):
        assert (row.verdict == "zero") == (
            row.quantity
            in ("input_change", "output_change", "update_output", "update_rms", "update_norm")
        )
    with pytest.raises(ValueError, match="There are the steps 0 to 2, got 3"):
        found.at(3)


@pytest.mark.integration
def test_it_prints_a_table_with_a_verdict_and_draws_every_layer(small):
    _, found = small
    lines = str(found).splitlines()
    assert lines[0].split() == ["layer", "quantity", "exponent", "interval", "verdict"]
    assert len(lines) == 1 + 3 * 3 + 1
    assert len(found.table(1, tuple(QUANTITIES)).splitlines()) == 1 + 3 * 9
    with pytest.raises(ValueError, match="There is no quantity 'outputs'"):
        found.table(quantities=["outputs"])
    axes = found.plot()
    assert [text.get_text().split(":")[0] for text in axes.get_legend().get_texts()] == [
        "first",
        "hidden",
        "last",
    ]
    assert axes.get_ylabel().startswith("RMS of ΔW x")
    with pytest.raises(ValueError, match="There is no quantity 'outputs'"):
        found.plot("outputs")
    plt.close("all")


@pytest.mark.slow
@pytest.mark.parametrize("name", KNOWN)
def test_updates_have_their_textbook_exponents(name):
    settings, exponents = KNOWN[name]
    found = check(**settings, num_seeds=40)
    updates = [row for row in found.rows if row.quantity == "update_output"]
    # The nearest wrong exponent is 1/2 away; a finite width leaves some hundredths.
    assert [row.exponent for row in updates] == pytest.approx(exponents, abs=0.1)
    words = {-0.5: "vanishes", 0.0: "stable", 0.5: "grows", 1.0: "grows"}
    assert [row.verdict for row in updates] == [words[exponent] for exponent in exponents]
    assert found.verdict == ("stable" if exponents == (0.0, 0.0, 0.0) else "not stable")


@pytest.mark.slow
@pytest.mark.parametrize("name", MISTAKES)
def test_a_planted_mistake_is_caught_in_its_layer(name):
    settings, layer, verdict = MISTAKES[name]
    found = check(**settings, num_seeds=40)
    assert found.verdict == "not stable"
    assert (layer, verdict) in {(row.layer, row.verdict) for row in found.wrong}
    assert f"{verdict} as width^" in str(found)


@pytest.mark.slow
def test_an_equinox_module_with_biases_and_nan_is_accepted():
    class Model(eqx.Module):
        embedding: jax.Array
        mlp: eqx.nn.MLP

        def __init__(self, key, width):
            self.embedding = jax.random.normal(key, (5, width))
            self.mlp = eqx.nn.MLP(width, 2, width, 1, key=key)

        def __call__(self, token):
            return self.mlp(self.embedding[token])

    def mean(model, batch):
        return jnp.mean(jax.vmap(model)(batch) ** 2)

    tokens = jnp.array([0, 1, 1, 4])
    with pytest.warns(RoughFitWarning, match="Verdicts on 4 seeds and 3 widths are rough"):
        found = scaling.coordinate_check(
            Model,
            mean,
            optax.sgd,
            rate=0.1,
            widths=(4, 8, 16),
            batch=tokens,
            steps=1,
            num_seeds=4,
            progress=False,
        )
    assert found.data.layer.values.tolist() == [
        "embedding",
        "mlp.layers.0.weight",
        "mlp.layers.1.weight",
    ]
    assert found.data.other.values.tolist() == ["mlp.layers.0.bias", "mlp.layers.1.bias"]
    width, key = 8, jax.random.fold_in(jax.random.key(0), 1)
    model = Model(stream(key, "weights"), width)
    moved = eqx.apply_updates(
        model, jax.tree.map(lambda g: -0.1 * g, eqx.filter_grad(mean)(model, tokens))
    )
    at = found.data.sel(width=width, seed=1, step=1)
    change = moved.embedding - model.embedding
    assert float(at.output.sel(layer="embedding")) == pytest.approx(
        rms(moved.embedding[tokens]), rel=1e-4
    )
    assert float(at.update_output.sel(layer="embedding")) == pytest.approx(
        rms(change[tokens]), rel=1e-3
    )
    assert float(at.input.sel(layer="embedding")) == pytest.approx(
        rms(jax.nn.one_hot(tokens, 5)), rel=1e-5
    )
    bias = moved.mlp.layers[0].bias - model.mlp.layers[0].bias
    assert float(at.other_update_rms.sel(other="mlp.layers.0.bias")) == pytest.approx(
        rms(bias), rel=1e-3
    )

    def diverging(model, batch):
        return mean(model, batch) + jnp.where(model.embedding[0, 0] > 0.5, jnp.nan, 0.0) * jnp.sum(
            model.embedding
        )

    with pytest.warns(RoughFitWarning):
        found = scaling.coordinate_check(
            Model,
            diverging,
            optax.sgd,
            rate=0.1,
            widths=(4, 8, 16),
            batch=tokens,
            steps=1,
            num_seeds=4,
            progress=False,
        )
    assert found.verdict == "not decided"
    assert any("It is NaN or infinite at width" in row.reason for row in found.rows)


WRONG_CALLS = """
widths=(16, 32)
    A coordinate check needs 3 different widths or more, got [16, 32].
steps=0
    A coordinate check needs one step or more and a positive rate, got steps=0 and rate=0.001.
rate=0
    A coordinate check needs one step or more and a positive rate, got steps=1 and rate=0.
build=lambda key, width: network()(key, width) | {"extra": jnp.ones(width)}, loss=lambda model,
batch: (loss(model, batch) + (jnp.sum(batch[0][0, :2] @ model["extra"].reshape(2, -1)) if
len(model["extra"]) > 16 else 0.0))
    build needs to give the same layers at every width, got ['first', 'hidden', 'last'] at 16 and
    ['first', 'hidden', 'last', 'extra'] at 48.
loss=lambda model, batch: sum(jnp.sum(leaf) for leaf in jax.tree.leaves((model, batch)))
    No parameter enters a matrix product in this model, so its table of layers would be empty.
"""


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("arguments", "sentence"), wrong_calls(WRONG_CALLS))
def test_a_wrong_call_is_answered_in_a_sentence(arguments, sentence):
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        eval(f"check({arguments})")
    assert str(refused.value) == sentence


def test_the_last_line_names_the_three_worst_of_what_is_wrong():
    exponents = {"a": 0.4, "b": -0.9, "c": 0.6, "d": 0.5, "e": 0.45}
    rows = tuple(
        scaling.Row(
            name,
            "update_output",
            3,
            "vanishes" if power < 0 else "grows",
            power,
            (power - 0.1, power + 0.1),
            "",
        )
        for name, power in exponents.items()
    )
    data = xr.Dataset(coords={"step": [0, 1, 2, 3]})
    worst = [
        "the update of b vanishes as width^-0.90 (-1.00 to -0.80)",
        "the update of c grows as width^0.60 (0.50 to 0.70)",
        "the update of d grows as width^0.50 (0.40 to 0.60)",
    ]
    last = repr(scaling.CoordinateCheck(data, rows)).splitlines()[-1]
    assert last == f"Not stable after 3 steps: {'; '.join(worst)}; and 2 more."
    last = repr(scaling.CoordinateCheck(data, rows[1:4])).splitlines()[-1]
    assert last == f"Not stable after 3 steps: {'; '.join(worst)}."
