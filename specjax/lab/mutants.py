"""Mutants: the same data, or the same closed forms, with one thing wrong, to see which statements
notice.

A confirmed statement that stays confirmed on a mutant that changes its numbers does not depend on
what the mutant destroys: on the order of its labels, on the size of its effect, or on a formula.

Not all changes make a statement false. Where one does not, the row says so:

- "true without effect": the statement says that nothing happens (`Relation.claims_no_effect`), the
  same of every label (`Relation.same_of_every_label`), a number that has the same interval without
  labels, or that an effect is within a bound: it holds if every value is one number, whichever, or
  data without the effect are farther from the bound. Such data are no wrong ones then; the rivals,
  controls and perturbations of the statement are what must break it, and `attack` tries them.
- "within its margin": the estimate less what it is compared with moves by less than half of the
  margin that the statement has ("to 4 %"), or, of a bound, of the distance from it. So do formulas
  on which a prediction depends little, such as a correction, and effects that are none of the
  statement's.
- "not sharp here": the remark of the finding on the data themselves says what else they would
  confirm: a tighter bound ("Not sharp here"), half of the effect ("Holds with room to spare"), or,
  of mutated formulas, one a tenth off ("Not sharp to a tenth"). So is a statement of a sign alone,
  such as an order, which is true of an effect of any size.

A mutant has no row where it leaves the numbers of a statement as they are, also in another unit if
they are compared with 0, or moves one-sided numbers farther to their right side, where the
statement is true all the more: another size of the effect, or a factor that makes a bound weaker.
"""

import contextlib
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import numpy as np

from specjax.arguments import checked
from specjax.lab._data_mutants import (
    DATA_MUTANTS,
    SIZES,
    Change,
    Data,
    Place,
    change_all,
    change_together,
    is_alike,
    names,
    permuted,
    variable,
    with_variables,
)
from specjax.lab._equal_findings import equal_within_noise, same, same_in_other_units
from specjax.lab._statement import Statement
from specjax.lab.outcome import COARSE, FACTORS, NOT_SHARP, ROOM, Finding
from specjax.lab.relations import Relation

WITHOUT = "true without effect"
"""Outcome of a statement that data without an effect satisfy."""
UNSHARP = "not sharp here"
"""Outcome of a statement of which the finding on the data says so."""
WITHIN = "within its margin"
"""Outcome of a statement whose numbers move by less than half of its margin."""


class MutantRow(NamedTuple):
    """A confirmed statement on one mutant: the verdict there, and whether it should have changed.

    `outcome` is the verdict on the mutant, "error" where there is none, or "true without
    effect", "not sharp here" or "within its margin" where a confirmed one is right.
    """

    experiment: str
    statement: str
    mutant: str
    outcome: str

    @property
    def survived(self) -> bool:
        """Whether the statement is confirmed on wrong data too."""
        return self.outcome == "confirmed"


@checked
def mutant_rows(
    experiment: str, statements: Sequence[Statement], config: Any, data: Any, seed: int = 0
) -> list[MutantRow]:
    """A row for each confirmed statement and each mutant that makes it false, or could.

    Mutants of data, in all variables at once: noise with the mean and spread of a variable; values
    permuted within each sample; the effect halved and doubled with the noise of the data: the mean
    over samples of the distance of each value from its sample's mean, of logarithms if all are
    positive. A statement that noise, or an order, of each variable does not turn is tried on the
    same of the variables that it compares, together, since their names are labels as well. Mutants
    of formulas: each function of `specjax.theory` that a statement calls returns 1.1 times its
    value, and 0.9 times.

    Args:
        experiment: The name that the rows bear.
        statements: The statements; those that `data` do not confirm have no rows.
        config: The configuration of the run.
        data: The data of the run.
        seed: Seed of noise and permutations.

    Examples:
        >>> import numpy as np
        >>> from specjax import lab
        >>> from specjax.lab import mutants
        >>> @lab.statement("eq-1", "Muon is ahead.", controls={"none": lambda _, data: 0 * data})
        ... def ahead(config, data):
        ...     return lab.ahead(data["loss"][:, 0], data["loss"][:, 1], least=0)
        >>> loss = np.random.default_rng(0).normal([2.0, 1.0], 0.1, (50, 2))
        >>> data = xr.Dataset({"loss": (("seed", "optimizer"), loss)})
        >>> rows = mutants.mutant_rows("mine", [ahead], None, data)
        >>> {row.mutant: row.outcome for row in rows}["half the effect"]
        'not sharp here'
    """
    confirmed = []
    for each in statements:
        found = each.find(config, data)
        if found.verdict == "confirmed":
            relation = each.relation(config, data)
            confirmed.append(_Subject(each, config, data, found, relation))
    rows = []
    for name, change in DATA_MUTANTS.items():
        changed = change_all(data, change, np.random.default_rng(seed))
        for subject in confirmed:
            outcome = (
                subject.outcome(subject.find(changed), one_sided=True)
                if name in SIZES
                else _outcome_without_labels(subject, changed, change, seed)
            )
            if outcome is not None:
                rows.append(MutantRow(experiment, subject.statement.name, name, outcome))
    for subject in confirmed:
        rows += [
            MutantRow(experiment, subject.statement.name, name, outcome)
            for name, outcome in _formulas(subject)
        ]
    return rows


