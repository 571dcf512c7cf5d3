"""Stored results and the report made of them: `produce` runs and stores, `load` reads, `refresh`
rewrites the report.
"""

from specjax.report._record import Record as Record
from specjax.report._record import Result as Result
from specjax.report._resume_dir import discard as discard
from specjax.report.result_store import FIGURE as FIGURE
from specjax.report.result_store import LeftOutWarning as LeftOutWarning
from specjax.report.result_store import load as load
from specjax.report.result_store import load_all as load_all
from specjax.report.result_store import load_data as load_data
from specjax.report.result_store import require_room as require_room
from specjax.report.runner import HTML as HTML
from specjax.report.runner import MARKDOWN as MARKDOWN
from specjax.report.runner import Refused as Refused
from specjax.report.runner import judge_again as judge_again
from specjax.report.runner import produce as produce
from specjax.report.runner import refresh as refresh
