"""The import layers of pyproject.toml."""

import shutil
import subprocess
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_module_imports_only_from_the_layers_below_it():
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
    assert " 0 broken" in done.stdout
    assert "0 kept" not in done.stdout
