"""How a sweep is cut: the points of its widths into buckets, each padded to its largest, and the seeds of a bucket into chunks.

A bucket is compiled once. Few buckets compile fast and waste work on padding; many do the opposite.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil, prod
from typing import Any

from specjax.sweep.axes import Over, length, volumes, widths_of
from specjax.sweep.cost import CostModel

PLANS = ("exact", "padded", "auto")
Groups = Mapping[str, tuple[tuple[int, ...], ...]]
"""For each dimension that has widths its points, by their places on it, cut into groups; narrow ones first."""
Bucket = Mapping[str, tuple[int, ...]]
"""One group of each dimension that has widths."""
Seeds = int | Mapping[str, tuple[int, ...]]
"""How many seeds: one number, or one for each point of one dimension."""

# The chunk that is fastest. On two CPU cores with 32 MB of shared cache, a gradient of a hidden layer with 256 and 512 units took 0.7
# times as long in chunks that keep 16 MB alive as in those that keep 100 MB or more, and one of 16 units hardly cared. An accelerator
# wants every core busy and has no such cache.
WORKING_SET = {"cpu": 16 * 2**20}
_ACCELERATOR_WORKING_SET = 2 * 2**30
_LARGEST_CHUNK = 2**16
_ROUNDS = 4  # of the alternation between dimensions; two suffice for all but contrived costs


@dataclass(frozen=True)
class Plan:
    """`groups` of each dimension, hence the buckets, and for each bucket the seeds in one call of its program."""

    groups: Groups
    chunks: tuple[int, ...]

    @property
    def buckets(self) -> list[Bucket]:
        """The product of the groups of all dimensions; one empty bucket where none has widths."""
        return [dict(zip(self.groups, chosen, strict=True)) for chosen in product(*self.groups.values())]

    def to_json(self) -> dict[str, Any]:
        """What :meth:`from_json` reads."""
        return {
            "groups": {dim: [list(g) for g in groups] for dim, groups in self.groups.items()},
            "chunks": [*self.chunks],
        }

    @staticmethod
    def from_json(stored: Mapping[str, Any]) -> "Plan":
        """The plan that :meth:`to_json` wrote."""
        groups = {dim: tuple(tuple(group) for group in groups) for dim, groups in stored["groups"].items()}
        return Plan(groups, tuple(stored["chunks"]))


def group(over: Over, plan: str, seeds: Seeds, model: CostModel | None) -> Groups:
    """The groups of every dimension of `over` that has widths.

    Args:
        over: The axes of the sweep.
        plan: "exact" gives each point its own group, "padded" puts all into one, and "auto" cuts where compiling and running are
            estimated to take least, by dynamic programming over contiguous groups; with several dimensions, for one after the other
            given the rest, until nothing changes.
        seeds: How many seeds.
        model: The costs, which only "auto" needs.
    """
    ascending = {
        dim: sorted(range(length(axis)), key=volumes(dim, axis).__getitem__)
        for dim, axis in over.items()
        if widths_of(dim, axis)
    }
    groups: dict[str, tuple[tuple[int, ...], ...]] = {
        dim: tuple((i,) for i in points) if plan != "padded" else (tuple(points),) for dim, points in ascending.items()
    }
    if plan != "auto" or not groups:
        return groups
    if model is None:
        raise ValueError("plan='auto' needs the costs of the measurement.")
    whole = (
        model.seconds.at_largest * most(seeds) * prod(length(axis) for dim, axis in over.items() if dim not in groups)
    )
    for _ in range(_ROUNDS):
        before = dict(groups)
        for dim, points in ascending.items():
            others = [other for other in groups if other != dim]
            compiling = model.compile_seconds * prod(len(groups[other]) for other in others)
            running = whole * prod(
                sum(share(other, g, over, seeds, model.seconds.exponents[other]) for g in groups[other])
                for other in others
            )
            cost = {
                (i, j): compiling + running * share(dim, points[i:j], over, seeds, model.seconds.exponents[dim])
                for j in range(1, len(points) + 1)
                for i in range(j)
            }
            groups[dim] = cheapest_cut(points, cost)
        if groups == before:
            break
    return groups


def cheapest_cut(points: Sequence[int], cost: Mapping[tuple[int, int], float]) -> tuple[tuple[int, ...], ...]:
    """`points` cut into contiguous groups of least total cost, `cost[i, j]` being that of points[i:j]."""
    # best[j] is the least cost of the first j points and the groups that reach it; the last group starts at some i < j.
    best: list[tuple[float, tuple[tuple[int, ...], ...]]] = [(0.0, ())]
    for j in range(1, len(points) + 1):
        total, start = min((best[i][0] + cost[i, j], i) for i in range(j))
        best.append((total, (*best[start][1], tuple(points[start:j]))))
    return best[-1][1]


def share(dim: str, points: Sequence[int], over: Over, seeds: Seeds, exponent: float) -> float:
    """The cost of a group of `points` of `dim`, in units of one measurement at its largest volume with all seeds.

    Every point of a group costs as much as the padded one, whose widths are each the largest of the group.
    """
    axis = over[dim]
    largest = max(volumes(dim, axis))
    run = max(seeds[dim][i] for i in points) / most(seeds) if isinstance(seeds, Mapping) and dim in seeds else 1.0
    return len(points) * run * (padded_volume(dim, points, over) / largest) ** exponent


def padded_volume(dim: str, points: Sequence[int], over: Over) -> int:
    """The product of the widths to which a group of `points` is padded."""
    return prod(max(a.points[i] for i in points) for a in widths_of(dim, over[dim]).values())


def padding(groups: Groups, over: Over, seeds: Seeds, exponents: Mapping[str, float]) -> float:
    """How many times the work of the exact plan the buckets of `groups` do, for work that grows with `exponents` of the volumes."""
    planned = prod(sum(share(dim, g, over, seeds, exponents[dim]) for g in groups[dim]) for dim in groups)
    exact = prod(sum(share(dim, [i], over, seeds, exponents[dim]) for g in groups[dim] for i in g) for dim in groups)
    return planned / exact


def most(seeds: Seeds) -> int:
    """The largest number of seeds at any point."""
    return seeds if isinstance(seeds, int) else max(max(counts) for counts in seeds.values())


def seeds_of(bucket: Bucket, seeds: Seeds) -> int:
    """The largest number of seeds at any point of `bucket`."""
    if isinstance(seeds, int):
        return seeds
    return max(counts[i] for dim, counts in seeds.items() for i in bucket[dim])


def chunk(bucket: Bucket, over: Over, seeds: int, model: CostModel, platform: str, budget: int, devices: int) -> int:
    """Seeds per call that keep about :data:`WORKING_SET` bytes alive on a device, within `budget`; a multiple of `devices`.

    The chunks of a bucket are made nearly equal, so that few seeds of the last one are discarded.
    """
    points = prod(len(bucket[dim]) if dim in bucket else length(axis) for dim, axis in over.items())
    share = prod(
        (padded_volume(dim, group, over) / max(volumes(dim, over[dim]))) ** model.peak.exponents[dim]
        for dim, group in bucket.items()
    )
    each = max(model.peak.at_largest * share * points, 1.0)
    target = min(WORKING_SET.get(platform, _ACCELERATOR_WORKING_SET), budget)
    return even_chunk(seeds, min(max(int(target / each), 1), _LARGEST_CHUNK), devices)


def even_chunk(seeds: int, largest: int, devices: int) -> int:
    """The least chunk that needs no more calls than chunks of `largest` seeds on each of `devices`; a multiple of `devices`."""
    calls = ceil(seeds / (largest * devices))
    return ceil(seeds / (calls * devices)) * devices
