"""Whether a learning rate that was tuned at a narrow width is right at wide ones: final losses over width × rate × seed, and a verdict.

The practice is that of μTransfer (Yang et al. 2022, arXiv 2203.03466): tune at a small width, train at a large one. The verdict is about
what that costs: at each wider width, seed by seed, the loss at the rate that is best at the narrowest width less that at the width's own
best rate. The exponent of the optimal rate, which tells why, is `optimum`'s.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
import xarray as xr
from jaxtyping import Array, Key, PyTree
from matplotlib.axes import Axes

from specjax import sweep
from specjax.lab.finding import Finding
from specjax.scaling.cost import cost_of_narrowest, costs_less
from specjax.scaling.problem import Build, Loss, Optimizer, checked
from specjax.sweep import FailedSeedsWarning, Optimum, RoughFitWarning

Transferring = Literal["transfers", "does not transfer", "not decided"]
_VERDICTS: Mapping[str, Transferring] = {
    "confirmed": "transfers",
    "refuted": "does not transfer",
    "inconclusive": "not decided",
}
_OPENINGS: Mapping[Transferring, str] = {
    "transfers": "The rate transfers",
    "does not transfer": "The rate does not transfer",
    "not decided": "Whether the rate transfers is not decided",
}


@dataclass(frozen=True, eq=False, repr=False)
class Transfer:
    """What became of a rate across widths; prints as a table with the verdict.

    Attributes:
        data: The dataset of the sweep, with "loss" over (width, rate, seed), NaN or infinite where a training diverged.
        optimum: The optimal rate at each width, and its exponent.
        cost: Over (width, seed), without the narrowest width: the loss at the narrowest width's best rate of the grid less that at the own
            best rate, over the mean of the latter. Infinite where the training diverges.
        tolerance: The cost that counts.
        finding: What the lab's relation found, with its rule and its numbers.
    """

    data: xr.Dataset
    optimum: Optimum
    cost: xr.DataArray
    tolerance: float
    finding: Finding

    @classmethod
    def of(cls, data: xr.Dataset, tolerance: float) -> "Transfer":
        """What the losses of trainings say, `data["loss"]` over (width, rate, seed); raises ValueError as `sweep.optimum`."""
        optimum = sweep.optimum(data["loss"], over="rate", dim="width")
        cost = cost_of_narrowest(data["loss"], optimum)
        return cls(data, optimum, cost, tolerance, _found(cost, optimum, tolerance))

    @property
    def verdict(self) -> Transferring:
        """Transfers if the cost is below the tolerance at every wider width; does not if it is not at one."""
        return _VERDICTS[self.finding.verdict]

    @property
    def costs(self) -> dict[float, float]:
        """The mean cost at each wider width."""
        return {float(width): float(cost) for width, cost in zip(self.cost.width, self.cost.mean("seed"), strict=True)}

    def __repr__(self) -> str:
        lines = self.optimum.table().splitlines()
        costs = ["the narrowest's costs", "–", *(f"{_percent(cost)} %" for cost in self.costs.values())]
        length = max(map(len, lines))
        table = [f"{line.ljust(length)}  {cost}".rstrip() for line, cost in zip(lines, costs, strict=True)]
        return "\n".join([*table, repr(self.optimum), f"{_OPENINGS[self.verdict]}: {self._why}"])

    @property
    def _why(self) -> str:
        if self.finding.reason:
            return self.finding.reason
        point = self.finding.deciding
        return (
            f"at {point.label} the narrowest's costs {_percent(point.estimate)} % of the loss ({_percent(point.low)} to "
            f"{_percent(point.high)} %, 4 standard errors); {100 * self.tolerance:g} % count."
        )

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws loss against rate, a curve for each width with its optimum, and a line at the narrowest width's best rate.

        In `ax` or a new figure.
        """
        ax = self.optimum.plot(ax)
        ax.axvline(self.optimum.grid[self.optimum.best[0]], color="black", linewidth=0.8, linestyle=":")
        return ax


