"""Statements on quantities of a run, mostly as a size grows, with other quantities as controls."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import xarray as xr

from specjax import lab
from specjax.lab.controls import Source

SLOWEST = 0.25
"""The slowest growth that counts; growing quantities grow at least as the root of the size."""
Judge = Callable[[xr.DataArray, str], lab.Relation]
"""A relation of a quantity and its size, such as `lab.grows`."""


def bounded(found: xr.DataArray, dim: str) -> lab.Relation:
    return lab.bounded(found, dim, slower_than=SLOWEST)


def power(exponent: float | int) -> Judge:
    return lambda found, dim: lab.scales_as(found, dim, exponent)


@dataclass(frozen=True)
class Quantities:
    """Make statements on quantities of the dataset `of` of a run, over the size `dim` if any."""

    states: lab.Statements
    of: str
    dim: str = ""

    def __call__(
        self,
        relation: Judge,
        name: str,
        cites: str | tuple[str, ...],
        quantities: str | tuple[str, ...],
        controls: Mapping[str, Source | tuple[Source, ...]] | None = None,
        **options: Any,
    ) -> Callable[[str], lab.Statement]:
        """Make a statement on quantities, as points; controls replace the first, or several."""
        names = (quantities,) if isinstance(quantities, str) else quantities

        def control(source: Source | tuple[Source, ...]) -> Callable[[Any, Any], Any]:
            sources = source if isinstance(source, tuple) else (source,)
            each = [
                lab.controls.replacing(name, one, of=self.of)
                for name, one in zip(names, sources, strict=False)
            ]
            return lambda config, data: reduce(
                lambda changed, replaced: replaced(config, changed), each, data
            )

        def judged(_: Any, data: Mapping[str, xr.Dataset]) -> lab.Relation:
            each = [data[self.of][quantity] for quantity in names]
            if len(each) == 1:
                return relation(each[0], self.dim)
            return relation(
                xr.concat(each, xr.DataArray(list(names), dims="of", name="of")).rename(name),
                self.dim,
            )

        made = {label: control(source) for label, source in (controls or {}).items()}
        return lambda says: self.states(cites, says, name=name, controls=made, **options)(judged)
