"""How the widths of a sweep are grouped into buckets, each padded to its largest width.

A bucket is compiled once. Few buckets compile fast and waste work on padding; many do the opposite.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from math import prod

from specjax.sweep.axes import Over, Values, Widths

PLANS = ("exact", "padded", "auto")

# Measured for a gradient of one hidden layer on a CPU core (jax 0.10.1): compiling it took 0.7 to 0.8 s, and drawing and
# running it 2e-8 to 7e-8 s per seed and entry of a width-by-width matrix. Only their ratio matters, and only roughly: the
# total is flat around its minimum.
COMPILE_SECONDS = 1.0
SECONDS_PER_ENTRY = 3e-8

Bucket = Mapping[str, tuple[int, ...]]
"""One bucket: for each widths axis the widths that share a padded extent, ascending."""


def bucket_cost(bucket: Sequence[int], repeats: int) -> float:
    """The estimated seconds to compile one bucket and to run `repeats` measurements at each of its widths.

    Every width of a bucket costs as much as the largest, and a measurement at width w touches w² entries.
    """
    return COMPILE_SECONDS + repeats * len(bucket) * max(bucket) ** 2 * SECONDS_PER_ENTRY


def group_widths(points: Sequence[int], plan: str, repeats: int) -> tuple[tuple[int, ...], ...]:
    """The widths of one axis, ascending, cut into contiguous groups.

    Args:
        points: The widths, in any order.
        plan: "exact" gives each width its own group, "padded" puts all into one, "auto" cuts where the sum of
            :func:`bucket_cost` is least.
        repeats: How many measurements are made at each width.
    """
    ascending = tuple(sorted(points))
    if plan == "exact":
        return tuple((n,) for n in ascending)
    if plan == "padded":
        return (ascending,)
    # best[j] is the least cost of the first j widths and the groups that reach it; the last group starts at some i < j.
    best: list[tuple[float, tuple[tuple[int, ...], ...]]] = [(0.0, ())]
    for j in range(1, len(ascending) + 1):
        options = [(best[i][0] + bucket_cost(ascending[i:j], repeats), i) for i in range(j)]
        cost, start = min(options)
        best.append((cost, (*best[start][1], ascending[start:j])))
    return best[-1][1]


def group_axes(over: Over, plan: str, seeds: int) -> dict[str, tuple[tuple[int, ...], ...]]:
    """The groups of every widths axis of `over`.

    Each axis is grouped as if it were the only one that has widths: another one multiplies both the compilations and the work.
    """
    repeats = seeds * prod(len(axis.points) for axis in over.values() if isinstance(axis, Values))
    return {name: group_widths(axis.points, plan, repeats) for name, axis in over.items() if isinstance(axis, Widths)}


def buckets(groups: Mapping[str, tuple[tuple[int, ...], ...]]) -> list[Bucket]:
    """The product of the groups of all widths axes; one empty bucket where there are none."""
    return [dict(zip(groups, chosen, strict=True)) for chosen in product(*groups.values())]
