"""Controls made from the data themselves: a quantity replaced by another, or a changed dataset."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import xarray as xr

from specjax.arguments import checked
from specjax.lab.estimates import sample_dim

DataT = TypeVar("DataT", xr.DataArray, xr.Dataset)
Source = str | float | int | Callable[[xr.Dataset], xr.DataArray]


@checked
def replacing(target: str, source: Source, *, of: str | None = None) -> Callable[[Any, Any], Any]:
    """A control: the data with `source` in place of the quantity `target`.

    Args:
        target: The quantity that the statement is about.
        source: The name of another quantity, a number, or a function of the dataset.
        of: The name of the dataset, if a run returns several.

    The control raises ValueError if the data lack a name.

    Examples:
        >>> from specjax import lab
        >>> data = xr.Dataset({"loss": ("seed", [1.0, 2.0]), "bound": ("seed", [3.0, 3.0])})
        >>> control = lab.controls.replacing("loss", "bound")
        >>> control(None, data)["loss"].values.tolist()
        [3.0, 3.0]
    """

    def control(_: Any, data: Any) -> Any:
        found = _dataset(data, of)
        for name in (target, source) if isinstance(source, str) else (target,):
            if name not in found:
                raise ValueError(
                    f"A control replaces {target!r} by {source!r}, and the data have no {name!r}."
                )
        value = found[source] if isinstance(source, str) else source
        if not isinstance(value, xr.DataArray):
            value = value(found) if callable(value) else xr.full_like(found[target], value)
        changed = found.assign({target: value})
        return changed if of is None else {**data, of: changed}

    return control


@checked
def exchanging(first: str, second: str, *, of: str | None = None) -> Callable[[Any, Any], Any]:
    """A control: the data, or the dataset `of`, with two quantities exchanged.

    Examples:
        >>> from specjax import lab
        >>> data = xr.Dataset({"adam": ("seed", [1.0, 2.0]), "muon": ("seed", [0.5, 1.0])})
        >>> control = lab.controls.exchanging("adam", "muon")
        >>> control(None, data)["adam"].values.tolist()
        [0.5, 1.0]
    """

    def exchanged(found: xr.Dataset) -> xr.Dataset:
        for name in (first, second):
            if name not in found:
                raise ValueError(
                    f"A control exchanges {first!r} and {second!r}, and the data have no {name!r}."
                )
        return found.rename({first: second, second: first})

    return changing(exchanged, of=of)


@checked
def at_places(values: DataT, dim: str, places: Sequence[int] | slice | int) -> DataT:
    """The values with those at other places of `dim`, whose coordinates stay: for example two
    exchanged, or one place everywhere.

    Examples:
        >>> from specjax import lab
        >>> norm = xr.DataArray([1.0, 4.0], coords={"d": [1, 2]})
        >>> lab.controls.at_places(norm, "d", 0).values.tolist()
        [1.0, 1.0]
    """
    _check_dim(values, dim)
    taken = [places] * values.sizes[dim] if isinstance(places, int) else places
    if not isinstance(taken, slice) and not all(
        isinstance(i, int) and -len(values[dim]) <= i < len(values[dim]) for i in taken
    ):
        raise ValueError(
            f"Places along {dim!r} are from 0 to {len(values[dim]) - 1}, got {places}."
        )
    return values.isel({dim: taken}).assign_coords({dim: values[dim]})


@checked
def reverse(values: DataT, dim: str) -> DataT:
    """`at_places` of `dim` in the opposite order.

    Examples:
        >>> from specjax import lab
        >>> norm = xr.DataArray([1.0, 4.0], coords={"d": [1, 2]})
        >>> lab.controls.reverse(norm, "d").values.tolist()
        [4.0, 1.0]
    """
    return at_places(values, dim, slice(None, None, -1))


@checked
def at_labels(values: DataT, dim: str, other: Mapping[Any, Any]) -> DataT:
    """The values with each label of `dim` in `other` replaced by the one it maps to.

    Examples:
        >>> from specjax import lab
        >>> loss = xr.DataArray([2.0, 1.0], coords={"optimizer": ["adam", "muon"]})
        >>> lab.controls.at_labels(loss, "optimizer", {"muon": "adam"}).values.tolist()
        [2.0, 2.0]
    """
    _check_dim(values, dim)
    labels: list[Any] = values[dim].values.tolist()
    if missing := {*other, *other.values()} - {*labels}:
        raise ValueError(f"{dim!r} has no label {sorted(map(str, missing))[0]}; it has {labels}.")
    return at_places(values, dim, [labels.index(other.get(label, label)) for label in labels])


@checked
def toward(values: DataT, dim: str, other: Mapping[Any, Any], share: float | int = 0.5) -> DataT:
    """The values with each label of `dim` in `other` moved toward the one it maps to: a lead, or a
    gain, of which less is left.

    Args:
        values: A quantity or a dataset.
        dim: A dimension with labels.
        other: By label, the label that its values are moved toward.
        share: The part of the way, from 0 to 1; half of a lead is left at 1/2.

    Raises:
        ValueError: a label that `dim` lacks, or a share outside of (0, 1).

    Examples:
        >>> from specjax import lab
        >>> loss = xr.DataArray([2.0, 1.0], coords={"optimizer": ["adam", "muon"]})
        >>> lab.controls.toward(loss, "optimizer", {"muon": "adam"}).values.tolist()
        [2.0, 1.5]
    """
    if not 0 < share < 1:
        raise ValueError(f"The share of a way lies between 0 and 1, got {share}.")
    return (1 - share) * values + share * at_labels(values, dim, other)


@checked
def of_other_samples(values: DataT, dim: str, other: Mapping[Any, Any]) -> DataT:
    """The values with each label of `dim` in `other` replaced by the one it maps to, in other
    samples: a lead of zero that keeps its noise.

    The dimension of samples is "seed" or "batch"; the other sample is half of them further.

    Examples:
        >>> from specjax import lab
        >>> loss = xr.DataArray(
        ...     [[2.0, 1.0], [2.2, 1.1]], {"optimizer": ["adam", "muon"]}, ("seed", "optimizer")
        ... )
        >>> lab.controls.of_other_samples(loss, "optimizer", {"muon": "adam"}).values.tolist()
        [[2.0, 2.2], [2.2, 2.0]]
    """
    _check_dim(values, dim)

    def change(found: xr.DataArray) -> xr.DataArray:
        seeds = sample_dim(found)
        moved = at_labels(found, dim, other).roll({seeds: found.sizes[seeds] // 2})
        return found.where(~found[dim].isin(list(other)), moved)

    if isinstance(values, xr.DataArray):
        return change(values)
    return values.map(lambda found: change(found) if dim in found.dims else found)


@checked
def without_lead(
    dim: str, leader: Any, other: Any, *, of: str | None = None
) -> dict[str, Callable[[Any, Any], Any]]:
    """A control with a lead of zero, and its name: the values of `other` in the place of those of
    `leader`, from other samples (`of_other_samples`).

    Examples:
        >>> from specjax import lab
        >>> list(lab.controls.without_lead("optimizer", "muon", "adam"))
        ['other samples of adam as muon']
    """
    control = changing(lambda data: of_other_samples(data, dim, {leader: other}), of=of)
    return {f"other samples of {other} as {leader}": control}


@checked
def every_second(
    control: Callable[[Any, Any], Any], *, of: str | None = None
) -> Callable[[Any, Any], Any]:
    """A control that changes every second sample only: half of what the given one does to a share,
    or to a mean.

    Examples:
        >>> from specjax import lab
        >>> data = xr.Dataset({"lost": ("seed", [0.0, 0.0, 0.0, 0.0])})
        >>> half = lab.controls.every_second(lab.controls.replacing("lost", 1.0))
        >>> half(None, data)["lost"].values.tolist()
        [0.0, 1.0, 0.0, 1.0]
    """

    def mixed(config: Any, data: Any) -> Any:
        found, changed = (_dataset(each, of) for each in (data, control(config, data)))

        def mix(values: xr.DataArray) -> xr.DataArray:
            seeds = sample_dim(values)
            second = xr.DataArray(np.arange(values.sizes[seeds]) % 2 == 1, dims=seeds)
            return values.where(~second, changed[values.name])

        new = found.map(mix)
        return new if of is None else {**data, of: new}

    return mixed


@checked
def shuffling(*names: str, of: str | None = None) -> Callable[[Any, Any], Any]:
    """A control: noise with the mean and the spread of some quantities together, which is their
    values in random order, over all labels and samples.

    The quantities need the same dimensions; the order is always the same.

    Raises:
        ValueError: no name (the control: a name that the data lack).

    Examples:
        >>> from specjax import lab
        >>> data = xr.Dataset({"adam": ("seed", [1.0, 2.0]), "muon": ("seed", [0.5, 1.0])})
        >>> noise = lab.controls.shuffling("adam", "muon")(None, data)
        >>> sorted([*noise["adam"].values.tolist(), *noise["muon"].values.tolist()])
        [0.5, 1.0, 1.0, 2.0]
    """
    if not names:
        raise ValueError("A control that shuffles needs the names of quantities, got none.")

    def shuffled(found: xr.Dataset) -> xr.Dataset:
        for name in names:
            if name not in found:
                raise ValueError(f"A control shuffles {name!r}, and the data have no {name!r}.")
        values = xr.concat([found[name] for name in names], "shuffled", coords="minimal")
        order = np.random.default_rng(0).permutation(values.values.ravel())
        mixed = values.copy(data=order.reshape(values.shape))
        return found.assign({name: mixed.isel(shuffled=place) for place, name in enumerate(names)})

    return changing(shuffled, of=of)


@checked
def changing(
    change: Callable[[xr.Dataset], xr.Dataset], *, of: str | None = None
) -> Callable[[Any, Any], Any]:
    """A control: the data, or the dataset `of` of several, changed by `change`.

    Examples:
        >>> from specjax import lab
        >>> control = lab.controls.changing(lambda data: 2 * data)
        >>> control(None, xr.Dataset({"loss": 1.0}))["loss"].item()
        2.0
    """
    return lambda _, data: change(data) if of is None else {**data, of: change(_dataset(data, of))}


def _dataset(data: Any, of: str | None) -> Any:
    if of is not None and of not in data:
        raise ValueError(
            f"A control changes the dataset {of!r}, and the data have {sorted(map(str, data))}."
        )
    return data if of is None else data[of]


def _check_dim(values: xr.DataArray | xr.Dataset, dim: str) -> None:
    if dim not in values.dims or dim not in values.coords:
        raise ValueError(
            f"{dim!r} needs to be a dimension with labels, got data with"
            f" {sorted(map(str, values.coords))}."
        )
