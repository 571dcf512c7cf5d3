"""Whether two findings have the same numbers: up to rounding, in another unit, or within noise."""

import math

import numpy as np

from specjax.lab.outcome import Finding, Point, paired


def same(first: Finding, second: Finding) -> bool:
    """Whether two findings have equal numbers, up to rounding, and reasons, which are where a bound
    has its margin.
    """
    one, other = _numbers(first), _numbers(second)
    return (
        one.shape == other.shape
        and np.allclose(one, other, rtol=1e-9, atol=1e-12, equal_nan=True)
        and first.reason == second.reason
    )


def same_in_other_units(first: Finding, second: Finding) -> bool:
    """Whether numbers that are compared with 0 differ by a positive factor at each point: half of
    a lead, with half of its noise, has the same sign.
    """
    one, other = _numbers(first), _numbers(second)
    if one.shape != other.shape or one[:, 3].any() or other[:, 3].any():
        return False
    sizes = [np.abs(each).max(1, keepdims=True) for each in (one, other)]
    return all((size > 0).all() for size in sizes) and np.allclose(
        one / sizes[0], other / sizes[1], rtol=1e-4, atol=1e-4
    )


def equal_within_noise(first: Finding, second: Finding) -> bool:
    """Whether at every point the estimates differ by less than 4 standard errors of their
    difference; False for a bound, whose estimates are shares of samples that violate it.
    """
    pairs = paired(first, second) if first.margin is None else None
    return pairs is not None and all(
        abs(one.estimate - other.estimate)
        <= math.hypot(_half_toward(one, other), _half_toward(other, one))
        for one, other in pairs
    )


def _numbers(found: Finding) -> np.ndarray:
    """Estimate, ends of the interval and compared number, a row for each point."""
    return np.array([[at.estimate, at.low, at.high, at.compared] for at in found.points])


def _half_toward(one: Point, other: Point) -> float:
    """The half-width of an interval on the side of another estimate."""
    return one.high - one.estimate if other.estimate > one.estimate else one.estimate - one.low
