"""The sweep engine: a measurement over seeds, widths and values, in few compiled programs.

The engine knows no model. A measurement is a pure function ``measure(key, **point)`` that returns a
dict of arrays, and `run` returns them as labelled data:

    data = run(measure, over={"d1": widths(16, 32, 64)}, num_seeds=1000, key=jax.random.key(0))
"""

from specjax.arguments import checked
from specjax.resume import StoreError as StoreError
from specjax.sweep._dataset import explain as explain
from specjax.sweep._dataset import is_explained as is_explained
from specjax.sweep._dataset import labelled as labelled
from specjax.sweep._engine import run as run
from specjax.sweep._spec import EqualSeedsWarning as EqualSeedsWarning
from specjax.sweep._store import DamagedBlocksWarning as DamagedBlocksWarning
from specjax.sweep._store import open_store as _open_store
from specjax.sweep.axes import choices as choices
from specjax.sweep.axes import values as values
from specjax.sweep.axes import widths as widths
from specjax.sweep.axes import zipped as zipped
from specjax.sweep.failures import FailedSeedsWarning as FailedSeedsWarning
from specjax.sweep.failures import without_failed as without_failed
from specjax.sweep.seed_moments import mean_and_stderr as mean_and_stderr
from specjax.sweep.seed_moments import total as total

open_store = checked(_open_store)
