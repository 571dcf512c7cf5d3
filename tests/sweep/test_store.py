"""The store: what is written comes back, in whatever order, grown or resumed, and opens as the dataset it was finished with."""

import itertools
import json

import jax
import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from specjax.sweep.store import Block, Layout, Manifest, Store, StoreError, read_manifest, verify

CONFIG = {"axes": {"d": [2, 4, 8], "eta": [0.1, 0.2]}, "key": [0, 7], "dtype": "float32"}
MANIFEST = Manifest(CONFIG, {"buckets": [[2], [4, 8]], "chunk": 3})
VARIABLES = {
    "loss": jax.ShapeDtypeStruct((), np.float32),
    "spectrum": jax.ShapeDtypeStruct((2,), np.complex64),
    "layer.count": jax.ShapeDtypeStruct((), np.int32),
    "hit": jax.ShapeDtypeStruct((1, 2), np.bool_),
}
PLACES = [(np.array([1]), np.array([0, 1])), (np.array([2, 0]), np.array([0, 1]))]


def layout(samples=6, chunk=3, variables=VARIABLES):
    return Layout(("d", "eta"), (3, 2), ("d",), "seed", samples, chunk, variables)


def truth(samples, form=None):
    """Every variable of a sweep whose values depend on where they are, and in samples only on the sample."""
    form = form or layout()
    outputs = {}
    for name, variable in form.variables.items():
        shape = (*form.extents, samples, *variable.shape)
        rng = [np.random.default_rng([sample, len(name)]) for sample in range(samples)]
        slices = [one.integers(-1000, 1000, (*form.extents, *variable.shape)) for one in rng]
        outputs[name] = np.stack(slices, len(form.extents)).reshape(shape).astype(variable.dtype)
    return outputs


def part(outputs, place, start, stop):
    chosen = (*np.ix_(*place),) if place else ()
    samples = (*(slice(None),) * len(place), slice(start, stop))
    return {name: array[chosen][samples] for name, array in outputs.items()}


def fill(store, samples, chunk=3, places=PLACES):
    """Write every block that is missing; return how many there were."""
    outputs, count = truth(samples, store.layout), 0
    for bucket, place in enumerate(places):
        for start, stop in store.missing(bucket):
            for first in range(start, stop, chunk):
                last = min(first + chunk, stop)
                store.write(Block(bucket, first, last), place, part(outputs, place, first, last), 0.5)
                count += 1
    return count


def dataset(samples, form=None):
    """As `run` would return it."""
    form = form or layout()
    variables = {name: (form.dims(name), array) for name, array in truth(samples, form).items()}
    data = xr.Dataset(variables, {"d": [2, 4, 8], "eta": [0.1, 0.2], "seed": np.arange(samples)})
    data = data.assign_coords(twice=("d", [4, 8, 16])).assign(failed=data["loss"] > 990)
    data["loss"].attrs["units"] = "1"
    data["d"].attrs["units"] = "neurons"
    return data.assign_attrs(seeds=samples, run_seconds=np.float64(1.5), buckets="[[2], [4, 8]]", widths=[2, 4, 8])


def same(stored, expected):
    assert stored.keys() == expected.keys()
    for name in expected:
        assert stored[name].dtype == expected[name].dtype
        np.testing.assert_array_equal(stored[name], expected[name], err_msg=name, strict=True)


def test_a_finished_store_is_the_dataset(tmp_path):
    with Store.create(tmp_path / "store", MANIFEST, layout()) as store:
        assert fill(store, 6) == 4
        assert store.done == {Block(bucket, start, start + 3) for bucket in (0, 1) for start in (0, 3)}
        assert store.seconds == 2.0
        same(store.read(), truth(6))
        store.finish(dataset(6))
    assert sorted(path.name for path in (tmp_path / "store").iterdir()) == [
        "blocks.jsonl",
        "data.zarr",
        "manifest.json",
    ]
    with xr.open_zarr(tmp_path / "store" / "data.zarr", chunks=None) as stored:
        xr.testing.assert_identical(stored.load(), dataset(6))
        assert set(stored.coords) == {"d", "eta", "seed", "twice"}
    assert read_manifest(tmp_path / "store") == MANIFEST


