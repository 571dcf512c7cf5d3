"""What a claim is: a run, the checks of its printed statement and of its corrected form, and a panel of the figure.

Every check says in its name what it judges: `claim-4-printed-…` the text's statement, `claim-4-corrected-…` ours. The verdict on a
claim follows from the verdicts of its printed checks alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from matplotlib.axes import Axes

from specjax.experiments.contract import Check, Data, Table
from specjax.experiments.validation import check_root_seed

NUMBERS = tuple(range(1, 15))

Outcome = Literal["holds", "holds in part", "false", "undecided"]
Words = tuple[str, str, str]


@dataclass(frozen=True)
class Config:
    """Which claims, and how many draws decide them."""

    only: tuple[int, ...] = field(default=NUMBERS, metadata={"help": "numbers of the claims to run"})
    matrices: int = field(default=200, metadata={"help": "random matrices on which an identity is tried"})
    samples: int = field(default=100_000, metadata={"help": "samples of a Monte Carlo mean of numbers"})
    gradients: int = field(
        default=10_000, metadata={"help": "draws of a mean of polar factors at each number of gradients k"}
    )
    seed: int = field(default=0, metadata={"help": "seed of all draws"})

    def __post_init__(self) -> None:
        if not self.only or len(set(self.only)) < len(self.only) or not set(self.only) <= set(NUMBERS):
            raise ValueError(f"only takes different numbers of claims from 1 to 14, as in (4, 9), got {self.only}.")
        for name, least in (("matrices", 20), ("samples", 1000), ("gradients", 500)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, for a verdict, got {getattr(self, name)}.")
        check_root_seed(self.seed)


@dataclass(frozen=True)
class Claim:
    """One of the fourteen.

    `printed` is the statement in this project's words and `finding` what is true instead or besides; `refuted` names the checks
    that are expected to be refuted, and `deciding` the one whose number, in `unit`, decides. `run` names its datasets freely; outside they
    carry the number of the claim.
    """

    number: int
    title: str
    printed: str
    finding: str
    deciding: str
    refuted: frozenset[str]
    run: Callable[[Config], Data]
    checks: Callable[[Config, Data], list[Check]]
    draw: Callable[[Axes, Config, Data], None]
    unit: str = ""
    tables: tuple[Callable[[Config, Data], Table], ...] = ()


def printed(number: int, what: str, statement: str) -> Words:
    """Name, source and statement of a check on what the text says."""
    return f"claim-{number}-printed-{what}", f"claims, Claim {number}", statement


def corrected(number: int, what: str, statement: str) -> Words:
    """Name, source and statement of a check on what is true instead, or what makes it true."""
    return f"claim-{number}-corrected-{what}", f"claims, Claim {number}, corrected [ours]", statement


def of_claim(number: int, checks: Sequence[Check]) -> list[Check]:
    """The checks of one claim."""
    return [check for check in checks if check.name.startswith(f"claim-{number}-")]


def outcome(number: int, checks: Sequence[Check]) -> Outcome:
    """The verdict on a claim: holds if all its printed checks are confirmed, false if all are refuted, in part if both occur.

    An inconclusive one leaves it undecided.
    """
    verdicts = {check.verdict for check in of_claim(number, checks) if "-printed-" in check.name}
    if not verdicts or "inconclusive" in verdicts:
        return "undecided"
    if verdicts == {"confirmed"}:
        return "holds"
    return "false" if verdicts == {"refuted"} else "holds in part"
