"""AdamW for the leaves that are not matrices, with one learning rate for all of them or one for
each group.
"""

from collections.abc import Collection, Mapping
from typing import Any

import optax

from specjax.arguments import REAL, check_number
from specjax.optim._float32_wrapper import in_float32
from specjax.optim._hyperparameters import Number, Rates

MATRIX, EMBEDDING, READOUT, OTHER = LABELS = ("matrix", "embedding", "readout", "other")
"""The labels of leaves; all but the first are groups with a learning rate of AdamW."""
GROUPS = LABELS[1:]

_REMEDIES = {
    EMBEDDING: "layout=specjax.diagnostics.matrix_layout(loss, params, batch) or labels= finds it",
    READOUT: 'take layout=layout.labelled(readout="other") or labels=',
}


def adamw(learning_rate: Number, **options: Any) -> optax.GradientTransformationExtraArgs:
    """AdamW in float32 at least: in float16 eps and squares of gradients below 2e-4 are zero."""
    return in_float32(optax.adamw(learning_rate, **options))


def adamw_by_group(
    rates: Rates | None, default: Number, **options: Any
) -> dict[str, optax.GradientTransformation]:
    """One "adam", or for a mapping of rates the AdamW of each group, whose rate is `default` where
    the mapping has none.

    Raises ValueError for an unknown group, and for a rate that is not one finite number or a
    function.
    """
    if rates is None or not isinstance(rates, Mapping):
        return {"adam": adamw(default if rates is None else rates, **options)}
    for group, rate in rates.items():
        if group not in GROUPS:
            raise ValueError(
                f"Unknown group {group!r} in adam_learning_rate; choose among {', '.join(GROUPS)}."
            )
        if not callable(rate):
            check_number(rate, f"adam_learning_rate[{group!r}]", REAL, "muon")
    return {group: adamw(rates.get(group, default), **options) for group in GROUPS}


def check_used(rates: Rates | None, labels: Collection[str]) -> None:
    """Raises ValueError for the rate of an embedding or a readout where no leaf has that label.

    A rate for "other" may stay without leaves: many models have no biases and gains.
    """
    for group in rates if isinstance(rates, Mapping) else ():
        if group in _REMEDIES and group not in labels:
            raise ValueError(
                f'adam_learning_rate names "{group}", but no leaf has this label;'
                f" {_REMEDIES[group]}, or leave the rate out."
            )
