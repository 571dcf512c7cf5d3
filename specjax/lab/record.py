"""Judgements as records: what is stored of a verdict, so that it can be read without running anything."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from specjax.lab.statement import Attack, Judgement


def record(judgement: Judgement) -> dict[str, Any]:
    """A judgement as JSON holds it: every number that the verdict follows from, at every point, with the rule and all attacks.

    Numbers that are not finite, such as the ends of an interval of too few draws, are None.
    """
    statement, found = judgement.statement, judgement.finding
    return {
        "name": statement.name,
        "cites": list(statement.cites),
        "says": statement.says,
        "verdict": judgement.verdict,
        "rule": found.rule,
        "reason": judgement.reason,
        "estimate": _finite(found.deciding.estimate),
        "interval": [_finite(found.deciding.low), _finite(found.deciding.high)],
        "compared": _finite(found.deciding.compared),
        "draws": found.draws,
        "depends": found.turns,
        "away": None if found.away is None else _finite(found.away),
        "power": found.power,
        "points": [
            {"label": p.label} | {key: _finite(getattr(p, key)) for key in ("estimate", "low", "high", "compared")}
            for p in found.points
        ],
        "rivals": [
            {"name": d.rival, "standard_errors": _finite(d.standard_errors), "excluded": d.excluded}
            for d in found.rivals
        ],
        "attacks": [
            {"kind": a.kind, "name": a.name, "verdict": a.finding.verdict, "survived": a in _survived(judgement)}
            for a in judgement.attacks
        ],
        "expected": {True: "confirmed", False: "refuted", None: None}[statement.holds],
        "corrected": statement.corrected,
        "post_hoc": statement.post_hoc,
    }


class AttackRow(NamedTuple):
    """One line of what `specjax attack` prints."""

    experiment: str
    statement: str
    verdict: str
    attack: str
    outcome: str
    survived: bool


def attack_rows(experiment: str, judgements: Sequence[Judgement]) -> list[AttackRow]:
    """Every statement under every attack, with those that it should not have survived marked."""
    rows = []
    for judgement in judgements:
        survived = _survived(judgement)
        for attack in judgement.attacks:
            what = f"{attack.kind}: {attack.name}"
            rows.append(
                AttackRow(
                    experiment,
                    judgement.statement.name,
                    judgement.finding.verdict,
                    what,
                    attack.finding.verdict,
                    attack in survived,
                )
            )
        if judgement.survivors and not survived:
            rows.append(
                AttackRow(experiment, judgement.statement.name, judgement.finding.verdict, "any data", "refuted", True)
            )
    return rows


def _survived(judgement: Judgement) -> list[Attack]:
    confirmed = judgement.finding.verdict == "confirmed"
    return [attack for attack in judgement.attacks if confirmed and attack.finding.verdict == "confirmed"]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
