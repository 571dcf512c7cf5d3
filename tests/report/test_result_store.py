import dataclasses
import json
import struct

import pytest
import xarray as xr

from specjax.lab.check import Check
from specjax.report import LeftOutWarning, load, load_all, load_data, require_room
from specjax.report.result_store import save


def test_a_saved_result_loads_equal(tmp_path, result, data, figure):
    assert load(save(tmp_path / "new" / "out", result, data, figure)) == dataclasses.replace(
        result,
        record=dataclasses.replace(
            result.record, config=json.loads(json.dumps(result.record.config))
        ),
    )


def test_data_open_with_xarray_alone(tmp_path, result, data, figure):
    folder = save(tmp_path, result, data, figure)
    with xr.open_datatree(folder / "data.nc", engine="h5netcdf") as tree:
        for name, dataset in data.items():
            xr.testing.assert_equal(tree[name].to_dataset(), dataset)


def test_data_load_as_the_experiment_returned_them(tmp_path, result, data, figure):
    folder = save(tmp_path, result, data, figure)
    # A path is written as a string in a notebook.
    loaded = load_data(str(folder))
    assert load(str(folder)) == load(folder) == load_all(str(folder.parent))[0]
    assert list(loaded) == list(data)
    xr.testing.assert_equal(loaded["points"], data["points"])
    alone = load_data(save(tmp_path, result, data["points"], figure))
    xr.testing.assert_equal(alone, data["points"])


def test_checks_json_has_exactly_the_promised_keys(tmp_path, result, data, figure):
    checks = json.loads((save(tmp_path, result, data, figure) / "checks.json").read_text())
    promised = {field.name for field in dataclasses.fields(Check)}
    assert [set(check) for check in checks] == [promised, promised]
    assert checks[0]["interval"] == [0.9, 1.1]
    assert checks[1]["compared"] is None
    assert checks[1]["interval"] == [None, None]


def test_the_figure_is_a_png_of_150_dpi(tmp_path, result, data, figure):
    png = (save(tmp_path, result, data, figure) / "figure.png").read_bytes()
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", png[16:24]) == (4 * 150, 3 * 150)


def test_a_new_result_replaces_the_old_one(tmp_path, result, data, figure):
    save(tmp_path, result, data, figure)
    later = dataclasses.replace(result, record=dataclasses.replace(result.record, scale="quick"))
    folder = save(tmp_path, later, data, figure)
    assert load(folder).record.scale == "quick"
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_a_failed_save_leaves_the_old_result_and_nothing_else(
    tmp_path, result, data, figure, monkeypatch, error
):
    folder = save(tmp_path, result, data, figure)
    before = {path: path.read_bytes() for path in folder.iterdir()}

    def fail(*_, **__):
        raise error

    monkeypatch.setattr(figure, "savefig", fail)
    with pytest.raises(type(error)):
        save(tmp_path, result, data, figure)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    assert list(tmp_path.iterdir()) == [folder]


def test_a_failed_move_puts_the_old_result_back(tmp_path, result, data, figure, monkeypatch):
    folder = save(tmp_path, result, data, figure)
    rename = type(folder).rename

    def fail_for_drafts(path, target):
        if path.name.endswith(".new"):
            raise OSError("no")
        return rename(path, target)

    monkeypatch.setattr(type(folder), "rename", fail_for_drafts)
    with pytest.raises(OSError, match="no"):
        save(tmp_path, result, data, figure)
    assert load(folder) == load_all(tmp_path)[0]
    assert list(tmp_path.iterdir()) == [folder]


def test_results_come_in_registry_order_and_unknown_ones_last(
    tmp_path, renamed, data, figure, monkeypatch
):
    monkeypatch.setattr("specjax.experiments.MODULES", {"zeta": "", "alpha": ""})
    for name in ("alpha", "beta", "zeta"):
        save(tmp_path, renamed(name), data, figure)
    (tmp_path / "notes").mkdir()
    assert [result.record.name for result in load_all(tmp_path)] == ["zeta", "alpha", "beta"]


def test_no_folder_means_no_results(tmp_path):
    assert load_all(tmp_path / "absent") == []


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("checks.json", "[{}]"),
        ("checks.json", "["),
        ("config.json", "{}"),
        ("config.json", "[]"),
        ("tables.json", "{"),
    ],
)
def test_an_unreadable_result_is_named(tmp_path, result, data, figure, file, text):
    folder = save(tmp_path, result, data, figure)
    (folder / file).write_text(text)
    for reason in ("is not what was written", "Error: "):
        with pytest.raises(
            ValueError,
            match=rf"toy-slope does not hold a result .*{reason}.* run its experiment again",
        ):
            load(folder)
        with pytest.warns(LeftOutWarning, match="^Left out: .*toy-slope does not hold a result"):
            assert load_all(tmp_path) == []
        # As results of earlier versions are, and those that somebody made by hand.
        (folder / "SHA256SUMS").unlink(missing_ok=True)
    # Any experiment may run, and the new result of this one takes the place of the broken one.
    require_room(tmp_path, ["another"])
    require_room(tmp_path, ["toy-slope"])


def test_room_is_required_without_leaving_anything(tmp_path):
    require_room(tmp_path / "a" / "b", ["toy-slope"])
    assert list(tmp_path.iterdir()) == []


def test_foreign_files_are_not_deleted(tmp_path, result, data, figure):
    folder = save(tmp_path, result, data, figure)
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(
        ValueError, match=r"toy-slope holds notes.txt, .* move it away or choose another --out"
    ):
        require_room(tmp_path, ["toy-slope"])


def test_a_file_in_the_place_of_a_result_is_named(tmp_path):
    (tmp_path / "toy-slope").write_text("mine")
    with pytest.raises(ValueError, match="toy-slope is in the way"):
        require_room(tmp_path, ["toy-slope"])
