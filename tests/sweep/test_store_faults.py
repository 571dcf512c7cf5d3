"""What can befall a store: damaged files, a torn journal, a full disk, a folder that is not its own. Each really happens here."""

import contextlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import jax
import numpy as np
import pytest
import xarray as xr

from specjax.sweep.store import Block, Layout, Manifest, Store, StoreError, read_manifest, verify

# Two buckets: the widths at places 1, and 2 and 0. Samples in chunks of 4 and blocks of 3, so that blocks share chunks.
LAYOUT = Layout(("d",), (3,), ("d",), "seed", 6, 4, {"y": jax.ShapeDtypeStruct((), np.float32)})
MANIFEST = Manifest({"key": [0, 7]}, {"chunk": 3})
PLACES = [(np.array([1]),), (np.array([2, 0]),)]
VALUES = np.arange(18, dtype=np.float32).reshape(3, 6)
DATASET = xr.Dataset({"y": (("d", "seed"), VALUES)}, {"d": [2, 4, 8]}, {"seeds": 6})
ALL = {Block(bucket, start, start + 3) for bucket in (0, 1) for start in (0, 3)}


def fill(store):
    written = set()
    for bucket, place in enumerate(PLACES):
        for begin, end in store.missing(bucket):
            for start in range(begin, end, 3):
                block = Block(bucket, start, min(start + 3, end))
                store.write(block, place, {"y": VALUES[np.ix_(*place)][:, block.start : block.stop]}, 1.0)
                written.add(block)
    return written


def resumed(path):
    return Store.resume(path, MANIFEST.config, LAYOUT)


@pytest.fixture
def path(tmp_path):
    """A finished store."""
    with Store.create(tmp_path / "store", MANIFEST, LAYOUT) as store:
        assert fill(store) == ALL
        store.finish(DATASET)
    assert verify(tmp_path / "store").whole
    return tmp_path / "store"


def repaired(path, blocks):
    """After `verify --drop` exactly these blocks are computed again, and the store is what it was."""
    verify(path, drop=True)
    assert not verify(path).finished
    with resumed(path) as store:
        assert fill(store) == set(blocks)
        np.testing.assert_array_equal(store.read()["y"], VALUES)
        store.finish(DATASET)
    report = verify(path)
    assert report.finished
    assert report.whole
    with xr.open_zarr(path / "data.zarr", chunks=None) as stored:
        xr.testing.assert_identical(stored.load(), DATASET)


def flip(file, at):
    content = bytearray(file.read_bytes())
    content[at] ^= 1
    file.write_bytes(content)


def truncate(file):
    os.truncate(file, file.stat().st_size - 1)


# Chunk c.1.0 holds samples 0 to 3 of the width at place 1, which is bucket 0; its last value is of that bucket's second block.
@pytest.mark.parametrize(
    ("damage", "blocks"),
    [
        (lambda file: flip(file, 0), [Block(0, 0, 3)]),
        (lambda file: flip(file, -1), [Block(0, 3, 6)]),
        (truncate, [Block(0, 0, 3), Block(0, 3, 6)]),
        (lambda file: file.write_bytes(b""), [Block(0, 0, 3), Block(0, 3, 6)]),
        (Path.unlink, [Block(0, 0, 3), Block(0, 3, 6)]),
    ],
    ids=["first bit", "last bit", "truncated", "empty", "missing"],
)
def test_a_damaged_chunk_is_named_and_its_blocks_alone_are_computed_again(damage, blocks, path):
    damage(path / "data.zarr" / "y" / "c.1.0")
    assert verify(path).damaged == dict.fromkeys(blocks, ("y",))
    first = blocks[0]
    with (
        resumed(path) as store,
        pytest.raises(
            StoreError,
            match=f"bucket 0, samples {first.start} to {first.stop - 1} is damaged .*`specjax verify .* --drop`",
        ),
    ):
        store.read()
    repaired(path, blocks)


@pytest.mark.parametrize("name", ["zarr.json", "d/zarr.json", "d/c/0", "y/zarr.json"])
@pytest.mark.parametrize("damage", [truncate, Path.unlink], ids=["truncated", "missing"])
def test_damaged_metadata_are_named_and_written_again(name, damage, path):
    damage(path / "data.zarr" / name)
    report = verify(path)
    assert report.files == (name,)
    assert not report.damaged
    repaired(path, [])


def test_a_journal_torn_anywhere_in_its_last_line_loses_that_block_only(path):
    whole = (path / "blocks.jsonl").read_bytes()
    last = whole.rindex(b"\n", 0, -1) + 1
    for length in range(last, len(whole)):
        (path / "blocks.jsonl").write_bytes(whole[:length])
        with resumed(path) as store:
            assert store.done == ALL - {Block(1, 3, 6)}
            if length % 50 == 0:
                assert fill(store) == {Block(1, 3, 6)}
                np.testing.assert_array_equal(store.read()["y"], VALUES)
                assert (path / "blocks.jsonl").read_bytes() == whole


