"""The sweep engine: seeds, widths and values in a few compiled programs, labelled data out, and power-law fits of it.

It knows no model. A measurement is a pure function ``measure(key, **point)`` that returns a dict of arrays:

    data = run(measure, over={"d1": widths(16, 32, 64)}, seeds=1000, key=jax.random.key(0))
    fit = fit_power_law(data["loss"], dim="d1")
"""

from specjax.sweep.axes import values as values
from specjax.sweep.axes import widths as widths
from specjax.sweep.axes import zipped as zipped
from specjax.sweep.dataset import explain as explain
from specjax.sweep.dataset import is_explained as is_explained
from specjax.sweep.dataset import labelled as labelled
from specjax.sweep.drawing import draw_fit as draw_fit
from specjax.sweep.drawing import draw_optimum as draw_optimum
from specjax.sweep.ends import End as End
from specjax.sweep.ends import ends as ends
from specjax.sweep.engine import run as run
from specjax.sweep.failures import FailedSeedsWarning as FailedSeedsWarning
from specjax.sweep.failures import without_failed as without_failed
from specjax.sweep.fit import Fit as Fit
from specjax.sweep.model_choice import ModelChoice as ModelChoice
from specjax.sweep.model_choice import choose_model as choose_model
from specjax.sweep.moments import mean_and_stderr as mean_and_stderr
from specjax.sweep.moments import total as total
from specjax.sweep.offset_fit import fit_offset as fit_offset
from specjax.sweep.optimum import Optimum as Optimum
from specjax.sweep.optimum import optimum as optimum
from specjax.sweep.power_law import asymptotic_exponent as asymptotic_exponent
from specjax.sweep.power_law import drop_smallest as drop_smallest
from specjax.sweep.power_law import fit_power_law as fit_power_law
from specjax.sweep.replicates import RoughFitWarning as RoughFitWarning
from specjax.sweep.slopes import jackknife as jackknife
from specjax.sweep.slopes import slopes as slopes
from specjax.sweep.store import DamagedBlocksWarning as DamagedBlocksWarning
from specjax.sweep.store import StoreError as StoreError
from specjax.sweep.store import open_store as open_store
