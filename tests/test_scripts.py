"""The scripts that users run and copy: short, with a figure, and with the numbers they print."""

import importlib.util
import re
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import pytest
from PIL import Image

SCRIPTS = Path(__file__).parents[1] / "scripts"
MOST_LINES = 60
# What each prints of its smallest sizes that only a right computation prints.
PRINTED = {
    "diagonal_dominance": r"factorization, width 64: 0\.\d+; expected 0\.\d+\n  exponent -0\.\d",
    "memory_capacity": r"Muon: \d+\.\d items at d = 32; exponent [12]\.\d",
    "own_optimizer": r"(?s)error at its best rate.*own is ahead by 0\.01 at every width: refuted",
    "polar_error": (
        r"(?s)Muon, 5 steps: below 1 % at every width and κ is refuted;.*QDWH: below 1 % at every"
        r" width and κ is confirmed;"
    ),
    "rate_transfer": r"(?s)Muon\nwidth .*\n16 .* transfers?[ :].*AdamW\nwidth .*\n16 .* transfer",
}
# Four programs of trainings of a transformer, ten seconds and more.
SLOW = {"rate_transfer"}
EACH = pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in PRINTED],
)


def loaded(name):
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def as_a_user_has_it():
    """JAX's default promotion, and no figure of another test."""
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        yield
    plt.close("all")


def test_every_script_is_here_and_in_the_table():
    table = (SCRIPTS / "README.md").read_text("utf-8")
    names = {path.stem for path in SCRIPTS.glob("*.py")}
    assert names == {*PRINTED, "distributed_sweep"}
    assert [name for name in names if f"]({name}.py)" not in table] == []


@pytest.mark.parametrize("name", PRINTED)
def test_a_script_is_short(name):
    lines = (SCRIPTS / f"{name}.py").read_text("utf-8").splitlines()
    assert len(lines) <= MOST_LINES
    assert max(map(len, lines)) <= 100


@pytest.mark.integration
@EACH
def test_a_script_prints_and_draws(name, tmp_path, capsys):
    figure = tmp_path / "new" / "figure.png"
    loaded(name).main(["--smoke", "--out", str(figure)])
    printed = capsys.readouterr().out
    assert re.search(PRINTED[name], printed), printed
    assert "nan" not in re.sub(r"(?m)^.*least point.*$", "", printed)
    with Image.open(figure) as image:
        assert len(image.convert("RGB").getcolors(image.width * image.height)) > 10


@pytest.mark.parametrize("name", PRINTED)
@pytest.mark.parametrize("wrong", [["--seeds", "0"], ["--widths", "16", "16"], ["--seeds", "few"]])
def test_a_wrong_argument_gets_one_sentence(name, wrong, tmp_path, capsys):
    figure = tmp_path / "figure.png"
    with pytest.raises(SystemExit) as end:
        loaded(name).main([*wrong, "--out", str(figure)])
    assert end.value.code == 2
    message = capsys.readouterr().err.splitlines()[-1]
    assert re.search(r": error: .*(0|16|few)", message), message
    assert not figure.exists()


@pytest.mark.parametrize("name", PRINTED)
def test_help_says_what_it_measures(name, capsys):
    script = loaded(name)
    with pytest.raises(SystemExit):
        script.main(["--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert script.__doc__.split(":")[0].split(",")[0] in shown
    assert all(flag in shown for flag in ("--seeds", "--widths", "--smoke", "--out"))
