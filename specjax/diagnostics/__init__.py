"""What a spectral step would do to a given network: its linear maps, their ranks, and its curvature along steps."""

from specjax.diagnostics.finite import first_not_finite as first_not_finite
from specjax.diagnostics.layer_report import LayerReport as LayerReport
from specjax.diagnostics.layer_report import LayerRow as LayerRow
from specjax.diagnostics.layer_report import activation_stable_ranks as activation_stable_ranks
from specjax.diagnostics.layer_report import layer_report as layer_report
