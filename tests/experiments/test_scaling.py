"""Widths and rates: the trainings are what their parametrizations say, and `specjax scaling` writes a result with a verdict."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from specjax import report
from specjax.cli import main
from specjax.experiments.scaling import ours, study

BASE, WIDTH, RATE = 16, 64, 0.125
KEY = jax.random.key(3)


def moved(problem, width):
    """A model, its gradient on a batch, and what one step of its optimizer adds."""
    model, batch = problem.model(KEY, width), problem.at_step(KEY, 0)
    gradient = jax.grad(problem.loss)(model, batch)
    transformation = problem.transformation(jnp.asarray(RATE), width)
    update, _ = transformation.update(gradient, transformation.init(model), model)
    return [jax.tree.leaves(tree) for tree in (model, gradient, update)]


# Of gradient descent: the first, the hidden, the last layer; in a transformer tables, matrices of the blocks, head.
@pytest.mark.integration
@pytest.mark.parametrize("model", ours.MODELS)
def test_mup_has_rates_by_layer_and_a_smaller_output_and_is_standard_at_its_base(model):
    standard, mup = (ours.problem(model, "sgd", name, BASE) for name in ours.PARAMETRIZATIONS)
    names = ours.MODELS[model].kinds(standard.model(KEY, WIDTH))
    kinds = jax.tree.leaves(names)
    assert set(kinds) == set(ours.KINDS)
    times = {"input": WIDTH / BASE, "hidden": 1.0, "output": BASE / WIDTH}
    start, _, _ = moved(standard, WIDTH)
    for kind, before, (now, gradient, update) in zip(kinds, start, zip(*moved(mup, WIDTH), strict=True), strict=True):
        np.testing.assert_allclose(now, before * (0.5 if kind == "output" else 1.0), rtol=1e-6)
        np.testing.assert_allclose(update, -RATE * times[kind] * gradient, rtol=1e-5, atol=1e-9)
    for one, other in zip(moved(standard, BASE)[2], moved(mup, BASE)[2], strict=True):
        np.testing.assert_array_equal(one, other)


def test_slopes_are_those_of_lines_through_logarithms():
    values = np.random.default_rng(0).uniform(1, 2, (4, 3))
    found = study.slopes(xr.DataArray(values, {"width": [2, 4, 16, 32], "seed": range(3)}, ("width", "seed")))
    np.testing.assert_allclose(found, np.polyfit(np.log([2, 4, 16, 32]), np.log(values), 1)[0], rtol=1e-12)


def test_tokens_follow_one_chain_whatever_the_seed():
    tokens = np.stack([ours.MODELS["transformer"].draw(jax.random.key(seed)).tokens for seed in range(40)])
    assert tokens.shape == (40, ours.SEQUENCES, ours.CONTEXT + 1)
    table = np.asarray(jax.nn.softmax(2 * jax.random.normal(jax.random.key(0), (ours.VOCABULARY,) * 2)))
    before, after = tokens[..., :-1].ravel(), tokens[..., 1:].ravel()
    counts = np.bincount(before, minlength=ours.VOCABULARY)
    often = np.bincount(before, weights=after == np.argmax(table, axis=1)[before], minlength=ours.VOCABULARY)
    likely = table.max(axis=1)
    assert (np.abs(often / counts - likely) < 4.5 * np.sqrt(likely * (1 - likely) / counts)).all()


@pytest.mark.integration
@pytest.mark.usefixtures("optax_promotion")
@pytest.mark.parametrize(
    ("model", "optimizer"), [("mlp", "adamw"), pytest.param("transformer", "muon", marks=pytest.mark.slow)]
)
def test_specjax_scaling_writes_a_result_with_a_verdict(model, optimizer, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    small = ["--widths", "16,32,48,64", "--steps", "2", "--rates", "0.01,0.02,0.04"]
    assert main(["scaling", "--model", model, "--optimizer", optimizer, "--scale", "smoke", *small]) == 0
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
    experiment = study.experiment(model, optimizer)
    # What is stored can be judged again.
    judged = experiment.judge(experiment.at("smoke"), report.load_data(Path("results") / name))
    assert [each.statement.name for each in judged] == ["rate-transfers", "updates-are-stable"]


@pytest.fixture
def optax_promotion():
    """Optax's AdamW does not run under strict promotion."""
    with jax.numpy_dtype_promotion("standard"):
        yield


SENTENCES = {
    "--model mpl": "There is no model 'mpl'; did you mean mlp?",
    "--optimizer lion": "There is no optimizer 'lion'; there are muon, adamw, sgd.",
    "--widths 32,64": "widths needs 4 or more different sizes in ascending order, each at least 1, got (32, 64).",
    "--model transformer --widths 16,24,32,48": "The widths of this transformer need to be multiples of 16, got 24.",
    "--parametrization ntk": "parametrization is standard or mup, got 'ntk'.",
    "--optimizer muon --muon-scale spectral": "muon_scale is one of none, sqrt_max_1_out_over_in, sqrt_out_over_in, point_two_sqrt_max, "
    "got 'spectral'.",
    "--optimizer sgd --muon-scale none": "There is no flag '--muon-scale'; did you mean --scale?",
    "--rates 0.1,0.2": "rates needs three different numbers or more, got (0.1, 0.2); take e.g. powers of 2.",
    "--seeds 3": "seeds must be at least 10, got 3.",
    "--scale huge": "There is no scale 'huge'; there are smoke, quick, paper.",
}


@pytest.mark.parametrize("line", SENTENCES)
def test_wrong_calls_of_specjax_scaling_are_answered_in_a_sentence(line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["scaling", *line.split()]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith(f"specjax: {SENTENCES[line]}")
    assert output.err.count("\n") == 1
    assert not list(tmp_path.glob("results/*/config.json"))


def test_a_model_that_there_is_not_is_refused_in_python_too():
    with pytest.raises(ValueError, match="There is no optimizer 'lion'; there are muon, adamw, sgd"):
        study.experiment("mlp", "lion")
