"""`specjax sweep`: a file of one function, from the command line to numbers that are known."""

import json
import subprocess
import sys

import numpy as np
import pytest
import xarray as xr

from specjax.cli import main
from specjax.cli._axis_syntax import parse_axes
from specjax.cli._errors import UserError

FILE = '''
import jax
import jax.numpy as jnp
import numpy as np
from specjax import sizes

THREE = 3


def measure(key, d):
    """The mean is d."""
    return jnp.sum(sizes.normal(key, (d,)) ** 2)


def two(key, d):
    return {"one": measure(key, d), "other": measure(key, d) ** 2}


def loss(key, d, rate):
    return jnp.log(rate * d) ** 2 + 1 + 0.1 * jax.random.normal(key)


def rarely_finite(key, d):
    x = jax.random.normal(key)
    return jnp.where(x > 1, jnp.nan, d + jax.random.normal(jax.random.fold_in(key, d)))


def to_numpy(key, d):
    return np.linalg.norm(sizes.normal(key, (d,)))


def broken(key, d):
    return sizes.normal(key, (d,)).missing


def padded(key, d):
    return jnp.mean(sizes.normal(key, (d,)))
'''


@pytest.fixture(autouse=True)
def user_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "net.py").write_text(FILE)
    yield
    sys.modules.pop("net", None)


def results(capsys, *arguments):
    """What `specjax sweep` prints as JSON."""
    assert main(["sweep", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def refusal(capsys, *arguments):
    assert main(["sweep", *arguments]) == 2
    return capsys.readouterr().err


@pytest.mark.integration
def test_exponent_of_a_function_from_the_command_line(capsys, tmp_path):
    found = results(capsys, "net.py:measure", "--over", "d=8:128", "--seeds", "400")
    (fit,) = found["fits"]
    low, high = fit["interval"]
    assert fit["sizes"] == [8, 16, 32, 64, 128]
    assert low < 1 < high
    assert high - low < 0.1
    assert (tmp_path / found["figure"]).stat().st_size > 5000
    data = xr.load_dataset(tmp_path / found["data"])
    np.testing.assert_allclose(data["measure"].mean("seed"), fit["means"], rtol=1e-6)


@pytest.mark.integration
def test_a_wrong_exponent_and_formula_are_refuted(capsys):
    found = results(
        capsys,
        "net.py:measure",
        *("--over", "d=8:256", "--seeds", "4000", "--exponent", "1", "0.8"),
        *("--versus", "right=d", "three=THREE*d/sqrt(9)+1"),
    )
    verdicts = {name: each["verdict"] for name, each in found["verdicts"].items()}
    assert verdicts == {
        "d^1": "confirmed",
        "d^0.8": "refuted",
        "right": "confirmed",
        "three": "refuted",
    }


@pytest.mark.integration
def test_the_value_of_least_loss_at_each_size(capsys):
    over = ("--over", "d=8:64", "rate=0.004:0.4:9")
    found = results(capsys, "net.py:loss", *over, "--optimum", "rate")
    low, high = found["optima"]["loss"]["interval"]
    assert low < -1 < high
    assert found["fits"] == []


@pytest.mark.integration
def test_more_seeds_go_on_and_an_edit_begins_anew(capsys, tmp_path):
    def means(seeds):
        over = ("--over", "d=8,12,16,20", "--seeds", str(seeds))
        return results(capsys, "net.py:measure", *over)["fits"][0]["means"]

    def stores():
        return sorted(
            path.name for path in (tmp_path / "results/sweeps/net-measure").glob("store*")
        )

    first, kept = means(20), stores()
    assert means(40) != first
    assert stores() == kept
    (tmp_path / "net.py").write_text(FILE.replace("** 2)", "** 2) + 100"))
    np.testing.assert_allclose(means(20), np.add(first, 100), rtol=1e-6)
    assert len(stores()) == 2


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore::specjax.sweep.FailedSeedsWarning")
def test_seeds_that_are_not_finite_are_left_out_and_said(capsys):
    found = results(capsys, "net.py:rarely_finite", "--over", "d=8:64")
    (fit,) = found["fits"]
    assert "are NaN or infinite at some size, and are left out" in fit["against"][0]
    assert abs(fit["exponent"] - 1) < 0.1


@pytest.mark.integration
def test_moments_of_many_seeds_have_the_same_means(capsys):
    arguments = ("net.py:measure", "--over", "d=8,16,32,64", "--seeds", "640")
    plain = results(capsys, *arguments)["fits"]
    by_moments = results(capsys, *arguments, "--moments")["fits"]
    assert [each["output"] for each in by_moments] == ["measure"]
    np.testing.assert_allclose(by_moments[0]["means"], plain[0]["means"], rtol=1e-5)
    more = results(capsys, *arguments[:-1], "1280", "--moments")["fits"]
    assert more[0]["means"] != by_moments[0]["means"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["net.py:meazure", "--over", "d=8:64"], "did you mean measure?"),
        (["nett.py:measure", "--over", "d=8:64"], "There is no file nett.py"),
        (["net.py", "--over", "d=8:64"], "Say which function of net.py to measure"),
        (["net.py:measure"], "Say what to sweep"),
        ([], "The function comes first"),
        (["net.py:measure", "--over", "d=64:8"], "needs to begin below its end"),
        (["net.py:measure", "--over", "8:64"], "--over needs NAME=POINTS"),
        (["net.py:measure", "--over", "d=8:64", "d=3"], "The axis 'd' is given twice"),
        (["net.py:measure", "--over", "d=8:64", "--seeds", "0"], "from 1 on, got '0'"),
        (["net.py:measure", "--over", "d=8:64", "--exponent", "1"], "at least 5 sizes d, got 4"),
        (["net.py:measure", "--over", "d=8:64", "--versus", "f=d^2"], "write a power as **"),
        (["net.py:measure", "--over", "d=8:64", "--versus", "f=q"], "name 'q' is not defined"),
        (["net.py:measure", "--over", "d=8:64", "--along", "e"], "for --along 'e'; there is d."),
        (["net.py:measure", "--over", "width=8:64"], "rename its arguments"),
    ],
)
def test_a_mistake_is_one_sentence_before_any_file(arguments, sentence, capsys, tmp_path):
    error = refusal(capsys, *arguments)
    assert sentence in error
    assert error.startswith("specjax: ")
    assert error.count("\n") == 1
    assert not list(tmp_path.rglob("data.nc"))


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        ("to_numpy", "hands a traced value to NumPy at"),
        ("broken", "failed: AttributeError"),
        ("padded", "or take --plan exact"),
    ],
)
def test_an_error_in_the_function_shows_its_line_alone(function, sentence, capsys):
    error = refusal(capsys, f"net.py:{function}", "--over", "d=8:64")
    assert sentence in error
    assert "site-packages" not in error
    assert "specjax/sweep" not in error
    if function == "broken":
        assert "sizes.normal(key, (d,)).missing" in error


