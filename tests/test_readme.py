"""The README shows code of the home page, whose outputs are tested, and its links lead to files."""

import re
from pathlib import Path

import optax

from specjax import optim

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.compile(r"```(python|text)\n(.*?)```", re.DOTALL)


def test_its_code_and_outputs_are_those_of_the_home_page():
    home = BLOCKS.findall((ROOT / "docs" / "index.md").read_text(encoding="utf-8"))
    assert len(home) == 6
    assert BLOCKS.findall(README) == home


def test_it_has_at_most_900_words():
    assert len(README.split()) <= 900


def test_the_files_it_names_exist():
    links = re.findall(r"\]\((?!http)([^)#]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_low_rank_updates_of_optax_and_ours_are_in_its_table():
    (row,) = (line for line in README.split("\n") if line.startswith("| compressed momentum"))
    ours, theirs = (cell.strip() for cell in row.split("|")[2:4])
    assert hasattr(optax.contrib, "galore") == ("low rank" in theirs)
    assert hasattr(optim, "scale_by_dion") == ("low rank" in ours)
    assert optim.momentum(0.9, mu_dtype="int8")
    assert "int8" in ours
