"""Statements on counts that several experiments share: formulas, exponents, and their controls."""

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import jax
import numpy as np
import xarray as xr
from jaxtyping import Array, Key

from specjax import fits, lab
from specjax.experiments.ledgers import ledger
from specjax.lab.drawing import draw_panels
from specjax.theory import finite_capacity

LEDGER = ledger("associative-memory")
SETTLES = (
    "It asked for a local exponent between -1/4 and 1/4, whose interval was too wide at these"
    " sizes; judged on a fresh seed."
)
"""The post hoc note of rules that use the slope over all sizes instead."""
NAMES = {
    "gd": "GD",
    "muon": "Muon",
    "newton": "Newton",
    "adamw": "AdamW",
    "sgd": "SGD",
    "resolved": "Muon, λ",
}

Change = Callable[[xr.DataArray], xr.DataArray]
Control = Callable[[Any, Any], Any]
Data = Mapping[str, xr.Dataset]


def log(counts: xr.DataArray) -> xr.DataArray:
    """The log of counts, or of their means; 0 counts as a hundredth of an item."""
    return counts.copy(data=np.log(np.maximum(counts.values.astype(float), 0.01))).rename(
        f"log {counts.name}"
    )


def straight(counts: xr.DataArray) -> xr.DataArray:
    """Slopes of straight lines through log counts over log d, by seed."""
    return fits.log_slopes(log(counts), "d")


def pseudo_slopes(counts: xr.DataArray, dim: str = "d") -> xr.DataArray:
    """Jackknife pseudo-values of the slope of the log of the mean over seeds."""
    return fits.jackknife(counts, lambda mean: fits.log_slopes(log(mean), dim)).rename(
        f"slope of {counts.name}"
    )


expected = lru_cache(maxsize=1024)(finite_capacity.expected_count)
"""Cached, since checks, tables and figures use it."""


def formula(count: xr.DataArray, n: int) -> xr.DataArray:
    """The count of `finite_capacity` at the coordinates d, alpha and optimizer of counts."""

    def count_at(d: Any, alpha: Any, optimizer: Any) -> float:
        return expected(str(optimizer), int(d), n, float(alpha))

    return xr.apply_ufunc(count_at, count.d, count.alpha, count.optimizer, vectorize=True).rename(
        "formula"
    )


def within_a_factor_of_2(logs: xr.DataArray) -> lab.Relation:
    """Judge that ratios, given as logarithms, lie between 1/2 and 2."""
    return lab.near(logs, 0.0, float(np.log(2)), "a factor of 2")


def has_exponent(values: xr.DataArray, exponent: float, within: float) -> lab.Relation:
    """Judge that lines through log `values` over log d have slope `exponent` within `within`."""
    return lab.near(
        straight(values), exponent, within, f"{within:g}, half the distance to the next exponent"
    )


def counts_by_formula(
    count: xr.DataArray, formula: xr.DataArray, over: str | Sequence[str], within: float
) -> lab.Relation:
    """Judge that mean counts equal a formula without fitted numbers, on average over dimensions."""
    ratio = (count / formula).rename("count / formula").mean(over)
    return lab.near(ratio, 1.0, within, f"{within:.0%} of the formula")


def exponents_by_formula(
    slope: xr.DataArray, formula: xr.DataArray, within: float, over: Sequence[str] = ()
) -> lab.Relation:
    """Judge that slopes of log counts equal those of the formula."""
    excess = (slope - straight(formula)).rename("slope less the formula's")
    return lab.near(excess.mean(over) if over else excess, 0.0, within, f"{within}")


