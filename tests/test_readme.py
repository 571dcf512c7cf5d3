"""What the README shows runs as it stands, and the files it names exist."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def test_there_is_code_to_run():
    assert BLOCKS


@pytest.mark.integration
@pytest.mark.parametrize("code", BLOCKS)
def test_the_code_runs(code):
    names = {}
    exec(compile(code, str(README), "exec"), names)
    # The README says that the theorem's exponent is 2.
    low, high = names["limit"].interval
    assert low < 2 < high
    assert high - low < 0.5


def test_the_files_it_names_exist():
    links = re.findall(r"\]\((?!http)([^)#]+)\)", README.read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not (README.parent / link).exists()] == []
