"""Keys that two uses of randomness share are seen; `test_smoke` asks it of every experiment."""

import jax
import pytest

from specjax import sizes, sweep
from tests.experiments.streams import recorded


def swept(key):
    return sweep.run(
        lambda key, x: {"y": x * jax.random.normal(key)},
        {"x": sweep.values(1.0)},
        num_seeds=3,
        key=key,
    )


def draw(key):
    return jax.random.normal(key)


def named(seed):
    root = jax.random.key(seed)
    draw(sizes.stream(root, "target"))
    for name in ("first", "second"):
        swept(sizes.stream(root, name))
    # The same stream by the same name is meant.
    draw(sizes.stream(root, "target"))


def next_seed(seed):
    draw(jax.random.key(seed + 1))
    swept(jax.random.key(seed))


def split_and_swept(seed):
    root = jax.random.key(seed)
    draw(jax.random.split(root)[0])
    swept(root)


def split_and_folded(seed):
    root = jax.random.key(seed)
    draw(jax.random.split(root, 3)[1])
    draw(jax.random.fold_in(root, 1))


def swept_twice(seed):
    for _ in range(2):
        swept(jax.random.key(seed))


@pytest.mark.parametrize(
    ("run", "told"),
    [
        (named, []),
        (next_seed, ["The key of the run with seed 1 is used."]),
        (split_and_swept, ["One key is seed 0", "One key is seed 1"]),
        (split_and_folded, ["One key is fold_in"]),
        (swept_twice, ["2 sweeps have the key"]),
    ],
)
def test_keys_that_two_uses_share_are_seen(run, told):
    with recorded() as streams:
        run(0)
    shared = sorted(streams.shared(root=0))
    assert len(shared) == len(told)
    for found, start in zip(shared, told, strict=True):
        assert found.startswith(start)
