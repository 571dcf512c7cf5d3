"""The linear maps of a model, found in its program, with what they are applied to."""

from specjax.diagnostics.linear_maps.interpreter import linear_maps as linear_maps
from specjax.diagnostics.linear_maps.linear_map import Inputs as Inputs
from specjax.diagnostics.linear_maps.linear_map import Kind as Kind
from specjax.diagnostics.linear_maps.linear_map import LinearMap as LinearMap
from specjax.diagnostics.linear_maps.linear_map import inputs_of as inputs_of
