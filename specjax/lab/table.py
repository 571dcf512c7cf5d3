"""Tables: the numbers of statements point by point, and means by size."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import xarray as xr

from specjax import fits, sweep
from specjax.arguments import checked
from specjax.lab.outcome import Finding, Point, labelled

POINTS = "What each verdict follows from"
"""Title of the table that every experiment has."""
_MOST = 12
"""Most points of a statement in the table, the deciding ones first."""


@dataclass(frozen=True)
class Table:
    """A table of a report: a title, column heads, and rows of text cells."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@checked
def table_of_points(findings: Mapping[str, Finding]) -> Table:
    """The estimate, its interval and the compared number at each point of each statement, the
    deciding point first.
    """
    rows = [
        (name if place == 0 else "", *_cells(point), str(found.samples))
        for name, found in findings.items()
        for place, point in enumerate(found.points[:_MOST])
    ]
    header = ("statement", "at", "estimate", "interval", "compared with", "samples")
    return Table(POINTS, header, tuple(rows))


@checked
def table_by_size(
    title: str, values: Mapping[str, xr.DataArray], dim: str, of_logs: bool = False
) -> Table:
    """Means over seeds at each size, a row for each point of the other dimensions, and the slopes
    of their logarithms with standard errors.

    Args:
        title: The title of the table.
        values: The values by name; those without seeds are shown as they are.
        dim: The dimension of the sizes.
        of_logs: Whether the values are logarithms themselves.

    Examples:
        >>> from specjax import lab
        >>> d = np.array([8, 16, 32])
        >>> norm = xr.DataArray([d**2.0, d**2.0], dims=("seed", "d"), coords={"d": d})
        >>> lab.table.table_by_size("Norms", {"norm": norm}, "d").rows
        (('norm', '64 ± 0', '256 ± 0', '1024 ± 0', '2.00 ± 0.00'),)
    """
    if not values or not all(
        isinstance(samples, xr.DataArray) and dim in samples.coords for samples in values.values()
    ):
        raise ValueError(
            f"table_by_size needs DataArrays by name, each with the coordinate {dim!r}, got"
            f" {', '.join(map(str, values)) or 'none'}."
        )
    rows = []
    shown: list[tuple[xr.DataArray, ...]]
    for name, samples in values.items():
        if "seed" in samples.dims:
            slope = (
                fits.log_slopes(samples, dim)
                if of_logs
                else fits.jackknife(samples, lambda mean: _slopes(mean, dim))
            )
            shown = [sweep.mean_and_stderr(part.astype(float)) for part in (samples, slope)]
        else:
            shown = [
                (samples,),
                (fits.log_slopes(samples, dim) if of_logs else _slopes(samples, dim),),
            ]
        means, ends = shown
        for place, where in labelled(ends[0]):
            at = dict(zip(ends[0].dims, place, strict=True))
            cells = zip(*(part.isel(at).values for part in means), strict=True)
            last = " ± ".join(f"{float(part.isel(at)):.2f}" for part in ends)
            rows.append(
                (
                    f"{name} {where}".strip(),
                    *(" ± ".join(f"{x:.4g}" for x in cell) for cell in cells),
                    last,
                )
            )
    sizes = next(iter(values.values()))[dim].values
    return Table(title, ("", *(f"{dim} = {size}" for size in sizes), "slope"), tuple(rows))


def _slopes(means: xr.DataArray, dim: str) -> xr.DataArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return fits.log_slopes(xr.ufuncs.log(means), dim)


def _cells(point: Point) -> tuple[str, ...]:
    return (
        point.label,
        _text(point.estimate),
        f"{_text(point.low)} to {_text(point.high)}",
        _text(point.compared),
    )


def _text(value: float) -> str:
    return (
        f"{value:.5g}"
        if math.isfinite(value)
        else "–"
        if math.isnan(value)
        else "∞"
        if value > 0
        else "-∞"
    )
