"""The fits and figures asked of a sweep, checked before anything is compiled."""

import argparse
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from specjax.cli._errors import UserError, one_line, unknown

if TYPE_CHECKING:
    import xarray as xr

    from specjax.fits import By
    from specjax.fits.fit import Model
    from specjax.sweep.axes import Single

REPLICATES = ("seed", "batch")
_FEWEST_FOR_EXPONENT = 5


@dataclass(frozen=True)
class Request:
    """Axes, the size `dim` to fit in, and what to fit and to judge; `dim` is None without numbers.

    `outputs` is empty for all. `forms` are the values of formulas at the points of the axes.
    """

    axes: "Mapping[str, Single]"
    dim: str | None
    outputs: tuple[str, ...]
    model: "Literal['auto'] | Model"
    by: "By"
    exponents: tuple[float, ...]
    forms: "Mapping[str, xr.DataArray]"
    optimum: str | None

    @property
    def center(self) -> Literal["mean", "median"]:
        """The estimator that a formula is compared with; a mean logarithm is compared as a mean."""
        return "median" if self.by == "median" else "mean"


def make_request(
    axes: "Mapping[str, Single]", given: argparse.Namespace, names: Mapping[str, Any]
) -> Request:
    """The request of the arguments; `names` are those that formulas may use beside NumPy's."""
    numeric = [name for name, axis in axes.items() if axis.kind != "choices"]
    if given.optimum is not None and given.optimum not in numeric:
        raise UserError(unknown("axis for --optimum called", given.optimum, numeric or ["none"]))
    dim = _dim(axes, numeric, given)
    if dim is None and (given.exponent or given.optimum):
        raise UserError(
            "An exponent or an optimum needs an axis of several sizes, as in `--over d=16:512`."
        )
    exponents = tuple(map(_exponent, given.exponent))
    if dim is not None and exponents and len(axes[dim].points) < _FEWEST_FOR_EXPONENT:
        raise UserError(
            f"--exponent needs at least {_FEWEST_FOR_EXPONENT} sizes {dim}, got"
            f" {len(axes[dim].points)}."
        )
    return Request(
        axes,
        dim,
        tuple(given.output),
        cast("Literal['auto'] | Model", given.fit.replace("power-law", "power law")),
        given.by,
        exponents,
        dict(_form(text, axes, names) for text in given.versus),
        given.optimum,
    )


def _dim(axes: "Mapping[str, Single]", numeric: list[str], given: argparse.Namespace) -> str | None:
    """The dimension to fit in: the given one, else the first of several sizes, else of values."""
    if given.along is not None:
        if given.along not in numeric:
            raise UserError(
                unknown("axis of numbers for --along", given.along, numeric or ["none"])
            )
        return str(given.along)
    several = [name for name in numeric if len(axes[name].points) > 1 and name != given.optimum]
    sizes = [name for name in several if axes[name].kind == "widths"]
    return next(iter([*sizes, *several]), None)


def _exponent(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not math.isfinite(number):
        raise UserError(f"--exponent needs numbers, as in `--exponent 2 1.5`, got {text!r}.")
    return number


def _form(
    text: str, axes: "Mapping[str, Single]", names: Mapping[str, Any]
) -> "tuple[str, xr.DataArray]":
    """The name and the values of NAME=FORMULA at the points of the axes that it uses."""
    import xarray as xr

    name, equals, formula = text.partition("=")
    if not (name and equals and formula):
        raise UserError(f'--versus needs NAME=FORMULA, as in "mine=d*(d+1)", got {text!r}.')
    if "^" in formula:
        raise UserError(f"--versus {text}: write a power as **, as in d**2.")
    grids = np.meshgrid(*(np.array(axis.points) for axis in axes.values()), indexing="ij")
    points = {
        dim: grid.astype(np.float64) if grid.dtype.kind in "iuf" else grid
        for dim, grid in zip(axes, grids, strict=True)
    }
    # NumPy's names, then those of the user's file, then the axes; later ones win.
    known = {each: getattr(np, each) for each in np.__all__ if not each.startswith("_")}
    try:
        values = np.asarray(eval(formula, {**known, **names, **points}), np.float64)
        values = np.broadcast_to(values, grids[0].shape)
    except Exception as error:
        raise UserError(
            f"--versus {text}: {one_line(error)}; the axes are {', '.join(axes)}."
        ) from error
    coords = {dim: np.array(axis.points) for dim, axis in axes.items()}
    return name.strip(), xr.DataArray(values, dims=list(axes), coords=coords)
