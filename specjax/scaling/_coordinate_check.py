"""The coordinate check: which activations and updates of a model grow or vanish with its width in
the first steps of training.

In a parametrization whose rates transfer, the activations, their changes and the product of each
layer's update with its inputs are of order 1 at every width (Yang and Hu 2021, arXiv 2011.14522;
the check itself: Yang et al. 2022, arXiv 2203.03466, appendix D.1).
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
import xarray as xr
from jaxtyping import Array, Key, PyTree
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from specjax import sweep
from specjax.fits import RoughFitWarning
from specjax.lab.drawing import COLORS, MARKERS, draw_sweep
from specjax.scaling._coordinates import OTHERS, QUANTITIES, measured, names
from specjax.scaling._growth_verdict import LEAST_WIDTHS, Behaviour, Verdict, behaviour
from specjax.scaling.sweep_setup import Build, Loss, Optimizer, Problem, check_sizes, checked
from specjax.sweep import FailedSeedsWarning

SHOWN = ("output", "output_change", "update_output")
"""The quantities of the printed table, which decide the verdict."""
_FEW = 10
_NAMED = 3
"""Most of the wrong rows that the last line names; the table has all."""


class Row(NamedTuple):
    """One quantity of one layer after `step` steps: its verdict, and its exponent in the width with
    a 95 % interval.
    """

    layer: str
    quantity: str
    step: int
    verdict: Verdict
    exponent: float
    interval: tuple[float, float]
    reason: str

    def __str__(self) -> str:
        low, high = self.interval
        return (
            f"the {_WORDS[self.quantity]} of {self.layer} {self.verdict} as"
            f" width^{self.exponent:.2f} ({low:.2f} to {high:.2f})"
        )


_WORDS = {
    "input": "input",
    "input_change": "change of the input",
    "output": "output",
    "output_change": "change of the output",
    "update_output": "update",
    "weight_rms": "weight's RMS",
    "update_rms": "update's RMS",
    "weight_norm": "weight's norm",
    "update_norm": "update's norm",
    "other_rms": "RMS",
    "other_update_rms": "change",
}


@dataclass(frozen=True, eq=False, repr=False)
class CoordinateCheck:
    """The quantities of every layer at all widths; prints as a table with the verdict.

    Attributes:
        data: Each quantity of `scaling.coordinates.QUANTITIES` over (width, seed, step, layer), and
            of `OTHERS` over "other" in place of "layer".
        rows: Every quantity of every layer after the last step.
    """

    data: xr.Dataset
    rows: tuple[Row, ...]

    @classmethod
    def from_data(cls, data: xr.Dataset) -> "CoordinateCheck":
        """The check of such data after their last step."""
        return cls(data, _rows(data, int(data["step"][-1])))

    @property
    def wrong(self) -> tuple[Row, ...]:
        """Last-step rows that are not Θ(1): changes and updates that grow or vanish, and outputs
        that grow.
        """
        return tuple(
            row
            for row in self.rows
            if (
                row.quantity in ("output_change", "update_output")
                and row.verdict in ("grows", "vanishes")
            )
            or (row.quantity == "output" and row.verdict == "grows")
        )

    @property
    def verdict(self) -> Literal["stable", "not stable", "not decided"]:
        """Stable if every change and update is, and no output may grow; not stable if a row is
        `wrong`.
        """
        if self.wrong:
            return "not stable"
        open_ = [row for row in self.rows if row.quantity in SHOWN and row.verdict == "not decided"]
        return "not decided" if open_ else "stable"

    def at(self, step: int) -> tuple[Row, ...]:
        """The rows after `step` steps, from 0, before training, to `steps`."""
        if step not in self.data.step:
            raise ValueError(f"There are the steps 0 to {int(self.data.step[-1])}, got {step}.")
        return _rows(self.data, step)

    def table(self, step: int | None = None, quantities: Sequence[str] = SHOWN) -> str:
        """A line for each layer and quantity after `step` steps, by default the last: exponent,
        interval, verdict.
        """
        if unknown := [name for name in quantities if name not in (*QUANTITIES, *OTHERS)]:
            raise ValueError(
                f"There is no quantity {unknown[0]!r}; there are"
                f" {', '.join((*QUANTITIES, *OTHERS))}."
            )
        cells = [["layer", "quantity", "exponent", "interval", "verdict"]]
        for row in self.rows if step is None else self.at(step):
            if row.quantity in quantities:
                low, high = row.interval
                shown = (
                    ["–", "–"]
                    if np.isnan(row.exponent)
                    else [f"{row.exponent:.2f}", f"{low:.2f} to {high:.2f}"]
                )
                cells.append([row.layer, row.quantity, *shown, row.verdict])
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            for row in cells
        ]
        return "\n".join(line.rstrip() for line in lines)

    def __repr__(self) -> str:
        steps = int(self.data.step[-1])
        after = f"after {steps} step{'s' if steps > 1 else ''}"
        sentences = {
            "stable": f"Every update and every change is stable {after}.",
            "not stable": f"Not stable {after}: {_worst(self.wrong)}.",
            "not decided": f"Not decided {after}: more seeds or larger widths may tell.",
        }
        return f"{self.table()}\n{sentences[self.verdict]}"

    def plot(self, quantity: str = "update_output", ax: Axes | None = None) -> Axes:
        """Draw the means of a quantity after the last step against the width, a curve for each
        layer; in `ax` or a new figure.
        """
        if ax is None:
            _, ax = plt.subplots(layout="constrained")
        rows = [row for row in self.rows if row.quantity == quantity]
        if not rows:
            raise ValueError(
                f"There is no quantity {quantity!r}; there are"
                f" {', '.join(dict.fromkeys(r.quantity for r in self.rows))}."
            )
        values = _last(self.data, quantity)
        for place, row in enumerate(rows):
            if row.verdict == "zero":
                continue
            power = "" if np.isnan(row.exponent) else f": width^{row.exponent:.2f}"
            # Each further round of colours shifts the markers.
            round_, color = divmod(place, len(COLORS))
            draw_sweep(
                ax,
                values[place],
                "width",
                label=f"{row.layer}{power}, {row.verdict}",
                color=COLORS[color],
                marker=MARKERS[(color + round_) % len(MARKERS)],
                line=True,
            )
        ax.set_xlabel("width")
        ax.set_ylabel(f"{ {**QUANTITIES, **OTHERS}[quantity] }, mean ± 2 standard errors")
        if len(rows) <= len(COLORS):
            ax.legend()
        else:
            # A longer legend would cover the curves.
            ax.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize="x-small")
        return ax


def coordinate_check(
    build: Build,
    loss: Loss,
    optimizer: Optimizer,
    *,
    rate: float | int,
    widths: Sequence[int],
    batch: PyTree | Callable[[Key[Array, ""]], PyTree],
    steps: int = 3,
    num_seeds: int = 16,
    key: Key[Array, ""] | None = None,
    memory: str | int | None = None,
    store: str | Path | None = None,
    progress: bool | None = None,
) -> CoordinateCheck:
    """Train a model for a few steps at every width and seed, and judge which activations and
    updates grow or vanish with the width.

    One program is compiled for each width. Layers are found by tracing the loss, as
    `specjax.diagnostics.layer_report` finds them: products with a parameter, looked-up embeddings;
    no convolutions, and nothing inside `while_loop` or `cond`.

    Args:
        build: As for `specjax.scaling.transfer`, like `loss` and `optimizer`; `build` gets ints.
        loss: See `build`.
        optimizer: See `build`.
        rate: The argument of `optimizer`; all widths must train at it.
        widths: Three different ints or more, best five or more in equal ratios, which are needed to
            tell limits from growth.
        batch: A tree of arrays, or `batch(key)`, which samples one for every step and seed. All
            quantities are measured on that of the first step.
        steps: Steps of training.
        num_seeds: The number of seeds.
        key: Root of the keys of the seeds; key(0) by default.
        memory: As for `sweep.run`, like `store` and `progress`.
        store: See `memory`.
        progress: See `memory`.

    Returns:
        The quantities at every step, and a verdict for each after the last.

    Raises:
        ValueError: as `transfer`; fewer than three widths; a model with other layers at one width
            than at another.

    Warns:
        RoughFitWarning: fewer than 10 seeds, or three widths.

    Examples:
        >>> from specjax import scaling
        >>> build = lambda key, width: {"w": jax.random.normal(key, (4, width))}
        >>> loss = lambda model, x: jnp.mean((x @ model["w"]) ** 2)
        >>> check = scaling.coordinate_check(
        ...     build, loss, optax.sgd, rate=0.1, widths=(4, 8, 16, 32), batch=jnp.eye(4), steps=1)
        >>> print(check.wrong[0].layer, check.wrong[0].quantity, check.wrong[0].verdict)
        w output_change vanishes
    """
    key = jax.random.key(0) if key is None else key
    check_sizes("width", widths)
    if len(set(widths)) < LEAST_WIDTHS:
        raise ValueError(
            f"A coordinate check needs {LEAST_WIDTHS} different widths or more, got {list(widths)}."
        )
    if steps < 1 or not rate > 0:
        raise ValueError(
            f"A coordinate check needs one step or more and a positive rate, got steps={steps} and"
            f" rate={rate}."
        )
    problem = checked(Problem(build, loss, optimizer, batch), widths, float(rate), key)
    layers, others = _same_names({width: names(problem, key, width) for width in widths})
    if num_seeds < _FEW or len(widths) <= LEAST_WIDTHS:
        warnings.warn(
            f"Verdicts on {num_seeds} seeds and {len(widths)} widths are rough; take {_FEW} seeds"
            f" and {LEAST_WIDTHS + 1} widths or more.",
            RoughFitWarning,
            stacklevel=2,
        )

    def measure(key: Array, width: Any, rate: Array) -> dict[str, Array]:
        return measured(problem, key, width, rate, steps)

    with warnings.catch_warnings():
        # The rows name values that are not finite.
        warnings.simplefilter("ignore", FailedSeedsWarning)
        data = sweep.run(
            measure,
            {"width": sweep.widths(*sorted(widths)), "rate": sweep.values(float(rate))},
            num_seeds=num_seeds,
            key=key,
            plan="exact",
            memory=memory,
            store=store,
            progress=progress,
        )
    return CoordinateCheck.from_data(_labelled(data.squeeze("rate"), layers, others))


def _worst(rows: Sequence[Row]) -> str:
    """The rows with exponents farthest from 0, and the number of the others; rows without an
    exponent are left out.
    """
    ordered = sorted(rows, key=lambda row: -abs(np.nan_to_num(row.exponent)))
    more = len(rows) - _NAMED
    return "; ".join([*map(str, ordered[:_NAMED]), *([f"and {more} more"] if more > 0 else [])])


def _same_names(found: dict[int, tuple[list[str], list[str]]]) -> tuple[list[str], list[str]]:
    first, *others = found
    for width in others:
        if found[width] != found[first]:
            raise ValueError(
                f"build needs to give the same layers at every width, got {found[first][0]} at"
                f" {first} and {found[width][0]} at {width}."
            )
    return found[first]


def _labelled(data: xr.Dataset, layers: list[str], others: list[str]) -> xr.Dataset:
    quantities = {}
    for names_, dim, labels in ((QUANTITIES, "layer", layers), (OTHERS, "other", others)):
        if not labels:
            continue
        table = data[f"{dim}s"].rename({f"{dim}s_dim_0": "step", f"{dim}s_dim_2": dim})
        table = table.assign_coords({"step": np.arange(table.sizes["step"]), dim: labels})
        for place, name in enumerate(names_):
            quantities[name] = table.isel({f"{dim}s_dim_1": place}, drop=True)
    return xr.Dataset(quantities, attrs=data.attrs)


def _rows(data: xr.Dataset, step: int) -> tuple[Row, ...]:
    rows = []
    for name in data.data_vars:
        dim = "layer" if name in QUANTITIES else "other"
        for place, label in enumerate(data[dim].values):
            found: Behaviour = behaviour(
                data[name].sel(step=step).isel({dim: place}, drop=True).drop_vars("step")
            )
            rows.append(Row(str(label), str(name), step, *found))
    order = {label: place for place, label in enumerate(dict.fromkeys(row.layer for row in rows))}
    return tuple(sorted(rows, key=lambda row: order[row.layer]))


def _last(data: xr.Dataset, quantity: str) -> list[xr.DataArray]:
    """The quantity of each layer, in order, after the last step."""
    last = data[quantity].isel(step=-1, drop=True)
    dim = "layer" if "layer" in last.dims else "other"
    return [last.isel({dim: place}, drop=True) for place in range(last.sizes[dim])]
