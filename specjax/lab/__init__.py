"""The lab: statements about labelled data, judged by relations that can fail, attacked every time,
and kept in ledgers.

    @lab.statement(
        "eq-40",
        "The off-diagonal is d₀d₂/4π at every input dimension.",
        rivals={"κ₂": leading_term},
    )
    def exact(config, data):
        form = lab.closed_form(theory.off_diagonal_1, data.d0, 1)
        return lab.equals(data["off_diagonal"], form)

Four promises: no verdict without its numbers; no verdict that could not have gone the other way; no
statement of a paper without a row; no experiment longer than its content.
"""

from specjax.lab import config as config
from specjax.lab import controls as controls
from specjax.lab import ledger as ledger
from specjax.lab._closed_form import closed_form as closed_form
from specjax.lab._seeded_sweep import seeded_sweep as seeded_sweep
from specjax.lab._statement import Control as Control
from specjax.lab._statement import Judgement as Judgement
from specjax.lab._statement import Statement as Statement
from specjax.lab._statement import Statements as Statements
from specjax.lab._statement import statement as statement
from specjax.lab.claim import read_claim as read_claim
from specjax.lab.config import Config as Config
from specjax.lab.experiment import Experiment as Experiment
from specjax.lab.relations import Relation as Relation
from specjax.lab.relations import above as above
from specjax.lab.relations import ahead as ahead
from specjax.lab.relations import below as below
from specjax.lab.relations import bounded as bounded
from specjax.lab.relations import equals as equals
from specjax.lab.relations import fraction as fraction
from specjax.lab.relations import grows as grows
from specjax.lab.relations import inequality as inequality
from specjax.lab.relations import near as near
from specjax.lab.relations import saturates as saturates
from specjax.lab.relations import scales_as as scales_as
from specjax.lab.relations import settles as settles
from specjax.lab.relations import vanishes as vanishes
from specjax.lab.relations import within_grid as within_grid
from specjax.lab.relations import zero_error as zero_error
from specjax.lab.table import Table as Table
