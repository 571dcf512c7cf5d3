"""Ledgers: every numbered statement, figure and table of a paper, a row each, with what has become
of it.

A ledger is a TOML file with one table for each row, under the row's id:

    [theorem-3]
    kind = "theorem"
    where = "Section 3.2"
    says = "One sentence that says what the paper states, with its conditions."
    finding = "One sentence that says what was found."  # optional
    because = "Proof device: used only for Theorem 4."  # if no statement cites the row

A sentence of ours on the paper, which the paper does not say, has a place that begins with "ours",
as in `where = "ours, on Section 3.2"`, and is counted apart.

The status of a row is never typed: it follows from the verdicts of the statements that cite it.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from specjax.arguments import checked
from specjax.lab.outcome import Verdict

KINDS = (
    "theorem",
    "lemma",
    "corollary",
    "proposition",
    "conjecture",
    "claim",
    "remark",
    "equation",
    "figure",
    "table",
    "algorithm",
)
Status = Literal["holds", "corrected", "false", "depends", "open", "not run", "not judged"]


@dataclass(frozen=True)
class Row:
    """A row of a ledger: its id in the paper's numbering, its kind, its place in the paper and its
    content.
    """

    id: str
    kind: str
    where: str
    says: str
    finding: str = ""
    because: str = ""

    @property
    def ours(self) -> bool:
        """Whether the sentence is ours and not the paper's: its place then begins with "ours"."""
        return self.where.startswith("ours")


@dataclass(frozen=True)
class Ledger:
    """The rows of a paper by id, in the order of the paper."""

    paper: str
    rows: Mapping[str, Row]

    @classmethod
    def from_conjectures(cls, paper: str, **says: str) -> "Ledger":
        """A ledger of your own conjectures, `id="What it says."`, with underscores in place of
        dashes.
        """
        ids = {name.replace("_", "-"): text for name, text in says.items()}
        return cls(paper, {id: Row(id, "conjecture", paper, text) for id, text in ids.items()})

    def require(self, ids: Iterable[str], by: str) -> None:
        """Raise ValueError for an id that is not a row."""
        for id in ids:
            if id not in self.rows:
                raise ValueError(
                    f"{by} cites {id!r}, which is not a row of the ledger of {self.paper}; add the"
                    " row or correct the id."
                )


@dataclass(frozen=True)
class Citation:
    """A statement that cites a row, as far as the row's status depends on it; the verdict is None
    if it was not run.
    """

    verdict: Verdict | None
    corrected: bool
    depends: bool
    elsewhere: bool = False


@checked
def read_ledger(path: Path, paper: str) -> Ledger:
    """The ledger in a file.

    Raises:
        ValueError: invalid TOML, an unknown key or kind, a missing key, or an id that is not in
            kebab-case.
    """
    content = read_toml(path, "The ledger")
    return Ledger(paper, {id: row_of(path, id, row) for id, row in content.items()})


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """The tables of a file; raises ValueError in a sentence about `what` if they cannot be read."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{what} {path} cannot be read ({error.strerror}).") from error
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{what} {path} is not TOML: {error}.") from error


def status(citations: Iterable[Citation]) -> Status:
    """The status of a row from the verdicts of the statements that cite it.

    A row holds if every statement in its own words is confirmed. It is false if one is refuted, or
    "corrected" if also every corrected statement is confirmed. It depends if a verdict changes
    along the length of a training, or if a statement that contradicts it in another setting is
    confirmed. It is open if a verdict is inconclusive, or a correction of ours is refuted.
    """
    cited = list(citations)
    if not cited:
        return "not judged"
    if any(citation.verdict is None for citation in cited):
        return "not run"
    if any(c.depends or (c.elsewhere and c.verdict == "confirmed") for c in cited):
        return "depends"
    here = [c for c in cited if not c.elsewhere]
    verdicts = {kind: [c.verdict for c in here if c.corrected is kind] for kind in (False, True)}
    if "refuted" in verdicts[False]:
        return "corrected" if verdicts[True] and set(verdicts[True]) == {"confirmed"} else "false"
    undecided = any(c.elsewhere and c.verdict == "inconclusive" for c in cited)
    if not undecided and set(verdicts[False] + verdicts[True]) == {"confirmed"}:
        return "holds" if verdicts[False] else "corrected"
    return "open"


def row_of(path: Path, id: str, row: object) -> Row:
    """The row of a table of a ledger; raises ValueError as `read_ledger` does."""
    known = {field.name for field in fields(Row)} - {"id"}
    if not isinstance(row, dict):
        raise ValueError(
            f"The ledger {path} has {id!r} outside of a table; write [{id}] above its keys."
        )
    if unknown := sorted(set(row) - known):
        raise ValueError(
            f"The row {id!r} of {path} has the unknown key {unknown[0]!r}; there are"
            f" {', '.join(sorted(known))}."
        )
    if missing := sorted({"kind", "where", "says"} - set(row)):
        raise ValueError(f"The row {id!r} of {path} lacks the key {missing[0]!r}.")
    if row["kind"] not in KINDS:
        raise ValueError(
            f"The row {id!r} of {path} has the unknown kind {row['kind']!r}; there are"
            f" {', '.join(KINDS)}."
        )
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", id):
        raise ValueError(
            f"The row {id!r} of {path} needs an id in kebab-case, such as 'theorem-3'."
        )
    return Row(id, **row)
