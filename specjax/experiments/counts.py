"""Counts of events among independent draws, with an interval that is right for few of them and for none."""

from typing import NamedTuple

from scipy.stats import beta, norm

from specjax.experiments.means import STANDARD_ERRORS

MISSED = float(2 * norm.sf(STANDARD_ERRORS))
"""The probability with which four standard errors miss a normal mean: that of every interval here."""


class Share(NamedTuple):
    """The share of draws in which something happened, between `low` and `high`."""

    value: float
    low: float
    high: float


def share_of(hits: int, draws: int) -> Share:
    """The interval of Clopper and Pearson (1934), whose coverage is at least that of four standard errors for any share.

    Raises:
        ValueError: for no draws, or a number of hits that is not from 0 to that of draws.

    """
    if draws < 1 or not 0 <= hits <= draws:
        raise ValueError(f"A share needs at least one draw and 0 <= hits <= draws, got {hits} of {draws}.")
    low = float(beta.ppf(MISSED / 2, hits, draws - hits + 1)) if hits else 0.0
    high = float(beta.isf(MISSED / 2, hits + 1, draws - hits)) if hits < draws else 1.0
    return Share(hits / draws, low, high)
