"""An experiment: a configuration, a run that returns labelled data, and statements about them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Generic, TypeVar

import jax
import xarray as xr
from jaxtyping import Array, Key
from matplotlib import rc_context
from matplotlib.figure import Figure

from specjax.lab._figure import MOST_PANELS, Drawn, finding_figure, statement_grid
from specjax.lab._statement import Judgement, Statement
from specjax.lab.config import Config
from specjax.lab.drawing import STYLE
from specjax.lab.ledger import Ledger
from specjax.lab.table import Table, table_of_points

Data = xr.Dataset | Mapping[str, xr.Dataset]
"""The data of a run: one dataset, or several by name."""

ConfigT = TypeVar("ConfigT", bound=Config)
Measure = Callable[[ConfigT, Key[Array, ""]], Data]
Parts = Mapping[str, Callable[[ConfigT, Key[Array, ""]], xr.Dataset]]

SCALES = ("smoke", "quick", "paper")
RUN_FLAGS = frozenset({"scale", "out", "explain", "help"})
"""Flags of `specjax run` that are not fields of a configuration."""


@dataclass(frozen=True)
class Experiment(Generic[ConfigT]):
    """An experiment, as `specjax run` needs it.

    Attributes:
        name: Its name on the command line.
        ledger: The ledger that its statements cite.
        title: The finding, in one line.
        summary: The finding, in a few sentences.
        config: The class of its configurations; its defaults are the scale "quick", but for what
            `scales` changes in it.
        measure: The run: a function from configuration and root key to labelled data, or several
            by name, whose datasets statements read by these names.
        statements: The statements to judge.
        scales: The fields that each of the scales "smoke", "quick" and "paper" changes.
        figure: A function of configuration and data, or names of statements, which the default
            figure shows first; it has at most four panels, the headlines first.
        tables: Its own tables, a function of configuration and data.
        paired: Why several sweeps share a key, if they do on purpose: then seed s of each has the
            same random numbers.
        headlines: The names of the statements that the paper is about, if they are here; those
            `specjax reproduce` runs by default, and prints as an abstract.
        headlines_read: The names in `measure` that these statements, their rivals and their
            controls read; a run of the headlines alone computes no other. By default all.

    Raises:
        ValueError: no statement, two of one name, one that cites no row of the ledger, an unknown
            scale, one that changes no field of the configuration, a field with the name of a flag
            of `specjax run`, a name in `figure` that is not a statement, a headline that is not
            one or has no expected verdict, or headlines that read what `measure` does not name.
    """

    name: str
    ledger: Ledger
    title: str
    summary: str
    config: type[ConfigT]
    measure: Measure[ConfigT] | Parts[ConfigT]
    statements: Sequence[Statement]
    scales: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    figure: Callable[[ConfigT, Any], Figure] | Sequence[str] = ()
    tables: Callable[[ConfigT, Any], list[Table]] | None = None
    paired: str = ""
    headlines: Sequence[str] = ()
    headlines_read: Sequence[str] = ()

    def __post_init__(self) -> None:
        # Statements that a module makes later do not belong to the experiment.
        object.__setattr__(self, "statements", tuple(self.statements))
        if not self.statements:
            raise ValueError(f"The experiment {self.name} states nothing; give it a statement.")
        names = [statement.name for statement in self.statements]
        for statement in self.statements:
            if names.count(statement.name) > 1:
                raise ValueError(
                    f"{self.name} has two statements called {statement.name!r}; give each a name of"
                    " its own."
                )
            self.ledger.require(statement.cites, f"The statement {statement.name!r} of {self.name}")
        if unknown := sorted(set(self.scales) - set(SCALES)):
            raise ValueError(
                f"{self.name} has the unknown scale {unknown[0]!r}; there are {', '.join(SCALES)}."
            )
        known = {each.name for each in fields(self.config)}
        for scale, changed in self.scales.items():
            if wrong := sorted(set(changed) - known):
                raise ValueError(
                    f"The scale {scale!r} of {self.name} changes {wrong[0]!r}, which is not a field"
                    f" of its configuration; there are {', '.join(sorted(known))}."
                )
        if taken := RUN_FLAGS & known:
            raise ValueError(
                f"The configuration of {self.name} has the field {min(taken)!r}, a flag of `specjax"
                " run` itself; give it another name."
            )
        if not callable(self.figure) and (wrong := sorted(set(self.figure) - set(names))):
            raise ValueError(
                f"The figure of {self.name} shows {wrong[0]!r}, which is not a statement; there are"
                f" {', '.join(names)}."
            )
        expected = [each.name for each in self.statements if each.holds is not None]
        if missing := [name for name in self.headlines if name not in expected]:
            raise ValueError(
                f"The headline {missing[0]!r} of {self.name} is not a statement with an expected"
                f" verdict; there are {', '.join(expected) or 'none'}."
            )
        parts = sorted(self.measure) if isinstance(self.measure, Mapping) else []
        if missing := [name for name in self.headlines_read if name not in parts]:
            raise ValueError(
                f"The headlines of {self.name} read {missing[0]!r}, which its `measure` does not"
                f" name; there are {', '.join(parts) or 'none'}."
            )

    @property
    def paper(self) -> str:
        """The paper whose ledger its statements cite."""
        return self.ledger.paper

    @property
    def source(self) -> str:
        """The paper and the rows that its statements cite."""
        return ", ".join(
            [
                self.paper,
                *dict.fromkeys(row for statement in self.statements for row in statement.cites),
            ]
        )

    def at(self, scale: str, **changed: Any) -> ConfigT:
        """The configuration of a scale, with some fields changed."""
        if scale not in SCALES:
            raise ValueError(f"There is no scale {scale!r}; there are {', '.join(SCALES)}.")
        return self.config(**{**self.scales.get(scale, {}), **changed})

    def run(self, config: ConfigT) -> Data:
        """The data of a configuration."""
        key = jax.random.key(config.seed)
        if not isinstance(self.measure, Mapping):
            return self.measure(config, key)
        return {name: part(config, key) for name, part in self.measure.items()}

    def with_headlines_alone(self) -> "Experiment[ConfigT]":
        """The experiment with its headlines for statements, which computes what they read: the same
        numbers as in the whole run, since the parts of `measure` do not depend on each other.

        Raises:
            ValueError: it has no headline.
        """
        measure = self.measure
        if isinstance(measure, Mapping) and self.headlines_read:
            measure = {name: measure[name] for name in self.headlines_read}
        return replace(
            self,
            measure=measure,
            statements=[each for each in self.statements if each.name in self.headlines],
            figure=self.headlines,
            tables=None,
        )

    def judge(self, config: ConfigT, data: Data) -> list[Judgement]:
        """Every statement, judged on `data` and attacked."""
        return [statement.judge(config, data) for statement in self.statements]

    def draw(self, config: ConfigT, data: Data) -> Figure:
        """The figure of a run, in the colours of the lab."""
        with rc_context(STYLE):
            if callable(self.figure):
                return self.figure(config, data)
            first = dict.fromkeys((*self.figure, *self.headlines))
            return finding_figure(self._drawn(config, data), tuple(first))

    def draw_statements(self, config: ConfigT, data: Data) -> Figure | None:
        """A panel for each statement; None if the figure of the experiment is its own, or has them
        all.
        """
        if callable(self.figure) or len(self.statements) <= MOST_PANELS:
            return None
        with rc_context(STYLE):
            return statement_grid(self._drawn(config, data))

    def _drawn(self, config: ConfigT, data: Data) -> dict[str, Drawn]:
        return {
            each.name: (each.relation(config, data), each.rival_numbers(config, data))
            for each in self.statements
        }

    def tabulate(self, config: ConfigT, data: Data, judgements: Sequence[Judgement]) -> list[Table]:
        """Its own tables, and the numbers of the judgements point by point."""
        own = [] if self.tables is None else self.tables(config, data)
        return [
            *own,
            table_of_points({judged.statement.name: judged.finding for judged in judgements}),
        ]
