"""The code of the documentation runs as it stands, and where a page shows what it prints, it prints
that.
"""

import os
import re
import runpy
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import jax
import pytest

from specjax import report

pytestmark = pytest.mark.integration

DOCS = Path(__file__).parents[1] / "docs"
EXAMPLES = DOCS / "examples"
# Read from the top, block after block. Those with a plot or a fork of their own run in a process.
PAGES = (
    "fits.md",
    "optim.md",
    "papers/preconditioning.md",
    # Ten seconds and more, and minutes for transfer.md.
    *(
        pytest.param(page, marks=pytest.mark.slow)
        for page in ("sweeps.md", "training.md", "transfer.md")
    ),
)
NUMBER = r"-?\d+(?:\.\d+)?"


def blocks(page, language):
    """The fenced blocks of a language; one with a title is the text of a file and not among
    them.
    """
    return re.findall(
        rf"```{language}\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL
    )


def prose(page):
    """The paragraphs and items of lists of a page, without generated places, code and tables."""
    text = re.sub(
        r"<!-- ([a-z ]+) -->\n.*?<!-- end of \1 -->", "", page.read_text("utf-8"), flags=re.DOTALL
    )
    text = re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^\|.*$", "", text, flags=re.MULTILINE)
    return [part.strip() for part in re.split(r"\n\s*\n|\n *(?:- |\d+\. )", text) if part.strip()]


def prints_what_it_shows(printed, shown):
    """The same words, and the same numbers up to one unit in the last digit shown: other versions
    of XLA sum in another order.
    """
    assert re.sub(NUMBER, "#", printed).split() == re.sub(NUMBER, "#", shown).split(), printed
    for found, expected in zip(re.findall(NUMBER, printed), re.findall(NUMBER, shown), strict=True):
        unit = 10.0 ** -len(expected.partition(".")[2]) if "." in expected else 0.0
        assert abs(float(found) - float(expected)) <= 1.01 * unit, printed


@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs(page, tmp_path):
    code = blocks(page, "python")
    assert code
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "\n".join(code)],
        cwd=tmp_path,
        env={**os.environ, "MPLBACKEND": "agg"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("page", "title", "needed"),
    [
        ("muon-on-your-model.md", "nnx", "flax"),
        ("muon-on-your-model.md", "linen", "flax"),
        ("muon-on-your-model.md", "haiku", "haiku"),
        ("muon-on-your-model.md", "orbax", "orbax.checkpoint"),
        ("training.md", "nnx-steps", "flax"),
        ("training.md", "haiku-steps", "haiku"),
    ],
)
def test_the_code_for_another_library_runs(page, title, needed, tmp_path):
    pytest.importorskip(needed)
    text = (DOCS / page).read_text(encoding="utf-8")
    (code,) = re.findall(rf'```python title="{title}"\n(.*?)```', text, re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("title", "framework"),
    [("nnx", "flax"), pytest.param("haiku", "haiku", marks=pytest.mark.slow)],
)
def test_the_coordinate_check_takes_the_model_of_a_framework(title, framework):
    pytest.importorskip(framework)
    page = (DOCS / "transfer.md").read_text(encoding="utf-8")
    (code,) = re.findall(rf'```python title="{title}"\n(.*?)```', page, re.DOTALL)
    first, *_ = blocks("transfer.md", "python")
    checked = (
        "widths = (8, 16, 32)\n"
        + code
        + "\nassert check.verdict in ('not stable', 'not decided'), check\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", first + checked], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_muon_on_your_model_runs_and_prints_what_it_shows(tmp_path):
    code, shown = blocks("muon-on-your-model.md", "python"), blocks("muon-on-your-model.md", "text")
    # What follows prints more.
    end = "the end of what is shown"
    whole = "\n".join([*code[: len(shown)], f"print({end!r})", *code[len(shown) :]])
    command = [sys.executable, "-W", "error", "-c", whole]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    prints_what_it_shows(done.stdout.partition(end)[0], "\n".join(shown))


