"""The store: what is written comes back, in whatever order, grown, continued, merged, and in part
without the rest.
"""

import json
import shutil

import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from stores import ALL, CONFIG, PLAN, assert_read, compute, described, part, truth

from specjax.sweep import open_store
from specjax.sweep._store import Block, Description, Store, StoreError, files, read_description
from specjax.sweep._store import store as module


def filled(path, samples=6, size=3):
    with Store.opened(path, described(samples)) as store:
        compute(store, size)
    return path


def test_a_store_has_a_file_per_block_and_one_that_lists_them(tmp_path):
    with Store.opened(tmp_path / "new" / "store", described()) as store:
        assert compute(store) == ALL == set(store.blocks.values())
        assert store.seconds == 2.0
        assert_read(store)
    names = sorted(path.name for path in store.path.iterdir())
    assert [name[:-21] for name in names[:4]] == [
        f"bucket{block.bucket}-{block.start:06}-{block.stop:06}" for block in sorted(ALL)
    ]
    assert names[4:] == ["lock", "sweep.json"]
    assert read_description(store.path) == described()
    # What anybody needs to read it without this package: numpy.
    first = np.load(store.path / names[0])
    np.testing.assert_array_equal(first["layer.count"], truth()["layer.count"].values[1:2, :, :3])
    _, fields = json.loads((store.path / "sweep.json").read_text())
    assert fields["config"] == CONFIG


def test_a_store_opens_as_the_dataset(tmp_path):
    data = open_store(filled(tmp_path / "store"))
    attributes = {"over": json.dumps(CONFIG["over"]), "key": "[0, 7]", "dtype": "float32"}
    xr.testing.assert_identical(data.load(), truth().assign_attrs(attributes))


