"""The import layers of pyproject.toml, and what is private to a room."""

import ast
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_the_contracts_of_layers_and_private_modules_hold():
    command = shutil.which("lint-imports", path=sysconfig.get_path("scripts"))
    assert command is not None, "import-linter is missing; install specjax[test]"
    done = subprocess.run(
        [command, "--config", "pyproject.toml", "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 kept, 0 broken" in done.stdout


def room_of(dotted):
    return ".".join(dotted.split(".")[:2])


def private_names_of_other_rooms(path):
    """What a file imports from another room, or reads of its modules, that begins with `_`."""
    here = room_of(".".join(path.relative_to(ROOT).with_suffix("").parts))
    tree = ast.parse(path.read_text())
    foreign = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("specjax"):
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if room_of(full) != here:
                    foreign[alias.asname or alias.name] = full
    read = {
        f"{foreign[node.value.id]}.{node.attr}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in foreign
    }
    return sorted(name for name in {*foreign.values(), *read} if re.search(r"\._[^_]", name))


@pytest.mark.integration
def test_no_room_takes_private_names_of_another():
    """import-linter sees modules; this also sees functions, as `from specjax.sweep import _f`."""
    modules = (ROOT / "specjax").rglob("*.py")
    taken = {str(path): private_names_of_other_rooms(path) for path in modules}
    assert len(taken) > 400
    assert not {path: names for path, names in taken.items() if names}


@pytest.mark.parametrize("room", ["spectral", "lab"])
def test_a_room_lists_at_most_thirty_names(room):
    tree = ast.parse((ROOT / "specjax" / room / "__init__.py").read_text())
    names = {
        alias.asname
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert len(names) == len(names - {None})
    assert 20 < len(names) <= 30
