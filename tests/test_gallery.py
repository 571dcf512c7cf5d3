"""The gallery says of every picture which command draws it: the quick run, or the run that its
record is of.
"""

import json
import runpy
from pathlib import Path

import pytest

from specjax import experiments

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[1]
GALLERY = ROOT / "scripts" / "maintain" / "gallery.py"


def test_every_picture_is_of_the_quick_run_or_of_the_record():
    command = runpy.run_path(str(GALLERY))["command"]
    for name in experiments.names():
        recorded = json.loads((ROOT / "records" / f"{name}.json").read_text())["command"]
        assert command(name) in (f"specjax run {name} --scale quick", recorded)


def test_the_page_is_in_step_with_experiments_and_pictures():
    assert runpy.run_path(str(GALLERY))["page"]() == (ROOT / "docs" / "gallery.md").read_text(), (
        "run `python scripts/maintain/gallery.py DIR`"
    )