@pytest.mark.integration
@given(data=st.data())
def test_blocks_in_any_order_and_of_any_size_come_back(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("any") / "store"
    axes = data.draw(st.lists(st.tuples(st.integers(1, 4), st.booleans()), max_size=3), "axes")
    names = tuple(f"axis{place}" for place in range(len(axes)))
    samples = data.draw(st.integers(1, 9), "samples")
    trailing = data.draw(st.sampled_from([(), (2,), (0,), (1, 3)]), "trailing")
    form = Layout(
        names,
        tuple(extent for extent, _ in axes),
        tuple(name for name, (_, split) in zip(names, axes, strict=True) if split),
        "seed",
        samples,
        data.draw(st.integers(1, 10), "chunk"),
        {"y": jax.ShapeDtypeStruct(trailing, np.float16), "n": jax.ShapeDtypeStruct((), np.uint8)},
    )
    # Each bucket is a part of the first axis, in any order, and all of the others, in any order.
    others = [np.array(data.draw(st.permutations(range(extent)))) for extent, _ in axes[1:]]
    first = np.array(data.draw(st.permutations(range(axes[0][0])))) if axes else None
    cut = data.draw(st.integers(1, len(first)), "cut") if axes else 0
    places = [(p, *others) for p in (first[:cut], first[cut:]) if len(p)] if axes else [()]
    cuts = sorted({0, samples, *data.draw(st.lists(st.integers(0, samples), max_size=4), "cuts")})
    blocks = [Block(b, start, stop) for b in range(len(places)) for start, stop in itertools.pairwise(cuts)]
    expected = truth(samples, form)
    manifest = Manifest({"n": samples}, {})
    store = Store.create(path, manifest, form)
    for block in data.draw(st.permutations(blocks), "order"):
        store.write(block, places[block.bucket], part(expected, places[block.bucket], block.start, block.stop), 1.0)
        if data.draw(st.booleans(), "reopen"):
            store.close()
            store = Store.resume(path, manifest.config, form)
    assert all(store.missing(bucket) == [] for bucket in range(len(places)))
    same(store.read(), expected)
    expected_dataset = xr.Dataset({name: (form.dims(name), array) for name, array in expected.items()})
    store.finish(expected_dataset)
    store.close()
    with xr.open_zarr(path / "data.zarr", chunks=None) as stored:
        xr.testing.assert_identical(stored.load(), expected_dataset)


def test_what_is_not_yet_computed_reads_as_nan_or_zero(tmp_path):
    with Store.create(tmp_path / "store", MANIFEST, layout()) as store:
        store.write(Block(1, 2, 4), PLACES[1], part(truth(6), PLACES[1], 2, 4), 1.0)
        assert store.missing(0) == [(0, 6)]
        assert store.missing(1) == [(0, 2), (4, 6)]
        outputs = store.read()
    computed = np.zeros((3, 2, 6), bool)
    computed[[2, 0], :, 2:4] = True
    np.testing.assert_array_equal(np.isnan(outputs["loss"]), ~computed)
    np.testing.assert_array_equal(outputs["layer.count"], np.where(computed, truth(6)["layer.count"], 0))
    # zarr says the same of an unfinished store.
    with xr.open_zarr(tmp_path / "store" / "data.zarr", chunks=None) as stored:
        np.testing.assert_array_equal(stored["loss"], outputs["loss"])
        assert stored["hit"].dims == ("d", "eta", "seed", "hit_dim_0", "hit_dim_1")


@pytest.mark.parametrize("finished", [True, False])
def test_more_samples_are_added_without_computing_any_again(finished, tmp_path):
    path = tmp_path / "store"
    with Store.create(path, MANIFEST, layout(4)) as store:
        fill(store, 4)
        if finished:
            store.finish(dataset(4))
    with Store.resume(path, CONFIG, layout(11)) as store:
        assert store.missing(0) == store.missing(1) == [(4, 11)]
        with xr.open_zarr(path / "data.zarr", chunks=None) as stored:
            assert stored["spectrum"].sizes == {"d": 3, "eta": 2, "seed": 11, "spectrum_dim_0": 2}
            assert np.isnan(stored["loss"][..., 4:]).all()
            # Those of the shorter dataset do not fit any more.
            assert not stored.coords
            assert not stored.attrs
        fill(store, 11, chunk=5)
        assert len(store.done) == 8
        same(store.read(), truth(11))
        store.finish(dataset(11))
    with xr.open_zarr(path / "data.zarr", chunks=None) as stored:
        xr.testing.assert_identical(stored.load(), dataset(11))


def test_fewer_samples_are_the_first_ones_and_leave_the_store_as_it_is(tmp_path):
    path = tmp_path / "store"
    with Store.create(path, MANIFEST, layout(6)) as store:
        fill(store, 6)
        store.finish(dataset(6))
    with Store.resume(path, CONFIG, layout(4)) as store:
        assert store.missing(0) == store.missing(1) == []
        same(store.read(), truth(4))
        store.finish(dataset(4))
    with xr.open_zarr(path / "data.zarr", chunks=None) as stored:
        xr.testing.assert_identical(stored.load(), dataset(6))


def test_points_with_fewer_samples_than_others_are_a_whole_store(tmp_path):
    path = tmp_path / "store"
    with Store.create(path, MANIFEST, layout()) as store:
        for bucket, samples in [(0, 6), (1, 2)]:
            arrays = part(truth(6), PLACES[bucket], 0, samples)
            store.write(Block(bucket, 0, samples), PLACES[bucket], arrays, 1.0)
        assert not verify(path).finished
        store.finish(
            dataset(6).drop_vars(VARIABLES).assign({n: (layout().dims(n), a) for n, a in store.read().items()})
        )
    report = verify(path)
    assert report.finished
    assert report.measured == 2 * 6 + 4 * 2
    assert str(report) == "finished: 2 blocks with 20 samples over all points"


def test_a_finished_store_is_finished_again_with_new_attributes(tmp_path):
    with Store.create(tmp_path / "store", MANIFEST, layout()) as store:
        fill(store, 6)
        store.finish(dataset(6))
    again = dataset(6).assign_attrs(run_seconds=7.0).drop_vars("twice")
    with Store.resume(tmp_path / "store", CONFIG, layout()) as store:
        store.finish(again)
    with xr.open_zarr(tmp_path / "store" / "data.zarr", chunks=None) as stored:
        xr.testing.assert_identical(stored.load(), again)


def test_another_configuration_is_refused_with_every_differing_field(tmp_path):
    many = list(range(200))
    Store.create(tmp_path / "store", Manifest({**CONFIG, "many": many, "gone": 1}, {}), layout()).close()
    asked = {**CONFIG, "key": (0, 8), "many": [*many[:-1], 7], "axes": {"d": (2, 4, 8), "eta": [0.1, 0.3]}, "new": None}
    with pytest.raises(ValueError, match="another configuration") as refusal:
        Store.resume(tmp_path / "store", asked, layout())
    told = str(refusal.value)
    for part_of_it in (
        "axes.eta is [0.1, 0.2] there and [0.1, 0.3] here",
        "key is [0, 7] there and [0, 8] here",
        "many[199] is 199 there and 7 here",
        "gone is 1 there and absent here",
        "new is absent there and null here",
        "choose another path",
    ):
        assert part_of_it in told
    assert "dtype" not in told
    assert "axes.d" not in told
    # Tuples and lists are the same in JSON.
    same_as_before = {**CONFIG, "many": tuple(many), "gone": 1}
    Store.resume(tmp_path / "store", same_as_before, layout()).close()
    changed = layout(variables={**VARIABLES, "loss": jax.ShapeDtypeStruct((), np.float64)})
    with pytest.raises(ValueError, match=r'variables\.loss is \[\[\], "float32"\] there and \[\[\], "float64"\] here'):
        Store.resume(tmp_path / "store", same_as_before, changed)


def test_a_block_that_does_not_fit_is_refused(tmp_path):
    with Store.create(tmp_path / "store", MANIFEST, layout()) as store:
        good = part(truth(6), PLACES[1], 0, 3)
        store.write(Block(1, 0, 3), PLACES[1], good, 1.0)
        for block, place, arrays, message in [
            (Block(1, 2, 5), PLACES[1], good, "in part finished"),
            (Block(1, 0, 3), PLACES[1], good, "in part finished"),
            (Block(1, 4, 7), PLACES[1], good, "not in the store"),
            (Block(1, 3, 3), PLACES[1], good, "empty"),
            (Block(1, 3, 6), PLACES[0], good, "place of bucket 1 differs"),
            (Block(1, 3, 6), PLACES[1], {"loss": good["loss"]}, "has the variables"),
            (Block(1, 3, 6), PLACES[1], part(truth(6), PLACES[1], 0, 2), "not float32"),
            (Block(1, 3, 6), PLACES[1], {**good, "loss": good["hit"]}, "'loss' of the block"),
        ]:
            with pytest.raises(ValueError, match=message):
                store.write(block, place, arrays, 1.0)
        assert store.done == {Block(1, 0, 3)}


@pytest.mark.parametrize(
    ("name", "dtype", "message"),
    [("y", "bfloat16", "convert it to float32"), ("a/b", "float32", "rename it"), ("__y", "float32", "rename it")],
)
def test_what_zarr_cannot_hold_is_refused(name, dtype, message):
    with pytest.raises(ValueError, match=message):
        layout(variables={name: jax.ShapeDtypeStruct((), jax.numpy.dtype(dtype))})


def test_an_open_store_refuses_a_second_writer(tmp_path):
    with Store.create(tmp_path / "store", MANIFEST, layout()) as store:
        for again in (Store.resume, CONFIG), (Store.create, MANIFEST):
            with pytest.raises(StoreError, match="Another process is writing"):
                again[0](tmp_path / "store", again[1], layout())
        fill(store, 6)
        with pytest.raises(ValueError, match="holds a store already"):
            Store.create(tmp_path / "store", MANIFEST, layout())
    Store.resume(tmp_path / "store", CONFIG, layout()).close()


def test_the_journal_is_json_lines(tmp_path):
    with Store.create(tmp_path / "store", MANIFEST, layout()) as store:
        fill(store, 6)
    lines = [json.loads(line) for line in (tmp_path / "store" / "blocks.jsonl").read_text().splitlines()]
    assert [line["place"] for line in lines if "place" in line] == [[[1], [0, 1]], [[2, 0], [0, 1]]]
    assert [line["start"] for line in lines if "start" in line] == [0, 3, 0, 3]
