"""What every relation can do: be judged, be attacked, be drawn."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace

import xarray as xr
from matplotlib.axes import Axes

from specjax.lab.estimates import Number, require_number
from specjax.lab.outcome import Finding
from specjax.lab.relations.line import Line


class Relation(ABC):
    """Something that labelled data can have or not: a frozen dataclass whose fields are the data
    and the numbers it is about.

    `judge` takes the rivals of the statement, by name: what could stand in the place of its
    prediction, and must be excluded before it is confirmed. `against` is the same relation with a
    rival in that place, and `perturbed` are the versions of the data that the relation itself knows
    to be others: one that its own rule excludes, as a threshold beyond the estimate, would be no
    attack.
    """

    def judge(self, rivals: Mapping[str, Number]) -> Finding:
        """The verdict on these data, by the one rule of the relation.

        Raises:
            ValueError: rivals that have no names, or are no finite numbers.
        """
        if not isinstance(rivals, Mapping):
            raise ValueError(
                f"Rivals are a dict of predictions by name, got a {type(rivals).__name__}; write"
                " e.g. {'the printed one': 1.5}."
            )
        for name, rival in rivals.items():
            require_number(rival, f"The rival {name!r}")
        return self._judge(rivals)

    @abstractmethod
    def _judge(self, rivals: Mapping[str, Number]) -> Finding:
        """The verdict, for rivals by name."""

    def perturbed(self) -> dict[str, "Relation"]:
        """Relations to other data that must not be confirmed where this one is, by what was done;
        most have none but controls.
        """
        return {}

    @abstractmethod
    def draw(self, axes: Axes, rivals: Mapping[str, Number]) -> None:
        """The data, what they are compared with, and the rivals."""

    def line(self) -> Line | None:
        """What stands in the place of a drawing where there is no curve to be seen; None where
        there is one, or rivals to be shown.
        """
        return None

    def against(self, rival: Number) -> "Relation":
        """The relation with a rival in its prediction's place; raises ValueError where it predicts
        no number.
        """
        raise ValueError(
            f"{type(self).__name__} predicts no number that a rival could replace; give the"
            " statement controls."
        )

    @property
    def prediction(self) -> Number | None:
        """What a rival replaces, None where there is no such number."""
        return None

    def at(self, dim: str, place: int) -> "Relation":
        """The relation between the same data at one coordinate of `dim`; what has no such dimension
        stays.
        """
        assert is_dataclass(self)
        sliced = {
            field.name: value.isel({dim: place})
            for field in fields(self)
            if isinstance(value := getattr(self, field.name), xr.DataArray) and dim in value.dims
        }
        sliced_relation: Relation = replace(self, **sliced)
        return sliced_relation

    def lengths(self, dim: str) -> xr.DataArray:
        """The coordinates along `dim`; raises ValueError where no data have it."""
        assert is_dataclass(self)
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, xr.DataArray) and dim in value.dims:
                return value[dim]
        raise ValueError(
            f"{type(self).__name__} is to be judged along {dim!r}, which none of its data have."
        )


def words(called: str, by: str) -> str:
    """What a threshold is called, as a part of a rule: a comma that would end it there is the
    rule's own. Raises ValueError for none.
    """
    if not (found := " ".join(called.split()).rstrip(" ,.;")):
        raise ValueError(f"{by} needs words for its number, such as 'a tenth', got {called!r}.")
    return found
