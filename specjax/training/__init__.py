"""Training one network on real data: texts, a loop that records and stops at NaN, telemetry of ranks, checkpoints, several devices."""

from specjax.training import text as text
from specjax.training.checkpoints import Checkpoints as Checkpoints
from specjax.training.loop import DATA as DATA
from specjax.training.loop import Diverged as Diverged
from specjax.training.loop import Run as Run
from specjax.training.loop import train as train
from specjax.training.telemetry import Ranks as Ranks
from specjax.training.telemetry import measure_ranks as measure_ranks
