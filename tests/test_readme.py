"""The README shows code of the home page, whose outputs are tested, and its links lead to files."""

import re
from pathlib import Path

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
