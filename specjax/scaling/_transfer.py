"""Whether scalars tuned at a narrow width are right at wide ones: final losses over width × rate ×
seed, and a verdict.

The practice of μTransfer (Yang et al. 2022, arXiv 2203.03466) is to tune at a small width and train
at a large one. The verdict is about the cost of that: at each wider width, seed by seed, the loss
at the best rate of the narrowest width less that at the width's own best rate. `optimum` has the
exponent of the optimal rate, which explains the cost. A depth may replace the width, and other
scalars, several of them as a grid, the rate.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
import xarray as xr
from jaxtyping import Array, Key, PyTree
from matplotlib.axes import Axes

from specjax import fits, sweep
from specjax.fits import Optimum
from specjax.lab.outcome import Finding
from specjax.scaling._widening import ENDS, widened
from specjax.scaling.sweep_setup import Build, Dim, Loss, Optimizer, Problem, checked
from specjax.scaling.transfer_loss import cost_of_narrowest, costs_less, optima_of
from specjax.sweep import FailedSeedsWarning

Transferring = Literal["transfers", "does not transfer", "not decided"]
_VERDICTS: Mapping[str, Transferring] = {
    "confirmed": "transfers",
    "refuted": "does not transfer",
    "inconclusive": "not decided",
}
_LEAST: Mapping[str, str] = {"width": "the narrowest's", "depth": "the shallowest's"}


@dataclass(frozen=True, eq=False, repr=False)
class Transfer:
    """The losses and optima of a rate, or of other scalars, across widths or depths; prints as a
    table with the verdict.

    Attributes:
        data: The dataset of the sweep, with "loss" over (width, rate, seed), NaN or infinite where
            a training diverged; with "depth" and the names of other scalars if they were given.
        optima: By scalar, the best value at each width, and its exponent; of several scalars the
            others have the best values of the width's grid.
        cost: Over (width, seed), without the narrowest width: the loss at the narrowest width's
            best grid point less that at the width's own, over the mean of the latter; infinite if
            the training diverges.
        tolerance: The cost that counts.
        finding: The finding of the lab's relation, with its rule and numbers.
    """

    data: xr.Dataset
    optima: Mapping[str, Optimum]
    cost: xr.DataArray
    tolerance: float
    finding: Finding

    @classmethod
    def from_data(cls, data: xr.Dataset, tolerance: float) -> "Transfer":
        """The result for the losses of trainings, `data["loss"]` over (width or depth, scalars,
        seed); raises ValueError as `fits.optimum`.
        """
        dim = "depth" if "depth" in data["loss"].dims else "width"
        loss = data["loss"].sortby([name for name in data["loss"].dims if name != "seed"])
        optima = optima_of(loss, dim)
        cost = cost_of_narrowest(loss, optima)
        return cls(data, optima, cost, tolerance, _judge_costs(cost, optima, tolerance))

    @property
    def optimum(self) -> Optimum:
        """The optimum of the rate, or of the first scalar."""
        return next(iter(self.optima.values()))

    @property
    def verdict(self) -> Transferring:
        """Transfers if the cost is below the tolerance at every wider width; does not if it exceeds
        it at one.
        """
        return _VERDICTS[self.finding.verdict]

    @property
    def costs(self) -> dict[float, float]:
        """The mean cost at each wider width."""
        sizes = self.cost[self.optimum.dim]
        return {
            float(size): float(cost)
            for size, cost in zip(sizes, self.cost.mean("seed"), strict=True)
        }

    def __repr__(self) -> str:
        costs = [
            f"{_LEAST[self.optimum.dim]} costs",
            "–",
            *(f"{_percent(cost)} %" for cost in self.costs.values()),
        ]
        paragraphs = []
        for optimum in self.optima.values():
            lines = optimum.table().splitlines()
            length = max(map(len, lines))
            paragraphs += [
                f"{line.ljust(length)}  {cost}".rstrip()
                for line, cost in zip(lines, costs, strict=True)
            ]
            paragraphs.append(repr(optimum))
        return "\n".join([*paragraphs, self._verdict])

    @property
    def _verdict(self) -> str:
        what, does, do = " and the ".join(self.optima), "s", "does"
        if len(self.optima) > 1:
            does, do = "", "do"
        opening = {
            "transfers": f"The {what} transfer{does}",
            "does not transfer": f"The {what} {do} not transfer",
            "not decided": f"Whether the {what} transfer{does} is not decided",
        }[self.verdict]
        return f"{opening}: {self._why}"

    @property
    def _why(self) -> str:
        if self.finding.reason:
            return self.finding.reason
        point = self.finding.deciding
        return (
            f"at {point.label} {_LEAST[self.optimum.dim]} costs {_percent(point.estimate)} % of the"
            f" loss ({_percent(point.low)} to {_percent(point.high)} %, 4 standard errors);"
            f" {100 * self.tolerance:g} % count."
        )

    def plot(self, ax: Axes | None = None, *, over: str | None = None) -> Axes:
        """Draw the loss against a scalar, a curve for each width with its optimum, and a line at
        the narrowest width's best value.

        In `ax` or a new figure. The scalar is `over`, by default the first one; the others have the
        best values of the width's grid. Raises ValueError for an unknown scalar.
        """
        if over is not None and over not in self.optima:
            raise ValueError(f"There is no scalar {over!r}; there are {', '.join(self.optima)}.")
        optimum = self.optimum if over is None else self.optima[over]
        ax = fits.draw_optimum(optimum, ax)
        ax.axvline(optimum.grid[optimum.best[0]], color="black", linewidth=0.8, linestyle=":")
        return ax


def transfer(
    build: Build,
    loss: Loss,
    optimizer: Optimizer,
    *,
    widths: Sequence[int] | None = None,
    depths: Sequence[int] | None = None,
    rates: Sequence[float | int] | np.ndarray | Mapping[str, Sequence[float | int] | np.ndarray],
    batch: PyTree | Callable[[Key[Array, ""]], PyTree],
    steps: int,
    num_seeds: int = 16,
    key: Key[Array, ""] | None = None,
    tolerance: float | int = 0.01,
    widen: int = 8,
    plan: str = "exact",
    memory: str | int | None = None,
    store: str | Path | None = None,
    progress: bool | None = None,
) -> Transfer:
    """Train a model at every width, rate and seed, and judge whether the rate of the narrowest
    width is right at the others.

    The default plan compiles one program for each width, with all rates and as many seeds at a time
    as fit; `build` gets an int. If the best rate is an end of the grid, rates are added beyond it
    in the same ratio, at all widths, and programs compiled for these.

    Args:
        build: `build(key, width)` returns a model: an equinox module, a dict, any tree whose
            floating arrays are trained.
        loss: `loss(model, batch)`, one number.
        optimizer: `optimizer(rate)`, e.g. `optax.adam`, or a function of `rate` and an argument
            called `width`, as rules of μP and of Muon need it. The rate is a scalar array; any
            other positive scalar may replace it.
        widths: Two different ints or more.
        depths: Depths in place of `widths`: `build(key, depth)`, and an argument `depth` of the
            optimizer.
        rates: Three different positive numbers or more, best in equal ratios. Or several scalars by
            name, such numbers for each: all combinations are trained, and `optimizer` gets the
            scalars by their names.
        batch: A tree of arrays, the same at every step and for the final loss; or `batch(key)`,
            which samples one at every step and seed, and once more for the final loss, the same for
            all rates of a seed.
        steps: Steps of each training.
        num_seeds: The number of seeds.
        key: Root of the keys of the seeds; key(0) by default.
        tolerance: The share of the loss that counts as a cost.
        widen: Most rates added beyond each end.
        plan: As for `sweep.run`. With "padded" or "auto" `build` gets padded sizes
            (`specjax.sizes.Size`) of several widths in one program, and must sample its weights by
            `specjax.sizes`.
        memory: As for `sweep.run`, like `store`, a folder, and `progress`.
        store: See `memory`. The same call continues an interrupted sweep.
        progress: See `memory`.

    Returns:
        Losses, optima, costs and the verdict: "not decided" if a best rate is still an end of the
        grid.

    Raises:
        ValueError: before compiling, a function with a wrong signature, a model that does not
            depend on the width, or wrong numbers; after running, a width at which every rate
            diverges.

    Warns:
        RoughFitWarning: fewer than 10 seeds.

    Examples:
        >>> from specjax import scaling
        >>> build = lambda key, width: {"w": 0.01 * jax.random.normal(key, (width, 2))}
        >>> loss = lambda model, scales: jnp.sum(scales * (jnp.sum(model["w"], 0) - 1) ** 2) / 2
        >>> found = scaling.transfer(
        ...     build, loss, optax.sgd, widths=(4, 8), rates=(1 / 16, 1 / 8, 1 / 4, 1 / 2),
        ...     batch=jnp.array([1.0, 0.5]), steps=1, num_seeds=10)
        >>> found.verdict
        'does not transfer'
    """
    key = jax.random.key(0) if key is None else key
    by_name = isinstance(rates, Mapping)
    grid = (
        {str(name): points for name, points in rates.items()}
        if isinstance(rates, Mapping)
        else {"rate": rates}
    )
    dim, sizes = _sizes(widths, depths)
    _check_numbers(grid, steps, tolerance, widen)
    least = {name: float(np.min(points)) for name, points in grid.items()}
    problem = checked(
        Problem(build, loss, optimizer, batch, dim), sizes, least if by_name else least["rate"], key
    )
    place = None if store is None else Path(store)
    if place is not None:
        place.mkdir(exist_ok=True)

    def measure(key: Array, **point: Any) -> dict[str, Array]:
        size = point.pop(dim)
        return {"loss": problem.final_loss(key, size, point if by_name else point["rate"], steps)}

    def run_sweep(grid: Mapping[str, Sequence[float]], part: int) -> xr.Dataset:
        scalars = {name: sweep.values(*points) for name, points in grid.items()}
        with warnings.catch_warnings():
            # The optima name the widths that diverge.
            warnings.simplefilter("ignore", FailedSeedsWarning)
            return sweep.run(
                measure,
                {dim: sweep.widths(*sorted(sizes)), **scalars},
                num_seeds=num_seeds,
                key=key,
                plan=plan,
                memory=memory,
                store=None if place is None else place / f"rates-{part}",
                progress=progress,
            )

    data = widened(
        run_sweep, {name: sorted(map(float, points)) for name, points in grid.items()}, dim, widen
    )
    return Transfer.from_data(data, float(tolerance))


def _judge_costs(cost: xr.DataArray, optima: Mapping[str, Optimum], tolerance: float) -> Finding:
    """The lab's finding on the costs; a training that diverges needs no estimate."""
    diverging = xr.ufuncs.isinf(cost).any("seed")
    if bool(diverging.any()):
        (dim,) = {optimum.dim for optimum in optima.values()}
        size, of = float(cost[dim][int(np.argmax(diverging.values))]), cost.sizes["seed"]
        count = int(xr.ufuncs.isinf(cost.sel({dim: size})).sum())
        best = ", ".join(f"{optimum.grid[optimum.best[0]]:.3g}" for optimum in optima.values())
        reason = f"{best}, {_LEAST[dim]}, diverges at {dim} {size:g} in {count} of {of} seeds."
        rule = (
            f"refuted if a seed diverges at {_LEAST[dim]} best; inconclusive if that is an end of"
            " the grid"
        )
        at_end = any(optimum.places[0] in ENDS.values() for optimum in optima.values())
        return Finding("inconclusive" if at_end else "refuted", rule, (), of, reason=reason)
    return costs_less(cost, optima, tolerance).judge({})


