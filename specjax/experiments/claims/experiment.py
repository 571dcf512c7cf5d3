"""The fourteen claims as one experiment: those asked for are run, judged, tabulated and drawn, a panel for each."""

from math import ceil

from matplotlib.figure import Figure

from specjax.experiments.claims import (
    bias,
    curvature,
    expectation,
    integrability,
    limits,
    momentum,
    polar_algebra,
    reparametrization,
)
from specjax.experiments.claims.contract import Claim, Config, of_claim, outcome
from specjax.experiments.contract import Check, Data, Experiment, Table

GROUPS = (expectation, polar_algebra, integrability, momentum, limits, bias, curvature, reparametrization)

CLAIMS: dict[int, Claim] = {
    claim.number: claim for claim in sorted((c for group in GROUPS for c in group.CLAIMS), key=lambda c: c.number)
}
"""All claims by number, in order."""

PAGE_HEADER = ("claim", "as printed", "verdict", "decided by", "what is true")


def chosen(config: Config) -> list[Claim]:
    """The claims that a configuration asks for, in the order of their numbers."""
    return [CLAIMS[number] for number in sorted(config.only)]


def run(config: Config) -> Data:
    """The datasets of the chosen claims, each under its claim's number and its own name."""
    return {f"{_prefix(claim)}{name}": data for claim in chosen(config) for name, data in claim.run(config).items()}


def data_of(claim: Claim, data: Data) -> Data:
    """A claim's own datasets under their own names."""
    prefix = _prefix(claim)
    return {name.removeprefix(prefix): dataset for name, dataset in data.items() if name.startswith(prefix)}


def checks(config: Config, data: Data) -> list[Check]:
    """The checks of the chosen claims, by number."""
    return [check for claim in chosen(config) for check in claim.checks(config, data_of(claim, data))]


def verdict_row(claim: Claim, found: list[Check]) -> tuple[str, ...]:
    """A claim's line under `PAGE_HEADER`: its verdict, and the number of the check that decides it."""
    deciding = next(check for check in of_claim(claim.number, found) if check.name == claim.deciding)
    return (
        f"{claim.number}. {claim.title}",
        claim.printed,
        outcome(claim.number, found),
        f"{deciding.statement} {_numbers(deciding, claim.unit)}",
        claim.finding,
    )


def _numbers(check: Check, unit: str) -> str:
    measured = f"{_number(check.measured)} {unit}".strip()
    if check.interval is not None and check.interval[0] != check.interval[1]:
        measured = f"{measured} in [{_number(check.interval[0])}, {_number(check.interval[1])}]"
    predicted = "" if check.predicted is None else f", predicted {_number(check.predicted)}"
    return f"→ {check.verdict}: {measured}{predicted}"


def _number(value: float | None) -> str:
    """Three digits; what is below 1e-10 is rounding and differs between machines."""
    if value is None:
        return "–"
    return "0" if abs(value) < 1e-10 else f"{value:.3g}"


def tables(config: Config, data: Data) -> list[Table]:
    """One line for each claim, then the tables of single claims."""
    found = checks(config, data)
    verdicts = Table("Verdicts", PAGE_HEADER, tuple(verdict_row(claim, found) for claim in chosen(config)))
    return [verdicts, *(table(config, data_of(claim, data)) for claim in chosen(config) for table in claim.tables)]


def plot(config: Config, data: Data) -> Figure:
    """A panel for each chosen claim, with its verdict as title."""
    claims, found = chosen(config), checks(config, data)
    columns = min(len(claims), 4)
    lines = ceil(len(claims) / columns)
    figure = Figure(figsize=(4.2 * columns, 3.4 * lines), layout="constrained")
    for place, claim in enumerate(claims, start=1):
        axes = figure.add_subplot(lines, columns, place)
        claim.draw(axes, config, data_of(claim, data))
        axes.set_title(f"{claim.number}. {claim.title}: {outcome(claim.number, found)}", fontsize="medium")
    return figure


def _prefix(claim: Claim) -> str:
    return f"claim-{claim.number}-"


EXPERIMENT = Experiment(
    name="claims",
    paper="claims",
    source="claims, Claims 1 to 14",
    title="Fourteen claims on Ortho(G), M^(-1/2), momentum and curvature, each with its verdict",
    summary=(
        "Ortho is a gradient field, of the nuclear norm, and the bias of Ortho of a sum falls as 1/k; the text says the opposite of "
        "both. M^(-1/2) μ is Ortho(μ) exactly where the noise leaves the columns of μ alone. Half of the other claims hold under "
        "conditions that are not printed. Checks named printed judge the text, checks named corrected what is true instead."
    ),
    scales={
        "smoke": Config(matrices=20, samples=5000, gradients=1000),
        "quick": Config(),
        "paper": Config(matrices=1000, samples=1_000_000, gradients=100_000),
    },
    run=run,
    checks=checks,
    plot=plot,
    tables=tables,
    refuted=frozenset().union(*(claim.refuted for claim in CLAIMS.values())),
)