_NUMBERS = (2.0, 3.0)
"""Values of data without differences; as places, they lie within a grid of five."""
_NO_FINDING = (ValueError, KeyError, ArithmeticError, TypeError, IndexError)
"""What a statement may raise on data that it was not written for."""


def _fill(number: float, rows: np.ndarray, _: np.random.Generator) -> np.ndarray:
    return rows if rows.dtype.kind == "b" else np.full(rows.shape, number)


@dataclass(frozen=True, eq=False)
class _Subject:
    """A statement that its data confirm, with its finding and its relation to them.

    What it says of data without labels or differences is found once, for all mutants.
    """

    statement: Statement
    config: Any
    data: Data
    found: Finding
    relation: Relation

    def find(self, changed: Data) -> Finding | None:
        """The finding on a mutant; None where there is none."""
        try:
            return self.statement.find(self.config, changed)
        except _NO_FINDING:
            return None

    def outcome(
        self, mutated: Finding | None, *, one_sided: bool, formula: bool = False
    ) -> str | None:
        """The outcome of the finding on a mutant of the data, or of a formula. None where its
        numbers are those of the data themselves, or, if `one_sided`, farther on the right side of
        the relation.
        """
        if mutated is None:
            return "error"
        if same(mutated, self.found):
            return None
        if one_sided and same_in_other_units(mutated, self.found):
            return None
        if one_sided and self.relation.is_farther(mutated, self.found):
            return None
        if mutated.verdict != "confirmed":
            return mutated.verdict
        if not formula and (self.relation.claims_no_effect or self.bounds_an_effect):
            return WITHOUT
        is_size = one_sided and not formula
        number = is_size and self.relation.prediction is not None
        # One number at every label is a constant, whose effect is 0. So is one that no size of the
        # effect moves, if its noise hides no rival.
        if number and (
            self.says_the_same or (self.found.rivals and equal_within_noise(mutated, self.found))
        ):
            return WITHOUT
        if is_size and self.relation.claims_a_sign:
            return UNSHARP
        spare = [NOT_SHARP]
        if formula:
            spare += [COARSE if self.relation.prediction is not None else ROOM]
        elif is_size:
            spare += [ROOM]
        if any(words in self.found.reason for words in spare):
            return UNSHARP
        if one_sided and self.relation.is_within_margin(mutated, self.found):
            return WITHIN
        return "confirmed"

    @cached_property
    def bounds_an_effect(self) -> bool:
        """Whether the statement is true without any difference: all values are one number, and
        another number gives the same, so it compares labels or quantities with each other. Equal
        sides satisfy each inequality, which says nothing about noise.
        """
        if self.found.margin is not None:
            return False
        first, second = (
            self.find(change_all(self.data, partial(_fill, number), np.random.default_rng(0)))
            for number in _NUMBERS
        )
        return (
            first is not None
            and second is not None
            and first.verdict == "confirmed"
            and same(first, second)
        )

    @cached_property
    def says_the_same(self) -> bool:
        """Whether the statement says the same of every label."""
        changed = change_all(self.data, permuted, np.random.default_rng(0))
        try:
            other = self.statement.relation(self.config, changed)
        except _NO_FINDING:
            return False
        return self.relation.same_of_every_label(other)

    @cached_property
    def compared(self) -> list[list[Place]]:
        """Groups of variables that the statement reads, of one form and of like size."""
        groups: list[list[Place]] = []
        for at in names(self.data):
            values = variable(self.data, at)
            if values.dtype.kind not in "fiub":
                continue
            # No quantity is 7 everywhere; some, such as a share of the best value, are 1.
            other = np.full_like(values.values, 7)
            mutated = self.find(with_variables(self.data, {at: values.copy(data=other)}))
            if mutated is not None and same(mutated, self.found):
                continue
            for group in groups:
                if is_alike(variable(self.data, group[0]), values):
                    group.append(at)
                    break
            else:
                groups.append([at])
        return [group for group in groups if len(group) > 1]


