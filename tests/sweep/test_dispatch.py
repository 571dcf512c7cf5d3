"""How long a call is follows from what calls took, and what they took changes nothing else. The
seconds are made up, not measured.
"""

import threading
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import sizes, sweep
from specjax.sweep import _bucketing, _dispatch, _executor

KEY = jax.random.key(2)
OVER = {"rate": sweep.values(0.1, 0.2, 0.4)}


def settled(key, rate):
    """A matrix that is halved until it is small: the number of turns depends on the sample, and no
    program tells it.
    """
    start = rate * jnp.exp(9 * jax.random.uniform(key)) * sizes.normal(key, (8, 8))

    def halved(state):
        x, turns = state
        return (x @ (x.T @ x) / jnp.sum(x**2) / 2, turns + 1)

    x, turns = jax.lax.while_loop(
        lambda state: jnp.max(jnp.abs(state[0])) > 1e-3, halved, (start, 0)
    )
    return {"turns": turns, "norm": jnp.linalg.norm(x)}


@pytest.fixture
def took(monkeypatch):
    """Lets each group of seeds take so many seconds as the engine measures, `took.seconds`, and
    notes all calls, `took.calls`.
    """

    computed, found = _dispatch.computed, SimpleNamespace(seconds=0.0, calls=[])

    def timed(ready, begin, groups, in_float64):
        results, _ = computed(ready, begin, groups, in_float64)
        found.calls.append((begin, groups))
        return results, groups * (found.seconds() if callable(found.seconds) else found.seconds)

    monkeypatch.setattr(_dispatch, "computed", timed)
    monkeypatch.setattr("specjax.sweep._devices.Machine.side_by_side", 1)
    monkeypatch.setitem(
        _bucketing.LASTING_SET, "cpu", 2**16
    )  # small matrices take the part of large ones
    return found


def run(num_seeds=200, measure=settled, **options):
    return sweep.run(measure, OVER, num_seeds=num_seeds, key=KEY, **options)


@pytest.mark.integration
def test_a_long_loop_is_cut_into_calls_stored_one_by_one(took, tmp_path):
    """A program whose length is unknown before it has run: its groups are those of eight calls
    or more, and each is kept.
    """
    took.seconds = 60.0
    run(store=tmp_path / "store")
    assert len(took.calls) >= 8
    assert {groups for _, groups in took.calls} == {1}
    assert len(list((tmp_path / "store").glob("bucket*"))) == len(took.calls)


@pytest.mark.integration
def test_quick_groups_share_calls_and_blocks(took, tmp_path):
    took.seconds = 1e-9
    run(num_seeds=2000, store=tmp_path / "store")
    numbers = [groups for _, groups in sorted(took.calls)]
    # The second call is handed out before the first has ended; then four times as many.
    assert numbers[:3] == [1, 1, 4]
    assert len(list((tmp_path / "store").glob("bucket*"))) == 1


@pytest.mark.integration
def test_the_last_call_has_no_group_without_a_wanted_seed(took):
    took.seconds = 1e-9
    # A few groups more than fill the long calls before.
    run(num_seeds=5000)
    _, (size, _), *_, (begin, groups) = sorted(took.calls)
    assert begin + (groups - 1) * size < 5000 <= begin + groups * size


@pytest.mark.integration
@pytest.mark.parametrize("reduce", [None, "moments"])
def test_whatever_calls_take_the_bits_are_the_same(took, tmp_path, reduce):
    """Also where the edges of a missing block are not edges of calls."""
    chance = np.random.default_rng(0)

    def found(seconds, **options):
        took.seconds = seconds
        return run(num_seeds=300, reduce=reduce, **options)

    expected = found(60.0)
    for seconds in (1e-9, lambda: 10 ** chance.uniform(-3, 1)):
        xr_identical(found(seconds), expected)
    store = tmp_path / "store"
    took.calls.clear()
    found(1.0, store=store)
    files = sorted(store.glob("bucket*"))
    assert len(files) > 3
    files[1].unlink()
    files[2].unlink()
    (first, _), (second, _), *_ = sorted(took.calls)
    took.calls.clear()
    xr_identical(found(1e-9, store=store), expected)
    # Batches end within groups, which are computed as a whole.
    assert took.calls
    assert {begin % (second - first) for begin, _ in took.calls} == {0}


def xr_identical(one, other):
    assert set(one.variables) == set(other.variables)
    for name, variable in one.variables.items():
        assert variable.values.tobytes() == other[name].values.tobytes(), name


def test_the_next_call_is_as_long_as_measured():
    assert _dispatch.paced(10, 0.25, 1000) == 10
    assert _dispatch.paced(10, 1.0, 1000) == 2
    assert _dispatch.paced(10, 60.0, 1000) == 1
    assert _dispatch.paced(10, 0.1, 1000) == 25
    # However quick the last was, since the next seeds may not be.
    assert _dispatch.paced(10, 1e-9, 1000) == _dispatch.paced(10, 0.0, 1000) == 40
    assert _dispatch.paced(10, 1e-9, 12) == 12


@pytest.mark.integration
def test_a_bucket_runs_while_the_programs_of_later_ones_compile(monkeypatch):
    """Every program but the first is held back until a call has run, which it never has if all are
    compiled before any runs.
    """
    ran, waited, lock = threading.Event(), [], threading.Lock()
    compile_program, computed = _executor.compile_program, _dispatch.computed

    def held_back(lowered, **options):
        with lock:
            waited.append(True)
            later = len(waited) > 1
        if later:
            waited.append(ran.wait(20))
        return compile_program(lowered, **options)

    def run(*arguments):
        ran.set()
        return computed(*arguments)

    monkeypatch.setattr(_executor, "compile_program", held_back)
    monkeypatch.setattr(_dispatch, "computed", run)

    def drawn(key, d):
        return {"norm": jnp.linalg.norm(sizes.normal(key, (d,)))}

    sweep.run(
        drawn, {"d": sweep.widths(2, 3, 4)}, num_seeds=3, key=KEY, plan="exact", progress=False
    )
    assert waited == [True] * 5