@pytest.mark.integration
def test_judging_one_of_several_outputs_needs_its_name(capsys, tmp_path):
    over = ("--over", "d=8:128", "--seeds", "30", "--exponent", "1")
    assert "Say which output to judge" in refusal(capsys, "net.py:two", *over)
    # The data are kept all the same.
    assert (tmp_path / "results/sweeps/net-two/data.nc").exists()
    assert "d^1" in results(capsys, "net.py:two", *over, "--output", "one")["verdicts"]


def test_axes_as_text_have_their_kinds():
    axes = parse_axes(["d=10:100", "rate=0.1,1", "n=4:32:4", "act=relu,2"], ["k=1,2"], ["depth=2"])
    assert {name: (axis.kind, axis.points) for name, axis in axes.items()} == {
        "d": ("widths", (10, 20, 40, 80)),
        "rate": ("values", (0.1, 1.0)),
        "n": ("widths", (4, 8, 16, 32)),
        "act": ("choices", ("relu", "2")),
        "k": ("values", (1, 2)),
        "depth": ("choices", (2,)),
    }
    assert parse_axes(["rate=0.001:1:4"], [], [])["rate"].points == (0.001, 0.01, 0.1, 1.0)
    with pytest.raises(UserError, match="a range is FROM:TO"):
        parse_axes(["d=8:a"], [], [])


@pytest.mark.integration
def test_the_example_runs_and_keeps_an_older_file(tmp_path):
    command = [sys.executable, "-m", "specjax", "sweep", "--example", "--seeds", "20"]
    first = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert "muon against d" in first.stdout
    example = tmp_path / "example_sweep.py"
    assert len(example.read_text().splitlines()) <= 15
    example.write_text(example.read_text() + "# mine\n")
    again = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert "which this wrote" not in again.stdout
    assert example.read_text().endswith("# mine\n")


@pytest.mark.integration
def test_a_changed_import_names_the_flag_for_another_store(capsys, tmp_path):
    (tmp_path / "helper.py").write_text("FACTOR = 1.0\n")
    (tmp_path / "net.py").write_text(
        FILE + "\n\nfrom helper import FACTOR\n\n\ndef scaled(key, d):\n"
        "    return FACTOR * measure(key, d)\n"
    )
    arguments = ("net.py:scaled", "--over", "d=8,16,32,64", "--seeds", "20")
    results(capsys, *arguments)
    (tmp_path / "helper.py").write_text("FACTOR = 2.00\n")
    for name in ("net", "helper"):
        sys.modules.pop(name, None)
    error = refusal(capsys, *arguments)
    assert "delete that folder, or choose another --out" in error
    sys.modules.pop("helper", None)
