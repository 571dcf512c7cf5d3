"""Statements on measured quantities of a run: errors up to rounding, larger errors, means, powers.

    FORMS.agree("thin", "claim-2", "thin", {"the compact one": "compact"})(
        "U Vᵀ may be taken from the thin decomposition."
    )

A statement is made in two calls: the first takes its name, the cited rows, the quantity and its
controls; the second takes its sentence.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import xarray as xr

from specjax import lab

Names = str | tuple[str, ...]
Source = str | Callable[[xr.Dataset], xr.DataArray]
"""The replacement of a quantity in a control: another quantity, or a function of the data."""
Controls = Mapping[str, Source | Mapping[str, Source]]
"""By label, the replacement of every quantity, one at a time, or a mapping of replacements."""
Form = xr.DataArray | float | Callable[[Any, Any], xr.DataArray | float]
"""A number, or one for each point, or a function of configuration and data that returns it."""
Sentence = Callable[[str], lab.Statement]


@dataclass(frozen=True)
class Measured:
    """Quantities of a run or of its dataset `of`; errors up to `rounding` count as zero."""

    states: lab.Statements
    of: str | None = None
    rounding: float = 1e-10
    counts: float = 1e-6

    def on(
        self,
        relation: Callable[..., lab.Relation],
        name: str,
        cites: Names,
        of: Names,
        controls: Controls | None = None,
        *,
        at: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Sentence:
        """Make a statement on the quantity `of`, or on several as one array.

        `relation` takes the array, then configuration and data. `at` selects places along
        dimensions, by default all; `options` are those of `lab.statement`.

        Raises:
            ValueError: a quantity that no control breaks, in a statement without rivals.
        """
        names = (of,) if isinstance(of, str) else of
        made: dict[str, Any] = {}
        attacked: set[str] = set()
        for label, control in (controls or {}).items():
            sources = control if isinstance(control, Mapping) else dict.fromkeys(names, control)
            attacked |= set(sources)
            for target, source in sources.items():
                made[label if len(sources) == 1 else f"{label}: {target}"] = lab.controls.replacing(
                    target, source, of=self.of
                )
        if attacked != set(names) and "rivals" not in options:
            raise ValueError(
                f"The controls of {name!r} break the errors {sorted(attacked)}, and it is on"
                f" {sorted(names)}; break each."
            )

        def judged(config: Any, data: Any) -> lab.Relation:
            found = data if self.of is None else data[self.of]
            each = [found[each].isel(at or {}) for each in names]
            one = (
                each[0]
                if len(each) == 1
                else xr.concat(each, xr.Variable("of", list(names))).rename("error")
            )
            return relation(one, config, data)

        return lambda says: self.states(cites, says, name=name, controls=made, **options)(judged)

    def agree(self, *stated: Any, **options: Any) -> Sentence:
        """State that the errors are rounding for every seed; arguments as for `on`."""
        return self.on(lambda x, *_: lab.zero_error(x, tolerance=self.rounding), *stated, **options)

    def differ(self, *stated: Any, **options: Any) -> Sentence:
        """State that median errors exceed rounding; random problems have no mean error."""
        least = f"the least difference that counts, {self.counts:g}"
        return self.above(self.counts, least, *stated, by="median", **options)

    def above(
        self, level: Form, called: str, *stated: Any, by: Any = "mean", **options: Any
    ) -> Sentence:
        """State that the mean, or the statistic `by`, is above a level; other arguments as `on`."""
        return self.on(
            lambda x, *given: lab.above(x, _evaluate(level, given), called, by=by),
            *stated,
            **options,
        )

    def below(
        self, level: Form, called: str, *stated: Any, by: Any = "mean", **options: Any
    ) -> Sentence:
        """State that it is below a level; see `above`."""
        return self.on(
            lambda x, *given: lab.below(x, _evaluate(level, given), called, by=by),
            *stated,
            **options,
        )

    def mean(self, form: Form, *stated: Any, **options: Any) -> Sentence:
        """State that the mean equals `form`; other arguments as for `on`."""
        return self.on(lambda x, *given: lab.equals(x, _evaluate(form, given)), *stated, **options)

    def power(self, dim: str, exponent: float | int, *stated: Any, **options: Any) -> Sentence:
        """State that the mean grows as a power of `dim`; other arguments as for `on`."""
        return self.on(lambda x, *_: lab.scales_as(x, dim, exponent), *stated, **options)


def _evaluate(form: Form, given: tuple[Any, ...]) -> xr.DataArray | float:
    return form(*given) if callable(form) else form
