"""Whatever befalls a store: its data come back right, or one sentence says what is wrong, and
nothing outside of it is touched.
"""

import hashlib
import io
import json
import random
import shutil
import warnings
import zipfile

import numpy as np
import pytest
from stores import CONFIG, PLAN, assert_read, compute, described, part, truth

from specjax.sweep import DamagedBlocksWarning, StoreError, open_store
from specjax.sweep._store import Block, Store
from tests.mutations import MUTATIONS, mutated, outside, sentence, snapshot


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    with Store.opened(tmp_path_factory.mktemp("whole") / "store", described()) as store:
        compute(store)
    return store.path


def read(path):
    """What there is of the data is right, or a sentence says why it cannot be read."""
    try:
        found = open_store(path).load()
    except (ValueError, StoreError) as error:
        return sentence(error)
    for name, expected in truth(found.sizes["seed"]).data_vars.items():
        values, right = found[name].values, expected.values
        assert ((values == right) | np.isnan(values)).all()
    return None


def run(path, samples):
    """The same call ends with the right data, or a sentence says why it cannot."""
    try:
        with (
            warnings.catch_warnings(record=True, action="always") as reported,
            Store.opened(path, described(samples)) as store,
        ):
            compute(store)
            assert_read(store)
    except (ValueError, StoreError) as error:
        return sentence(error)
    for warning in reported:
        assert warning.category is DamagedBlocksWarning
        sentence(warning.message)
    assert read(path) is None
    return None


@mutated
@pytest.mark.parametrize("seed", range(4))
def test_a_changed_store_is_read_right_or_refused_in_a_sentence(mutation, seed, whole, tmp_path):
    path = tmp_path / "a [0-9]* store"
    shutil.copytree(whole, path)
    outside(tmp_path)
    MUTATIONS[mutation](path, random.Random(seed))
    before = snapshot(tmp_path, but=path)
    inside = snapshot(path, but=tmp_path / "no")
    read(path)
    assert snapshot(path, but=tmp_path / "no") == inside
    refused = run(path, 6 + 2 * (seed % 2))
    assert snapshot(tmp_path, but=path) == before
    if refused is not None:
        after = snapshot(path, but=tmp_path / "no")
        assert {file: after[file] for file in inside if file.name != "sweep.json"} == {
            file: content for file, content in inside.items() if file.name != "sweep.json"
        }


def test_another_sweep_s_block_is_not_read(whole, tmp_path):
    """`run` refuses it, and so does whoever only reads; also of a bucket that this sweep has
    not.
    """
    for place in (Block(0, 0, 6), Block(2, 0, 6)):
        path = tmp_path / str(place.bucket)
        shutil.copytree(whole, path)
        with Store.opened(
            tmp_path / f"other{place.bucket}", described(plan={**PLAN, "blocks": [6, 6]})
        ) as store:
            store.write(place, part(Block(0, 0, 6)), 1.0)
            (file,) = store.blocks
        shutil.copy(file, path)
        for attempt in (
            lambda path=path: open_store(path).load(),
            Store.opened(path, described()).__enter__,
        ):
            with pytest.raises(
                ValueError,
                match=rf"{file.name} is a block of another sweep; take it out of the store",
            ):
                attempt()


@pytest.mark.parametrize(
    "name", ["bucket1-000000-000003", "bucket0-000003-000006", "bucket0-000000-000002"]
)
def test_a_renamed_block_is_not_misread_and_regains_its_name(name, whole, tmp_path):
    path = shutil.copytree(whole, tmp_path / "store")
    file = next(path.glob("bucket0-000000-000003*"))
    names = {each.name for each in path.iterdir()}
    file.rename(path / f"{name}-{file.name[-20:]}")
    with pytest.raises(
        StoreError, match=rf"{name}\S* was renamed from {file.name}; give it that name again\."
    ):
        open_store(path).load()
    with Store.opened(path, described()) as store:
        assert compute(store) == set()
        assert_read(store)
    assert {each.name for each in path.iterdir()} == names


def test_a_store_of_an_earlier_version_is_refused_and_left_alone(whole, tmp_path):
    """Its checksums do not cover the places of its blocks."""
    path = tmp_path / "store"
    with Store.opened(path, described()) as store:
        pass
    shutil.copy(whole / "sweep.json", path)
    arrays = io.BytesIO()
    np.savez(arrays, loss=part(Block(0, 0, 3))["loss"])
    with zipfile.ZipFile(arrays, "a") as archive:
        archive.comment = json.dumps({"sweep": store.described.identity, "seconds": 1.0}).encode()
    content = arrays.getvalue()
    (path / f"bucket0-000000-000003-{hashlib.sha256(content).hexdigest()[:16]}.npz").write_bytes(
        content
    )
    before = snapshot(path, but=tmp_path / "no")
    for attempt in (lambda: open_store(path).load(), Store.opened(path, described()).__enter__):
        with pytest.raises(
            ValueError, match=r"was written by an earlier version; continue with that, or choose"
        ):
            attempt()
    assert snapshot(path, but=tmp_path / "no") == before


@pytest.mark.parametrize(
    "over", [{"eta": [0.1, 0.2], "d": [2, 4, 8]}, {"d": [2, 4, 8], "eta": {"b": [1], "a": [2]}}]
)
def test_axes_in_another_order_are_refused_before_any_write(over, tmp_path):
    stored = (
        {"d": [2, 4, 8], "eta": {"a": [2], "b": [1]}}
        if isinstance(over["eta"], dict)
        else CONFIG["over"]
    )
    with Store.opened(tmp_path / "store", described(config={**CONFIG, "over": stored})) as store:
        compute(store)
    (store.path / "lock").unlink()
    before = snapshot(store.path, but=tmp_path / "no")
    with (
        pytest.raises(
            ValueError,
            match=(
                r"the order of over(.eta)? is \w+, \w+ there and \w+, \w+ here; choose another path"
            ),
        ),
        Store.opened(store.path, described(config={**CONFIG, "over": over})),
    ):
        pass
    assert snapshot(store.path, but=tmp_path / "no") == before


@pytest.mark.parametrize("target", ["mine", "nothing"])
def test_a_link_in_place_of_a_draft_or_lock_is_not_followed(target, whole, tmp_path):
    path, away = shutil.copytree(whole, tmp_path / "store"), outside(tmp_path)
    (path / ".partial").symlink_to(away / target)
    before = snapshot(tmp_path, but=path)
    with Store.opened(path, described(8)) as store:
        compute(store)
        assert_read(store)
    assert not (path / ".partial").is_symlink()
    (path / "lock").unlink()
    (path / "lock").symlink_to(away / target)
    with Store.opened(path, described(8)) as store:
        assert_read(store)
    reported = (
        rf"^The store {path} cannot be used \(Too many levels of symbolic links\); its finished"
        r" blocks are intact"
    )
    with pytest.raises(StoreError, match=reported), Store.opened(path, described(9)):
        pass
    assert snapshot(tmp_path, but=path) == before


def test_what_a_system_leaves_in_a_folder_does_not_matter(tmp_path):
    path = tmp_path / "store"
    path.mkdir()
    (path / ".DS_Store").write_text("mine")
    with Store.opened(path, described()) as store:
        compute(store)
    (path / "Thumbs.db").write_text("mine")
    with Store.opened(path, described()) as store:
        assert_read(store)
    assert open_store(path)["loss"].notnull().all()
    assert (path / ".DS_Store").read_text() == (path / "Thumbs.db").read_text() == "mine"
