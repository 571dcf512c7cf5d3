"""What can befall a store: damaged files, a full disk, a folder that is not its own. Each really
happens here.
"""

import contextlib
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from stores import ALL, assert_read, compute, described, part

from specjax.sweep import DamagedBlocksWarning, open_store
from specjax.sweep._store import Block, Store, StoreError, files, read_description

FIRST = Block(0, 0, 3)


def write(store, block):
    store.write(block, part(block), 1.0)


@pytest.fixture
def path(tmp_path):
    """A finished store."""
    with Store.opened(tmp_path / "store", described()) as store:
        assert compute(store) == ALL
    return store.path


def flip(file, at):
    content = bytearray(file.read_bytes())
    content[at] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize(
    "damage",
    [lambda file: os.truncate(file, file.stat().st_size - 1), lambda file: file.write_bytes(b"")],
)
def test_a_damaged_block_is_found_and_alone_computed_again(damage, path):
    file = next(path.glob("bucket0-000000*"))
    damage(file)
    data = open_store(path)
    with pytest.raises(
        StoreError,
        match=rf"{file.name} is damaged; the call of run that wrote it computes it again\.",
    ):
        data.load()
    reported = rf"^1 of the blocks in {path} are damaged and computed again: {file.name}\.$"
    with contextlib.ExitStack() as stack:
        with pytest.warns(DamagedBlocksWarning, match=reported):
            store = stack.enter_context(Store.opened(path, described()))
        assert [store.missing(bucket) for bucket in (0, 1)] == [[(0, 3)], []]
        write(store, FIRST)
        assert_read(store)
    # No warning is left.
    with Store.opened(path, described()) as store:
        assert_read(store)


@pytest.mark.integration
def test_one_flipped_bit_anywhere_is_damage(path):
    """In the data, the headers of arrays and zip, and the note behind them."""
    file = next(path.glob("bucket0-000000*"))
    whole = file.read_bytes()
    for at in range(len(whole)):
        flip(file, at)
        with pytest.raises(StoreError, match="is damaged"):
            files.load_block(file, described().identity)
        file.write_bytes(whole)
    files.load_block(file, described().identity)


def test_a_missing_block_is_computed_again(path):
    next(path.glob("bucket1-000003*")).unlink()
    with Store.opened(path, described()) as store:
        assert compute(store) == {Block(1, 3, 6)}
        assert_read(store)


@contextlib.contextmanager
def files_no_longer_than(size):
    """Real write errors of this process: the system refuses to make any file longer."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_failed_write_keeps_finished_blocks_and_no_drafts(tmp_path):
    with Store.opened(tmp_path / "store", described()) as store:
        write(store, FIRST)
        before = sorted(os.listdir(store.path))
        with (
            files_no_longer_than(15),
            pytest.raises(
                StoreError,
                match=(
                    r"\(File too large\); its finished blocks are intact, and the same call"
                    r" continues from them"
                ),
            ),
        ):
            write(store, Block(0, 3, 6))
        assert sorted(os.listdir(store.path)) == before
        assert compute(store) == ALL - {FIRST}
        assert_read(store)


def test_a_flush_that_fails_is_a_write_that_fails(tmp_path, monkeypatch):
    """A disk may say only then that it is full, or that it lost what it took."""
    with Store.opened(tmp_path / "store", described()) as store:
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(StoreError, match=r"\(No space left on device\)"):
                write(store, FIRST)
        assert not list(store.path.glob("bucket*"))
        assert compute(store) == ALL


def full(_):
    raise OSError(28, "No space left on device")


def test_a_store_that_cannot_be_begun_is_begun_by_the_next_call(tmp_path):
    with (
        files_no_longer_than(15),
        pytest.raises(StoreError, match=r"cannot be used \(File too large\); its finished"),
        Store.opened(tmp_path / "store", described()),
    ):
        pass
    assert read_description(tmp_path / "store") is None
    with Store.opened(tmp_path / "store", described()) as store:
        assert compute(store) == ALL


FULL_DISK = """
import sys
from pathlib import Path
import numpy as np, xarray as xr
from specjax.sweep._store import Block, Description, Store, StoreError

path = Path(sys.argv[1]) / "store"
whole = xr.Dataset({"y": ("seed", np.arange(100_000.0))})
many = whole.assign_coords(seed=np.arange(100_000))
described = Description.of(many, "seed", config={}, plan={}, places=[[]])

def compute(store):
    ((first, _),) = store.missing(0)
    for start in range(first, 100_000, 10_000):
        stop = start + 10_000
        store.write(Block(0, start, stop), {"y": whole["y"].values[start:stop]}, 1.0)

with Store.opened(path, described) as store:
    try:
        compute(store)
    except StoreError as error:
        print(error)
    written = len(store.blocks)
