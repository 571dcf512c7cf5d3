"""A sweep that is killed or interrupted continues from its blocks and ends with the dataset of one
that was not, bit for bit.
"""

import os
import random
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import jax
import killed_sweep
import numpy as np
import pytest
import xarray as xr
from measures import bits, overlap

from specjax import resume, sizes, sweep

pytestmark = pytest.mark.integration

SCRIPT = str(Path(killed_sweep.__file__))
KEY = jax.random.key(5)


def start(store, result, cache):
    environment = {**os.environ, "SPECJAX_COMPILATION_CACHE": str(cache)}
    return subprocess.Popen(
        [sys.executable, SCRIPT, str(store), str(result)], env=environment, stderr=subprocess.PIPE
    )


def blocks(store):
    return {path.name.rpartition("-")[0] for path in store.glob("bucket*")}


def kill_and_continue(tmp_path, kills, seed):
    """Kills the process `kills` times, each time some blocks later than before and a random moment
    after that, then lets it end.
    """
    chance = random.Random(seed)
    whole, store = tmp_path / "whole", tmp_path / "store"
    began = time.monotonic()
    process = start(whole, tmp_path / "whole.nc", tmp_path / "cache")
    while not blocks(whole) and process.poll() is None:
        time.sleep(0.001)
    # With its programs compiled before, the next process has its first block sooner.
    starting = 0.7 * (time.monotonic() - began)
    _, error = process.communicate(timeout=400)
    assert process.returncode == 0, error.decode()
    total = len(blocks(whole))
    killed = 0
    for i in range(kills):
        process = start(store, tmp_path / "never.nc", tmp_path / "cache")
        # Every fourth moment is before the first new block: while it starts, or makes or reads the
        # store.
        enough = len(blocks(store)) + (
            0 if i % 4 == 0 else chance.randrange(1, max(total // kills, 2))
        )
        while len(blocks(store)) < enough and process.poll() is None:
            time.sleep(0.001)
        time.sleep(chance.uniform(0, starting if i % 4 == 0 else 0.02))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        killed += process.returncode == -signal.SIGKILL
    assert killed >= 0.9 * kills
    before = len(blocks(store))
    process = start(store, tmp_path / "continued.nc", tmp_path / "cache")
    _, error = process.communicate(timeout=400)
    assert process.returncode == 0, error.decode()
    assert (
        before < len(blocks(store)) == total
    )  # it had something left to do, and computed no block twice
    assert_identical(load(tmp_path / "continued.nc"), load(tmp_path / "whole.nc"))
    whole = load(tmp_path / "whole.nc")
    assert_identical(sweep.open_store(store).load(), whole.drop_vars("failed"))


def load(path):
    with xr.open_dataset(path, engine="h5netcdf") as data:
        return data.load()


def assert_identical(found, expected):
    assert set(found.variables) == set(expected.variables)
    for name, variable in expected.variables.items():
        assert found[name].values.tobytes() == variable.values.tobytes(), name
    assert found.attrs.get("buckets", expected.attrs["buckets"]) == expected.attrs["buckets"]


@pytest.mark.slow
def test_killed_at_twenty_random_moments(tmp_path):
    kill_and_continue(tmp_path, 20, seed=2)


@pytest.fixture
def interrupted(tmp_path, monkeypatch):
    """A sweep stopped by Ctrl-C in its third block; returns the store and the message."""
    monkeypatch.setattr("specjax.sweep._executor.BLOCK_SECONDS", 1e-9)
    from specjax.sweep._store import Store

    written = []
    write = Store.write

    def third_time(self, *arguments):
        write(self, *arguments)
        written.append(arguments[0])
        if len(written) == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Store, "write", third_time)
        with pytest.raises(KeyboardInterrupt) as stopped:
            run(tmp_path / "store")
    return tmp_path / "store", str(stopped.value)


OVER = {"d": sweep.widths(3, 6)}


def run(store, num_seeds=20, key=KEY, **options):
    return sweep.run(
        overlap, OVER, num_seeds=num_seeds, key=key, plan="exact", chunk=4, store=store, **options
    )


def test_ctrl_c_keeps_the_blocks_and_says_how_to_go_on(interrupted):
    store, message = interrupted
    assert "3 finished blocks" in message
    assert f"the same call with store={str(store)!r} continues" in message
    data = run(store)
    expected = sweep.run(overlap, OVER, num_seeds=20, key=KEY, plan="exact", chunk=4)
    assert_identical(data, expected)


def test_the_plan_of_the_store_is_kept(interrupted):
    """Another chunk would give other roundings: the stored one is used, whatever this call says."""
    store, _ = interrupted
    data = sweep.run(overlap, OVER, num_seeds=20, key=KEY, plan="padded", chunk=7, store=store)
    assert_identical(data, sweep.run(overlap, OVER, num_seeds=20, key=KEY, plan="exact", chunk=4))


@pytest.mark.parametrize("reduce", [None, pytest.param("moments", marks=pytest.mark.slow)])
def test_more_seeds_are_added_without_recomputing_old_ones(tmp_path, monkeypatch, reduce):
    seeds = 128 if reduce else 20
    run(tmp_path / "store", num_seeds=seeds, reduce=reduce)
    computed = []
    from specjax.sweep._store import Store

    write = Store.write

    def noted(self, block, *arguments):
        computed.append(block)
        write(self, block, *arguments)

    monkeypatch.setattr(Store, "write", noted)
    more = run(tmp_path / "store", num_seeds=2 * seeds, reduce=reduce)
    samples = 64 if reduce else seeds
    assert computed
    assert min(block.start for block in computed) == samples
    expected = run(None, num_seeds=2 * seeds, reduce=reduce)
    if reduce:
        # The batches keep their size, so there are twice as many.
        assert more.sizes["batch"] == 128
        more, expected = sweep.total(more), sweep.total(expected)
    for name in ("overlap", "nested.norm"):
        np.testing.assert_allclose(more[name], expected[name], rtol=1e-5, atol=1e-6)


def test_batches_of_a_store_are_not_cut(tmp_path):
    run(tmp_path / "store", num_seeds=128, reduce="moments")
    with pytest.raises(ValueError, match=r"batches of 2 seeds, so num_seeds needs .* got 131"):
        run(tmp_path / "store", num_seeds=131, reduce="moments")


def test_fewer_seeds_are_read(tmp_path):
    whole = run(tmp_path / "store", num_seeds=20)
    few = run(tmp_path / "store", num_seeds=7)
    xr.testing.assert_equal(few, whole.isel(seed=slice(7)))


def test_another_configuration_is_refused_with_differing_fields(tmp_path):
    store = tmp_path / "store"
    run(store)
    with pytest.raises(ValueError, match=r"another configuration: key\.1 is 5 there and 6 here"):
        run(store, key=jax.random.key(6))
    with pytest.raises(ValueError, match='reduce is null there and "moments" here'):
        run(store, reduce="moments")
    with pytest.raises(ValueError, match=r"over.d.d.points\.1 is 6 there and 7 here"):
        sweep.run(overlap, {"d": sweep.widths(3, 7)}, num_seeds=20, key=KEY, store=store)
    with pytest.raises(ValueError, match="measure is"):
        sweep.run(
            lambda key, d: {k: 2 * v for k, v in overlap(key, d).items() if k != "nested"},
            OVER,
            num_seeds=20,
            key=KEY,
            store=store,
        )
    with (
        jax.enable_x64(True),
        pytest.raises(ValueError, match='dtype is "float32" there and "float64" here'),
    ):
        run(store)


@pytest.mark.parametrize("reduce", [None, "moments"])
def test_a_damaged_block_is_computed_again_to_the_same_bits(tmp_path, monkeypatch, reduce):
    # Each call is a block, so that there are several.
    monkeypatch.setattr("specjax.sweep._executor.BLOCK_SECONDS", 1e-9)
    store = tmp_path / "store"
    expected = run(store, reduce=reduce)
    file = sorted(store.glob("bucket1*"))[1]
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 8
    file.write_bytes(content)
    before = {path: path.stat().st_mtime_ns for path in store.glob("bucket*")}
    with pytest.warns(
        sweep.DamagedBlocksWarning,
        match=r"^1 of the blocks in .* are damaged and computed again: bucket1.*\.$",
    ):
        found = run(store, reduce=reduce)
    assert_identical(found, expected)
    # No other was.
    kept = {path for path in store.glob("bucket*") if before.get(path) == path.stat().st_mtime_ns}
    assert kept == set(before) - {file}
    assert_identical(run(store, reduce=reduce), expected)


def test_a_store_opens_as_the_dataset_of_the_call(tmp_path):
    """With several seeds for each width, integers, and outputs with axes of their own."""

    def measure(key, d, lr):
        return {**overlap(key, d), **bits(key, d), "scaled": lr * overlap(key, d)["overlap"]}

    over = {"d": sweep.widths(3, 6), "lr": sweep.values(0.1, 0.3)}
    options = {"key": KEY, "plan": "exact", "chunk": 4}
    for number, seeds in enumerate((9, {"d": (9, 5)})):
        store = tmp_path / str(number)
        expected = sweep.run(measure, over, num_seeds=seeds, store=store, **options).drop_vars(
            "failed"
        )
        found = sweep.open_store(store)
        assert found.attrs["key"] == "[0, 5]"
        xr.testing.assert_identical(
            found.load().drop_attrs(deep=False), expected.drop_attrs(deep=False)
        )
    moments = sweep.run(
        overlap, OVER, num_seeds=200, key=KEY, reduce="moments", store=tmp_path / "moments"
    )
    found = sweep.open_store(tmp_path / "moments").load()
    xr.testing.assert_identical(found.drop_attrs(deep=False), moments.drop_attrs(deep=False))


def test_stores_of_a_job_array_are_one_sweep(tmp_path):
    """One task for each width, with a store of its own; side by side they are what one call gives,
    to the last bit.
    """
    for width in (3, 6):
        over = {"d": sweep.widths(width)}
        sweep.run(
            overlap,
            over,
            num_seeds=20,
            key=KEY,
            plan="exact",
            chunk=4,
            store=tmp_path / "array" / str(width),
        )
    parts = [sweep.open_store(tmp_path / "array" / str(width)) for width in (3, 6)]
    merged = xr.concat(parts, "d")
    whole = run(None).drop_vars("failed")
    assert_identical(merged.load(), whole)


def test_a_changed_line_of_narrow_widths_is_another_measure(tmp_path):
    """The program of the largest width does not have the line."""

    def measure(key, d, factor):
        return {"a": sizes.normal(key, (d,)).sum() * (factor if sizes.padded(d) < 8 else 1.0)}

    def changed(factor, seeds):
        over = {"d": sweep.widths(4, 16)}
        return sweep.run(
            partial(measure, factor=factor),
            over,
            num_seeds=seeds,
            key=KEY,
            plan="exact",
            store=tmp_path / "s",
        )

    changed(1.0, 5)
    with pytest.raises(ValueError, match="measure is"):
        changed(2.0, 10)
    assert changed(1.0, 10).sizes["seed"] == 10


def test_a_store_of_other_axes_is_refused_whatever_its_plan(tmp_path):
    """Its buckets name points that these axes do not have."""
    over = {"d": sweep.widths(2, 3, 4, 6)}
    sweep.run(overlap, over, num_seeds=4, key=KEY, plan="exact", store=tmp_path / "store")
    with pytest.raises(
        ValueError,
        match=r"over.d.d.points\.0 is 2 there and 3 here; over.d.d.points\.1 is 3 there and 6 here",
    ):
        run(tmp_path / "store", num_seeds=4)


def test_a_callback_does_not_keep_a_store_from_being_continued(tmp_path):
    """The program contains the call, and not what the host does in it."""

    def measure(key, d):
        x = sizes.normal(key, (d,)).sum()
        return {
            "a": jax.pure_callback(
                np.asarray, jax.ShapeDtypeStruct((), x.dtype), x, vmap_method="sequential"
            )
        }

    for seeds in (3, 5):
        data = sweep.run(
            measure, OVER, num_seeds=seeds, key=KEY, plan="exact", store=tmp_path / "store"
        )
    np.testing.assert_array_equal(
        data["a"], sweep.run(measure, OVER, num_seeds=5, key=KEY, plan="exact")["a"]
    )


def test_axes_in_another_order_are_another_sweep(tmp_path):
    """Refused before anything is written, where they name one store, and two stores where each
    sweep has its own.
    """

    def measure(key, d, lr):
        return {"y": lr * overlap(key, d)["overlap"]}

    over = {"d": sweep.widths(3, 6), "lr": sweep.values(0.1, 0.2)}
    turned = dict(reversed(over.items()))
    options = {"num_seeds": 4, "key": KEY, "plan": "exact"}
    first = sweep.run(measure, over, **options, store=tmp_path / "store")
    before = {file: file.read_bytes() for file in (tmp_path / "store").iterdir()}
    with pytest.raises(
        ValueError, match="the order of over is d, lr there and lr, d here; choose another path"
    ):
        sweep.run(measure, turned, **options, store=tmp_path / "store")
    assert {file: file.read_bytes() for file in (tmp_path / "store").iterdir()} == before
    with resume.enabled(tmp_path / "kept"):
        for asked in (over, turned):
            assert (
                sweep.run(measure, asked, **options)["y"]
                .transpose(*first["y"].dims)
                .equals(first["y"])
            )
    assert len(list((tmp_path / "kept").iterdir())) == 2
