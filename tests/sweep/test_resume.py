"""Within `resume.enabled`, every sweep has a store of its own, known by its program."""

import jax
import pytest
from measures import bits, overlap

from specjax import resume, sizes, sweep

KEY = jax.random.key(3)
OVER = {"d": sweep.widths(3, 6)}


def run(measure=overlap, num_seeds=8, key=KEY, **options):
    return sweep.run(measure, OVER, num_seeds=num_seeds, key=key, plan="exact", **options)


def stores(folder):
    return {path.name for path in folder.iterdir()}


@pytest.fixture
def written(monkeypatch):
    """The blocks that are written to stores, as they are."""
    found = []
    from specjax.sweep._store import Store

    write = Store.write

    def noted(self, block, *arguments):
        found.append(block)
        write(self, block, *arguments)

    monkeypatch.setattr(Store, "write", noted)
    return found


@pytest.mark.integration
def test_every_sweep_has_a_store_and_the_same_sweep_the_same(tmp_path, written):
    with resume.enabled(tmp_path / "kept"):
        first = run()
        assert {block.bucket for block in written} == {0, 1}
        run(bits)
        run(num_seeds=12)
        run(key=jax.random.key(4))
        with jax.enable_x64(True):
            run()
        assert len(stores(tmp_path / "kept")) == 5
        written.clear()
        again = run()
    assert written == []
    for name, variable in run().variables.items():
        assert (
            first[name].values.tobytes()
            == again[name].values.tobytes()
            == variable.values.tobytes()
        )


@pytest.mark.integration
def test_a_changed_line_has_a_store_of_its_own(tmp_path, written):
    def measure(factor):
        return lambda key, d: {"y": factor * sizes.normal(key, (d,)).sum()}

    with resume.enabled(tmp_path):
        assert float(run(measure(1.0))["y"].sum() - run(measure(2.0))["y"].sum()) != 0
        assert len(stores(tmp_path)) == 2
        written.clear()
        run(measure(1.0))
    assert written == []


@pytest.mark.integration
def test_a_given_store_comes_first_and_nothing_is_kept_outside(tmp_path):
    with resume.enabled(tmp_path / "kept"):
        run(store=tmp_path / "mine")
    assert stores(tmp_path) == {"mine"}
    run()
    assert stores(tmp_path) == {"mine"}


def test_the_folder_is_the_innermost_and_ends_with_its_block(tmp_path):
    with resume.enabled(tmp_path / "a"):
        with pytest.raises(KeyboardInterrupt), resume.enabled(tmp_path / "b"):
            raise KeyboardInterrupt
        assert resume.folder() == tmp_path / "a"
    assert resume.folder() is None
    with pytest.raises(
        ValueError, match=r"No folder to resume from is set; call this within `with resume.enabled"
    ):
        resume.subfolder("x")


def test_a_folder_that_cannot_be_made_is_refused_in_a_sentence(tmp_path):
    (tmp_path / "file").write_text("mine")
    with (
        resume.enabled(tmp_path / "file" / "below"),
        pytest.raises(ValueError, match="below cannot be made"),
    ):
        run()
