"""The ledgers of the five papers, of what is known of widths and rates, and of recent statements:
one beside the experiments of each.
"""

from functools import cache
from pathlib import Path

from specjax import lab

PAPERS = {
    "outer-product": "outer_product",
    "claims": "claims",
    "preconditioning": "preconditioning",
    "spectral-criterion": "spectral_criterion",
    "associative-memory": "associative_memory",
    "scaling": "scaling",
    "field": "field",
}
"""The folder of the experiments of each; "scaling" and "field" collect what several papers say."""


@cache
def ledger(paper: str) -> lab.Ledger:
    """The ledger of a paper; raises ValueError with the known ones for a paper that there is
    not.
    """
    if paper not in PAPERS:
        raise ValueError(f"There is no paper {paper!r}; there are {', '.join(PAPERS)}.")
    return lab.ledger.read_ledger(Path(__file__).parent / PAPERS[paper] / "ledger.toml", paper)
