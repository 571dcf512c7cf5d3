"""Fits of labelled data: exponents, offsets, optima and limits, with intervals from the replicates.

The data may come from a sweep or from anywhere else; a fit reads the dimension "seed" or "batch" as
its replicates:

    fit = fit_power_law(data["loss"], dim="d1")
    fit.exponent, fit.interval, fit.local_exponents
"""

from specjax.fits._asymptotics import Asymptotics as Asymptotics
from specjax.fits._asymptotics import asymptotics as asymptotics
from specjax.fits._center import By as By
from specjax.fits._extrapolation import LEAST_LOGARITHM as LEAST_LOGARITHM
from specjax.fits._extrapolation import SLOWEST as SLOWEST
from specjax.fits._extrapolation import Extrapolation as Extrapolation
from specjax.fits._extrapolation import extrapolate as extrapolate
from specjax.fits._log_slopes import jackknife as jackknife
from specjax.fits._log_slopes import log_slopes as log_slopes
from specjax.fits._model_choice import ModelChoice as ModelChoice
from specjax.fits._model_choice import choose_model as choose_model
from specjax.fits._offset_fit import fit_offset as fit_offset
from specjax.fits._optimum import Optimum as Optimum
from specjax.fits._optimum import optimum as optimum
from specjax.fits._power_law import asymptotic_exponent as asymptotic_exponent
from specjax.fits._power_law import drop_smallest as drop_smallest
from specjax.fits._power_law import fit_logarithm as fit_logarithm
from specjax.fits._power_law import fit_power_law as fit_power_law
from specjax.fits._requirements import require_real as require_real
from specjax.fits._requirements import require_single_draws as require_single_draws
from specjax.fits._requirements import require_sizes as require_sizes
from specjax.fits._resampling import RoughFitWarning as RoughFitWarning
from specjax.fits._summary import Summary as Summary
from specjax.fits._summary import summarize as summarize
from specjax.fits._tails import HeavyTailWarning as HeavyTailWarning
from specjax.fits.drawing import draw_fit as draw_fit
from specjax.fits.drawing import draw_optimum as draw_optimum
from specjax.fits.fit import Fit as Fit