assert 0 < written < 10
# With room again, the same call goes on.
(Path(sys.argv[1]) / "filler").unlink()
with Store.opened(path, described) as store:
    assert store.missing(0) == [(written * 10_000, 100_000)]
    compute(store)
    np.testing.assert_array_equal(store.read()["y"], whole["y"])
"""
IN_NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount"]


def _may_mount():
    command = shutil.which("unshare") and subprocess.run(
        [*IN_NAMESPACE, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False
    )
    return bool(command) and command.returncode == 0


@pytest.mark.integration
@pytest.mark.skipif(not _may_mount(), reason="this system lets no user mount a small disk")
def test_a_full_disk_keeps_blocks_and_the_same_call_continues(tmp_path):
    # A disk of 2 MiB, 1.5 of them taken: not all blocks of 80 kB fit.
    shell = (
        'mount -t tmpfs -o size=2m none "$1" && head -c 1500000 /dev/zero > "$1/filler" && exec'
        ' "$2" -c "$3" "$1"'
    )
    done = subprocess.run(
        [*IN_NAMESPACE, "sh", "-ec", shell, "sh", str(tmp_path), sys.executable, FULL_DISK],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No space left on device" in done.stdout
    assert "its finished blocks are intact, and the same call continues from them" in done.stdout


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
        with Store.opened(folder / "store", described()) as store:
            compute(store)
        (folder / "secret").mkdir(mode=0)
        for file in (folder, *(folder / "store").iterdir(), folder / "store"):
            file.chmod(0o555)
        before = sorted(os.listdir(folder / "store"))
        with without_privileges():
            for denied in (folder / "new", folder / "store", folder / "secret"):
                with (
                    pytest.raises(
                        StoreError,
                        match=r"cannot be used \(Permission denied\); .*choose another path",
                    ),
                    Store.opened(denied, described(8)),
                ):
                    pass
            # Reading a complete store needs no permission to write.
            for samples in (6, 4):
                with Store.opened(folder / "store", described(samples)) as store:
                    assert_read(store)
            assert open_store(folder / "store")["loss"].notnull().all()
        folder.chmod(0o755)
        (folder / "store").chmod(0o755)
        assert sorted(os.listdir(folder / "store")) == before


def test_a_store_may_be_in_a_folder_that_cannot_be_listed():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o333)
        with without_privileges(), Store.opened(folder / "store", described()) as store:
            assert compute(store) == ALL
        folder.chmod(0o755)


def test_other_folders_are_refused_in_a_sentence_and_left_alone(tmp_path, path):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "thesis.tex").write_text("mine")
    for name in ("old", "begun"):
        (tmp_path / name / "data.zarr").mkdir(parents=True)
        (tmp_path / name / "manifest.json").write_text("{}")
    (tmp_path / "old" / "blocks.jsonl").write_text("{}\n")
    for file in path.glob("bucket0*"):
        (tmp_path / "blocks").mkdir(exist_ok=True)
        shutil.copy(file, tmp_path / "blocks")
    before = sorted(tmp_path.rglob("*"))
    for name, message in [
        ("file", "cannot be used (Not a directory)"),
        ("file/below", "cannot be used (Not a directory)"),
        (
            "foreign",
            (
                "foreign holds 'thesis.tex', so it is not a store of this version; if an earlier"
                " one wrote it, continue with that, or choose"
            ),
        ),
        (
            "old",
            (
                "old holds 'blocks.jsonl', so it is not a store of this version; if an earlier one"
                " wrote it, continue with that, or choose"
            ),
        ),
        (
            "begun",
            (
                "begun holds 'data.zarr', so it is not a store of this version; if an earlier one"
                " wrote it, continue with that, or choose"
            ),
        ),
        (
            "blocks",
            (
                "blocks has blocks, but its sweep.json is not what was written; put it back, or"
                " choose another path."
            ),
        ),
    ]:
        for attempt in (lambda path: Store.opened(path, described()).__enter__(), open_store):
            with pytest.raises((ValueError, StoreError)) as refusal:
                attempt(tmp_path / name)
            if name != "file/below" or attempt is not open_store:
                assert message in str(refusal.value)
    assert sorted(tmp_path.rglob("*")) == before
    with pytest.raises(
        ValueError, match=r"none holds no finished block of a sweep; give the folder"
    ):
        open_store(tmp_path / "none")


def test_a_description_that_is_not_what_was_written_is_refused(path):
    good = (path / "sweep.json").read_text()
    for content in (
        "{",
        "[]",
        "{}",
        good[:-40],
        good.replace("float32", "float64", 1),
        "\udcff",
        "1",
        "null",
        "[1, 2]",
        "[" * 10**5,
    ):
        (path / "sweep.json").write_text(content, errors="surrogateescape")
        for attempt in (
            lambda: Store.opened(path, described()).__enter__(),
            lambda: read_description(path),
        ):
            with pytest.raises(
                ValueError, match=r"its sweep.json is not what was written; put it back, or choose"
            ):
                attempt()
