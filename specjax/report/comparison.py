"""Results beside the records of earlier runs."""

from collections.abc import Mapping, Sequence

from specjax.lab import Check
from specjax.report.cells import interval, number
from specjax.report.record import Result


def differing(results: Sequence[Result], recorded: Mapping[str, Result]) -> list[str]:
    """A sentence for each verdict that is not that of the record, with both intervals."""
    told = []
    for result in results:
        if (other := recorded.get(result.record.name)) is None:
            continue
        here, there = result.record.scale, other.record.scale
        scales = f"both at scale {here}" if here == there else f"at scale {here}, recorded at {there}"
        then = {check.name: check for check in other.checks}
        told += [
            f"{result.record.name}/{check.name} is {_told(check)}; the record says {_told(then[check.name])} ({scales})"
            for check in result.checks
            if check.name in then and then[check.name].verdict != check.verdict
        ]
    return told


def _told(check: Check) -> str:
    turns = ", as it depends on the length" if check.depends else ""
    return f"{check.verdict}{turns}, {number(check.estimate)} {interval(check.interval)}"
