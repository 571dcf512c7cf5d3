"""Statements on what quantities of a run do as a size grows: the controls are other quantities of the same run in their place."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import xarray as xr

from specjax import lab

SLOWEST = 0.25
"""The slowest growth of a quantity that counts; those that grow do so as the square root of the size or faster."""
Source = str | float | int | Callable[[xr.Dataset], xr.DataArray]
"""What stands in the place of a quantity: the name of another one, a number, or a function of the dataset."""
Controls = Mapping[str, Source | tuple[Source, ...]]
Says = Callable[[str], lab.Statement]
"""Makes the statement of its sentence."""


@dataclass(frozen=True)
class Growth:
    """The quantities of one dataset of a run, over the size `dim`."""

    of: str
    dim: str

    def states(
        self,
        relation: Callable[[xr.DataArray], lab.Relation],
        name: str,
        cites: str | tuple[str, ...],
        quantities: str | tuple[str, ...],
        controls: Controls | None = None,
        **options: Any,
    ) -> Says:
        """A statement on one quantity, or on several as its points; a control stands in the place of the first, or of several."""
        names = (quantities,) if isinstance(quantities, str) else quantities

        def control(source: Source | tuple[Source, ...]) -> Callable[[Any, Any], Any]:
            sources = source if isinstance(source, tuple) else (source,)
            each = [lab.replacing(name, one, of=self.of) for name, one in zip(names, sources, strict=False)]
            return lambda config, data: reduce(lambda changed, replaced: replaced(config, changed), each, data)

        def judged(_: Any, data: Mapping[str, xr.Dataset]) -> lab.Relation:
            each = [data[self.of][quantity] for quantity in names]
            if len(each) == 1:
                return relation(each[0])
            return relation(xr.concat(each, xr.DataArray(list(names), dims="of", name="of")).rename(name))

        made = {label: control(source) for label, source in (controls or {}).items()}
        return lambda says: lab.statement(cites, says, name=name, controls=made, **options)(judged)

    def scales(self, exponent: float | int, *arguments: Any, **options: Any) -> Says:
        """The quantities are powers of the size, with one exponent for all."""
        return self.states(lambda found: lab.scales_as(found, self.dim, exponent), *arguments, **options)

    def bounded(self, *arguments: Any, **options: Any) -> Says:
        """The quantity stays bounded."""
        return self.states(lambda found: lab.bounded(found, self.dim, slower_than=SLOWEST), *arguments, **options)

    def grows(self, *arguments: Any, **options: Any) -> Says:
        """The quantity grows without end."""
        return self.states(lambda found: lab.grows(found, self.dim), *arguments, **options)

    def settles(self, *arguments: Any, **options: Any) -> Says:
        """The quantity neither vanishes nor grows."""
        return self.states(lambda found: lab.settles(found, self.dim), *arguments, **options)

    def vanishes(self, *arguments: Any, **options: Any) -> Says:
        """The quantity tends to zero."""
        return self.states(lambda found: lab.vanishes(found, self.dim), *arguments, **options)
