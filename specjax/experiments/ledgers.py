"""The ledgers, each in the folder of its experiments: five papers, scaling, and the field."""

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
"""Folder of each ledger's experiments; "scaling" and "field" collect several papers."""


@cache
def ledger(paper: str) -> lab.ledger.Ledger:
    """The ledger of a paper; ValueError with the known ones for an unknown paper."""
    if paper not in PAPERS:
        raise ValueError(f"There is no paper {paper!r}; there are {', '.join(PAPERS)}.")
    return lab.ledger.read_ledger(Path(__file__).parent / PAPERS[paper] / "ledger.toml", paper)
