"""Training one network on real data: texts, loops that record and stop at NaN, telemetry of ranks,
checkpoints, several devices.
"""

from specjax.arguments import checked
from specjax.training import in_context as in_context
from specjax.training import text as text
from specjax.training.checkpoints import Checkpoints as Checkpoints
from specjax.training.checkpoints import DamagedCheckpointWarning as DamagedCheckpointWarning
from specjax.training.loop import DATA as DATA
from specjax.training.loop import Diverged as Diverged
from specjax.training.loop import Run as Run
from specjax.training.loop import train as _train
from specjax.training.side_by_side import train_side_by_side as train_side_by_side
from specjax.training.stepwise import NotFinite as NotFinite
from specjax.training.stepwise import Steps as Steps
from specjax.training.stepwise import train_steps as train_steps
from specjax.training.telemetry import Ranks as Ranks
from specjax.training.telemetry import measure_ranks as measure_ranks

train = checked(_train)
