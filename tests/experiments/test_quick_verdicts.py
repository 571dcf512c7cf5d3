"""`specjax reproduce` at its default scale: every verdict as expected, and the results on disk as
promised.
"""

import json
import subprocess
import sys
from pathlib import Path

import matplotlib.image
import pytest
import xarray as xr

from specjax import experiments, report
from specjax.report import records


@pytest.mark.slow
@pytest.mark.parametrize("name", experiments.names())
def test_reproduce_confirms_what_holds_and_refutes_what_does_not(
    name, optimized_environment, tmp_path
):
    # In a process of its own, whose programs are the optimized ones of a user's.
    command = [
        Path(sys.executable).with_name("specjax"),
        "reproduce",
        "--only",
        name,
        "--out",
        tmp_path,
    ]
    # The limit is for programs that wait for each other and never end.
    done = subprocess.run(
        command,
        env=optimized_environment,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = report.load(tmp_path / name).checks
    assert [check.name for check in found] == [
        statement.name for statement in experiments.load(name).statements
    ]
    # What quick leaves undecided is decided by the record, of a larger run as a rule.
    recorded = {check.name: not check.surprising for check in records.load_all()[name].checks}
    wrong = [check for check in found if check.surprising]
    assert [c.name for c in wrong if c.verdict != "inconclusive" or not recorded[c.name]] == []
    result_files_can_be_read(name, tmp_path / name)
    for page in ("report.md", "report.html"):
        text = (tmp_path / page).read_text()
        assert all(check.name in text for check in found)


def result_files_can_be_read(name, folder):
    record = json.loads((folder / "config.json").read_text())
    config = experiments.load(name).at("quick")
    assert (record["name"], record["scale"], record["seed"]) == (name, "quick", config.seed)
    assert set(record["config"]) == set(vars(config))
    assert matplotlib.image.imread(folder / "figure.png").ndim == 3
    with xr.open_datatree(folder / "data.nc", engine="h5netcdf") as tree:
        assert tree.children
        sizes = [node.to_dataset().sizes for node in tree.children.values()]
        # A sweep that keeps moments alone has batches of seeds.
        assert all(each.get("seed", each.get("batch", 0)) >= 1 for each in sizes)
