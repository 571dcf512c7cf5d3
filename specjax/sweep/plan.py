"""How a sweep is cut: the points of its widths into buckets, each padded to its largest, and the seeds of a bucket into chunks.

A bucket is compiled once. Few buckets compile fast and waste work on padding; many do the opposite.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil, prod
from typing import Any

from specjax.sweep.axes import Over, length, volumes, widths_of
from specjax.sweep.cost import CostModel, Scaling

PLANS = ("exact", "padded", "auto")
Groups = Mapping[str, tuple[tuple[int, ...], ...]]
"""For each dimension that has widths its points, by their places on it, cut into groups; narrow ones first."""
Bucket = Mapping[str, tuple[int, ...]]
"""One group of each dimension that has widths."""
Seeds = int | Mapping[str, tuple[int, ...]]
"""How many seeds: one number, or one for each point of one dimension."""

# Bytes alive at a time in a group of seeds that are vmapped together, measured on two CPU cores with 2 MB of cache each: the statistics of
# a ReLU layer, which read what they wrote once or twice, ran within a fifth of the fastest group at widths 16 to 512, and trainings, which
# go over the same arrays at every step, within a third at widths 16 to 256. An accelerator wants every core busy and has no such cache.
WORKING_SET = {"cpu": 8 * 2**20}
LOOPED_SET = {"cpu": 2**20}
_ACCELERATOR_WORKING_SET = 2 * 2**30
_LARGEST_CHUNK = 2**16
# A call is long beside what starting it costs, and short beside what an interruption may cost; and there are enough for a bar to move.
_CALL_SECONDS = 0.25
_LEAST_CALLS = 8
_ROUNDS = 4  # of the alternation between dimensions; two suffice for all but contrived costs


@dataclass(frozen=True)
class Plan:
    """`groups` of each dimension, hence the buckets, and for each bucket the seeds in one call of its program on all devices, and how
    many of them a device computes at a time.
    """

    groups: Groups
    chunks: tuple[int, ...]
    vmapped: tuple[int, ...]

    @property
    def buckets(self) -> list[Bucket]:
        """The product of the groups of all dimensions; one empty bucket where none has widths."""
        return [dict(zip(self.groups, chosen, strict=True)) for chosen in product(*self.groups.values())]

    def to_json(self) -> dict[str, Any]:
        """What `from_json` reads."""
        return {
            "groups": {dim: [list(g) for g in groups] for dim, groups in self.groups.items()},
            "chunks": [*self.chunks],
            "vmapped": [*self.vmapped],
        }

    @staticmethod
    def from_json(stored: Mapping[str, Any]) -> "Plan":
        """The plan that `to_json` wrote."""
        groups = {dim: tuple(tuple(group) for group in groups) for dim, groups in stored["groups"].items()}
        return Plan(groups, tuple(stored["chunks"]), tuple(stored["vmapped"]))


def group(over: Over, plan: str, seeds: Seeds, model: CostModel | None, *, checked: bool, side_by_side: int) -> Groups:
    """The groups of every dimension of `over` that has widths.

    Args:
        over: The axes of the sweep.
        plan: "exact" gives each point its own group, "padded" puts all into one, and "auto" cuts where compiling and running are
            estimated to take least, by dynamic programming over contiguous groups; with several dimensions, for one after the other
            given the rest, until nothing changes.
        seeds: How many seeds.
        model: The costs, which only "auto" needs.
        checked: Whether a plan that pads compiles one program more, to see whether padding changes the numbers.
        side_by_side: How many programs are compiled at the same time.
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

    def running(dim: str, groups_of: Sequence[Sequence[int]]) -> float:
        return sum(share(dim, g, over, seeds, model.seconds.exponents[dim]) for g in groups_of)

    exact, each = dict(groups), model.compile_seconds / side_by_side
    for _ in range(_ROUNDS):
        before = dict(groups)
        for dim, points in ascending.items():
            others = [other for other in groups if other != dim]
            compiling = each * prod(len(groups[other]) for other in others)
            rest = whole * prod(running(other, groups[other]) for other in others)
            cost = {
                (i, j): compiling + rest * running(dim, [points[i:j]])
                for j in range(1, len(points) + 1)
                for i in range(j)
            }
            groups[dim] = cheapest_cut(points, cost)
        if groups == before:
            break

    def total(cut: Groups) -> float:
        check = model.compile_seconds * (checked and cut != exact)
        return check + each * prod(map(len, cut.values())) + whole * prod(running(dim, cut[dim]) for dim in cut)

    return min(groups, exact, key=total)


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


def vmapped(bucket: Bucket, over: Over, model: CostModel, platform: str, budget: int) -> int:
    """How many seeds of `bucket` are computed at a time on a device: as many as keep the working set in the cache and in `budget`.

    One where a CPU decomposes matrices, since LAPACK takes them one by one anyway.
    """
    if model.decomposes:
        return 1
    points = prod(len(bucket[dim]) if dim in bucket else length(axis) for dim, axis in over.items())

    def fitting(room: int, of: Scaling) -> int:
        share = prod(
            (padded_volume(dim, group, over) / max(volumes(dim, over[dim]))) ** of.exponents[dim]
            for dim, group in bucket.items()
        )
        return int(room / max(of.at_largest * share * points, 1.0))

    sets = LOOPED_SET if model.loops else WORKING_SET
    at_a_time = min(
        fitting(sets.get(platform, _ACCELERATOR_WORKING_SET), model.working),
        fitting(budget, model.peak),
        _LARGEST_CHUNK,
    )
    return max(at_a_time, 1)


def chunk(seeds: int, vmapped: int, seconds: float, most: int, calls: int, devices: int) -> int:
    """Seeds per call, at least one group of `vmapped` on each device and else a fraction of a second of work; a multiple of `devices`.

    Args:
        seeds: Of the bucket.
        vmapped: How many of them a device computes at a time.
        seconds: How long one of them is estimated to take.
        most: How many results a device has room for.
        calls: How many calls run at a time: each has as many seeds to run, to few.
        devices: How many devices share a call.
    """
    enough = min(int(_CALL_SECONDS / max(seconds, 1e-9)), ceil(seeds / (_LEAST_CALLS * devices)))
    largest = min(max(enough, vmapped), ceil(seeds / (calls * devices)), most, _LARGEST_CHUNK)
    rounds = ceil(seeds / (max(largest, 1) * devices * calls))
    return ceil(seeds / (rounds * calls * devices)) * devices
