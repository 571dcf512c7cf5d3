"""The control that most experiments of this folder share."""

from collections.abc import Callable
from typing import Any

import xarray as xr

from specjax import lab


def exchanged(dim: str, first: Any, second: Any, *, of: str | None = None) -> dict[str, Callable[[Any, Any], Any]]:
    """A control: what is at two coordinates of `dim` exchanged, everywhere in the data, or in the dataset `of`."""

    def change(data: xr.Dataset) -> xr.Dataset:
        labels = data[dim].values.tolist()
        other = {first: second, second: first}
        return lab.at_places(data, dim, [labels.index(other.get(label, label)) for label in labels])

    return {f"{first} and {second} exchanged": lab.changing(change, of=of)}
