"""What every parameter of a model is, read off the program of its loss."""

from specjax.diagnostics.layout.matrix_layout import MatrixLayout as MatrixLayout
from specjax.diagnostics.layout.matrix_layout import matrix_layout as matrix_layout
from specjax.diagnostics.layout.rows import LayoutRow as LayoutRow
