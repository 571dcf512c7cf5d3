"""Stored results and the report made of them: `produce` runs and stores, `load` reads, `refresh`
rewrites the report.
"""

from specjax.report.produce import HTML as HTML
from specjax.report.produce import MARKDOWN as MARKDOWN
from specjax.report.produce import Refused as Refused
from specjax.report.produce import judge_again as judge_again
from specjax.report.produce import produce as produce
from specjax.report.produce import refresh as refresh
from specjax.report.record import Record as Record
from specjax.report.record import Result as Result
from specjax.report.result_store import FIGURE as FIGURE
from specjax.report.result_store import LeftOutWarning as LeftOutWarning
from specjax.report.result_store import load as load
from specjax.report.result_store import load_all as load_all
from specjax.report.result_store import load_data as load_data
from specjax.report.result_store import require_room as require_room
from specjax.report.unfinished import begin as begin
from specjax.report.unfinished import discard as discard
