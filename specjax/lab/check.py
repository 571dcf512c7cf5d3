"""Checks: judgements as they are stored, to be read and compared without running anything."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from specjax.arguments import checked
from specjax.lab._statement import Attack, Judgement
from specjax.lab.outcome import Verdict


@dataclass(frozen=True)
class Check:
    """A judgement in plain numbers, as `checks.json` and the records store it.

    Numbers that are not finite, such as the ends of an interval of too few samples, are None.

    Attributes:
        name: The name of the statement.
        cites: The rows that the statement decides.
        says: Its sentence.
        verdict: The verdict after the attacks; `reason` explains it if the numbers alone do not.
        expected: The verdict that `specjax reproduce` expects; None if it is held open.
        rule: The rule by which the verdict follows from the numbers.
        estimate: The estimate at the deciding point.
        interval: Its interval.
        compared: The prediction or threshold that it was compared with.
        samples: Independent samples at that point.
        depends: Whether the verdict changes along the length of a training.
        away: Standard errors between estimate and prediction; None if `compared` is a threshold.
        power: The nearest rival and its distance.
        points: Label, estimate, ends of the interval and compared number of each point.
        rivals: Name, distance in standard errors and whether it is excluded, of each rival.
        attacks: Kind, name, verdict of each attack, and whether the statement wrongly survived it.
        corrected: Whether the statement is ours, in place of the cited rows.
        post_hoc: Why its rule was changed after data were seen.
    """

    name: str
    cites: tuple[str, ...]
    says: str
    verdict: Verdict
    expected: Verdict | None
    rule: str
    reason: str
    estimate: float | None
    interval: tuple[float | None, float | None]
    compared: float | None
    samples: int
    depends: bool
    away: float | None
    power: str
    points: tuple[Mapping[str, Any], ...]
    rivals: tuple[Mapping[str, Any], ...]
    attacks: tuple[Mapping[str, Any], ...]
    corrected: bool
    post_hoc: str

    @classmethod
    def from_judgement(cls, judgement: Judgement) -> "Check":
        """The check of a judgement."""
        statement, found = judgement.statement, judgement.finding
        survived = _survived(judgement)
        return cls(
            name=statement.name,
            cites=statement.cites,
            says=statement.says,
            verdict=judgement.verdict,
            expected=(
                None if statement.holds is None else "confirmed" if statement.holds else "refuted"
            ),
            rule=found.rule,
            reason=judgement.reason,
            estimate=_finite(found.deciding.estimate),
            interval=(_finite(found.deciding.low), _finite(found.deciding.high)),
            compared=_finite(found.deciding.compared),
            samples=found.samples,
            depends=found.turns,
            away=None if found.away is None else _finite(found.away),
            power=found.power,
            points=tuple(
                {"label": p.label}
                | {key: _finite(getattr(p, key)) for key in ("estimate", "low", "high", "compared")}
                for p in found.points
            ),
            rivals=tuple(
                {
                    "name": d.rival,
                    "standard_errors": _finite(d.standard_errors),
                    "excluded": d.excluded,
                }
                for d in found.rivals
            ),
            attacks=tuple(
                {
                    "kind": a.kind,
                    "name": a.name,
                    "verdict": a.finding.verdict,
                    "survived": a in survived,
                }
                for a in judgement.attacks
            ),
            corrected=statement.corrected,
            post_hoc=statement.post_hoc,
        )

    @classmethod
    def parsed(cls, content: Mapping[str, Any]) -> "Check":
        """The check in parsed JSON.

        Raises:
            TypeError: a key too many or too few, as in a check of another version.
        """
        lists = {field.name for field in fields(cls) if str(field.type).startswith("tuple")}
        values: dict[str, Any] = {
            key: tuple(value) if key in lists else value for key, value in content.items()
        }
        return cls(**values)

    @property
    def surprising(self) -> bool:
        """Whether the verdict differs from the expected one."""
        return self.expected is not None and self.verdict != self.expected

    @property
    def predicted(self) -> float | None:
        """The predicted value; None if the estimate is compared with a threshold."""
        return None if self.away is None else self.compared


class AttackRow(NamedTuple):
    """One line of the table of `specjax attack`."""

    experiment: str
    statement: str
    verdict: str
    attack: str
    outcome: str
    survived: bool


@checked
def attack_rows(experiment: str, judgements: Sequence[Judgement]) -> list[AttackRow]:
    """One row for each attack on each statement; `survived` marks those that should have failed."""
    rows = []
    for judgement in judgements:
        name, verdict = judgement.statement.name, judgement.finding.verdict
        survived = _survived(judgement)
        for attack in judgement.attacks:
            what = f"{attack.kind}: {attack.name}"
            rows.append(
                AttackRow(
                    experiment, name, verdict, what, attack.finding.verdict, attack in survived
                )
            )
        if judgement.survivors and not survived:
            rows.append(AttackRow(experiment, name, verdict, "any data", "refuted", True))
    return rows


def _survived(judgement: Judgement) -> list[Attack]:
    confirmed = judgement.finding.verdict == "confirmed"
    return [
        attack
        for attack in judgement.attacks
        if confirmed and attack.finding.verdict == "confirmed"
    ]


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