def transfer(
    build: Build,
    loss: Loss,
    optimizer: Optimizer,
    *,
    widths: Sequence[int],
    rates: Sequence[float | int] | np.ndarray,
    batch: PyTree | Callable[[Key[Array, ""]], PyTree],
    steps: int,
    seeds: int = 16,
    key: Key[Array, ""] | None = None,
    tolerance: float | int = 0.01,
    widen: int = 8,
    plan: str = "exact",
    memory: str | int | None = None,
    store: str | Path | None = None,
    progress: bool | None = None,
) -> Transfer:
    """Trains a model at every width, rate and seed, and says whether the rate of the narrowest width is right at the others.

    With the default plan one program is compiled for each width, with all rates and as many seeds at a time as fit, and `build` gets an
    int: any code that takes one will do. Where the best rate is an end of the grid, rates are added beyond it in the same ratio, at all
    widths, and programs compiled for these.

    Args:
        build: `build(key, width)` returns a model: an equinox module, a dict, any tree whose floating arrays are what is trained.
        loss: `loss(model, batch)`, one number.
        optimizer: `optimizer(rate)`, e.g. `optax.adam`, or a function of `rate` and an argument called `width`, as rules of μP and of Muon
            need it. The rate is a scalar array; any other positive scalar may stand in its place.
        widths: Two different ints or more.
        rates: Three different positive numbers or more, best in equal ratios.
        batch: A tree of arrays, the same at every step and for the final loss; or `batch(key)`, which draws one: afresh at every step and
            seed, and once more for the final loss, the same for all rates of a seed.
        steps: Steps of each training.
        seeds: How many seeds.
        key: From which the keys of the seeds are folded; key(0) by default.
        tolerance: The share of the loss that counts as a cost.
        widen: How many rates may be added beyond each end.
        plan: As for `sweep.run`. With "padded" or "auto" `build` gets padded sizes (`specjax.sizes.Size`) of several widths in one
            program, and needs to draw its weights by `specjax.sizes`.
        memory: As for `sweep.run`, like `store`, a folder, and `progress`.
        store: See `memory`. The same call continues what was interrupted.
        progress: See `memory`.

    Returns:
        Losses, optima, costs and the verdict. It is "not decided" where a best rate is still an end of the grid.

    Raises:
        ValueError: a function that does not take what it gets, a model that does not depend on the width, wrong numbers; before anything
            is compiled. Or, after it has run, a width at which every rate diverges.

    Warns:
        RoughFitWarning: fewer than 10 seeds.
    """
    key = jax.random.key(0) if key is None else key
    _check_numbers(rates, steps, tolerance, widen)
    problem = checked(build, loss, optimizer, batch, widths, float(min(rates)), key)
    place = None if store is None else Path(store)
    if place is not None:
        place.mkdir(exist_ok=True)

    def measure(key: Array, width: Any, rate: Array) -> dict[str, Array]:
        return {"loss": problem.final_loss(key, width, rate, steps)}

    def swept(rates: Sequence[float], part: int) -> xr.Dataset:
        with warnings.catch_warnings():
            # What diverges is told by the optima.
            warnings.simplefilter("ignore", FailedSeedsWarning)
            return sweep.run(
                measure,
                {"width": sweep.widths(*sorted(widths)), "rate": sweep.values(*map(float, rates))},
                seeds=seeds,
                key=key,
                plan=plan,
                memory=memory,
                store=None if place is None else place / f"rates-{part}",
                progress=progress,
            )

    data = _widened(swept, sorted(float(rate) for rate in rates), widen)
    return Transfer.of(data, float(tolerance))


def _widened(swept: Callable[[Sequence[float], int], xr.Dataset], rates: Sequence[float], widen: int) -> xr.Dataset:
    """The sweep of all rates, with more beyond an end of them as long as a best rate is one and rates are left to add."""
    data, left, part = swept(rates, 0), {"below": widen, "above": widen}, 0
    at_once = max(len(rates) // 2, 2)
    while sides := [side for side in _open_sides(data["loss"]) if left[side]]:
        added: list[float] = []
        for side in sides:
            count = min(at_once, left[side])
            left[side] -= count
            added += _beyond(data.rate.values, side, count)
        part += 1
        more = swept(sorted(added), part)
        data = xr.concat([data, more], "rate", join="exact", combine_attrs="override").sortby("rate")
    return data


def _open_sides(loss: xr.DataArray) -> list[str]:
    """The ends of the grid beyond which an optimum may lie; "below" where all rates of a width diverge."""
    finite = xr.ufuncs.isfinite(loss).all("seed")
    if not bool(finite.any("rate").all()):
        return ["below"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RoughFitWarning)
        places = sweep.optimum(loss, over="rate", dim="width").places
    return [side for side, place in (("below", "smallest"), ("above", "largest")) if place in places]


def _beyond(rates: np.ndarray, side: str, count: int) -> list[float]:
    """So many rates beyond one end, in the ratio of the last two."""
    end, next_to_it = (rates[0], rates[1]) if side == "below" else (rates[-1], rates[-2])
    return [float(end * (end / next_to_it) ** step) for step in range(1, count + 1)]


def _found(cost: xr.DataArray, optimum: Optimum, tolerance: float) -> Finding:
    """What the lab finds of the costs; a training that diverges needs no estimate."""
    diverging = xr.ufuncs.isinf(cost).any("seed")
    if bool(diverging.any()):
        width, of = float(cost.width[int(np.argmax(diverging.values))]), cost.sizes["seed"]
        count = int(xr.ufuncs.isinf(cost.sel(width=width)).sum())
        reason = f"{optimum.grid[optimum.best[0]]:.3g}, the narrowest's, diverges at width {width:g} in {count} of {of} seeds."
        rule = "refuted if a seed diverges at the narrowest width's rate; inconclusive if that is an end of the grid"
        at_end = optimum.places[0] in ("smallest", "largest")
        return Finding("inconclusive" if at_end else "refuted", rule, (), of, reason=reason)
    return costs_less(cost, optimum, tolerance).judge({})


def _check_numbers(rates: Sequence[float | int] | np.ndarray, steps: int, tolerance: float | int, widen: int) -> None:
    if len(set(rates)) < 3 or not all(isfinite(rate) and rate > 0 for rate in rates):
        raise ValueError(
            f"rates needs to be three different positive numbers or more, got {list(rates)}; take e.g. powers of 2."
        )
    if steps < 1 or widen < 0:
        raise ValueError(
            f"A training has one step or more and a grid is widened by 0 rates or more, got steps={steps} and widen={widen}."
        )
    if not 0 < tolerance < 1:
        raise ValueError(
            f"tolerance is the share of the loss that counts, between 0 and 1, got {tolerance}; write e.g. 0.01."
        )


def _percent(share: float) -> str:
    """A share in percent, without an exponent."""
    return f"{100 * share:.0f}" if abs(share) >= 1 else f"{100 * share:.2g}"
