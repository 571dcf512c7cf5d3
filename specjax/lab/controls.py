"""Controls that are made of the data themselves: one quantity in the place of another, or a dataset that is changed."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import xarray as xr

Source = str | float | int | Callable[[xr.Dataset], xr.DataArray]


def replacing(target: str, source: Source, *, of: str | None = None) -> Callable[[Any, Any], Any]:
    """A control: the data with `source` in the place of the quantity `target`.

    Args:
        target: The quantity that a statement is about.
        source: The name of another one, a number, or a function of the dataset.
        of: Which dataset, where a run returns several.

    The control raises ValueError where the data lack a name.
    """

    def control(_: Any, data: Any) -> Any:
        found = data if of is None else data[of]
        for name in (target, source) if isinstance(source, str) else (target,):
            if name not in found:
                raise ValueError(f"A control replaces {target!r} by {source!r}, and the data have no {name!r}.")
        value = found[source] if isinstance(source, str) else source
        if not isinstance(value, xr.DataArray):
            value = value(found) if callable(value) else xr.full_like(found[target], value)
        changed = found.assign({target: value})
        return changed if of is None else {**data, of: changed}

    return control


def exchanging(first: str, second: str, *, of: str | None = None) -> Callable[[Any, Any], Any]:
    """A control: the data, or the dataset `of`, with two quantities in the places of each other."""
    return changing(lambda found: found.rename({first: second, second: first}), of=of)


def at_places(values: Any, dim: str, places: Sequence[int] | slice | int) -> Any:
    """An array or a dataset with what is at other places of `dim`, at its coordinates: two exchanged, or one place everywhere."""
    taken = [places] * values.sizes[dim] if isinstance(places, int) else places
    return values.isel({dim: taken}).assign_coords({dim: values[dim]})


def reverse(values: Any, dim: str) -> Any:
    """`at_places` of `dim` in the opposite order."""
    return at_places(values, dim, slice(None, None, -1))


def at_labels(values: Any, dim: str, other: Mapping[Any, Any]) -> Any:
    """`at_places` by coordinates of `dim`: at each that is a key of `other`, what is at that one's."""
    labels = values[dim].values.tolist()
    return at_places(values, dim, [labels.index(other.get(label, label)) for label in labels])


def changing(change: Callable[[xr.Dataset], xr.Dataset], *, of: str | None = None) -> Callable[[Any, Any], Any]:
    """A control: what `change` makes of the data, or of the dataset `of`, where a run returns several."""
    return lambda _, data: change(data) if of is None else {**data, of: change(data[of])}
