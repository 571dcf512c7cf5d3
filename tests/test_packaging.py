"""Files that describe the package agree with each other."""

import ast
import re
import tomllib
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[1]
CONFIGURATION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = CONFIGURATION["project"]


def test_the_conda_recipe_has_the_dependencies_of_the_package():
    recipe = (ROOT / "recipe" / "meta.yaml").read_text(encoding="utf-8")
    run = recipe.split("  run:\n")[1].split("\n\n")[0]
    found = dict(re.match(r"\s*- (\S+) (.*)", line).groups() for line in run.splitlines())
    expected = dict(
        re.match(r"([a-z0-9_-]+)(.*)", entry).groups() for entry in PROJECT["dependencies"]
    )
    # conda's matplotlib brings a toolkit for windows, which its base leaves out.
    expected["matplotlib-base"] = expected.pop("matplotlib")
    assert found == {"python": PROJECT["requires-python"], **expected}


def test_the_version_is_the_same_everywhere():
    said = {"recipe/meta.yaml": r'version = "(.*?)"', "CITATION.cff": r"(?m)^version: (.*)$"}
    for name, pattern in said.items():
        assert (
            re.search(pattern, (ROOT / name).read_text(encoding="utf-8")).group(1)
            == PROJECT["version"]
        ), name
    assert version("specjax") == PROJECT["version"]


def test_nox_and_the_workflow_have_the_same_matrix():
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    found = re.findall(r'- \{python: "(.*?)", constraint: "(.*?)"\}', workflow)
    line = re.search(
        r"(?m)^MATRIX = (.*)$", (ROOT / "noxfile.py").read_text(encoding="utf-8")
    ).group(1)
    assert found == ast.literal_eval(line)
    # The oldest that the package allows is tested, there and by .ci/run.
    oldest = re.search(
        r">=([0-9.]+)", next(entry for entry in PROJECT["dependencies"] if entry.startswith("jax>"))
    ).group(1)
    assert ("3.11", f"jax=={oldest}") in found
    assert f'oldest_jax="jax=={oldest}"' in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_shapes_are_checked_in_every_room_but_the_experiments():
    options = CONFIGURATION["tool"]["pytest"]["ini_options"]["addopts"]
    (checked,) = [each for each in options if each.startswith("--jaxtyping-packages=")]
    rooms = {path.stem for path in (ROOT / "specjax").iterdir() if not path.name.startswith("_")}
    rooms -= {"py", "experiments"}
    assert set(re.findall(r"specjax\.(\w+)", checked)) == rooms
