"""Differences between results and the records of earlier runs."""

from collections.abc import Mapping, Sequence

from specjax.lab.check import Check
from specjax.report._record import Record, Result
from specjax.report.formatting import interval, number


def differing(results: Sequence[Result], recorded: Mapping[str, Result]) -> list[str]:
    """One sentence, with both intervals, for each verdict that differs from that of the record."""
    sentences = []
    for result in results:
        if (other := recorded.get(result.record.name)) is None:
            continue
        scales = _scales(result.record, other.record)
        then = {check.name: check for check in other.checks}
        sentences += [
            f"{result.record.name}/{check.name} is {_describe(check)}; the record says"
            f" {_describe(then[check.name])} ({scales})"
            for check in result.checks
            if check.name in then and then[check.name].verdict != check.verdict
        ]
    return sentences


def _scales(here: Record, there: Record) -> str:
    if here.scale != there.scale:
        return f"at scale {here.scale}, recorded at {there.scale}"
    # A record may be of a scale with flags, which is another run: a difference from it is no
    # failure to repeat one.
    flags = [
        f"--{name.replace('_', '-')}"
        for name, value in here.fields.items()
        if there.fields.get(name) != value
    ]
    return f"both at scale {here.scale}" + (
        f", recorded with other {', '.join(flags)}" if flags else ""
    )


def _describe(check: Check) -> str:
    turns = ", as it depends on the length" if check.depends else ""
    return f"{check.verdict}{turns}, {number(check.estimate)} {interval(check.interval)}"
