"""Relations of tuned data, which are undecided if the best value of a grid is at its end."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import xarray as xr
from matplotlib.axes import Axes

from specjax.arguments import checked
from specjax.lab.estimates import Number
from specjax.lab.outcome import Finding, labelled
from specjax.lab.relations._relation import Relation
from specjax.lab.relations.line import Line


@dataclass(frozen=True, eq=False)
class WithinGrid(Relation):
    """See `within_grid`."""

    relation: Relation
    chosen: xr.DataArray
    count: int

    def _judge(self, rivals: Mapping[str, Number]) -> Finding:
        """The finding of the relation, but inconclusive if a chosen value is at an end of its
        grid.
        """
        found = self.relation.judge(rivals)
        ends = {0: "smallest", self.count - 1: "largest"}
        at_ends = [
            f"the {ends[place]}{' at ' if label else ''}{label}"
            for index, label in labelled(self.chosen)
            if (place := int(self.chosen.values[index])) in ends
        ]
        ends_rule = f"; inconclusive if the best of a grid of {self.count} is one of its ends"
        rule = found.rule.removesuffix(ends_rule) + ends_rule
        if not at_ends:
            return replace(found, rule=rule)
        return replace(
            found,
            verdict="inconclusive",
            rule=rule,
            reason=f"The best of the grid is {', '.join(at_ends)}: a better one may lie beyond.",
        )

    def draw(self, axes: Axes, rivals: Mapping[str, Number]) -> None:
        """Draw the relation."""
        self.relation.draw(axes, rivals)

    def line(self) -> Line | None:
        """The line of the relation."""
        return self.relation.line()

    def perturbed(self) -> dict[str, Relation]:
        """The perturbations of the relation, with the same choices."""
        return {
            name: replace(self, relation=other) for name, other in self.relation.perturbed().items()
        }

    def against(self, rival: Number) -> "WithinGrid":
        """The relation with a rival in its prediction's place."""
        return replace(self, relation=self.relation.against(rival))

    def is_farther(self, first: Finding, second: Finding) -> bool:
        """By the sides of the relation."""
        return self.relation.is_farther(first, second)

    def is_within_margin(self, first: Finding, second: Finding) -> bool:
        """By the margin of the relation."""
        return self.relation.is_within_margin(first, second)

    @property
    def claims_no_effect(self) -> bool:
        """Whether the relation says so."""
        return self.relation.claims_no_effect

    @property
    def claims_a_sign(self) -> bool:
        """Whether the relation says so."""
        return self.relation.claims_a_sign

    def same_of_every_label(self, permuted: Relation) -> bool:
        """Whether the relation says the same of every label."""
        assert isinstance(permuted, WithinGrid)
        return self.relation.same_of_every_label(permuted.relation)

    @property
    def prediction(self) -> Number | None:
        """The prediction of the relation."""
        return self.relation.prediction

    def at(self, dim: str, place: int) -> "WithinGrid":
        """The relation at one coordinate of `dim`, with the choices there."""
        chosen = self.chosen.isel({dim: place}) if dim in self.chosen.dims else self.chosen
        return replace(self, relation=self.relation.at(dim, place), chosen=chosen)

    def lengths(self, dim: str) -> xr.DataArray:
        """The coordinates along `dim` in the data of the relation."""
        return self.relation.lengths(dim)


@checked
def within_grid(relation: Relation, chosen: xr.DataArray, count: int) -> WithinGrid:
    """Judge `relation` between tuned data, such as losses at the best of several learning rates.

    Args:
        relation: The relation of the tuned data.
        chosen: Places of the chosen values in the grid, from 0 to count - 1, with labels.
        count: The number of values of the grid, in ascending order.

    Raises:
        ValueError: a grid of fewer than 3 values, which has no inside, or places outside of it.

    Examples:
        >>> from specjax import lab
        >>> loss = xr.DataArray(np.random.default_rng(0).normal(0.9, 0.02, 20), dims="seed")
        >>> tuned = lab.below(loss, 1.0, "the loss without tuning")
        >>> lab.within_grid(tuned, xr.DataArray([2]), count=5).judge({}).verdict
        'confirmed'
        >>> lab.within_grid(tuned, xr.DataArray([4]), count=5).judge({}).verdict
        'inconclusive'
    """
    if count < 3:
        raise ValueError(f"A grid with an inside has at least 3 values, got {count}.")
    if not bool(((chosen >= 0) & (chosen < count)).all()):
        raise ValueError(
            f"Places in a grid of {count} are from 0 to {count - 1}, got {chosen.values.tolist()}."
        )
    return WithinGrid(relation, chosen, count)
