"""Widths and rates: the trainings are what their parametrizations say, and `specjax scaling` writes
a result with a verdict.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from specjax import report, sizes
from specjax.cli import main
from specjax.experiments.scaling import (
    best_rates,
    builtin_models,
    perceptron,
    rates,
    scaling_cli,
    updates,
)
from specjax.experiments.scaling.perceptron import LAYERS, SETTINGS

BASE, WIDTH, RATE = 16, 64, 0.125
KEY = jax.random.key(3)


def moved(problem, width):
    """A model, its gradient on a batch, and what one step of its optimizer adds."""

    @jax.jit
    def step():
        model, batch = problem.model(KEY, width), problem.at_step(KEY, 0)
        gradient = jax.grad(problem.loss)(model, batch)
        transformation = problem.transformation(jnp.asarray(RATE), width)
        update, _ = transformation.update(gradient, transformation.init(model), model)
        return model, gradient, update

    return [list(map(np.asarray, jax.tree.leaves(tree))) for tree in step()]


# Of gradient descent: the first, the hidden, the last layer; in a transformer tables, matrices of
# the blocks, head.
@pytest.mark.integration
@pytest.mark.parametrize(
    "model",
    [
        pytest.param(model, marks=pytest.mark.slow) if model == "transformer" else model
        for model in builtin_models.MODELS
    ],
)
def test_mup_has_rates_by_layer_and_is_standard_at_its_base(model):
    standard, mup = (
        builtin_models.problem(model, "sgd", name, BASE) for name in builtin_models.PARAMETRIZATIONS
    )
    names = builtin_models.MODELS[model].kinds(jax.eval_shape(lambda: standard.model(KEY, WIDTH)))
    kinds = jax.tree.leaves(names)
    assert set(kinds) == set(builtin_models.KINDS)
    times = {"input": WIDTH / BASE, "hidden": 1.0, "output": BASE / WIDTH}
    start, _, _ = moved(standard, WIDTH)
    for kind, before, (now, gradient, update) in zip(
        kinds, start, zip(*moved(mup, WIDTH), strict=True), strict=True
    ):
        np.testing.assert_allclose(now, before * (0.5 if kind == "output" else 1.0), rtol=1e-6)
        np.testing.assert_allclose(update, -RATE * times[kind] * gradient, rtol=1e-5, atol=1e-9)
    for one, other in zip(moved(standard, BASE)[2], moved(mup, BASE)[2], strict=True):
        np.testing.assert_array_equal(one, other)


def test_slopes_are_those_of_lines_through_logarithms():
    values = np.random.default_rng(0).uniform(1, 2, (4, 3))
    found = scaling_cli.slopes(
        xr.DataArray(values, {"width": [2, 4, 16, 32], "seed": range(3)}, ("width", "seed"))
    )
    np.testing.assert_allclose(
        found, np.polyfit(np.log([2, 4, 16, 32]), np.log(values), 1)[0], rtol=1e-12
    )


@pytest.mark.integration
def test_the_perceptron_follows_its_settings_at_each_layer():
    narrow, wide = perceptron.BASE, 64 * perceptron.BASE
    adam = SETTINGS["Adam, μP"]
    weights = {
        width: perceptron.problem("Adam", adam.last, adam.factors(width)).build(KEY, width)
        for width in (narrow, wide)
    }
    assert [np.shape(weights[narrow][name]) for name in LAYERS] == [(32, 8), (32, 32), (8, 32)]
    deviations = [np.std(np.asarray(weights[wide][name])) for name in LAYERS]
    # In standard parametrization the last would be 1/√2048, in μP it is 1/8 of that.
    assert deviations == pytest.approx([8**-0.5, wide**-0.5, wide**-0.5 / 8], rel=0.05)
    np.testing.assert_allclose(adam.factors(4 * narrow), [1, 1 / 4, 1 / 4])
    np.testing.assert_allclose(SETTINGS["gradient descent, μP"].factors(4 * narrow), [4, 1, 1 / 4])
    # Of layers with 8 inputs, 128 hidden units and 8 outputs.
    scales = {
        "none": [1, 1, 1],
        "√max(1, out/in)": [4, 1, 1],
        "√(out/in)": [4, 1, 1 / 4],
        "0.2 √max": [0.2 * 128**0.5] * 3,
    }
    for name, expected in scales.items():
        np.testing.assert_allclose(
            SETTINGS[f"Muon, {name}"].factors(4 * narrow), expected, rtol=1e-6
        )


@pytest.mark.slow
def test_the_sizes_of_updates_are_those_of_numpy():
    setting, width = SETTINGS["gradient descent, μP"], 48
    data = updates.run(updates.Config(widths=(40, 48), seeds=10), KEY)
    key = jax.random.fold_in(sizes.stream(KEY, "networks"), 2)
    problem = perceptron.problem("gradient descent", setting.last, setting.factors(width))
    before, (x, y) = problem.model(key, width), problem.at_step(key, 0)
    gradient = jax.grad(perceptron.loss)(before, (x, y))
    rate = updates.SMALL * setting.rate * np.array([width / 32, 1.0, 32 / width])
    step = {
        name: -each * np.asarray(gradient[name]) for name, each in zip(LAYERS, rate, strict=True)
    }
    after = {name: np.asarray(before[name]) + step[name] for name in LAYERS}
    h = np.maximum(np.asarray(x) @ after["first"].T, 0)
    inputs = (np.asarray(x), h, np.maximum(h @ after["hidden"].T, 0))
    expected = [
        np.sqrt(np.mean((z @ step[name].T) ** 2)) for name, z in zip(LAYERS, inputs, strict=True)
    ]
    found = (
        data["update"]
        .sel(setting="gradient descent, μP", width=width, seed=2)
        .sel(layer=list(LAYERS))
    )
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def curves(power):
    """Losses of every setting in twelve seeds, exp of a parabola in log(rate) about a best rate of
    width^power.
    """
    config = rates.Config()
    factors = 2.0 ** np.arange(-config.below, config.above + 1)
    widths = np.array(config.widths)
    # Each seed has an optimum of its own; that of a group is the middle of those of its seeds.
    own = np.tile([0.7, 1.3, 1.3, 0.7], 3)
    middle = power * np.log2(widths / widths[0])[:, None, None] + own
    curve = np.exp(0.05 * (np.log2(factors)[None, :, None] - middle) ** 2)
    coords = {"width": widths, "factor": factors, "seed": range(12), "setting": list(SETTINGS)}
    return config, xr.Dataset(
        {"loss": (tuple(coords), np.repeat(curve[..., None], len(SETTINGS), axis=3))}, coords
    )


def test_the_best_rate_of_a_group_and_its_exponent():
    config, data = curves(-1)
    expected = 2.0 * config.widths[0] / np.array(config.widths)
    found = best_rates.best(data).sel(setting="Adam").transpose("width", "seed")
    np.testing.assert_allclose(found, np.repeat(expected[:, None], 3, axis=1), rtol=0.02)
    np.testing.assert_allclose(best_rates.exponents(data, "Adam"), -1, atol=0.01)


@pytest.mark.integration
def test_falling_best_rates_are_distinguished_from_constant_ones():
    # All settings are the same here, so that a control that puts one in the place of another
    # changes nothing: the numbers alone.
    found = {
        power: {s.name: s.find(config, data).verdict for s in rates.EXPERIMENT.statements}
        for power in (-1, 0)
        for config, data in [curves(power)]
    }
    falling = {"gradient-descent", "adam", "muon-adamw-rms", "muon-original", "muon-none"}
    staying = {"mup-gradient-descent", "muon-spectral", "muon-none-stays"}
    assert {name for name in falling | staying if found[-1][name] == "confirmed"} == falling
    assert {name for name in falling | staying if found[0][name] == "confirmed"} == staying
    assert (
        {found[0][name] for name in falling} == {found[-1][name] for name in staying} == {"refuted"}
    )
    # A rate of the narrowest that is six times too large at the widest.
    assert (
        float(best_rates.cost(curves(-1)[1], "Adam").mean())
        > 0.25
        > float(best_rates.cost(curves(0)[1], "Adam").mean())
    )


@pytest.mark.integration
def test_tokens_follow_one_chain_whatever_the_seed():
    draw = jax.jit(
        jax.vmap(
            lambda seed: builtin_models.MODELS["transformer"].draw(jax.random.key(seed)).tokens
        )
    )
    tokens = np.asarray(draw(np.arange(40)))
    assert tokens.shape == (40, builtin_models.SEQUENCES, builtin_models.CONTEXT + 1)
    table = np.asarray(
        jax.nn.softmax(2 * jax.random.normal(jax.random.key(0), (builtin_models.VOCABULARY,) * 2))
    )
    before, after = tokens[..., :-1].ravel(), tokens[..., 1:].ravel()
    counts = np.bincount(before, minlength=builtin_models.VOCABULARY)
    often = np.bincount(
        before,
        weights=after == np.argmax(table, axis=1)[before],
        minlength=builtin_models.VOCABULARY,
    )
    likely = table.max(axis=1)
    assert (np.abs(often / counts - likely) < 4.5 * np.sqrt(likely * (1 - likely) / counts)).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "optimizer"), [("mlp", "sgd"), ("mlp", "adamw"), ("transformer", "muon")]
)
def test_specjax_scaling_writes_a_result_with_a_verdict(
    model, optimizer, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    small = ["--widths", "16,32,48,64", "--steps", "2", "--rates", "0.01,0.02,0.04"]
    assert (
        main(["scaling", "--model", model, "--optimizer", optimizer, "--scale", "smoke", *small])
        == 0
    )
    name = f"scaling-{model}-{optimizer}"
    printed = capsys.readouterr().out
    assert f"{name}  rate-transfers" in printed
    result = report.load(Path("results") / name)
    assert [check.name for check in result.checks] == ["rate-transfers", "updates-are-stable"]
    rates, layers = result.tables[:2]
    assert [row[0] for row in rates.rows] == ["16", "32", "48", "64"]
    named = {row[0] for row in layers.rows}
    assert (
        named == {"0", "1", "2"}
        if model == "mlp"
        else named > {"embedding", "head", "blocks.query[0]", "blocks.down[1]"}
    )
    assert name in Path("results/report.html").read_text()
    experiment = scaling_cli.experiment(model, optimizer)
    # Stored data can be judged again.
    judged = experiment.judge(experiment.at("smoke"), report.load_data(Path("results") / name))
    assert [each.statement.name for each in judged] == ["rate-transfers", "updates-are-stable"]


SENTENCES = {
    "--model mpl": "There is no model 'mpl'; did you mean mlp?",
    "--optimizer lion": "There is no optimizer 'lion'; there are muon, adamw, sgd.",
    "--widths 32,64": (
        "widths needs 4 or more different sizes in ascending order, each at least 1, got (32, 64)."
    ),
    "--model transformer --widths 16,24,32,48": (
        "The widths of this transformer need to be multiples of 16, got 24."
    ),
    "--parametrization ntk": "parametrization is standard or mup, got 'ntk'.",
    "--optimizer muon --muon-scale spectral": (
        "muon_scale is one of none, sqrt_max_1_out_over_in, sqrt_out_over_in, point_two_sqrt_max, "
        "got 'spectral'."
    ),
    "--optimizer sgd --muon-scale none": "There is no flag '--muon-scale'; did you mean --scale?",
    "--rates 0.1,0.2": (
        "rates needs three different numbers or more, got (0.1, 0.2); take e.g. powers of 2."
    ),
    "--seeds 3": "seeds must be at least 10, got 3.",
    "--scale huge": "There is no scale 'huge'; there are smoke, quick, paper.",
}


@pytest.mark.parametrize("line", SENTENCES)
def test_wrong_calls_of_specjax_scaling_get_one_sentence(line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["scaling", *line.split()]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith(f"specjax: {SENTENCES[line]}")
    assert output.err.count("\n") == 1
    assert not list(tmp_path.glob("results/*/config.json"))


def test_a_model_that_there_is_not_is_refused_in_python_too():
    with pytest.raises(
        ValueError, match="There is no optimizer 'lion'; there are muon, adamw, sgd"
    ):
        scaling_cli.experiment("mlp", "lion")
