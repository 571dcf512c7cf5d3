"""Cut a sweep: widths into buckets, each padded to its largest, and seeds into groups.

A bucket is compiled once. Few buckets compile fast and waste work on padding; many do the opposite.
A group is computed at once. Its size decides the last bits of the results, so it follows from the
program alone. The number of groups in a call is found at run time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil
from typing import Any

from specjax.sweep._cost_model import CostModel, Scaling
from specjax.sweep._grid import Grid
from specjax.sweep._measurement import Shapes
from specjax.sweep._reduction import Sampling
from specjax.sweep._spec import Spec, bytes_of

Groups = Mapping[str, tuple[tuple[int, ...], ...]]
"""Each dimension with widths, and the places of its points in groups, narrow ones first."""

# Bytes alive at once in a group of vmapped seeds, measured on two CPU cores with 2 MB of cache
# each. The statistics of a ReLU layer, which read what they wrote once or twice, ran within a fifth
# of the fastest group at widths 16 to 512. Trainings, which read the same arrays at every step, ran
# within a third at widths 16 to 256. An accelerator needs every core busy and has no such cache.
WORKING_SET = {"cpu": 8 * 2**20}
LASTING_SET = {"cpu": 2**20}
_ACCELERATOR_WORKING_SET = 2 * 2**30
_LARGEST_CHUNK = 2**16
_RESULT_BYTES = 2**24  # of a call, which writes its whole result however few groups it has
# Above this share of the working set, groups do not grow while a call would have fewer groups than
# this.
_ENOUGH, _GROUPS = 0.25, 8
# Rounds of the alternation between dimensions; two suffice for all but contrived costs.
_ROUNDS = 4
# Compiling the narrowest point alone, without optimization, takes this share of a program's time.
_CHECK = 0.5


@dataclass(frozen=True)
class Bucket:
    """A piece of the grid that is one program.

    A call has at most `chunk` seeds on all devices; a device computes `vmapped` of them at once.
    """

    grid: Grid
    chunk: int
    vmapped: int


@dataclass(frozen=True)
class Plan:
    """A sweep cut into buckets.

    Attributes:
        spec: The sweep.
        groups: The places of each dimension that has widths, cut into groups.
        buckets: The buckets that the groups make.
        sampling: Whether every seed is kept, or moments of batches of seeds.
    """

    spec: Spec
    groups: Groups
    buckets: tuple[Bucket, ...]
    sampling: Sampling

    @staticmethod
    def of(spec: Spec) -> "Plan":
        """A new plan of a sweep."""
        grid, side_by_side = spec.grid, spec.machine.side_by_side
        groups = group(
            grid, spec.plan, spec.model, checked=spec.check_padding, side_by_side=side_by_side
        )
        wide = {dim.name for dim in grid.wide}
        padded = next((piece for piece in pieces(grid, groups) if wide & set(piece.axes)), None)
        if spec.plan == "auto" and padded and not spec.measurement.takes_sizes(padded):
            groups = exact(groups)
        buckets = tuple(_bucket(spec, piece) for piece in pieces(grid, groups))
        return Plan(spec, groups, buckets, spec.sampling())

    @staticmethod
    def from_json(stored: Mapping[str, Any], spec: Spec) -> "Plan":
        """The plan that `to_json` wrote: another one would not reproduce the bits in a store."""
        sampling = spec.sampling(stored["batch_size"])
        groups = {dim: tuple(map(tuple, groups)) for dim, groups in stored["groups"].items()}
        cut = zip(pieces(spec.grid, groups), stored["chunks"], stored["vmapped"], strict=True)
        return Plan(spec, groups, tuple(Bucket(*fields) for fields in cut), sampling)

    def to_json(self) -> dict[str, Any]:
        """The plan as `from_json` reads it."""
        return {
            "groups": {dim: [list(g) for g in groups] for dim, groups in self.groups.items()},
            "chunks": [bucket.chunk for bucket in self.buckets],
            "vmapped": [bucket.vmapped for bucket in self.buckets],
            "batch_size": self.sampling.size,
        }

    @property
    def variables(self) -> Shapes:
        """Shape and dtype of each variable, without the dimensions of grid and samples."""
        return self.sampling.variables(self.spec.shapes)

    @property
    def samples(self) -> list[int]:
        """The number of samples of each bucket."""
        return [self.sampling.count(bucket.grid.seeds) for bucket in self.buckets]


def _bucket(spec: Spec, piece: Grid) -> Bucket:
    """A piece of the grid, with the seeds that are computed at once and in a call at most."""
    machine, devices = spec.machine, spec.machine.devices
    budget, asked = machine.budget // machine.calls, ceil((spec.chunk or piece.seeds) / devices)
    result = piece.points * bytes_of(spec.shapes)
    room = budget // max(2 * result, 1)
    size = vmapped(piece, spec.model, machine.platform, budget, machine.side_by_side * devices)
    size = max(min(size, room, asked), 1)
    most = min(room, asked, _RESULT_BYTES // max(result, 1))
    return Bucket(piece, chunk(piece.seeds, size, most, devices), size)


def pieces(grid: Grid, groups: Groups) -> list[Grid]:
    """The product of the groups of all dimensions; the grid itself if it has no widths."""
    return [
        grid.select(dict(zip(groups, chosen, strict=True))) for chosen in product(*groups.values())
    ]


def work(buckets: Sequence[Grid], law: Scaling) -> float:
    """The cost of all seeds at all points of some pieces, each point counted as padded."""
    return sum(law.cost(bucket) * bucket.points * bucket.seeds for bucket in buckets)


def padding(grid: Grid, groups: Groups, law: Scaling) -> float:
    """The work of the plan `groups` relative to that of the exact plan."""
    # The prefactor cancels; 1 avoids 0/0.
    relative = Scaling(1.0, law.laws)
    return work(pieces(grid, groups), relative) / work(pieces(grid, exact(groups)), relative)


def group(grid: Grid, plan: str, model: CostModel, *, checked: bool, side_by_side: int) -> Groups:
    """Choose the groups of every dimension of `grid` that has widths or choices.

    "exact" gives each point its own group and "padded" puts all into one. "auto" minimizes the
    estimated time to compile, with `side_by_side` programs at once, and to run. It uses dynamic
    programming over contiguous groups, for one dimension after the other given the rest, until
    nothing changes. A plan that pads also pays for one smaller program if it is `checked`.
    """
    padded: dict[str, tuple[tuple[int, ...], ...]] = {
        dim.name: (tuple(sorted(range(len(dim)), key=dim.volumes.__getitem__)),)
        for dim in grid.wide
    }
    alone = exact(padded)
    # Choices are not sizes; they cannot be padded to one another.
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
    """The same points, each in a group of its own."""
    return {dim: tuple((i,) for group in cut for i in group) for dim, cut in groups.items()}


def cheapest_cut(
    points: Sequence[int], cost: Mapping[tuple[int, int], float]
) -> tuple[tuple[int, ...], ...]:
    """Cut `points` into contiguous groups of least total cost; points[i:j] costs `cost[i, j]`."""
    # best[j] holds the least cost of the first j points, and its groups; the last group starts at
    # some i < j.
    best: list[tuple[float, tuple[tuple[int, ...], ...]]] = [(0.0, ())]
    for j in range(1, len(points) + 1):
        total, start = min((best[i][0] + cost[i, j], i) for i in range(j))
        best.append((total, (*best[start][1], tuple(points[start:j]))))
    return best[-1][1]


def vmapped(bucket: Grid, model: CostModel, platform: str, budget: int, calls: int) -> int:
    """Choose how many seeds of `bucket` a device computes at once, with `calls` calls at once.

    The working set of these seeds fits into the cache and into `budget`. A program that may run
    long gets several groups, if these are as efficient, so that first results come soon. If a CPU
    decomposes matrices it is one seed, since LAPACK takes them one by one anyway.
    """
    if model.decomposes:
        return 1
    room = (LASTING_SET if model.lasts else WORKING_SET).get(platform, _ACCELERATOR_WORKING_SET)
    working, peak = (
        max(law.cost(bucket) * bucket.points, 1.0) for law in (model.working, model.peak)
    )
    most = max(int(min(room / working, budget / peak, _LARGEST_CHUNK)), 1)
    if model.lasts:
        enough = ceil(_ENOUGH * room / working)
        most = min(most, max(enough, ceil(bucket.seeds / (_GROUPS * calls))))
    return evenly(bucket.seeds, most, calls)


def evenly(seeds: int, most: int, calls: int) -> int:
    """The size of nearly equal groups of at most `most` seeds, the same number for each call."""
    rounds = ceil(seeds / (most * calls))
    return ceil(seeds / (rounds * calls))


def chunk(seeds: int, vmapped: int, most: int, devices: int) -> int:
    """The largest number of seeds of a call, in whole groups of `vmapped` on each device."""
    groups = min(ceil(seeds / (vmapped * devices)), min(most, _LARGEST_CHUNK) // vmapped)
    return max(groups, 1) * vmapped * devices