def _outcome_without_labels(
    subject: _Subject, changed: Data, change: Change, seed: int
) -> str | None:
    """The outcome on a mutant without the order of labels, or without any difference between them;
    where the statement is confirmed, on that of the variables that it compares together.
    """
    mutated = subject.find(changed)
    outcome = subject.outcome(mutated, one_sided=False)
    if outcome == "confirmed" and subject.compared:
        rng = np.random.default_rng(seed)
        mutated = subject.find(change_together(subject.data, subject.compared, change, rng))
        outcome = subject.outcome(mutated, one_sided=False)
    if outcome != "confirmed":
        return outcome
    if mutated is not None and (
        equal_within_noise(mutated, subject.found)
        or subject.relation.is_farther(mutated, subject.found)
        or subject.says_the_same
    ):
        return WITHOUT
    return outcome


def _formulas(subject: _Subject) -> Iterator[tuple[str, str]]:
    """Each formula that the statement calls, and the outcome with each of `FACTORS` times its
    values.
    """
    called: set[tuple[Any, str]] = set()
    with contextlib.ExitStack() as patches:
        for module, name in _theory():
            patches.enter_context(_patched(module, name, lambda value: value, called))
        subject.find(subject.data)
    for module, name in sorted(called, key=lambda each: (each[0].__name__, each[1])):
        for factor in FACTORS:
            with _patched(module, name, partial(_scale_all, factor=factor), set()):
                mutated = subject.find(subject.data)
            outcome = subject.outcome(mutated, one_sided=True, formula=True)
            if outcome is not None:
                called_as = f"{module.__name__.removeprefix('specjax.theory.')}.{name}"
                yield f"{called_as} × {factor}", outcome


def _theory() -> list[tuple[Any, str]]:
    """The public functions of `specjax.theory`, by the module that defines them."""
    theory = importlib.import_module("specjax.theory")
    modules = [
        importlib.import_module(found.name)
        for found in pkgutil.walk_packages(theory.__path__, "specjax.theory.")
    ]
    return [
        (module, name)
        for module in modules
        for name, value in vars(module).items()
        if inspect.isfunction(value)
        and value.__module__ == module.__name__
        and not name.startswith("_")
    ]


@contextlib.contextmanager
def _patched(
    module: Any, name: str, change: Callable[[Any], Any], called: set[tuple[Any, str]]
) -> Iterator[None]:
    """The function of a module, noting its calls, with a changed value."""
    function = getattr(module, name)

    def patched(*args: Any, **options: Any) -> Any:
        called.add((module, name))
        return change(function(*args, **options))

    setattr(module, name, patched)
    try:
        yield
    finally:
        setattr(module, name, function)


def _scale_all(value: Any, *, factor: float) -> Any:
    """The numbers of a value, of a list, of a tuple or of a named tuple times a factor."""
    if isinstance(value, list):
        return [_scale_all(each, factor=factor) for each in value]
    if isinstance(value, tuple):
        parts = [_scale_all(each, factor=factor) for each in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, dict):
        return {name: _scale_all(each, factor=factor) for name, each in value.items()}
    if isinstance(value, bool | str) or value is None or callable(value):
        return value
    # A closed form has float64 values even where JAX's default is float32.
    with jax.enable_x64(True):
        return factor * value
