"""The base class of relations."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from specjax.lab.estimates import SAMPLE_DIMS, Number, require_number, sample_rows
from specjax.lab.outcome import Finding
from specjax.lab.relations.line import Line


class Relation(ABC):
    """A property that labelled data can have: a frozen dataclass of the data and of the numbers it
    is about.

    `judge` takes the rivals of the statement by name: other predictions, which must be excluded
    before it is confirmed. `against` is the same relation with a rival as its prediction, and
    `perturbed` are changes of the data that the relation itself knows to make it false. A change
    that its own rule excludes anyway, such as a threshold beyond the estimate, would be no attack.
    """

    def judge(self, rivals: Mapping[str, Number]) -> Finding:
        """The finding on these data, by the one rule of the relation.

        Raises:
            ValueError: rivals without names, or that are not finite numbers.
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
        """The finding, for rivals by name."""

    def perturbed(self) -> dict[str, "Relation"]:
        """Relations to changed data that must not be confirmed if this one is, by description; most
        relations have none.
        """
        return {}

    @abstractmethod
    def draw(self, axes: Axes, rivals: Mapping[str, Number]) -> None:
        """Draw the data, the numbers they are compared with, and the rivals."""

    def line(self) -> Line | None:
        """The line that replaces a drawing without a curve; None if there is a curve or a rival to
        draw.
        """
        return None

    def against(self, rival: Number) -> "Relation":
        """The relation with a rival in place of its prediction; raises ValueError if it predicts no
        number.
        """
        raise ValueError(
            f"{type(self).__name__} predicts no number that a rival could replace; give the"
            " statement controls."
        )

    def is_farther(self, first: Finding, second: Finding) -> bool:
        """Whether the numbers of the first finding are at least as far on the right side of this
        relation as those of the second. False for a relation without a right side.
        """
        return False

    def is_within_margin(self, first: Finding, second: Finding) -> bool:
        """Whether the first finding's numbers differ from the second's by less than half of the
        margin that the relation has there. False for a relation without a margin.
        """
        return False

    @property
    def prediction(self) -> Number | None:
        """The number that a rival replaces, or None."""
        return None

    @property
    def claims_no_effect(self) -> bool:
        """Whether the relation says that nothing happens: that a number is 0, or does not change.
        Then it is true of data in which labels make no difference.
        """
        return False

    @property
    def claims_a_sign(self) -> bool:
        """Whether the relation says on which side of 0 a number lies, however far. Then it is true
        of an effect of any size.
        """
        return False

    def same_of_every_label(self, permuted: "Relation") -> bool:
        """Whether the relation says the same of every label: `permuted`, the one to data with
        permuted labels, has the same numbers in every sample, in another order. False for a
        relation that compares points.
        """
        return False

    def at(self, dim: str, place: int) -> "Relation":
        """The relation between the same data at one place of `dim`; data without that dimension
        stay.
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
        """The coordinates along `dim`; raises ValueError if no data have it."""
        assert is_dataclass(self)
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, xr.DataArray) and dim in value.dims:
                return value[dim]
        raise ValueError(
            f"{type(self).__name__} is to be judged along {dim!r}, which none of its data have."
        )


def equal_up_to_order(first: Relation, second: Relation) -> bool:
    """Whether the samples of two relations of one class have the same numbers in another order, and
    are compared with one number, the same in both.
    """
    assert is_dataclass(first)
    for field in fields(first):
        one, other = (getattr(each, field.name) for each in (first, second))
        if not isinstance(one, xr.DataArray):
            if one != other:
                return False
            continue
        rows = [np.sort(sample_rows(each), axis=1) for each in (one, other)]
        is_compared = not set(SAMPLE_DIMS) & set(one.dims)
        if not np.array_equal(*rows) or (is_compared and np.ptp(rows[0]) > 0):
            return False
    return True


def words(called: str, by: str) -> str:
    """The name of a threshold as a part of a rule, without a final comma or stop; raises ValueError
    if it is empty.
    """
    if not (found := " ".join(called.split()).rstrip(" ,.;")):
        raise ValueError(f"{by} needs words for its number, such as 'a tenth', got {called!r}.")
    return found
