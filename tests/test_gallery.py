"""The gallery says of every picture which command draws it: the quick run, or the run that its record is of."""

import importlib.util
import json
from pathlib import Path

import pytest

from specjax import experiments

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[1]


def script():
    spec = importlib.util.spec_from_file_location("gallery", ROOT / "scripts" / "gallery.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_picture_is_of_the_quick_run_or_of_the_record():
    gallery = script()
    for name in experiments.names():
        recorded = json.loads((ROOT / "records" / f"{name}.json").read_text())["command"]
        assert gallery.command(name) in (f"specjax run {name} --scale quick", recorded)


def test_the_page_is_in_step_with_experiments_and_pictures():
    assert script().page() == (ROOT / "docs" / "gallery.md").read_text(), "run `python scripts/gallery.py DIR`"
