"""`specjax verify`: what it prints about a store, and its exit codes."""

import jax
import numpy as np
import pytest

from specjax.cli import main
from specjax.sweep.store import Block, Layout, Manifest, Store

LAYOUT = Layout((), (), (), "seed", 4, 2, {"y": jax.ShapeDtypeStruct((), np.float32)})


@pytest.fixture
def path(tmp_path):
    """A store with one of its two blocks."""
    with Store.create(tmp_path / "a store", Manifest({}, {}), LAYOUT) as store:
        store.write(Block(0, 0, 2), (), {"y": np.array([1, 2], np.float32)}, 1.0)
    return tmp_path / "a store"


def test_a_whole_store(path, capsys):
    assert main(["verify", str(path)]) == 0
    assert "not finished: 1 block with 2 of at most 4 samples" in capsys.readouterr().out


def test_damage_is_named_forgotten_on_request_and_then_gone(path, capsys):
    (path / "data.zarr" / "y" / "c.0").write_bytes(b"1234567")
    assert main(["verify", str(path)]) == 1
    out = capsys.readouterr().out
    assert "damaged: bucket 0, samples 0 to 1 (y)" in out
    assert "`--drop`" in out
    assert main(["verify", str(path), "--drop"]) == 0
    assert "is forgotten" in capsys.readouterr().out
    assert main(["verify", str(path)]) == 0
    assert "0 blocks with 0 of at most 4 samples" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["--drop"]])
def test_no_store(arguments, tmp_path, capsys):
    assert main(["verify", str(tmp_path / "none"), *arguments]) == 2
    assert "There is no store at" in capsys.readouterr().err
    assert main(["verify", *arguments]) == 2


def test_a_store_that_is_being_written_is_checked_but_not_changed(path, capsys):
    with Store.resume(path, {}, LAYOUT):
        assert main(["verify", str(path)]) == 0
        assert main(["verify", str(path), "--drop"]) == 2
    assert "Another process is writing" in capsys.readouterr().err