@given(data=st.data())
def test_any_selection_reads_what_it_needs(data, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "selected"
    if not path.exists():
        filled(path, 6, 2)
    name = data.draw(st.sampled_from(sorted(truth().data_vars)), "name")
    keys = {}
    for dim, n in truth()[name].sizes.items():
        index = st.integers(-n, n - 1)
        parts = st.builds(
            slice, st.none() | index, st.none() | index, st.sampled_from([None, 2])
        ) | st.just(slice(None, None, -1))
        keys[dim] = data.draw(
            st.one_of(index, parts, st.lists(index, max_size=3).map(np.array)), dim
        )
        if isinstance(keys[dim], np.ndarray):
            keys[dim] = keys[dim].astype(np.intp)
    found = open_store(path)[name].isel(keys)
    np.testing.assert_array_equal(found.values, truth()[name].isel(keys).values, strict=True)


def test_only_the_blocks_of_a_selection_are_read(tmp_path, monkeypatch):
    """So a store may be larger than memory."""
    data, loaded = open_store(filled(tmp_path / "store")), []
    load = files.load_block
    monkeypatch.setattr(
        module, "load_block", lambda file, sweep: loaded.append(file.name[:21]) or load(file, sweep)
    )
    assert data["loss"].shape == (3, 2, 6)
    assert loaded == []
    assert data["loss"].sel(d=8, seed=4).isnull().sum() == 0
    assert loaded == ["bucket1-000003-000006"]


def test_what_is_not_computed_is_nan(tmp_path):
    with Store.opened(tmp_path / "store", described()) as store:
        block = Block(1, 2, 4)
        store.write(block, part(block), 1.0)
        assert store.missing(0) == [(0, 6)]
        assert store.missing(1) == [(0, 2), (4, 6)]
        outputs = store.read()
        # Opened while it is written.
        data = open_store(store.path)
    computed = np.zeros((3, 2, 6), bool)
    computed[[2, 0], :, 2:4] = True
    np.testing.assert_array_equal(np.isnan(outputs["loss"]), ~computed)
    np.testing.assert_array_equal(
        outputs["layer.count"], np.where(computed, truth()["layer.count"], 0)
    )
    xr.testing.assert_equal(
        data.load(), truth().where(xr.DataArray(computed, dims=("d", "eta", "seed")))
    )
    assert data["layer.count"].dtype == np.float64


def test_more_samples_are_added_without_computing_any_again(tmp_path):
    path = filled(tmp_path / "store", 4)
    with Store.opened(path, described(11)) as store:
        assert store.missing(0) == store.missing(1) == [(4, 11)]
        assert compute(store, 5) == {
            Block(b, *edges) for b in (0, 1) for edges in ((4, 9), (9, 11))
        }
        assert_read(store)
    xr.testing.assert_equal(open_store(path).load(), truth(11))


def test_fewer_samples_are_the_first_and_leave_the_store_alone(tmp_path):
    path = filled(tmp_path / "store")
    before = {file: file.read_bytes() for file in path.iterdir()}
    with Store.opened(path, described(4)) as store:
        assert compute(store) == set()
        assert_read(store)
    assert {file: file.read_bytes() for file in path.iterdir()} == before


def test_two_parts_of_a_store_merge_by_copying_blocks(tmp_path):
    with Store.opened(tmp_path / "a", described()) as store:
        for block in (Block(0, 0, 3), Block(1, 0, 3)):
            store.write(block, part(block), 1.0)
    with Store.opened(tmp_path / "b", described(8)) as store:
        for block in (
            Block(0, 3, 6),
            Block(0, 4, 5),
            Block(1, 2, 6),
        ):  # some samples are in several
            store.write(block, part(block), 1.0)
    for file in (tmp_path / "b").glob("*.npz"):
        shutil.copy(file, tmp_path / "a")
    with Store.opened(tmp_path / "a", described()) as store:
        assert compute(store) == set()
        assert_read(store)
    xr.testing.assert_equal(open_store(tmp_path / "a").load(), truth())


def test_a_block_of_another_sweep_is_refused_and_left_alone(tmp_path):
    path = filled(tmp_path / "store")
    with Store.opened(tmp_path / "other", described(plan={**PLAN, "blocks": [6, 6]})) as store:
        store.write(Block(0, 0, 6), part(Block(0, 0, 6)), 1.0)
        (file,) = store.blocks
    shutil.copy(file, path)
    with (
        pytest.raises(ValueError, match=rf"{file.name} is a block of another sweep; take it out"),
        Store.opened(path, described()),
    ):
        pass
    (path / file.name).unlink()
    with Store.opened(path, described()) as store:
        assert_read(store)


def test_a_type_that_files_of_numpy_do_not_have_comes_back(tmp_path):
    """Such as bfloat16, which they hold as two bytes without a name."""
    values = jnp.arange(6, dtype=jnp.bfloat16) / 3
    form = xr.Dataset({"y": ("seed", np.asarray(values))}, {"seed": np.arange(6)})
    with Store.opened(
        tmp_path / "s", Description.of(form, "seed", config={}, plan={}, places=[[]])
    ) as store:
        store.write(Block(0, 1, 6), {"y": np.asarray(values[1:])}, 1.0)
        found = store.read()["y"]
    assert found.dtype == values.dtype
    np.testing.assert_array_equal(found[1:], values[1:])
    assert np.isnan(found[0])


def test_another_configuration_is_refused_with_differing_fields(tmp_path):
    many = list(range(200))
    with Store.opened(
        tmp_path / "store", described(config={**CONFIG, "many": many, "gone": 1})
    ) as store:
        compute(store)
    over = {"d": (2, 4, 8), "eta": [0.1, 0.3]}
    asked = {**CONFIG, "key": (0, 8), "many": [*many[:-1], 7], "over": over, "new": None}
    with (
        pytest.raises(ValueError, match="another configuration") as refusal,
        Store.opened(store.path, described(config=asked)),
    ):
        pass
    reported = str(refusal.value)
    for field in (
        "gone is 1 there and absent here",
        "key.1 is 7 there and 8 here",
        "many.199 is 199 there and 7 here",
        "over.eta.1 is 0.2 there and 0.3 here",
        "new is absent there and null here",
    ):
        assert field in reported
    assert "dtype" not in reported
    assert "..." not in reported
    assert reported.endswith("; choose another path, or ask for it.")
    # Of many fields the first.
    with (
        pytest.raises(ValueError, match=r"; \.\.\.; choose another path"),
        Store.opened(store.path, described()),
    ):
        pass


def test_an_open_store_refuses_writers_and_a_closed_one_does_not(tmp_path):
    with (
        Store.opened(tmp_path / "store", described()) as store,
        pytest.raises(
            StoreError,
            match=r"\(another process is writing there, or an earlier call in this one\)",
        ),
        Store.opened(store.path, described()),
    ):
        pass
    with Store.opened(store.path, described()) as store:
        assert compute(store) == ALL


def test_the_next_call_continues_a_store_made_meanwhile(tmp_path):
    path = filled(tmp_path / "store")
    with (
        pytest.raises(
            StoreError, match=r"\(another process has just made it.*the same call continues"
        ),
        Store.opened(path, described(plan={})),
    ):
        pass


def test_a_store_without_a_block_takes_any_sweep(tmp_path):
    with Store.opened(tmp_path / "store", described(config={})):
        assert read_description(tmp_path / "store") is None
    with pytest.raises(ValueError, match="holds no finished block of a sweep"):
        open_store(tmp_path / "store")
    assert filled(tmp_path / "store")
    assert read_description(tmp_path / "store") == described()
