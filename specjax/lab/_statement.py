"""A statement: a sentence, the rows of a ledger that it decides, what it must reject, and the
relation that judges it.

    @lab.statement(
        "eq-40",
        "The off-diagonal is d₀d₂/4π at every input dimension.",
        rivals={"κ₂": leading_term},
    )
    def exact(config, data):
        return lab.equals(data["off_diagonal"], closed_form(data))

The sentence may also be the docstring of the function.

Each statement names its attacks. A *rival* is another prediction, which a confirmed statement must
exclude. A *control* makes other data of the same form (zero weights, noise in place of a gradient,
the run of the other optimizer), in which a confirmed statement must not be confirmed. For a refuted
statement one rival or control must be confirmed, since otherwise its verdict could not have been
another. All attacks are tried whenever a statement is judged.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import xarray as xr

from specjax.arguments import checked
from specjax.lab.estimates import Number
from specjax.lab.outcome import Finding, Verdict
from specjax.lab.relations import Relation

Judge = Callable[[Any, Any], Relation]
Rival = Number | Callable[[Any, Any], Number]
Control = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Attack:
    """An attack on a statement, a rival, a control or a perturbation, and its finding."""

    kind: str
    name: str
    finding: Finding


@dataclass(frozen=True)
class Judgement:
    """A judged statement: its finding, and the finding under every attack.

    The verdict is that of the finding, but inconclusive if an attack shows that it could not have
    been another; `survivors` names these attacks.
    """

    statement: "Statement"
    finding: Finding
    attacks: tuple[Attack, ...]
    survivors: tuple[str, ...]

    @property
    def verdict(self) -> Verdict:
        """The verdict after the attacks."""
        return "inconclusive" if self.survivors else self.finding.verdict

    @property
    def reason(self) -> str:
        """The reason for an undecided verdict, or other remarks; empty if the numbers say all."""
        if not self.survivors:
            return self.finding.reason
        if self.finding.verdict == "confirmed":
            return (
                f"It is confirmed as well with {'; with '.join(self.survivors)}: these data cannot"
                " tell."
            )
        return (
            "The numbers refute it; of its rivals and controls none fits the data, so that nothing"
            " shows what would be confirmed."
        )


@dataclass(frozen=True)
class Statement:
    """A statement; see the decorator `statement`."""

    name: str
    cites: tuple[str, ...]
    says: str
    relation: Judge
    rivals: Mapping[str, Rival] = field(default_factory=dict)
    controls: Mapping[str, Control] = field(default_factory=dict)
    holds: bool | None = True
    corrected: bool = False
    elsewhere: bool = False
    along: str | None = None
    post_hoc: str = ""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", self.name):
            raise ValueError(
                f"The statement {self.name!r} needs a name in kebab-case, such as 'slope-of-loss'."
            )
        if not self.says:
            raise ValueError(
                f"The statement {self.name!r} says nothing; give it a sentence, or its function a"
                " docstring."
            )
        if not self.cites:
            raise ValueError(
                f"The statement {self.name!r} cites nothing; name the rows of the ledger that it"
                " decides."
            )
        if not self.rivals and not self.controls:
            raise ValueError(
                f"The statement {self.name!r} has neither a rival nor a control, so that nothing"
                " would show if it could not fail; name a wrong formula, or data in which it is"
                " false."
            )

    def judge(self, config: Any, data: Any) -> Judgement:
        """The judgement on `data`, after every rival, control and perturbation."""
        relation = self.relation(config, data)
        rivals = self.rival_numbers(config, data)
        found = self._along(relation, rivals)
        attacks = tuple(self._attacks(config, data, relation, rivals))
        return Judgement(self, found, attacks, _survivors(found, attacks))

    def find(self, config: Any, data: Any) -> Finding:
        """The finding before any attack."""
        return self._along(self.relation(config, data), self.rival_numbers(config, data))

    def rival_numbers(self, config: Any, data: Any) -> dict[str, Number]:
        """The prediction of each rival for these data."""
        return {
            name: rival(config, data) if callable(rival) else rival
            for name, rival in self.rivals.items()
        }

    def _attacks(
        self, config: Any, data: Any, relation: Relation, rivals: Mapping[str, Number]
    ) -> list[Attack]:
        attacks = []
        for name, rival in rivals.items():
            others = {other: number for other, number in rivals.items() if other != name}
            if relation.prediction is not None:
                others["the statement"] = relation.prediction
            attacks.append(Attack("rival", name, self._attacked(relation.against(rival), others)))
        for name, control in self.controls.items():
            attacks.append(
                Attack(
                    "control",
                    name,
                    self._attacked(self.relation(config, control(config, data)), rivals),
                )
            )
        for name, perturbed in relation.perturbed().items():
            attacks.append(Attack("perturbation", name, self._attacked(perturbed, rivals)))
        return attacks

    def _along(self, relation: Relation, rivals: Mapping[str, Number]) -> Finding:
        """The finding; if a dimension is the length of a training, the one on which all lengths
        agree.
        """
        if self.along is None:
            return relation.judge(rivals)
        lengths = relation.lengths(self.along).values
        found = _judge_at_lengths(relation, rivals, self.along)
        last = found[-1]
        changes = [
            place
            for place in range(1, len(found))
            if found[place].verdict != found[place - 1].verdict
        ]
        if not changes:
            return last
        changes_by_length = ", ".join(
            f"{found[place].verdict} from {self.along} = {lengths[place]:g}"
            for place in (0, *changes)
        )
        # An inconclusive length is noise, not a dependence on the length.
        turns = {"confirmed", "refuted"} <= {each.verdict for each in found}
        why = "It depends on the length" if turns else "It is not decided at every length"
        return replace(
            last, verdict="inconclusive", turns=turns, reason=f"{why}: {changes_by_length}."
        )

    def _attacked(self, relation: Relation, rivals: Mapping[str, Number]) -> Finding:
        """The finding of an attack; if a dimension is a length, one that is confirmed, if any,
        since the attack then survives.
        """
        if self.along is None:
            return relation.judge(rivals)
        found = _judge_at_lengths(relation, rivals, self.along)
        return next((each for each in found if each.verdict == "confirmed"), found[-1])


@checked
def statement(
    cites: str | tuple[str, ...],
    says: str = "",
    *,
    name: str | None = None,
    rivals: Mapping[str, Rival] | None = None,
    controls: Mapping[str, Control] | None = None,
    holds: bool | None = True,
    corrected: bool = False,
    elsewhere: bool = False,
    along: str | None = None,
    post_hoc: str = "",
) -> Callable[[Judge], Statement]:
    """Make a statement of a function of configuration and data that returns a relation.

    Args:
        cites: Rows of the ledger that it decides.
        says: One sentence; by default the function's docstring.
        name: Its name in records; by default the function's, in kebab-case.
        rivals: Other predictions by name: numbers, or functions of configuration and data.
        controls: By name, functions of configuration and data that return data of the same form, in
            which the statement must not hold; in which a refuted one must hold.
        holds: The verdict that `specjax reproduce` expects: confirmed, refuted (False), or any, for
            an open question (None).
        corrected: Whether it is ours, in place of the cited rows.
        elsewhere: Whether it is ours, and contradicts the cited rows in another setting, such as a
            smaller model. It cannot refute them; if it is confirmed, they depend on the setting.
        along: The dimension of the data that is the length of a training: the verdict must be the
            same at every length.
        post_hoc: Why its rule was changed after data were seen; it is then judged on fresh seeds.

    Raises:
        ValueError: no sentence, no rival and no control, no row cited, or a name that is not in
            kebab-case.

    Examples:
        >>> from specjax import lab
        >>> @lab.statement("thm-1", "The loss is 2.", rivals={"three": 3.0})
        ... def loss_is_two(config, data):
        ...     return lab.equals(data["loss"], 2.0)
        >>> loss_is_two.name
        'loss-is-two'
    """

    def make(relation: Judge) -> Statement:
        called = name or getattr(relation, "__name__", "").replace("_", "-")
        rows = (cites,) if isinstance(cites, str) else tuple(cites)
        sentence = says or " ".join((relation.__doc__ or "").split())
        return Statement(
            called,
            rows,
            sentence,
            relation,
            rivals or {},
            controls or {},
            holds,
            corrected,
            elsewhere,
            along,
            post_hoc,
        )

    return make


class Statements(list[Statement]):
    """The statements of an experiment in the order of its module, added by the decorator
    `@states("eq-40", "…", rivals=…)`.
    """

    def __call__(self, *args: Any, **options: Any) -> Callable[[Judge], Statement]:
        """Make a statement with the arguments of `statement`, and add it."""
        make = statement(*args, **options)

        def add(relation: Judge) -> Statement:
            self.append(make(relation))
            return self[-1]

        return add


def _judge_at_lengths(relation: Relation, rivals: Mapping[str, Number], dim: str) -> list[Finding]:
    places = range(relation.lengths(dim).size)
    return [relation.at(dim, place).judge(_rivals_at(rivals, dim, place)) for place in places]


def _rivals_at(rivals: Mapping[str, Number], dim: str, place: int) -> dict[str, Number]:
    return {
        name: (
            rival.isel({dim: place})
            if isinstance(rival, xr.DataArray) and dim in rival.dims
            else rival
        )
        for name, rival in rivals.items()
    }


def _survivors(found: Finding, attacks: tuple[Attack, ...]) -> tuple[str, ...]:
    confirmed = tuple(
        f"the {attack.kind} {attack.name!r}"
        for attack in attacks
        if attack.finding.verdict == "confirmed"
    )
    if found.verdict == "confirmed":
        return confirmed
    shown = any(
        attack.finding.verdict == "confirmed" for attack in attacks if attack.kind != "perturbation"
    )
    return ("any data",) if found.verdict == "refuted" and not shown else ()
