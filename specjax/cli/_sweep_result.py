"""The outputs of a sweep: fits, optima and verdicts as text, JSON and one figure."""

import dataclasses
import itertools
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from specjax.cli._errors import UserError, unknown
from specjax.cli._sweep_request import REPLICATES, Request

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes

    from specjax.fits import Optimum, Summary
    from specjax.lab.outcome import Finding

_MOST_SUMMARIES, _MOST_PANELS, _MOST_CURVES = 24, 4, 6
_FEW_POINTS = 3
_RESOLUTION = 0.03


@dataclass(frozen=True)
class SweepResult:
    """What the outputs of a sweep do in the size `dim`; None if no axis has numbers."""

    title: str
    dim: str | None
    summaries: "Mapping[str, Sequence[Summary]]"
    optima: "Mapping[str, Optimum]" = field(default_factory=dict)
    verdicts: "Mapping[str, Finding]" = field(default_factory=dict)
    notes: Sequence[str] = ()
    other_dims: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The dimensions of each output besides `dim` and the seeds."""

    def to_text(self, folder: Path) -> str:
        """All results as text, then the files and how to load them."""
        parts = [self.title, *(repr(each) for each in self._all_summaries())]
        parts += [
            f"{optimum}\n{textwrap.indent(optimum.table(), '  ')}"
            for optimum in self.optima.values()
        ]
        if self.verdicts:
            parts.append("\n".join(self._verdict_lines()))
        parts += self.notes
        return "\n\n".join([*parts, self._files(folder)])

    def to_dict(self, folder: Path) -> dict[str, Any]:
        """All results as plain numbers and texts."""
        return {
            "data": str(folder / "data.nc"),
            "figure": str(folder / "figure.png"),
            "fits": [each.to_dict() for each in self._all_summaries()],
            "optima": {name: _optimum_dict(found) for name, found in self.optima.items()},
            "verdicts": {
                name: {"verdict": found.verdict, "decided_by": found.power, "reason": found.reason}
                for name, found in self.verdicts.items()
            },
            "notes": list(self.notes),
        }

    def save_figure(self, path: Path) -> None:
        """Draw at most four panels: an output, or an optimum, in each."""
        from matplotlib.figure import Figure

        from specjax import fits

        panels: list[tuple[str, Any]] = [*self.optima.items(), *self.summaries.items()]
        panels = panels[:_MOST_PANELS]
        columns = min(2, max(len(panels), 1))
        rows = max(math.ceil(len(panels) / columns), 1)
        figure = Figure(figsize=(5.5 * columns, 4.2 * rows), layout="constrained")
        for place, (name, found) in enumerate(panels):
            axes = figure.add_subplot(rows, columns, place + 1)
            if isinstance(found, fits.Optimum):
                fits.draw_optimum(found, axes)
            else:
                _draw_summaries(axes, name, found)
        figure.savefig(path, dpi=150)

    def _all_summaries(self) -> "list[Summary]":
        return [each for found in self.summaries.values() for each in found]

    def _verdict_lines(self) -> list[str]:
        width = max(map(len, self.verdicts))
        lines = []
        for name, found in self.verdicts.items():
            lines.append(f"{name:<{width}}  {found.verdict:<12}  {found.power}".rstrip())
            if found.reason:
                lines.append(textwrap.indent(textwrap.fill(found.reason, 92), " " * (width + 2)))
        return lines

    def _files(self, folder: Path) -> str:
        lines = [f"figure: {folder / 'figure.png'}", "in Python:"]
        lines += ["  import xarray as xr", "  from specjax import fits"]
        load = f'xr.load_dataset("{folder / "data.nc"}")'
        first = next(iter(self.summaries), None)
        if first is None or self.dim is None:
            return "\n".join([*lines[:-1], f"  data = {load}"])
        point = "".join(f".isel({other}=0)" for other in self.other_dims[first])
        return "\n".join(
            [*lines, f'  print(fits.summarize({load}["{first}"]{point}, "{self.dim}"))']
        )


def analyze(data: "xr.Dataset", request: Request) -> SweepResult:
    """Fit and judge the outputs of a sweep as the request asks."""
    outputs, dim = _outputs(data, request), request.dim
    title = _title(data, request)
    if dim is None:
        notes = [_means_table(data[name]) for name in outputs]
        return SweepResult(title, None, {}, notes=notes)
    verdicts = _verdicts(data, outputs, dim, request)
    if request.optimum:
        # The best rate is asked for, and not an exponent at each rate.
        optima = _optima(data, outputs, dim, request.optimum)
        return SweepResult(title, dim, {}, optima, verdicts)
    summaries, notes = _summaries(data, outputs, dim, request)
    others = {name: _other_dims(data[name], dim) for name in outputs}
    return SweepResult(title, dim, summaries, {}, verdicts, notes, others)


def _outputs(data: "xr.Dataset", request: Request) -> list[str]:
    from specjax.sweep.failures import FAILED, FIRST_FAILED
    from specjax.sweep.seed_moments import COUNT

    of_moments = (".variance", ".min", ".max") if "batch" in data.dims else ()
    found = [
        str(name)
        for name in data.data_vars
        if name not in (FAILED, FIRST_FAILED, COUNT) and not str(name).endswith(of_moments)
    ]
    for name in request.outputs:
        if name not in found:
            raise UserError(unknown("output", name, found))
    return list(request.outputs) or found


def _title(data: "xr.Dataset", request: Request) -> str:
    from specjax.sweep.seed_moments import COUNT

    axes = list(request.axes)
    parts = [f"{name} = {_span(data[name].values.tolist())}" for name in axes]
    points = math.prod(data.sizes[name] for name in axes)
    seeds = data.sizes.get("seed")
    if seeds is None:
        seeds = int(data[COUNT].isel(dict.fromkeys(axes, 0)).sum())
    seconds = [data.attrs.get(name, 0.0) for name in ("compile_seconds", "run_seconds")]
    return (
        f"{', '.join(parts)}: {points} points of {seeds} seeds, {seconds[0]:.1f} s to compile,"
        f" {seconds[1]:.1f} s to run"
    )


def _span(points: list[Any]) -> str:
    """Few points as a list, many by their ends."""
    if len(points) <= _FEW_POINTS:
        return ", ".join(map(str, points))
    return f"{points[0]} to {points[-1]}"


def _summaries(
    data: "xr.Dataset", outputs: Sequence[str], dim: str, request: Request
) -> "tuple[dict[str, list[Summary]], list[str]]":
    from specjax import fits

    found: dict[str, list[Summary]] = {}
    left_out = 0
    for name in outputs:
        for point, draws in _points(data[name], dim):
            if sum(map(len, found.values())) >= _MOST_SUMMARIES:
                left_out += 1
                continue
            finite, doubt = _finite(draws)
            label = f"{name} at {point}" if point else name
            summary = fits.summarize(finite.rename(label), dim, model=request.model, by=request.by)
            if doubt:
                summary = dataclasses.replace(summary, against=(doubt, *summary.against))
            found.setdefault(name, []).append(summary)
    notes = []
    if left_out:
        notes.append(
            f"{left_out} more points are in the data; --output NAME chooses outputs, and"
            " `fits.summarize` fits any point."
        )
    return found, notes


def _other_dims(values: "xr.DataArray", *dims: str) -> list[str]:
    """The dimensions besides `dims` and the seeds."""
    return [str(dim) for dim in values.dims if dim not in (*dims, *REPLICATES)]


def _points(values: "xr.DataArray", dim: str) -> "list[tuple[str, xr.DataArray]]":
    """The samples along `dim` at every point of the other dimensions, with the point in words."""
    others = _other_dims(values, dim)
    places = itertools.product(*(range(values.sizes[other]) for other in others))
    found = []
    for place in places:
        at = dict(zip(others, place, strict=True))
        words = ", ".join(f"{other} = {values[other].values[k]}" for other, k in at.items())
        found.append((words, values.isel(at, drop=True)))
    return found


def _finite(draws: "xr.DataArray") -> "tuple[xr.DataArray, str]":
    """The seeds that are finite at every size, and a sentence about those that are not."""
    if "seed" not in draws.dims:
        return draws, ""
    everywhere = abs(draws).max([d for d in draws.dims if d != "seed"], skipna=False)
    finite = np.isfinite(everywhere.values)
    if finite.all() or finite.sum() < 2:
        return draws, ""
    left_out = int((~finite).sum())
    return (
        draws.isel(seed=finite),
        f"{left_out} of {finite.size} seeds are NaN or infinite at some size, and are left out.",
    )


def _optima(
    data: "xr.Dataset", outputs: Sequence[str], dim: str, over: str
) -> "dict[str, Optimum]":
    from specjax import fits

    found = {}
    for name in outputs:
        if others := _other_dims(data[name], dim, over):
            raise UserError(
                f"--optimum needs {name!r} to have no axes but {dim} and {over}; it also has"
                f" {', '.join(others)}."
            )
        found[name] = fits.optimum(data[name], over, dim)
    return found


def _verdicts(
    data: "xr.Dataset", outputs: Sequence[str], dim: str, request: Request
) -> "dict[str, Finding]":
    from specjax import lab

    if not (request.exponents or request.forms):
        return {}
    if len(outputs) > 1:
        raise UserError(
            f"Say which output to judge, as in `--output {outputs[0]}`; there are"
            f" {', '.join(outputs)}."
        )
    draws = data[outputs[0]]
    exponents = {f"{dim}^{b:g}": b for b in request.exponents}
    found = {
        name: lab.scales_as(draws, dim, b, by=request.by).judge(_without(name, exponents))
        for name, b in exponents.items()
    }
    for name, form in request.forms.items():
        rivals = _without(name, request.forms)
        # A formula without rivals must at least differ from those a few per cent away.
        resolution = None if rivals else _RESOLUTION
        relation = lab.equals(draws, form, by=request.center, resolution=resolution)
        found[name] = relation.judge(rivals)
    return found


def _without(name: str, all_of_them: Mapping[str, Any]) -> dict[str, Any]:
    return {other: value for other, value in all_of_them.items() if other != name}


def _means_table(values: "xr.DataArray") -> str:
    """Mean and standard error at every point."""
    replicates = next(dim for dim in REPLICATES if dim in values.dims)
    mean, spread = values.mean(replicates), values.std(replicates, ddof=1)
    stderr = spread / math.sqrt(values.sizes[replicates])
    lines = [str(values.name)]
    for place in np.ndindex(*mean.shape):
        at = dict(zip(map(str, mean.dims), place, strict=True))
        words = ", ".join(f"{d} = {mean[d].values[k]}" for d, k in at.items() if d in mean.coords)
        lines.append(f"  {words}: {mean.values[place]:.4g} ± {stderr.values[place]:.2g}")
    return "\n".join(lines)


def _optimum_dict(found: "Optimum") -> dict[str, Any]:
    numbers = [None if math.isnan(x) else x for x in (found.exponent, *found.interval)]
    return {
        "over": found.over,
        "exponent": numbers[0],
        "interval": numbers[1:],
        "optima": dict(
            zip(map(str, found.sizes), (_or_none(x) for x in found.optima), strict=True)
        ),
    }


def _or_none(number: float) -> float | None:
    return float(number) if math.isfinite(number) else None


def _draw_summaries(axes: "Axes", name: str, found: "Sequence[Summary]") -> None:
    """One curve for each point, with its exponent in the legend."""
    from specjax import fits

    if len(found) == 1 and found[0].fit is not None:
        fits.draw_fit(found[0].fit, axes)
        return
    for summary in found[:_MOST_CURVES]:
        label = summary.name.removeprefix(f"{name} at ")
        if summary.fit is not None:
            low, high = summary.fit.interval
            label += f": {summary.dim}^{summary.fit.exponent:.2f} ({low:.2f} to {high:.2f})"
        sizes, means = np.array(summary.sizes), np.array(summary.means)
        bars = axes.errorbar(
            sizes, means, 2 * np.array(summary.stderrs), fmt="o", markersize=4, label=label
        )
        if summary.fit is not None:
            x = np.geomspace(sizes[0], sizes[-1], 200)
            axes.plot(x, summary.fit.predict(x), color=bars[0].get_color(), linewidth=1.2)
    axes.set_xscale("log", base=2)
    if all(mean > 0 for summary in found for mean in summary.means):
        axes.set_yscale("log")
    axes.set_xlabel(found[0].dim)
    axes.set_ylabel(f"{name}, mean ± 2 standard errors")
    axes.legend(fontsize="small")
