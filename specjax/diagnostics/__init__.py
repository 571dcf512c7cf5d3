"""Diagnostics of spectral steps: the linear maps of a network, their ranks and curvature, and the
effect of an inexact polar factor on an exponent.
"""

from specjax.diagnostics._attribution import ExponentShift as ExponentShift
from specjax.diagnostics._attribution import attribute as attribute
from specjax.diagnostics._attribution import exponent_shift as exponent_shift
from specjax.diagnostics._attribution import with_polar_error as with_polar_error
from specjax.diagnostics._finite import first_not_finite as first_not_finite
from specjax.diagnostics._layout import LayoutRow as LayoutRow
from specjax.diagnostics._layout import MatrixLayout as MatrixLayout
from specjax.diagnostics._layout import matrix_layout as matrix_layout
from specjax.diagnostics.layer_report import LayerReport as LayerReport
from specjax.diagnostics.layer_report import LayerRow as LayerRow
from specjax.diagnostics.layer_report import activation_stable_ranks as activation_stable_ranks
from specjax.diagnostics.layer_report import layer_report as layer_report