def test_a_changed_line_of_the_journal_is_not_believed(path):
    lines = (path / "blocks.jsonl").read_text().splitlines()
    at = next(at for at, line in enumerate(lines) if json.loads(line).get("start") == 0)
    lines[at] = lines[at].replace('"start": 0', '"start": 1')
    (path / "blocks.jsonl").write_text("\n".join(lines) + "\n")
    report = verify(path)
    assert (report.finished, report.whole, report.unreadable, report.blocks) == (False, True, 1, 3)
    repaired(path, [Block(0, 0, 3)])


def test_a_lost_place_loses_the_blocks_of_its_bucket_only(path):
    lines = (path / "blocks.jsonl").read_text().splitlines()
    at = next(at for at, line in enumerate(lines) if json.loads(line).get("place") == [[2, 0]])
    lines[at] = lines[at][:-5]
    (path / "blocks.jsonl").write_text("\n".join(lines) + "\n")
    assert verify(path).measured == 6
    repaired(path, [Block(1, 0, 3), Block(1, 3, 6)])


@contextlib.contextmanager
def files_no_longer_than(size):
    """Real write errors of this process: the system refuses to make any file longer."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_failing_write_of_data_keeps_the_finished_blocks(tmp_path):
    with Store.create(tmp_path / "store", MANIFEST, LAYOUT) as store:
        values = {"y": VALUES[[1], :3]}
        with (
            files_no_longer_than(15),
            pytest.raises(StoreError, match=r"bucket 0, samples 0 to 2 .* finished blocks \(0\) are"),
        ):
            store.write(Block(0, 0, 3), PLACES[0], values, 1.0)
        assert not store.done
        # The next block shares a chunk with a finished one.
        store.write(Block(0, 0, 3), PLACES[0], values, 1.0)
        with (
            files_no_longer_than(15),
            pytest.raises(StoreError, match=r"File too large.* the finished blocks \(1\) are intact"),
        ):
            store.write(Block(0, 3, 6), PLACES[0], {"y": VALUES[[1], 3:]}, 1.0)
        assert verify(store.path).whole
        assert sorted(os.listdir(store.path)) == ["blocks.jsonl", "data.zarr", "manifest.json"]
        assert fill(store) == ALL - {Block(0, 0, 3)}
        np.testing.assert_array_equal(store.read()["y"], VALUES)


def test_a_line_of_the_journal_that_is_written_in_part_is_taken_back(tmp_path):
    with Store.create(tmp_path / "store", MANIFEST, LAYOUT) as store:
        store.write(Block(0, 0, 3), PLACES[0], {"y": VALUES[[1], :3]}, 1.0)
        before = (store.path / "blocks.jsonl").read_bytes()
        with (
            files_no_longer_than(len(before) + 10),
            pytest.raises(StoreError, match=r"finished blocks \(1\) are intact"),
        ):
            store.write(Block(0, 3, 6), PLACES[0], {"y": VALUES[[1], 3:]}, 1.0)
        assert (store.path / "blocks.jsonl").read_bytes() == before
        assert store.done == {Block(0, 0, 3)}
        assert fill(store) == ALL - {Block(0, 0, 3)}
        np.testing.assert_array_equal(store.read()["y"], VALUES)


def test_a_failing_finish_keeps_the_blocks(tmp_path):
    with Store.create(tmp_path / "store", MANIFEST, LAYOUT) as store:
        fill(store)
        with files_no_longer_than(15), pytest.raises(StoreError, match=r"the finished blocks \(4\) are intact"):
            store.finish(DATASET)
    repaired(tmp_path / "store", [])


def test_a_store_that_cannot_be_begun_is_begun_by_the_next_call(tmp_path):
    with files_no_longer_than(15), pytest.raises(StoreError, match=r"File too large.* make room"):
        Store.create(tmp_path / "store", MANIFEST, LAYOUT)
    assert read_manifest(tmp_path / "store") is None
    with Store.create(tmp_path / "store", MANIFEST, LAYOUT) as store:
        assert fill(store) == ALL


FULL_DISK = """
import sys
from pathlib import Path
import jax, numpy as np
from specjax.sweep.store import Block, Layout, Manifest, Store, StoreError, verify

path = Path(sys.argv[1]) / "store"
layout = Layout((), (), (), "seed", 100_000, 10_000, {"y": jax.ShapeDtypeStruct((), np.float64)})
written = 0
with Store.create(path, Manifest({}, {}), layout) as store:
    try:
        for start in range(0, 100_000, 10_000):
            store.write(Block(0, start, start + 10_000), (), {"y": np.arange(start, start + 10_000.0)}, 1.0)
            written += 1
    except StoreError as error:
        print(error)
assert 0 < written < 10
report = verify(path)
assert report.whole and report.blocks == written
# With room again, the same call goes on.
filler = Path(sys.argv[1]) / "filler"
filler.unlink()
with Store.resume(path, {}, layout) as store:
    assert store.missing(0) == [(written * 10_000, 100_000)]
    for start in range(written * 10_000, 100_000, 10_000):
        store.write(Block(0, start, start + 10_000), (), {"y": np.arange(start, start + 10_000.0)}, 1.0)
    np.testing.assert_array_equal(store.read()["y"], np.arange(100_000.0))
