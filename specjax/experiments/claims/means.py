"""Statements on means that a run has measured: the mean of a quantity is a closed form, and not its rivals."""

from collections.abc import Callable, Mapping
from typing import Any

import xarray as xr

from specjax import lab

Form = xr.DataArray | float | Callable[[Any, Any], xr.DataArray]
"""A number, or a function of configuration and data that returns one for each point."""


def mean_is(
    quantity: str,
    name: str,
    cites: str | tuple[str, ...],
    says: str,
    form: Form,
    rivals: Mapping[str, Form],
    controls: Mapping[str, str] | None = None,
    *,
    corrected: bool = False,
) -> lab.Statement:
    """The mean of `quantity`, written "dataset.quantity", is `form`; that of a control, another quantity of the dataset, is not."""
    of, target = quantity.split(".")
    made = {label: lab.replacing(target, source, of=of) for label, source in (controls or {}).items()}

    def relation(config: Any, data: Any) -> lab.Relation:
        return lab.equals(data[of][target], form(config, data) if callable(form) else form)

    return lab.statement(cites, says, name=name, rivals=rivals, controls=made, corrected=corrected)(relation)
