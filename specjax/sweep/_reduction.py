"""What a sweep keeps of its seeds: every seed, or moments of batches; and how both form blocks.

A sample is an entry of the dataset along its sample dimension: one seed, or one batch. A block is
the unit that is finished, logged and stored: some samples at all points of a bucket. It takes one
or more calls of the bucket's program.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from math import ceil

import jax
import numpy as np

from specjax.sweep._dispatch import Calls
from specjax.sweep.failures import FAILED, FIRST_FAILED, failed_seeds
from specjax.sweep.seed_dim import BATCH, SEED
from specjax.sweep.seed_moments import COUNT, Moments, merge, moments_of

BATCHES = 64
Arrays = Mapping[str, np.ndarray]
Shapes = Mapping[str, jax.ShapeDtypeStruct]
Blocks = Iterator[tuple[int, int, dict[str, np.ndarray]]]
"""For each block its first sample, the one behind its last, and its arrays."""


@dataclass(frozen=True)
class _Samples:
    """Sample i has the seeds edges[i] to edges[i + 1] - 1."""

    edges: Sequence[int]

    @property
    def samples(self) -> int:
        """The number of samples."""
        return len(self.edges) - 1

    def count(self, seeds: int) -> int:
        """The number of samples of a bucket of `seeds` seeds."""
        return self.edges.index(seeds)

    def seeds(self, start: int, stop: int) -> tuple[int, int]:
        """The first seed of a block and the one behind its last."""
        return self.edges[start], self.edges[stop]


class EverySeed(_Samples):
    """Keep every seed."""

    dim = SEED
    size = None

    def variables(self, outputs: Shapes) -> Shapes:
        """The variables to store, without axes and samples."""
        return outputs

    def blocks(self, calls: Calls, place: int, seconds: float, cut: int) -> Blocks:  # noqa: ARG002
        """Join the outputs of calls to blocks, each of which ends after `seconds` of calls.

        Seeds lie along the axis `place`. Only `Batches` use `cut`: the number of seeds whose
        moments are taken at once, wherever calls end.
        """
        held: list[tuple[int, int, Arrays, float]] = []
        for call in calls:
            # Samples between two ranges are stored already.
            if held and held[-1][1] != call[0]:
                yield _block(held, place)
                held = []
            held.append(call)
            if sum(taken for *_, taken in held) >= seconds:
                yield _block(held, place)
                held = []
        if held:
            yield _block(held, place)


class Batches(_Samples):
    """Keep the moments of each batch of seeds.

    A seed with NaN or infinite outputs is left out at that point and counted in `failed`;
    `first_failed` names the first of each batch.
    """

    dim = BATCH

    @property
    def size(self) -> int | None:
        """The seeds of each batch; None if they differ."""
        sizes = {b - a for a, b in pairwise(self.edges)}
        return sizes.pop() if len(sizes) == 1 else None

    def variables(self, outputs: Shapes) -> Shapes:
        """The variables to store, without axes and samples."""
        moments = {
            variable: jax.ShapeDtypeStruct(output.shape, np.float64)
            for name, output in outputs.items()
            for variable in (name, f"{name}.variance", f"{name}.min", f"{name}.max")
        }
        counts = {
            name: jax.ShapeDtypeStruct((), np.int64) for name in (COUNT, FAILED, FIRST_FAILED)
        }
        return {**moments, **counts}

    def blocks(self, calls: Calls, place: int, seconds: float, cut: int) -> Blocks:  # noqa: ARG002
        """Reduce the outputs of calls to blocks, each of one batch; see `EverySeed.blocks`."""
        for i, pieces in groupby(self._pieces(calls, place, cut), lambda piece: piece[0]):
            yield i, i + 1, self._moments((outputs for _, outputs in pieces), place, self.edges[i])

    def _pieces(self, calls: Calls, place: int, cut: int) -> Iterator[tuple[int, Arrays]]:
        """The outputs cut at the edges of batches and every `cut` seeds within, with the batch."""
        held: list[Arrays] = []
        for first, last, outputs, _ in calls:
            begin = first
            while begin < last:
                i = bisect_right(self.edges, begin) - 1
                edge = min(begin + cut - (begin - self.edges[i]) % cut, self.edges[i + 1])
                end = min(edge, last)
                seeds = (slice(None),) * place + (slice(begin - first, end - first),)
                held.append({name: array[seeds] for name, array in outputs.items()})
                begin = end
                if end == edge:
                    yield i, _joined(held, place)
                    held = []

    def _moments(self, parts: Iterator[Arrays], place: int, first: int) -> dict[str, np.ndarray]:
        """A block from the outputs of its seeds, the first of which is `first`.

        It takes one part at a time, so `parts` may be lazy.
        """
        moments: dict[str, Moments] = {}
        seeds, failed, first_failed = 0, np.zeros((), np.int64), np.full((), -1)
        for part in parts:
            bad = failed_seeds(part, place + 1)
            earliest = np.where(bad.any(axis=place), first + seeds + np.argmax(bad, axis=place), -1)
            first_failed = np.where(first_failed < 0, earliest, first_failed)
            seeds, failed = seeds + bad.shape[place], failed + bad.sum(axis=place)
            for name, array in part.items():
                left = np.expand_dims(bad, tuple(range(place + 1, array.ndim)))
                found = moments_of(np.where(left, np.nan, array.astype(np.float64)), place)
                moments[name] = merge(moments[name], found) if name in moments else found
        block = {
            variable: array
            for name, m in moments.items()
            for variable, array in _variables(name, m).items()
        }
        counts = {COUNT: seeds - failed, FAILED: failed, FIRST_FAILED: first_failed}
        block |= {name: np.asarray(array, np.int64) for name, array in counts.items()}
        return {name: np.expand_dims(array, place) for name, array in block.items()}


Sampling = EverySeed | Batches


def _block(
    calls: Sequence[tuple[int, int, Arrays, float]], place: int
) -> tuple[int, int, dict[str, np.ndarray]]:
    return calls[0][0], calls[-1][1], _joined([outputs for _, _, outputs, _ in calls], place)


def _joined(parts: Sequence[Arrays], place: int) -> dict[str, np.ndarray]:
    return {name: np.concatenate([part[name] for part in parts], axis=place) for name in parts[0]}


def batches(seeds: int, size: int | None = None) -> Batches:
    """At most `BATCHES` batches of nearly equal size, each of at least 2 seeds if possible; or of
    `size`.

    Raises:
        ValueError: `seeds` is not a multiple of `size`.
    """
    if size is not None:
        if seeds % size:
            raise ValueError(
                f"The store has batches of {size} seeds, so num_seeds needs to be a multiple of"
                f" that, got {seeds}."
            )
        return Batches(tuple(range(0, seeds + 1, size)))
    number = min(BATCHES, max(seeds // 2, 1))
    return Batches(tuple(ceil(i * seeds / number) for i in range(number + 1)))


def _variables(name: str, moments: Moments) -> dict[str, np.ndarray]:
    some, several = moments.count > 0, moments.count > 1
    variance = np.where(several, moments.m2 / np.where(several, moments.count - 1, 1), np.nan)
    return {
        name: np.where(some, moments.mean, np.nan),
        f"{name}.variance": variance,
        f"{name}.min": np.where(some, moments.min, np.nan),
        f"{name}.max": np.where(some, moments.max, np.nan),
    }
