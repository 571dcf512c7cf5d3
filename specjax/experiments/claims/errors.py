"""Statements on errors that a run has measured: two sides agree up to rounding in every draw, or differ by what counts.

The controls are other errors of the same run, put in the place of the one that is judged.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import xarray as xr

from specjax import lab

Source = str | float | Callable[[xr.Dataset], xr.DataArray] | tuple[str, str]
"""What stands in the place of the first error, or of that named first in a pair."""


@dataclass(frozen=True)
class Errors:
    """The errors of a dataset of a run: `rounding` is what floating-point numbers leave, and `counts` far above it."""

    of: str | None
    rounding: float
    counts: float = 1e-6

    def agree(
        self,
        name: str,
        cites: str | tuple[str, ...],
        says: str,
        errors: str | tuple[str, ...],
        controls: Mapping[str, Source],
        *,
        holds: bool = True,
        corrected: bool = False,
    ) -> lab.Statement:
        """The errors of these names are rounding in every draw."""

        def relation(_: Any, data: Any) -> lab.Relation:
            return lab.identity(self._named(data, errors), tolerance=self.rounding)

        return self._statement(name, cites, says, errors, controls, holds, corrected)(relation)

    def differ(
        self,
        name: str,
        cites: str | tuple[str, ...],
        says: str,
        errors: str | tuple[str, ...],
        controls: Mapping[str, Source],
        *,
        holds: bool = True,
        corrected: bool = False,
    ) -> lab.Statement:
        """The medians of these errors are more than rounding: errors of random problems have no mean to speak of."""

        def relation(_: Any, data: Any) -> lab.Relation:
            found = self._named(data, errors)
            return lab.above(found, self.counts, f"the least difference that counts, {self.counts:g},", by="median")

        return self._statement(name, cites, says, errors, controls, holds, corrected)(relation)

    def _named(self, data: Any, errors: str | tuple[str, ...]) -> xr.DataArray:
        found = data if self.of is None else data[self.of]
        if isinstance(errors, str):
            one: xr.DataArray = found[errors]
            return one
        return xr.concat([found[name] for name in errors], xr.Variable("of", list(errors))).rename("error")

    def _statement(
        self,
        name: str,
        cites: str | tuple[str, ...],
        says: str,
        errors: str | tuple[str, ...],
        controls: Mapping[str, Source],
        holds: bool,
        corrected: bool,
    ) -> Callable[[Any], lab.Statement]:
        first = errors if isinstance(errors, str) else errors[0]
        pairs = {label: source if isinstance(source, tuple) else (first, source) for label, source in controls.items()}
        made = {label: lab.replacing(target, source, of=self.of) for label, (target, source) in pairs.items()}
        return lab.statement(cites, says, name=name, controls=made, holds=holds, corrected=corrected)
