"""Whatever befalls a result: it is read right, or left out and named in a sentence, and nothing
outside of the results is touched.
"""

import json
import random
import shutil
import warnings

import pytest
import xarray as xr

from specjax.report import LeftOutWarning, load, load_all, load_data, refresh, require_room
from specjax.report.result_store import save
from tests.mutations import MUTATIONS, mutated, outside, sentence, snapshot


@pytest.fixture
def out(tmp_path, renamed, data, figure):
    """Results of two experiments, in a folder with another beside it."""
    outside(tmp_path)
    for name in ("toy-slope", "neighbour"):
        save(tmp_path / "res [0-9]*", renamed(name), data, figure)
    return tmp_path / "res [0-9]*"


def refreshed(out):
    """The sentences about what is left out; the neighbour is always in the report."""
    with warnings.catch_warnings(record=True, action="always") as reported:
        refresh(out)
    assert {warning.category for warning in reported} <= {LeftOutWarning}
    for page in ("report.md", "report.html"):
        assert "neighbour" in (out / page).read_text()
    return [sentence(warning.message) for warning in reported]


@pytest.mark.integration
@mutated
@pytest.mark.parametrize("seed", range(3))
def test_a_changed_result_is_read_right_or_left_out_by_name(mutation, seed, out, data):
    folder, parent = out / "toy-slope", out.parent
    right = load(folder)
    # The links of these mutations lead to a folder beside the one that they change.
    shutil.copytree(parent / "outside", out / "outside")
    MUTATIONS[mutation](folder, random.Random(seed))
    before = {**snapshot(parent, but=out), **snapshot(out, but=folder)}
    reported = refreshed(out)
    after = {**snapshot(parent, but=out), **snapshot(out, but=folder)}
    written = {out / "report.md", out / "report.html", out / "neighbour" / "thumbnail.webp"}
    assert {path: content for path, content in after.items() if path not in written} == before
    with warnings.catch_warnings(action="ignore"):
        found = [result for result in load_all(out) if result.record.name == "toy-slope"]
    assert found in ([right], [])
    if not found or not (folder / "thumbnail.webp").exists():
        assert any("toy-slope" in each for each in reported)
    try:
        loaded = load_data(folder)
    except ValueError as error:
        assert str(folder / "data.nc") in sentence(error)  # noqa: PT017 - or it is read
    else:
        xr.testing.assert_identical(xr.DataTree.from_dict(loaded), xr.DataTree.from_dict(data))


def renamed_in_config(folder, name):
    """What somebody sends who wants it to be written elsewhere, with checksums that are right or
    without any.
    """
    content = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**content, "name": name}))
    (folder / "SHA256SUMS").unlink()


@pytest.mark.parametrize(
    "name",
    ["../outside", "../../outside", "/tmp", "javascript:alert(1)", "", ".", "neighbour", "[a]"],
)
def test_a_name_that_is_not_its_folder_s_is_left_out(name, out):
    before = snapshot(out.parent, but=out)
    renamed_in_config(out / "toy-slope", name)
    (reported,) = refreshed(out)
    assert reported.startswith(
        f"Left out: {out / 'toy-slope'} holds a result by the name of {name!r}, which is not that"
        " of its folder"
    )
    assert [result.record.name for result in load_all_quietly(out)] == ["neighbour"]
    assert snapshot(out.parent, but=out) == before
    assert "javascript" not in (out / "report.html").read_text() + (out / "report.md").read_text()
    require_room(out, ["another"])


@pytest.mark.parametrize("name", ["javascript:alert(1)", "[a](b)", 'a" onclick="b', "A b"])
def test_a_folder_whose_name_is_no_part_of_a_link_is_left_out(name, out):
    (out / "toy-slope").rename(out / name)
    renamed_in_config(out / name, name)
    (reported,) = refreshed(out)
    assert "which is not in kebab-case; rename the folder, or delete it." in reported
    assert name not in (out / "report.html").read_text() + (out / "report.md").read_text()


def load_all_quietly(out):
    with warnings.catch_warnings(action="ignore"):
        return load_all(out)


def test_a_linked_result_is_left_out_and_its_target_untouched(out):
    away = shutil.move(out / "toy-slope", out.parent / "outside" / "toy-slope")
    (out / "toy-slope").symlink_to(away)
    before = snapshot(out.parent, but=out)
    (reported,) = refreshed(out)
    assert reported == f"Left out: {out / 'toy-slope'} is a link; move there what it leads to."
    with pytest.raises(
        ValueError, match="toy-slope is in the way of the results of toy-slope; move it away"
    ):
        require_room(out, ["toy-slope"])
    assert snapshot(out.parent, but=out) == before


def test_results_with_swapped_data_are_not_judged(out, renamed, data, figure):
    save(out, renamed("other"), {"points": data["points"] * 2, "fits": data["fits"]}, figure)
    for one, other in (("toy-slope", "x"), ("other", "toy-slope"), ("x", "other")):
        (out / one / "data.nc" if one != "x" else out / "x").rename(
            out / other / "data.nc" if other != "x" else out / "x"
        )
    for name in ("toy-slope", "other"):
        with pytest.raises(
            ValueError,
            match=rf"{name}/data.nc cannot be read \(ValueError: data.nc is not what was wri",
        ):
            load_data(out / name)


@pytest.mark.parametrize(
    ("file", "place", "value"),
    [
        ("config", ("seconds",), "long"),
        ("config", ("scale",), "huge"),
        ("config", ("device",), {}),
        ("config", ("versions",), {"jax": 1}),
        ("config", ("name",), None),
        ("checks", (0, "verdict"), "true"),
        ("checks", (0, "interval"), [1.0]),
        ("checks", (0, "estimate"), "1"),
        ("checks", (0, "rivals"), [{}]),
        ("checks", (0, "rivals"), [{"name": "a", "standard_errors": "b", "excluded": True}]),
        ("checks", (0, "attacks"), [{"kind": "control"}]),
        ("tables", (0, "rows"), [1]),
        ("tables", (0, "header"), "head"),
    ],
)
def test_a_value_of_another_type_is_named_and_left_out(file, place, value, out):
    """So that no page fails by it after a run."""
    path = out / "toy-slope" / f"{file}.json"
    content = json.loads(path.read_text())
    part = content
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = value
    path.write_text(json.dumps(content))
    (out / "toy-slope" / "SHA256SUMS").unlink()
    (reported,) = refreshed(out)
    assert f"{out / 'toy-slope'} does not hold a result this version can read (" in reported


def test_leftovers_of_systems_and_killed_processes_do_no_harm(out):
    for name in (".DS_Store", "Thumbs.db", ".thumbnail.webp.123"):
        (out / "toy-slope" / name).write_text("")
    require_room(out, ["toy-slope"])


def test_a_report_that_cannot_be_written_is_told_in_a_sentence(out):
    (out / "report.html").mkdir()
    with pytest.raises(
        ValueError, match=r"^The report in .* cannot be written \(Is a directory\)\.$"
    ):
        refresh(out)
