"""Statements on errors that a run has measured: two sides agree up to rounding in every draw, or differ by what counts.

The controls are other errors of the same run, put in the place of one that is judged: each error of a statement has one that breaks it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partialmethod
from typing import Any

import xarray as xr

from specjax import lab

Source = str | Callable[[xr.Dataset], xr.DataArray]
"""What stands in the place of an error: the name of another one, or a function of the dataset."""


@dataclass(frozen=True)
class Errors:
    """The errors of a dataset of a run: `rounding` is what floating-point numbers leave, and `counts` far above it."""

    of: str | None
    rounding: float
    counts: float = 1e-6

    def _statement(
        self,
        relation: Callable[["Errors", xr.DataArray], lab.Relation],
        name: str,
        cites: str | tuple[str, ...],
        says: str,
        errors: str | tuple[str, ...],
        controls: Mapping[str, Source | Mapping[str, Source]],
        *,
        holds: bool = True,
        corrected: bool = False,
    ) -> lab.Statement:
        """A statement on one error or several, with a control for each of them.

        A control names what stands in the place of every error, one error at a time, or, as a mapping, of which error what does.

        Raises:
            ValueError: an error that no control breaks.
        """
        names = (errors,) if isinstance(errors, str) else errors
        made: dict[str, Callable[[Any, Any], Any]] = {}
        attacked: set[str] = set()
        for label, control in controls.items():
            sources = control if isinstance(control, Mapping) else dict.fromkeys(names, control)
            attacked |= set(sources)
            for target, source in sources.items():
                made[label if len(sources) == 1 else f"{label}: {target}"] = lab.replacing(target, source, of=self.of)
        if attacked != set(names):
            raise ValueError(
                f"The controls of {name!r} break the errors {sorted(attacked)}, and it is on {sorted(names)}; break each."
            )

        def judged(_: Any, data: Any) -> lab.Relation:
            found = data if self.of is None else data[self.of]
            each = [found[error] for error in names]
            one = each[0] if len(each) == 1 else xr.concat(each, xr.Variable("of", list(names)))
            return relation(self, one.rename(names[0] if len(each) == 1 else "error"))

        return lab.statement(cites, says, name=name, controls=made, holds=holds, corrected=corrected)(judged)

    def _rounded(self, found: xr.DataArray) -> lab.Relation:
        return lab.identity(found, tolerance=self.rounding)

    def _different(self, found: xr.DataArray) -> lab.Relation:
        # Errors of random problems have no mean to speak of.
        least = f"the least difference that counts, {self.counts:g},"
        return lab.above(found, self.counts, least, by="median")

    agree = partialmethod(_statement, _rounded)
    """The errors are rounding in every draw."""
    differ = partialmethod(_statement, _different)
    """The medians of the errors are more than rounding."""
