"""What `checks.json` can hold: the checks of an experiment made plain, or refused before they are stored."""

import dataclasses
import math
import re
from collections.abc import Sequence

from specjax.experiments.contract import Check


def verified(experiment: str, checks: Sequence[Check]) -> tuple[Check, ...]:
    """The checks with their numbers as Python floats.

    Raises ValueError for names that repeat or are not kebab-case, numbers that are not finite (JSON has none), and intervals
    in the wrong order.
    """
    names = [check.name for check in checks]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{experiment} has two checks called {name!r}; give each a name of its own.")
    return tuple(_plain(f"Check {check.name!r} of {experiment}", check) for check in checks)


def _plain(where: str, check: Check) -> Check:
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", check.name):
        raise ValueError(f"{where} needs a kebab-case name, such as 'slope-of-loss'.")
    # float() because measured numbers tend to be numpy or jax scalars, which JSON does not know.
    predicted = None if check.predicted is None else float(check.predicted)
    measured = None if check.measured is None else float(check.measured)
    interval = None if check.interval is None else (float(check.interval[0]), float(check.interval[1]))
    for what, values in (
        ("a prediction", (predicted,)),
        ("a measurement", (measured,)),
        ("an interval", interval or ()),
    ):
        if not all(value is None or math.isfinite(value) for value in values):
            raise ValueError(
                f"{where} has {what} that is not finite ({', '.join(map(str, values))}); "
                f"leave failed seeds out of it, or judge by a number that is always finite."
            )
    if interval is not None and interval[0] > interval[1]:
        raise ValueError(f"{where} has the interval {list(interval)}; the lower end comes first.")
    return dataclasses.replace(check, predicted=predicted, measured=measured, interval=interval)
