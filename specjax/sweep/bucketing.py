"""How a sweep is cut: the points of its widths into buckets, each padded to its largest, and the
seeds of a bucket into groups.

A bucket is compiled once. Few buckets compile fast and waste work on padding; many do the opposite.
A group is what is computed at a time, and decides the last bits of the results, so it follows from
the program alone; how many groups are in a call is found as they run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil
from typing import Any

from specjax.sweep.cost_model import CostModel, Scaling
from specjax.sweep.grid import Grid

PLANS = ("exact", "padded", "auto")
Groups = Mapping[str, tuple[tuple[int, ...], ...]]
"""For each dimension that has widths its points, by their places on it, cut into groups; narrow
ones first.
"""

# Bytes alive at a time in a group of seeds that are vmapped together, measured on two CPU cores
# with 2 MB of cache each: the statistics of a ReLU layer, which read what they wrote once or twice,
# ran within a fifth of the fastest group at widths 16 to 512, and trainings, which go over the same
# arrays at every step, within a third at widths 16 to 256. An accelerator wants every core busy and
# has no such cache.
WORKING_SET = {"cpu": 8 * 2**20}
LASTING_SET = {"cpu": 2**20}
_ACCELERATOR_WORKING_SET = 2 * 2**30
_LARGEST_CHUNK = 2**16
# Of the working set: above it groups are not made larger where each call would have fewer than so
# many.
_ENOUGH, _GROUPS = 0.25, 8
_ROUNDS = 4  # of the alternation between dimensions; two suffice for all but contrived costs
_CHECK = 0.5  # of a program's compilation: that of the narrowest point alone, without optimization


@dataclass(frozen=True)
class Bucket:
    """A piece of the grid that is one program.

    A call of it has at most `chunk` seeds on all devices, of which a device computes `vmapped` at a
    time.
    """

    grid: Grid
    chunk: int
    vmapped: int


@dataclass(frozen=True)
class Plan:
    """The `groups` of each dimension, and the buckets that these make."""

    groups: Groups
    buckets: tuple[Bucket, ...]

    def to_json(self) -> dict[str, Any]:
        """What `from_json` reads."""
        return {
            "groups": {dim: [list(g) for g in groups] for dim, groups in self.groups.items()},
            "chunks": [bucket.chunk for bucket in self.buckets],
            "vmapped": [bucket.vmapped for bucket in self.buckets],
        }

    @staticmethod
    def from_json(stored: Mapping[str, Any], grid: Grid) -> "Plan":
        """The plan of `grid` that `to_json` wrote."""
        groups = {
            dim: tuple(tuple(group) for group in groups) for dim, groups in stored["groups"].items()
        }
        cut = zip(pieces(grid, groups), stored["chunks"], stored["vmapped"], strict=True)
        return Plan(groups, tuple(Bucket(*fields) for fields in cut))


def pieces(grid: Grid, groups: Groups) -> list[Grid]:
    """The product of the groups of all dimensions; the grid itself where none has widths."""
    return [grid.at(dict(zip(groups, chosen, strict=True))) for chosen in product(*groups.values())]


def work(buckets: Sequence[Grid], of: Scaling) -> float:
    """What all seeds cost at all points of some pieces, each point as much as the padded one."""
    return sum(of.of(bucket) * bucket.points * bucket.seeds for bucket in buckets)


def padding(grid: Grid, groups: Groups, of: Scaling) -> float:
    """How many times the work of the exact plan that of the `groups` is."""
    # What is nothing at the largest widths is nothing everywhere.
    relative = Scaling(1.0, of.laws)
    return work(pieces(grid, groups), relative) / work(pieces(grid, exact(groups)), relative)


def group(grid: Grid, plan: str, model: CostModel, *, checked: bool, side_by_side: int) -> Groups:
    """The groups of every dimension of `grid` that has widths or choices.

    "exact" gives each point its own group, "padded" puts all into one, and "auto" cuts where
    compiling, so many programs `side_by_side`, and running are estimated to take least: by dynamic
    programming over contiguous groups; with several dimensions, for one after the other given the
    rest, until nothing changes. A plan that pads is `checked` by one smaller program more.
    """
    padded: dict[str, tuple[tuple[int, ...], ...]] = {
        dim.name: (tuple(sorted(range(len(dim)), key=dim.volumes.__getitem__)),)
        for dim in grid.wide
    }
    alone = exact(padded)
    # A choice is no size, and nothing pads one to another.
    chosen = {dim.name for dim in grid.wide if dim.is_chosen}
    if plan == "padded":
        return {name: alone[name] if name in chosen else cut for name, cut in padded.items()}
    if plan == "exact" or not model.is_known:
        return alone

    compiling = model.compile_seconds / side_by_side

    def seconds(groups: Groups) -> float:
        buckets = pieces(grid, groups)
        return len(buckets) * compiling + work(buckets, model.seconds)

    groups = dict(alone)
    for _ in range(_ROUNDS):
        before = dict(groups)
        for dim, (points,) in padded.items():
            if dim in chosen:
                continue
            cost = {
                (i, j): seconds({**groups, dim: (points[i:j],)})
                for j in range(1, len(points) + 1)
                for i in range(j)
            }
            groups[dim] = cheapest_cut(points, cost)
        if groups == before:
            break
    return min(
        groups,
        alone,
        key=lambda cut: seconds(cut) + _CHECK * compiling * (checked and cut != alone),
    )


def exact(groups: Groups) -> dict[str, tuple[tuple[int, ...], ...]]:
    """The same points, each a group of its own."""
    return {dim: tuple((i,) for group in cut for i in group) for dim, cut in groups.items()}


def cheapest_cut(
    points: Sequence[int], cost: Mapping[tuple[int, int], float]
) -> tuple[tuple[int, ...], ...]:
    """`points` cut into contiguous groups of least total cost, `cost[i, j]` being that of
    points[i:j].
    """
    # best[j] is the least cost of the first j points and the groups that reach it; the last group
    # starts at some i < j.
    best: list[tuple[float, tuple[tuple[int, ...], ...]]] = [(0.0, ())]
    for j in range(1, len(points) + 1):
        total, start = min((best[i][0] + cost[i, j], i) for i in range(j))
        best.append((total, (*best[start][1], tuple(points[start:j]))))
    return best[-1][1]


def vmapped(bucket: Grid, model: CostModel, platform: str, budget: int, calls: int) -> int:
    """How many seeds of `bucket` a device computes at a time: as many as keep the working set in
    the cache and in `budget`, as one of so many `calls` at a time.

    What may last is in several groups where these are no less efficient, so that something is done
    soon. One seed where a CPU decomposes matrices, since LAPACK takes them one by one anyway.
    """
    if model.decomposes:
        return 1
    room = (LASTING_SET if model.lasts else WORKING_SET).get(platform, _ACCELERATOR_WORKING_SET)
    working, peak = (max(of.of(bucket) * bucket.points, 1.0) for of in (model.working, model.peak))
    most = max(int(min(room / working, budget / peak, _LARGEST_CHUNK)), 1)
    if model.lasts:
        enough = ceil(_ENOUGH * room / working)
        most = min(most, max(enough, ceil(bucket.seeds / (_GROUPS * calls))))
    return evenly(bucket.seeds, most, calls)


def evenly(seeds: int, most: int, calls: int) -> int:
    """The size of groups of at most so many seeds that are nearly equal, as many for each of
    `calls` at a time, which have one each where there are as many seeds.
    """
    rounds = ceil(seeds / (most * calls))
    return ceil(seeds / (rounds * calls))


def chunk(seeds: int, vmapped: int, most: int, devices: int) -> int:
    """The most seeds of a call: whole groups of `vmapped` on each device, as many as there are, or
    as `most` seeds on each.
    """
    groups = min(ceil(seeds / (vmapped * devices)), min(most, _LARGEST_CHUNK) // vmapped)
    return max(groups, 1) * vmapped * devices