def far_out(
    ranges: Mapping[str, tuple[float, float]],
    alphas: Sequence[float],
    seeds: int,
    key: Key[Array, ""],
    count: Callable[[str, float, float, float], Any],
    exponents: Callable[[str, float], Any],
) -> xr.Dataset:
    """Local exponents of a formula between d/4 and 4 d, N = d^(2α+2), and the theorem's exponents.

    The theorem's are numbers, or one for each step. d is sampled for each seed, from the range of
    each optimizer.
    """
    places = np.asarray(jax.random.uniform(key, (seeds,)), float)

    def local(optimizer: str, alpha: float, d: float) -> Any:
        small, large = (
            np.asarray(count(optimizer, x, x ** (2 * alpha + 2), alpha))
            for x in (0.25 * d, 4.0 * d)
        )
        return np.log(large / small) / np.log(16)

    low, high = np.log([*ranges.values()]).T[..., None]
    log_d = low + (high - low) * places
    found = [
        [[local(o, a, float(d)) for d in of] for a in alphas]
        for o, of in zip(ranges, np.exp(log_d), strict=True)
    ]
    theorem = np.array([[exponents(name, alpha) for alpha in alphas] for name in ranges])
    steps = {"t": range(1, theorem.shape[2] + 1)} if theorem.ndim == 3 else {}
    values = {
        "log_d": (("optimizer", "seed"), log_d),
        "exponent": (("optimizer", "alpha", "seed", *steps), found),
        "theorem": (("optimizer", "alpha", *steps), theorem),
    }
    return xr.Dataset(values, {"optimizer": list(ranges), "alpha": list(alphas), **steps})


def exponents_far_out(far: xr.Dataset, few_compete: xr.DataArray, tolerance: float) -> lab.Relation:
    """Judge that the formula's exponents are the theorems' less 1/(2α ln d) if many compete."""
    lost = xr.where(few_compete, 0.0, 1 / (2 * far.alpha * far["log_d"]))
    error = abs(far["exponent"] - (far["theorem"] - lost)).rename("error of the exponent")
    return lab.zero_error(error, tolerance=tolerance)


def change_values(change: Change, of: str | None = None, name: str = "count") -> Control:
    return lab.controls.replacing(name, lambda data: change(data[name]), of=of)


def store_nothing(of: str | None = None) -> dict[str, Control]:
    return {"W = 0": lab.controls.replacing("count", 0, of=of)}


def replace_optimizers(other: Mapping[str, str], of: str | None = None) -> Control:
    """A control with the counts of optimizers in the place of others'."""
    return change_values(lambda count: lab.controls.at_labels(count, "optimizer", other), of)


def replace_at(
    dim: str, label: Any, other: Callable[[xr.DataArray], Any], of: str | None = None
) -> Control:
    """A control with other counts at one label of a dimension."""
    return change_values(lambda count: count.where(count[dim] != label, other(count)), of)


def reverse_sizes(of: str | None = None, name: str = "count") -> dict[str, Control]:
    return {"the sizes exchanged": change_values(partial(lab.controls.reverse, dim="d"), of, name)}


def shift_exponents(
    by: float, of: str | None = None, name: str = "count", called: str = "the exponents {:+}"
) -> dict[str, Control]:
    """Two controls in which a quantity's exponent of d is larger, or smaller."""

    def grown(by: float) -> Change:
        return lambda values: values * (values.d / values.d[0]) ** by

    return {called.format(off): change_values(grown(off), of, name) for off in (by, -by)}


def scale_counts(of: str, *factors: float) -> dict[str, Control]:
    """Controls in which counts are larger, or smaller, by a factor."""
    return {
        f"{factor:g} times the counts": change_values(partial(operator.mul, factor), of)
        for factor in factors
    }


def change_theorem(change: Change) -> Control:
    return change_values(change, "far", "theorem")


def scale_values(of: str, name: str, *factors: float) -> dict[str, Control]:
    """Controls in which a quantity is larger, or smaller, by a factor."""
    return {
        f"{factor:g} times it": change_values(partial(operator.mul, factor), of, name)
        for factor in factors
    }


FAR_CONTROLS = {
    f"the theorems' exponents {by:+}": change_theorem(partial(operator.add, by))
    for by in (0.05, -0.05)
}
FAR_CONTROLS |= {"without 1/(2α ln d)": lab.controls.replacing("log_d", np.inf, of="far")}
panels = partial(draw_panels, over="optimizer", ylabel="items recovered")
