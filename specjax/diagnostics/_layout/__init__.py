"""The role of every parameter of a model, read off the program of its loss."""

from specjax.diagnostics._layout.leaf_classification import LayoutRow as LayoutRow
from specjax.diagnostics._layout.matrix_layout import MatrixLayout as MatrixLayout
from specjax.diagnostics._layout.matrix_layout import matrix_layout as matrix_layout