"""
IN_NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount"]


def _may_mount():
    command = shutil.which("unshare") and subprocess.run(
        [*IN_NAMESPACE, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False
    )
    return bool(command) and command.returncode == 0


@pytest.mark.skipif(not _may_mount(), reason="this system lets no user mount a small disk")
def test_a_full_disk_keeps_the_finished_blocks_and_the_same_call_goes_on(tmp_path):
    # A disk of 2 MiB, 1.5 of them taken: the blocks of 80 kB do not fit.
    shell = 'mount -t tmpfs -o size=2m none "$1" && head -c 1500000 /dev/zero > "$1/filler" && exec "$2" -c "$3" "$1"'
    done = subprocess.run(
        [*IN_NAMESPACE, "sh", "-ec", shell, "sh", str(tmp_path), sys.executable, FULL_DISK],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No space left on device" in done.stdout
    assert ") are intact, and the same call continues from them." in done.stdout


@contextlib.contextmanager
def without_privileges():
    """As a user who owns nothing; permissions mean nothing to root."""
    if os.geteuid() == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        if os.getuid() == 0:
            os.seteuid(0)


def test_a_folder_without_permission_is_refused_in_one_sentence():
    # Not tmp_path, whose parents only their owner may enter.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        Store.create(folder / "store", MANIFEST, LAYOUT).close()
        (folder / "secret").mkdir(mode=0)
        for file in (folder, folder / "store"):
            file.chmod(0o555)
        for file in (folder / "store" / "blocks.jsonl", folder / "store" / "manifest.json"):
            file.chmod(0o444)
        with without_privileges():
            for attempt in (
                lambda: Store.create(folder / "new", MANIFEST, LAYOUT),
                lambda: resumed(folder / "store"),
                lambda: read_manifest(folder / "secret"),
            ):
                with pytest.raises(
                    ValueError, match=r"(cannot be written|cannot be read) \(Permission denied\); choose"
                ):
                    attempt()
            assert verify(folder / "store").whole
            with pytest.raises(ValueError, match=r"blocks.jsonl cannot be opened \(Permission denied\)"):
                verify(folder / "store", drop=True)
        folder.chmod(0o755)
        (folder / "store").chmod(0o755)
        assert sorted(os.listdir(folder / "store")) == ["blocks.jsonl", "data.zarr", "manifest.json"]


def test_a_store_may_lie_in_a_folder_whose_names_only_its_owner_may_read():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        Store.create(folder / "other", MANIFEST, LAYOUT).close()
        folder.chmod(0o333)
        with without_privileges():
            with Store.create(folder / "store", MANIFEST, LAYOUT) as store:
                assert fill(store) == ALL
                store.finish(DATASET)
            assert verify(folder / "store").whole
        folder.chmod(0o755)


def test_what_is_no_store_is_refused_in_one_sentence_and_left_alone(tmp_path, path):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "thesis.tex").write_text("mine")
    (tmp_path / "zarr").mkdir()
    shutil.copytree(path / "data.zarr", tmp_path / "zarr" / "data.zarr")
    for name, message in [
        ("file", "is a file, and a store is a folder"),
        ("file/below", "choose another path"),
        ("foreign", "holds 'thesis.tex', so it is no store"),
        ("zarr", "has no manifest.json"),
        ("no/parent", "make that folder first"),
    ]:
        with pytest.raises(ValueError, match=message):
            Store.create(tmp_path / name, MANIFEST, LAYOUT)
    assert (tmp_path / "file").read_text() == "mine"
    assert (tmp_path / "foreign" / "thesis.tex").read_text() == "mine"
    assert len(list((tmp_path / "zarr" / "data.zarr" / "y").iterdir())) == 7
    assert not (tmp_path / "no").exists()
    assert read_manifest(tmp_path / "none") is None
    with pytest.raises(ValueError, match=r"no store at .* to continue"):
        resumed(tmp_path / "none")


def test_a_manifest_that_is_not_what_was_written_is_refused(path):
    good = json.loads((path / "manifest.json").read_text())
    for content, message in [
        ("{", r"cannot be read \(JSONDecodeError"),
        ("[]", r"cannot be read \(TypeError"),
        (json.dumps({**good, "format": 2}), "of format 2, and this version reads format 1"),
        (json.dumps({**good, "config": {"key": [0, 8]}}), "has been changed"),
        (json.dumps({"format": 1}), r"cannot be read \(KeyError"),
    ]:
        (path / "manifest.json").write_text(content)
        with pytest.raises(ValueError, match=message):
            read_manifest(path)
        with pytest.raises(ValueError, match=message):
            resumed(path)
    (path / "manifest.json").unlink()
    with pytest.raises(ValueError, match=r"has no manifest.json, so its content is unknown"):
        read_manifest(path)


def test_a_store_without_its_journal_is_refused(path):
    (path / "blocks.jsonl").unlink()
    for attempt in (lambda: resumed(path), lambda: verify(path), lambda: verify(path, drop=True)):
        with pytest.raises(ValueError, match=r"has no blocks.jsonl"):
            attempt()
