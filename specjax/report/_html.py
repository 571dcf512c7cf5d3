"""The report as one HTML page: the headlines, then the ledgers with the results that decide their
rows. It links to figures beside it, and needs no other file.
"""

import re
from collections.abc import Sequence

from jinja2 import Environment, PackageLoader, StrictUndefined

from specjax.report import abstract, formatting, ledger_status, result_store
from specjax.report._record import Result

STATUSES = {
    "holds": "confirmed in the paper's own words",
    "corrected": "refuted as printed; a corrected statement is confirmed",
    "false": "refuted",
    "depends": (
        "the verdict turns along the length of a training, or is otherwise in another setting"
    ),
    "open": "inconclusive, or a correction of ours refuted",
    "not run": "its experiments are not among these results, or at smoke scale only",
    "not judged": "trivial, a proof device, or out of reach; the row says which",
}
"""The statuses of rows and their meanings, in the order of the page."""

_TEMPLATES = Environment(
    loader=PackageLoader("specjax.report"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters["slug"] = lambda text: re.sub(r"[^a-z0-9]+", "-", text.lower())
_TEMPLATES.filters["label"] = formatting.label


def render(results: Sequence[Result]) -> str:
    """The report of `results`, in their order; links lead to files in the result folders beside it.

    Raises:
        ValueError: a result of another version.
    """
    return _TEMPLATES.get_template("report.html").render(
        results=results,
        headlines=[(result, check) for result in results for check in abstract.headlines(result)],
        not_judged=abstract.not_judged(results),
        papers=ledger_status.papers(results),
        standing_counts=ledger_status.counts,
        names={result.record.name for result in results},
        statuses=STATUSES,
        cells=formatting,
        files=result_store,
    )
