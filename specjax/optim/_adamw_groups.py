"""AdamW for the leaves that are not matrices, with the same numbers for all of them or with numbers
for each group.
"""

from collections.abc import Collection, Mapping
from typing import Any

import optax

from specjax.arguments import REAL, check_number
from specjax.optim._float32_wrapper import in_float32
from specjax.optim._hyperparameters import ByGroup, Number, takes_schedules

MATRIX, EMBEDDING, READOUT, OTHER = LABELS = ("matrix", "embedding", "readout", "other")
"""The labels of leaves; all but the first are groups with numbers of AdamW."""
GROUPS = LABELS[1:]

_REMEDIES = {
    EMBEDDING: "layout=specjax.diagnostics.matrix_layout(loss, params, batch) or labels= finds it",
    READOUT: 'take layout=layout.labelled(readout="other") or labels=',
}
_OF_ADAMW = {
    "adam_learning_rate": "learning_rate",
    "adam_b1": "b1",
    "adam_b2": "b2",
    "adam_weight_decay": "weight_decay",
}
"""Arguments of `muon` that may differ between groups, and their names in `optax.adamw`."""


class OfRecipe(dict[str, Any]):
    """The numbers of a recipe for the groups, with the user's in their place.

    A model may lack a group of the recipe, but not one that the user named.
    """

    def __init__(self, recipe: Mapping[str, Any], given: Mapping[str, Any]) -> None:
        super().__init__({**recipe, **given})
        self.given = given


def numbers_of_recipe(recipe: ByGroup, given: ByGroup | None) -> ByGroup:
    """What the user gave, or the recipe's; of two numbers for groups, both."""
    if given is not None and not isinstance(given, Mapping):
        return given
    if not isinstance(recipe, Mapping):
        if given is None:
            return recipe
        recipe = dict.fromkeys(GROUPS, recipe)
    return OfRecipe(recipe, given or {})


@takes_schedules
def adamw(
    learning_rate: Any, b1: Number, b2: Number, weight_decay: Number, **options: Any
) -> optax.GradientTransformationExtraArgs:
    """AdamW in float32 at least: in float16 eps and squares of gradients below 2e-4 are zero."""
    chosen = {"b1": b1, "b2": b2, "weight_decay": weight_decay} | options
    return in_float32(optax.adamw(learning_rate, **chosen))


def adamw_by_group(
    numbers: Mapping[str, ByGroup], defaults: Mapping[str, Number], **options: Any
) -> dict[str, optax.GradientTransformation]:
    """One "adam", or the AdamW of each group where one of the numbers is a mapping.

    A group that a mapping leaves out has the number of `defaults`. Raises ValueError for an unknown
    group, and for a number that is not finite or a function.
    """
    if not any(isinstance(value, Mapping) for value in numbers.values()):
        return {"adam": adamw(**_adamw_arguments(numbers), **options)}
    for name, value in numbers.items():
        for group, number in value.items() if isinstance(value, Mapping) else ():
            if group not in GROUPS:
                raise ValueError(
                    f"Unknown group {group!r} in {name}; choose among {', '.join(GROUPS)}."
                )
            if not callable(number):
                check_number(number, f"{name}[{group!r}]", REAL, "muon")

    def numbers_of(group: str) -> dict[str, Any]:
        return {
            name: value.get(group, defaults[name]) if isinstance(value, Mapping) else value
            for name, value in numbers.items()
        }

    return {group: adamw(**_adamw_arguments(numbers_of(group)), **options) for group in GROUPS}


def _adamw_arguments(numbers: Mapping[str, Any]) -> dict[str, Any]:
    return {_OF_ADAMW[name]: value for name, value in numbers.items()}


def check_used(numbers: Mapping[str, ByGroup], labels: Collection[str]) -> None:
    """Raises ValueError for a number of an embedding or a readout where no leaf has that label.

    A number for "other" may stay without leaves: many models have no biases and gains.
    """
    for name, value in numbers.items():
        asked = value.given if isinstance(value, OfRecipe) else value
        for group in asked if isinstance(asked, Mapping) else ():
            if group in _REMEDIES and group not in labels:
                raise ValueError(
                    f'{name} names "{group}", but no leaf has this label;'
                    f" {_REMEDIES[group]}, or leave it out."
                )
