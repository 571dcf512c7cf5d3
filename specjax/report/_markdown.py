"""The report as Markdown, for a repository or a terminal: the ledgers, then the checks of each
experiment.
"""

import re
from collections.abc import Sequence

from jinja2 import Environment, PackageLoader, StrictUndefined

from specjax.report import abstract, formatting, ledger_status, result_store
from specjax.report._record import Result

_SPECIAL = re.compile(r"([\\`*_\[\]<>|~$#])")


def _text(value: object) -> str:
    return _SPECIAL.sub(r"\\\1", " ".join(str(value).split()))


_TEMPLATES = Environment(
    loader=PackageLoader("specjax.report"),
    # Whatever a template puts in is text, but for the names in links and anchors, which are
    # kebab-case.
    finalize=_text,
    autoescape=False,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


def render(results: Sequence[Result]) -> str:
    """The report of `results`, in their order: the ledger of each paper, then each experiment.

    Raises:
        ValueError: a result of another version.
    """
    return _TEMPLATES.get_template("report.md").render(
        results=results,
        not_judged=abstract.not_judged(results),
        papers=ledger_status.papers(results),
        standing=ledger_status,
        cells=formatting,
        files=result_store,
    )
