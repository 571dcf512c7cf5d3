"""Widths are cut into groups at the least estimated cost."""

from itertools import combinations, pairwise

import pytest

from specjax.sweep import values, widths
from specjax.sweep.plan import bucket_cost, buckets, group_axes, group_widths

POINTS = (64, 16, 1024, 32, 256, 128, 512)


def _partitions(ascending):
    """Every way to cut a sequence into contiguous groups."""
    n = len(ascending)
    for cuts in (c for k in range(n) for c in combinations(range(1, n), k)):
        edges = (0, *cuts, n)
        yield tuple(ascending[a:b] for a, b in pairwise(edges))


@pytest.mark.parametrize("repeats", [1, 300, 10_000, 1_000_000])
def test_auto_is_the_cheapest_of_all_partitions(repeats):
    ascending = tuple(sorted(POINTS))
    cheapest = min(sum(bucket_cost(group, repeats) for group in partition) for partition in _partitions(ascending))
    chosen = group_widths(POINTS, "auto", repeats)
    assert tuple(n for group in chosen for n in group) == ascending
    assert sum(bucket_cost(group, repeats) for group in chosen) == pytest.approx(cheapest, rel=1e-12)


def test_auto_compiles_more_as_the_work_grows():
    counts = [len(group_widths(POINTS, "auto", repeats)) for repeats in (1, 100, 10_000, 10**9)]
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (1, len(POINTS))


def test_exact_and_padded():
    assert group_widths((8, 2, 4), "exact", 1) == ((2,), (4,), (8,))
    assert group_widths((8, 2, 4), "padded", 10**9) == ((2, 4, 8),)


def test_buckets_are_the_product_of_the_groups():
    groups = group_axes({"m": widths(2, 1), "lr": values(0.1), "n": widths(3, 4)}, "exact", 5)
    assert buckets(groups) == [{"m": (a,), "n": (b,)} for a in (1, 2) for b in (3, 4)]
    assert buckets({}) == [{}]


def test_values_multiply_the_work():
    few = group_axes({"n": widths(*POINTS), "lr": values(1)}, "auto", 100)
    many = group_axes({"n": widths(*POINTS), "lr": values(*range(10_000))}, "auto", 100)
    assert many["n"] == group_widths(POINTS, "auto", 1_000_000)
    assert few["n"] == group_widths(POINTS, "auto", 100)
    assert len(many["n"]) > len(few["n"])
