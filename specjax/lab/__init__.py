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

from specjax.lab.check import Check as Check
from specjax.lab.check import attack_rows as attack_rows
from specjax.lab.closed_form import closed_form as closed_form
from specjax.lab.config import MOST_COUNT as MOST_COUNT
from specjax.lab.config import MOST_SIZE as MOST_SIZE
from specjax.lab.config import Config as Config
from specjax.lab.config import ascending as ascending
from specjax.lab.config import grid as grid
from specjax.lab.config import integer as integer
from specjax.lab.config import number as number
from specjax.lab.config import numbers as numbers
from specjax.lab.config import root_seed as root_seed
from specjax.lab.config import seeds as seeds
from specjax.lab.config import sizes as sizes
from specjax.lab.config import switch as switch
from specjax.lab.config import text as text
from specjax.lab.controls import at_labels as at_labels
from specjax.lab.controls import at_places as at_places
from specjax.lab.controls import changing as changing
from specjax.lab.controls import exchanging as exchanging
from specjax.lab.controls import replacing as replacing
from specjax.lab.controls import reverse as reverse
from specjax.lab.experiment import SCALES as SCALES
from specjax.lab.experiment import Data as Data
from specjax.lab.experiment import Experiment as Experiment
from specjax.lab.ledger import Citation as Citation
from specjax.lab.ledger import Ledger as Ledger
from specjax.lab.ledger import Row as Row
from specjax.lab.ledger import Status as Status
from specjax.lab.ledger import read_ledger as read_ledger
from specjax.lab.ledger import status as status
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
from specjax.lab.seeded_sweep import seeded_sweep as seeded_sweep
from specjax.lab.statement import Judgement as Judgement
from specjax.lab.statement import Statement as Statement
from specjax.lab.statement import Statements as Statements
from specjax.lab.statement import statement as statement
from specjax.lab.table import Table as Table
from specjax.lab.table import table_by_size as table_by_size
from specjax.lab.table import table_of_points as table_of_points