@pytest.mark.slow
def test_a_training_over_eight_devices_prints_what_it_shows(tmp_path):
    """The page compares its steps with those of one device, and after a move to another mesh."""
    code, shown = (blocks("sharded-training.md", language) for language in ("python", "text"))
    command = [sys.executable, "-W", "error", "-c", "\n".join(code)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    prints_what_it_shows(done.stdout, "\n".join(shown))
    lookup = head = 128 * 64
    weights = lookup + 2 * 8 * 64 * 256 + head
    # Four bytes for each number; AdamW has one count, Muon the sum of its weights too.
    for line, devices in zip(done.stdout.splitlines(), (1, 8, 8, 8), strict=True):
        held = 4 * weights, 4 * (weights + lookup) + 8 * devices, 8 * weights + 4 * devices
        assert line.endswith(str([size // devices for size in held]))


def test_the_home_page_prints_what_it_shows(capsys):
    code, shown = blocks("index.md", "python"), blocks("index.md", "text")
    assert len(code) == len(shown) == 3
    names = {}
    # A reader's session adds a bias to a batch.
    with jax.numpy_rank_promotion("allow"):
        for block in code:
            exec(compile(block, "index.md", "exec"), names)
    prints_what_it_shows(capsys.readouterr().out, "\n".join(shown))


def test_the_tutorial_prints_what_it_shows(capsys):
    code, shown = blocks("tutorial.md", "python"), blocks("tutorial.md", "text")
    assert len(code) == len(shown) + 1
    names = {}
    for block in code:
        exec(compile(block, "tutorial.md", "exec"), names)
    prints_what_it_shows(capsys.readouterr().out, "\n".join(shown))


@pytest.mark.slow
@pytest.mark.parametrize("page", ["exact-moments.md", "layer-report.md"])
def test_a_page_prints_what_it_shows(page):
    """In a process of its own: traced with symbolic sizes, functions of specjax get sizes that its
    types, checked here, do not name.
    """
    code, shown = (blocks(page, language) for language in ("python", "text"))
    assert len(code) == len(shown)
    command = [sys.executable, "-W", "error", "-c", "\n".join(code)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    prints_what_it_shows(done.stdout, "\n".join(shown))


@pytest.mark.parametrize("name", ["own_model", "own_optimizer", "own_conjecture"])
def test_an_example_prints_what_its_page_shows(name, capsys):
    page = (EXAMPLES / "index.md").read_text(encoding="utf-8")
    (shown,) = re.findall(rf'"{name}\.py"\n```\n\n```text\n(.*?)```', page, re.DOTALL)
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    prints_what_it_shows(capsys.readouterr().out, shown)


# One compiles a program for each of four widths and two optimizers, the other trains.
SLOW_NOTEBOOKS = {"coordinate_check", "muon_on_your_model"}
NOTEBOOKS = [
    pytest.param(
        path, id=path.stem, marks=[pytest.mark.slow] if path.stem in SLOW_NOTEBOOKS else []
    )
    for path in sorted((DOCS / "notebooks").glob("*.py"))
]


@pytest.mark.parametrize("path", NOTEBOOKS)
def test_a_notebook_runs_and_its_page_shows_what_it_prints(path, tmp_path):
    index = (EXAMPLES / "index.md").read_text(encoding="utf-8")
    assert f"](../notebooks/{path.name})" in index
    assert f"](../notebooks/{path.stem}.md)" in index
    # A reader sees no warning.
    script = DOCS.parent / "scripts" / "maintain" / "notebook_pages.py"
    command = [sys.executable, "-W", "error", str(script), "--out", str(tmp_path), path.stem]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    page, shown = (
        (folder / "notebooks" / f"{path.stem}.md").read_text(encoding="utf-8")
        for folder in (tmp_path, DOCS)
    )
    # Of what has changed, `python scripts/maintain/notebook_pages.py` writes the page anew.
    prints_what_it_shows(page, shown)
    pictures = re.findall(r"\]\(\.\./(images/notebooks/.*?\.png)\)", shown)
    assert pictures
    assert all((folder / picture).exists() for folder in (tmp_path, DOCS) for picture in pictures)


def test_every_example_is_tested():
    tested = {"own_model.py", "own_optimizer.py", "own_conjecture.py"}
    assert {path.name for path in EXAMPLES.glob("*.py")} == tested


MOST_WORDS, MOST_WORDS_OF_A_PARAGRAPH, MOST_LINES = 75_000, 110, 15
MARKDOWN = sorted(DOCS.rglob("*.md"))
EACH_PAGE = pytest.mark.parametrize("page", MARKDOWN, ids=lambda page: str(page.relative_to(DOCS)))


@EACH_PAGE
def test_a_paragraph_is_short(page):
    assert [part for part in prose(page) if len(part.split()) > MOST_WORDS_OF_A_PARAGRAPH] == []


@EACH_PAGE
def test_long_output_is_in_a_file_that_the_page_links(page):
    shown = re.findall(r"^```text\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert [output for output in shown if output.count("\n") > MOST_LINES] == []


@EACH_PAGE
def test_prose_avoids_words_that_readers_stumble_over(page):
    assert [part for part in prose(page) if re.search(r"\b(told|tells|so\s+many)\b", part)] == []


def test_all_pages_together_can_be_read():
    """Words as `wc -w` counts them, those of generated tables too."""
    assert sum(len(page.read_text("utf-8").split()) for page in MARKDOWN) <= MOST_WORDS


def test_every_page_is_in_the_navigation_once():
    _, nav = (DOCS.parent / "mkdocs.yml").read_text("utf-8").split("\nnav:\n")
    pages = re.findall(r": (\S+\.md)$", nav, re.MULTILINE)
    assert sorted(pages) == sorted(page.relative_to(DOCS).as_posix() for page in MARKDOWN)


@pytest.fixture
def newcomer(tmp_path, monkeypatch):
    """A folder with the files of the how-to page, as one who follows it has; registrations are
    undone.
    """
    page = (DOCS / "add-an-experiment.md").read_text(encoding="utf-8")
    files = dict(re.findall(r'```python title="(.*?)"\n(.*?)```', page, re.DOTALL))
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(
        "specjax.experiments.MODULES", dict(import_module("specjax.experiments").MODULES)
    )
    yield tmp_path
    for name in files:
        sys.modules.pop(name.removesuffix(".py"), None)


def test_who_follows_the_how_to_page_has_an_experiment(newcomer, monkeypatch, capsys):
    commands = [
        line for block in blocks("add-an-experiment.md", "bash") for line in block.splitlines()
    ]
    *runs, testing = [shlex.split(line) for line in commands]
    for python, script, *arguments in runs:
        assert python == "python"
        monkeypatch.setattr(sys, "argv", [script, *arguments])
        # A reader's session has JAX's own rules of promotion, which optax's Adam, in Muon for what
        # is no matrix, relies on.
        with jax.numpy_dtype_promotion("standard"), pytest.raises(SystemExit) as leaving:
            runpy.run_path(script, run_name="__main__")
        assert leaving.value.code == 0, capsys.readouterr().err
    printed = capsys.readouterr().out
    assert re.search(r"spectral-ball +on-the-sphere .* confirmed\n", printed)
    assert re.search(r"spectral-ball +with-five-steps .* refuted\n", printed)
    assert "attacks, no survivor" in printed
    assert "--decays FLOAT,FLOAT,..." in printed

    # Its tests, without a pytest inside this one, and on the stored data of the first run, whose
    # configuration is theirs.
    assert testing == ["python", "-m", "pytest", "test_spectral_ball.py"]
    tests = vars(import_module("test_spectral_ball"))
    data = report.load_data(newcomer / "results" / "spectral-ball")
    found = [name for name in tests if name.startswith("test_")]
    assert len(found) == 3
    for name in found:
        tests[name](*(data for _ in range(tests[name].__code__.co_argcount)))