def _sizes(widths: Sequence[int] | None, depths: Sequence[int] | None) -> tuple[Dim, Sequence[int]]:
    if widths is not None and depths is None:
        return "width", widths
    if depths is not None and widths is None:
        return "depth", depths
    raise ValueError(
        f"Models differ in their width or in their depth, got widths={widths} and depths={depths};"
        " pass one."
    )


def _check_numbers(
    grid: Mapping[str, Sequence[float | int] | np.ndarray],
    steps: int,
    tolerance: float | int,
    widen: int,
) -> None:
    if not grid or set(grid) & {"width", "depth", "seed"}:
        raise ValueError(
            "rates by name needs one scalar or more, none called width, depth or seed, got"
            f' {list(grid)}; write e.g. {{"rate": (0.1, 0.2, 0.4)}}.'
        )
    for name, points in grid.items():
        numbers = np.asarray(points)
        if (
            numbers.ndim != 1
            or numbers.dtype.kind not in "iuf"
            or len(np.unique(numbers)) < 3
            or not (np.isfinite(numbers) & (numbers > 0)).all()
        ):
            which = "rates" if name == "rate" else f"rates[{name!r}]"
            raise ValueError(
                f"{which} needs to be three different positive numbers or more, got"
                f" {numbers.tolist()}; take e.g. powers of 2."
            )
    if steps < 1 or widen < 0:
        raise ValueError(
            "A training has one step or more and a grid is widened by 0 rates or more, got"
            f" steps={steps} and widen={widen}."
        )
    if not 0 < tolerance < 1:
        raise ValueError(
            f"tolerance is the share of the loss that counts, between 0 and 1, got {tolerance};"
            " write e.g. 0.01."
        )


def _percent(share: float) -> str:
    """A share in percent, without an exponent."""
    return f"{100 * share:.0f}" if abs(share) >= 1 else f"{100 * share:.2g}"
