"""Which keys a run hands out, and which of them two uses of randomness share.

On jax `split(key, n)[i]` is `fold_in(key, i)`, and seed s of a sweep is `fold_in(key, s)`, so that
arithmetic on seeds and mixed uses collide without any sign of it.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import sizes, sweep

MOST = 64
"""Keys of one split, or of the seeds of one sweep, that are looked at: those that are made by
counting begin at 0.
"""


@dataclass
class Streams:
    """The ways in which each key was made, by its bytes, the keys that sweeps took, and the seeds
    of root keys.
    """

    ways: dict[bytes, set[str]] = field(default_factory=partial(defaultdict, set))
    sweeps: list[bytes] = field(default_factory=list)
    roots: set[int] = field(default_factory=set)

    def made(self, keys: jax.Array, way: str, parent: jax.Array) -> None:
        """Notes a key, or a row of them, that was made of another: the same way twice is the same
        stream on purpose.
        """
        for place, key in enumerate(keys.reshape(-1)[:MOST]):
            self.ways[_bytes(key)].add(f"{way} {place} of {_bytes(parent).hex()}")

    def shared(self, root: int) -> list[str]:
        """A sentence for each key that two uses have, and for each root key that is another
        run's.
        """
        twice = [
            f"One key is {' and '.join(sorted(ways))}."
            for ways in self.ways.values()
            if len(ways) > 1
        ]
        swept = [
            f"{count} sweeps have the key {key.hex()}."
            for key, count in Counter(self.sweeps).items()
            if count > 1
        ]
        return (
            twice
            + swept
            + [f"The key of the run with seed {seed} is used." for seed in self.roots - {root}]
        )


@contextmanager
def recorded() -> Iterator[Streams]:
    """Notes every key that is made outside of compiled programs, and those of the seeds of every
    sweep.
    """
    streams, depth = Streams(), 0

    def inside(function: Callable[..., Any], *given: Any, **named: Any) -> Any:
        """Calls what makes keys of its own, which are not noted."""
        nonlocal depth
        depth += 1
        try:
            return function(*given, **named)
        finally:
            depth -= 1

    def noting(name: str, function: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
        def call(key: jax.Array, *rest: Any, **named: Any) -> jax.Array:
            keys: jax.Array = inside(function, key, *rest, **named)
            if not depth and not isinstance(keys, jax.core.Tracer):
                # The first keys of a split are the same whatever their number.
                streams.made(keys, name if name == "split" else f"{name} {rest}", key)
            return keys

        return call

    def root(seed: Any, **named: Any) -> jax.Array:
        if not depth and isinstance(seed, int | np.integer):
            streams.roots.add(int(seed))
        return made_root(seed, **named)

    def run(*given: Any, num_seeds: Any, key: jax.Array, **named: Any) -> Any:
        streams.sweeps.append(_bytes(key))
        count = min(max(_numbers(num_seeds)), MOST)
        streams.made(jax.vmap(lambda s: fold_in(key, s))(jnp.arange(count)), "seed", key)
        return inside(swept, *given, num_seeds=num_seeds, key=key, **named)

    swept, fold_in, made_root = sweep.run, jax.random.fold_in, jax.random.key
    with pytest.MonkeyPatch.context() as patch:
        for module, name in ((jax.random, "split"), (jax.random, "fold_in"), (sizes, "stream")):
            patch.setattr(module, name, noting(name, getattr(module, name)))
        patch.setattr(jax.random, "key", root)
        patch.setattr(sweep, "run", run)
        yield streams


def _bytes(key: jax.Array) -> bytes:
    return jax.random.key_data(key).tobytes()


def _numbers(seeds: Any) -> list[int]:
    if isinstance(seeds, dict):
        return [number for value in seeds.values() for number in _numbers(value)]
    return [int(number) for number in seeds] if isinstance(seeds, tuple | list) else [int(seeds)]
