"""Statements on quantities that a run has measured: errors that are rounding, errors that are not,
means, powers.

    FORMS.agree("thin", "claim-2", "thin", {"the compact one": "compact"})(
        "U Vᵀ may be taken from the thin decomposition."
    )

A statement is made in two calls: of its name, the rows it cites, the quantity and what must break
it; and of its sentence.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import xarray as xr

from specjax import lab

Names = str | tuple[str, ...]
Source = str | Callable[[xr.Dataset], xr.DataArray]
"""What a control puts in the place of a quantity: another one of the same data, or a function of
them.
"""
Controls = Mapping[str, Source | Mapping[str, Source]]
"""By name, what stands in the place of every quantity, one at a time, or, as a mapping, of which
quantity what does.
"""
Form = xr.DataArray | float | Callable[[Any, Any], xr.DataArray | float]
"""A number, or one for each point, or a function of configuration and data that returns it."""
Sentence = Callable[[str], lab.Statement]


@dataclass(frozen=True)
class Measured:
    """The quantities of a run, or of its dataset `of`; of errors among them `rounding` is what
    floating-point numbers leave.
    """

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
        """A statement on the quantity `of`, or on several as one array; `relation` takes it, then
        configuration and data.

        `at` are the places along dimensions that it is on, by default all; `options` are those of
        `lab.statement`.

        Raises:
            ValueError: without a rival, a quantity that no control breaks.
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
        """The errors are rounding in every draw; arguments as for `on`."""
        return self.on(lambda x, *_: lab.zero_error(x, tolerance=self.rounding), *stated, **options)

    def differ(self, *stated: Any, **options: Any) -> Sentence:
        """The medians of the errors are more than rounding (those of random problems have no mean);
        arguments as for `on`.
        """
        least = f"the least difference that counts, {self.counts:g}"
        return self.above(self.counts, least, *stated, by="median", **options)

    def above(
        self, level: Form, called: str, *stated: Any, by: Any = "mean", **options: Any
    ) -> Sentence:
        """The mean, or what `by` says, lies above a level; the other arguments as for `on`."""
        return self.on(
            lambda x, *given: lab.above(x, _of(level, given), called, by=by), *stated, **options
        )

    def below(
        self, level: Form, called: str, *stated: Any, by: Any = "mean", **options: Any
    ) -> Sentence:
        """As `above`, on the other side."""
        return self.on(
            lambda x, *given: lab.below(x, _of(level, given), called, by=by), *stated, **options
        )

    def mean(self, form: Form, *stated: Any, **options: Any) -> Sentence:
        """The mean is `form`; the other arguments as for `on`."""
        return self.on(lambda x, *given: lab.equals(x, _of(form, given)), *stated, **options)

    def power(self, dim: str, exponent: float | int, *stated: Any, **options: Any) -> Sentence:
        """The mean grows as a power of `dim`; the other arguments as for `on`."""
        return self.on(lambda x, *_: lab.scales_as(x, dim, exponent), *stated, **options)


def _of(form: Form, given: tuple[Any, ...]) -> xr.DataArray | float:
    return form(*given) if callable(form) else form
