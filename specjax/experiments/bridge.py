"""An experiment on the lab's statements, as the report and the command line know experiments.

The report speaks of checks; until it speaks of judgements, each judgement goes into it as a check, with the lab's record whole.
"""

from collections.abc import Mapping

import xarray as xr
from matplotlib.figure import Figure

from specjax import lab
from specjax.experiments.contract import Check, Data, Experiment, Table

_ONE = "data"
"""The name under which the dataset of a run that has one only is stored."""


def as_contract(experiment: lab.Experiment) -> Experiment:
    """The same experiment with the checks, tables and figure of the report's contract."""

    def checks(config: lab.Config, data: Data) -> list[Check]:
        return [_check(experiment.ledger.paper, judgement) for judgement in experiment.judge(config, own(data))]

    def tables(config: lab.Config, data: Data) -> list[Table]:
        found = own(data)
        tables = [] if experiment.tables is None else experiment.tables(config, found)
        # Without the attacks, which the checks have tried.
        tables.append(lab.table_of_points({s.name: s.find(config, found) for s in experiment.statements}))
        return [Table(table.title, table.header, table.rows) for table in tables]

    def plot(config: lab.Config, data: Data) -> Figure:
        return experiment.draw(config, own(data))

    rows = dict.fromkeys(row for statement in experiment.statements for row in statement.cites)
    return Experiment(
        name=experiment.name,
        paper=experiment.ledger.paper,
        source=f"{experiment.ledger.paper}, {', '.join(rows)}",
        title=experiment.title,
        summary=experiment.summary,
        scales={scale: experiment.at(scale) for scale in lab.SCALES},
        run=lambda config: _named(experiment.run(config)),
        checks=checks,
        plot=plot,
        tables=tables,
        refuted=frozenset(statement.name for statement in experiment.statements if statement.holds is False),
        held_open=frozenset(statement.name for statement in experiment.statements if statement.holds is None),
    )


def _check(paper: str, judgement: lab.Judgement) -> Check:
    record = lab.record(judgement)
    low, high = record["interval"]
    return Check(
        name=record["name"],
        source=f"{paper}, {', '.join(record['cites'])}",
        statement=record["says"],
        # A threshold is no prediction of the number.
        predicted=None if judgement.finding.away is None else record["compared"],
        measured=record["estimate"],
        interval=None if low is None or high is None else (low, high),
        verdict=judgement.verdict,
        rule=" ".join(
            filter(None, (f"{record['rule']}.", record["reason"], record["power"] and f"Power: {record['power']}."))
        ),
        record=record,
    )


def _named(data: xr.Dataset | Mapping[str, xr.Dataset]) -> Data:
    return {_ONE: data} if isinstance(data, xr.Dataset) else data


def own(data: Data) -> xr.Dataset | Data:
    """The data of a stored run as the experiment's statements take them."""
    return data[_ONE] if set(data) == {_ONE} else data
