"""A paper's claim as a folder of two files: `claim.toml` has the words, `claim.py` the computation.

    [paper]
    title = "Title of the paper"
    link = "https://arxiv.org/abs/2606.00000"

    [experiment]
    title = "The finding in one line"
    summary = "The finding in a few sentences."

    [presets.smoke]          # fields of the configuration that a preset changes
    seeds = 20

    [rows.theorem-1]         # a row of the ledger, see `specjax.lab.ledger`
    kind = "theorem"
    where = "Section 3, Theorem 1"
    says = "What the paper states, with its conditions."

    [statements.exponent]    # a statement that decides rows
    cites = ["theorem-1"]
    says = "The sentence that is judged."
    holds = false            # optional: the expected verdict, true by default

`claim.py` reads these words by `read_claim(__file__)` and gives every statement its function.

An experiment of your own has a table `[conjectures]`, a sentence by name, in the place of `[paper]`
and `[rows]`. Its module may have another name: `batch_polar.py` reads `batch_polar.toml`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from specjax.arguments import checked
from specjax.lab._statement import Control, Judge, Rival, Statement, statement
from specjax.lab.config import Config
from specjax.lab.experiment import SCALES, Experiment, Measure, Parts
from specjax.lab.ledger import Ledger, read_toml, row_of

COMPUTATION = "claim.py"
_TABLES = frozenset({"experiment", "presets", "statements"})
_OF_PAPER, _OF_OURS = frozenset({"paper", "rows"}), frozenset({"conjectures"})
_NEEDED = {"paper": frozenset({"title", "link"}), "experiment": frozenset({"title", "summary"})}
_OPTIONS = frozenset({"cites", "says", "holds", "corrected", "elsewhere", "post_hoc"})


@dataclass(frozen=True, eq=False)
class Claim:
    """The words of a claim; `judges` adds a function for each statement, `experiment` ends it.

    The claim has the name of its folder, or of its module if that is not `claim.py`, with dashes.
    `paper` has a title and a link, and is empty for conjectures of our own.
    """

    file: Path
    name: str
    paper: Mapping[str, str]
    title: str
    summary: str
    presets: Mapping[str, Mapping[str, Any]]
    ledger: Ledger
    words: Mapping[str, Mapping[str, Any]]
    statements: list[Statement] = field(default_factory=list)

    def judges(
        self,
        name: str,
        *,
        rivals: Mapping[str, Rival] | None = None,
        controls: Mapping[str, Control] | None = None,
        along: str | None = None,
    ) -> Callable[[Judge], Statement]:
        """Make the statement `name` of the TOML file of a function that returns a relation.

        Arguments are those of `specjax.lab.statement`.

        Raises:
            ValueError: the file has no such statement, or a refusal of `statement`.
        """
        if name not in self.words:
            raise ValueError(
                f"{self.file.name} of {self.name} has no statement {name!r}; there are"
                f" {', '.join(self.words) or 'none'}."
            )
        words = dict(self.words[name])
        cites = words.pop("cites")
        rows = (cites,) if isinstance(cites, str) else tuple(cites)
        make = statement(
            rows,
            words.pop("says"),
            name=name,
            rivals=rivals,
            controls=controls,
            along=along,
            **words,
        )

        def add(relation: Judge) -> Statement:
            self.statements.append(make(relation))
            return self.statements[-1]

        return add

    def experiment(
        self,
        config: type[Config],
        run: Measure[Any] | Parts[Any],
        *,
        figure: Callable[[Any, Any], Figure] | Sequence[str] = (),
        paired: str = "",
        headlines: Sequence[str] = (),
        headlines_read: Sequence[str] = (),
    ) -> Experiment[Any]:
        """The experiment of the claim; `run` and the options are those of `Experiment`.

        Raises:
            ValueError: a statement of the file has no function, or a refusal of `Experiment`.
        """
        judged = {statement.name for statement in self.statements}
        if left := [name for name in self.words if name not in judged]:
            raise ValueError(
                f"The statement {left[0]!r} of {self.name} has no function; write one below"
                f" `@claim.judges({left[0]!r}, ...)`, or take it out of {self.file.name}."
            )
        return Experiment(
            self.name,
            self.ledger,
            self.title,
            self.summary,
            config,
            run,
            self.statements,
            scales=self.presets,
            figure=figure,
            paired=paired,
            headlines=headlines,
            headlines_read=headlines_read,
        )


@checked
def read_claim(file: str) -> Claim:
    """The claim whose words lie beside `file`, which is `__file__` of its module: in `claim.toml`
    beside `claim.py`.

    Raises:
        ValueError: the file is missing or not TOML; a table or key that is unknown or missing.

    Examples:
        >>> from pathlib import Path
        >>> from specjax import experiments, lab
        >>> claim = lab.read_claim(f"{experiments.SUBMITTED}/spectral_power_step/claim.py")
        >>> claim.name, list(claim.words)
        ('spectral-power-step', ['gains-the-dual-norm', 'ascent-gains-no-more'])
    """
    path = Path(file).with_suffix(".toml")
    content = read_toml(path, "The claim")
    tables = _TABLES | (_OF_OURS if "conjectures" in content else _OF_PAPER)
    _check_keys(path, "", content, tables, tables - {"presets"})
    for table, needed in _NEEDED.items():
        if table in tables:
            _check_keys(path, f"[{table}]", content[table], needed, needed)
    for name, words in content["statements"].items():
        _check_keys(path, f"[statements.{name}]", words, _OPTIONS, {"cites", "says"})
    presets = content.get("presets", {})
    _check_keys(path, "[presets]", presets, frozenset(SCALES), frozenset())
    named = path.resolve().parent.name if Path(file).name == COMPUTATION else path.stem
    name = named.replace("_", "-")
    return Claim(
        path,
        name,
        content.get("paper", {}),
        content["experiment"]["title"],
        content["experiment"]["summary"],
        {scale: _with_tuples(changed) for scale, changed in presets.items()},
        _ledger(path, name, content),
        content["statements"],
    )


def _ledger(path: Path, name: str, content: Mapping[str, Any]) -> Ledger:
    """The ledger of a paper, or of conjectures."""
    if "conjectures" in content:
        says = content["conjectures"]
        if not isinstance(says, dict) or not all(isinstance(text, str) for text in says.values()):
            raise ValueError(f"{path} [conjectures] needs to be a table of sentences by name.")
        return Ledger.from_conjectures(name, **says)
    return Ledger(name, {id: row_of(path, id, row) for id, row in content["rows"].items()})


def _check_keys(
    path: Path, table: str, found: object, known: frozenset[str], needed: frozenset[str] | set[str]
) -> None:
    place = f"{path} {table}".strip()
    if not isinstance(found, dict):
        raise ValueError(f"{place} needs to be a table.")
    if unknown := sorted(set(found) - known):
        raise ValueError(
            f"{place} has the unknown key {unknown[0]!r}; there are {', '.join(sorted(known))}."
        )
    if missing := sorted(set(needed) - set(found)):
        raise ValueError(f"{place} lacks {missing[0]!r}.")


def _with_tuples(changed: Mapping[str, Any]) -> dict[str, Any]:
    """The fields with lists as tuples, which configurations have."""
    return {
        name: tuple(value) if isinstance(value, list) else value for name, value in changed.items()
    }
