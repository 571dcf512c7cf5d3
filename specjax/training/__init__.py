"""Train one network on real data: texts, loops that record and stop at NaN, ranks along the way,
checkpoints, several devices.
"""

from specjax.arguments import checked
from specjax.training import icl_task as icl_task
from specjax.training import text as text
from specjax.training._checkpoints import Checkpoints as Checkpoints
from specjax.training._checkpoints import DamagedCheckpointWarning as DamagedCheckpointWarning
from specjax.training._loop import DATA as DATA
from specjax.training._loop import Diverged as Diverged
from specjax.training._loop import Run as Run
from specjax.training._loop import train as _train
from specjax.training._step_loop import NotFinite as NotFinite
from specjax.training._step_loop import Steps as Steps
from specjax.training._step_loop import train_steps as train_steps
from specjax.training._telemetry import Ranks as Ranks
from specjax.training._telemetry import measure_ranks as measure_ranks
from specjax.training._train_many import train_many as train_many

train = checked(_train)
