"""A summary of how labelled data grow with one size: exponent, model, and evidence against it."""

import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import xarray as xr

from specjax.arguments import checked_but
from specjax.fits._asymptotics import Asymptotics, asymptotics
from specjax.fits._extrapolation import FEWEST
from specjax.fits._model_choice import ModelChoice, choose_model
from specjax.fits._offset_fit import fit_offset
from specjax.fits._power_law import asymptotic_exponent, fit_logarithm, fit_power_law
from specjax.fits._requirements import require_sizes
from specjax.fits._resampling import By, format_interval, sample_of
from specjax.fits.fit import Fit, Model

_SIGNIFICANCE = 0.01
_LEAST_FOR_CHOICE = 4
_WIDTH = 100
_LABEL = 12
_FORMULAS: Mapping[Model, str] = {
    "power law": "a {x}^b",
    "subleading": "a {x}^b (1 + c/{x})",
    "offset": "E + A {x}^b",
    "logarithm": "a {x}^b (log {x})^c",
}


@dataclass(frozen=True, eq=False, repr=False)
class Summary:
    """The growth of one quantity in one size; prints as a block of a few lines.

    Attributes:
        name: The quantity.
        dim: The size.
        sizes: Its values, ascending.
        fit: The fit of the chosen model; None if the data allow none.
        choice: The tests of the four models; None with fewer than 4 sizes or where they cannot be
            made.
        at_large_sizes: The exponents at large sizes that the data do not reject; None with fewer
            than 5 sizes.
        against: What speaks against the fit, or forbids one, as sentences.
        means: The centers at each size, NaN where they cannot be taken.
        stderrs: Their standard errors.
    """

    name: str
    dim: str
    sizes: tuple[float, ...]
    means: tuple[float, ...]
    stderrs: tuple[float, ...]
    fit: Fit | None
    choice: ModelChoice | None
    at_large_sizes: Asymptotics | None
    against: tuple[str, ...]

    def __repr__(self) -> str:
        lines = [f"{self.name} against {self.dim}"]
        if self.fit is not None:
            formula = _FORMULAS[self.fit.model].format(x=self.dim)
            local = " ".join(f"{b:.2f}" for b in self.fit.local_exponents)
            lines += [_line("fit", repr(self.fit)), _line("model", f"{self.fit.model}: {formula}")]
            lines += [_line("local", f"{local} between neighbours")]
        large = self.at_large_sizes
        if large is not None and not large.contradicted:
            exponents = format_interval(large.exponent, *large.interval)
            curve = _in_size(large.curve, self.dim)
            lines.append(_line("large", f"exponent {exponents} at large {self.dim}, by {curve}"))
        if self.choice is not None:
            lines.append(_line("why", self.choice.reason))
        lines += [_line("against", sentence) for sentence in self.against]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and texts, for JSON; NaN and infinity are None."""
        fit, large = self.fit, self.at_large_sizes
        return {
            "output": self.name,
            "dim": self.dim,
            "sizes": list(self.sizes),
            "model": None if fit is None else fit.model,
            "exponent": None if fit is None else _plain(fit.exponent),
            "interval": None if fit is None else [*map(_plain, fit.interval)],
            "local_exponents": [] if fit is None else [*map(_plain, fit.local_exponents)],
            "means": [*map(_plain, self.means)],
            "stderrs": [*map(_plain, self.stderrs)],
            "exponent_at_large_sizes": None if large is None else _plain(large.exponent),
            "interval_at_large_sizes": None if large is None else [*map(_plain, large.interval)],
            "reason": None if self.choice is None else self.choice.reason,
            "against": list(self.against),
        }


@checked_but("data")
def summarize(
    data: xr.DataArray,
    dim: str,
    *,
    model: Literal["auto", "power law", "subleading", "offset", "logarithm"] = "auto",
    by: By = "mean",
) -> Summary:
    """Fit the growth of `data` in `dim`, and collect what speaks against the fit.

    "auto" takes the model of `choose_model` if there are 4 sizes or more and more seeds than sizes,
    else a power law. The exponents at large sizes are those of `asymptotics` at a significance of
    0.01. A fit that is refused, as for means within noise of zero, is one of the sentences of
    `Summary.against` and no error.

    Args:
        data: Dimensions exactly `dim` and "seed" or "batch".
        dim: The size; its coordinate is positive.
        model: The model to fit, or "auto".
        by: The center at each size: the mean, the median, or the geometric mean ("log").

    Raises:
        ValueError: other dimensions, or a coordinate that is not positive numbers.

    Warns:
        RoughFitWarning: as `fit_power_law`.
        HeavyTailWarning: as `fit_power_law`.

    Examples:
        >>> from specjax import fits
        >>> d, noise = 2.0 ** np.arange(3, 9), np.random.default_rng(1).normal(1, 0.01, (50, 6))
        >>> data = xr.DataArray(d**2 * noise, dims=("seed", "d"), coords={"d": d}, name="norm")
        >>> summary = fits.summarize(data, "d")
        >>> summary.fit.model, round(summary.fit.exponent, 1), summary.against
        ('power law', 2.0, ())
    """
    fitters: Mapping[Model, Callable[[], Fit]] = {
        "power law": lambda: fit_power_law(data, dim, by=by),
        "subleading": lambda: _subleading(data, dim, by),
        "offset": lambda: fit_offset(data, dim, by=by),
        "logarithm": lambda: fit_logarithm(data, dim, by=by),
    }
    against: list[str] = []
    sizes, means, stderrs = _centers(data, dim, by, against)
    choice = large = fit = None
    if against:
        return Summary(_name(data), dim, sizes, means, stderrs, None, None, None, tuple(against))
    if len(sizes) >= _LEAST_FOR_CHOICE:
        choice = _or_reason(lambda: choose_model(data, dim, by=by), against)
    else:
        against.append(f"No model is tested with fewer than {_LEAST_FOR_CHOICE} sizes.")
    if len(sizes) >= FEWEST and choice is not None:
        large = _or_reason(
            lambda: asymptotics(data, dim, significance=_SIGNIFICANCE, by=by), against
        )
    chosen = _chosen(model, choice)
    if chosen is not None:
        fit = _or_reason(fitters[chosen], against)
    if choice is not None and chosen != choice.model:
        against.append(f"The data choose another model: {choice.model}.")
    against += _doubts(large, dim)
    found = tuple(dict.fromkeys(against))
    return Summary(_name(data), dim, sizes, means, stderrs, fit, choice, large, found)


def _centers(
    data: xr.DataArray, dim: str, by: By, against: list[str]
) -> tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]:
    """Sizes, centers and standard errors; where the data have none, the reason is added to
    `against`.
    """
    require_sizes(data, dim)
    sample = _or_reason(lambda: sample_of(data, dim, least=2, by=by), against)
    if sample is None:
        sizes = tuple(np.sort(np.asarray(data[dim].values, np.float64)).tolist())
        nothing = (float("nan"),) * len(sizes)
        return sizes, nothing, nothing
    means, stderrs = sample.means_and_stderrs()
    return tuple(sample.x.tolist()), tuple(means.tolist()), tuple(stderrs.tolist())


def _name(data: xr.DataArray) -> str:
    return str(data.name or "data")


def _chosen(model: Literal["auto"] | Model, choice: ModelChoice | None) -> Model | None:
    if model != "auto":
        return model
    return "power law" if choice is None else choice.model


def _subleading(data: xr.DataArray, dim: str, by: By) -> Fit:
    """The exponent with the interval for finite size, if there are sizes to leave one out."""
    if data.sizes[dim] >= FEWEST:
        return asymptotic_exponent(data, dim, by=by)
    return fit_power_law(data, dim, subleading=True, by=by)


def _or_reason(make: Callable[[], Any], against: list[str]) -> Any:
    """What `make` returns; None if it refuses, whose sentence is then added to `against`."""
    try:
        return make()
    except ValueError as error:
        against.append(str(error))
        return None


def _doubts(large: Asymptotics | None, dim: str) -> list[str]:
    """Limits and logarithms that the data allow at large sizes."""
    if large is None:
        return []
    if large.contradicted:
        would = f"; {_in_size(large.curve, dim)} would do" if large.curve else ""
        return [
            "The data reject every power law with a correction and every one above an offset"
            f"{would}."
        ]
    doubts = []
    if large.left_out:
        doubts.append(f"Only without the {large.left_out} smallest sizes does a power law fit.")
    if large.limit:
        doubts.append("The data allow a limit above 0 as well.")
    b = round(2 * large.exponent) / 2
    if not large.from_logarithm(b)[1]:
        doubts.append(f"The data allow {_in_size(large.logarithm(b), dim)} as well.")
    return doubts


def _line(label: str, text: str) -> str:
    return textwrap.fill(
        text,
        _WIDTH,
        initial_indent=f"  {label:<{_LABEL - 2}}",
        subsequent_indent=" " * _LABEL,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _in_size(curve: str, dim: str) -> str:
    """A curve in x as one in `dim`."""
    return re.sub(r"\bx\b", dim, curve)


def _plain(number: float | np.floating) -> float | None:
    return float(number) if np.isfinite(number) else None
