"""The linear maps of a model, found in its program, with their inputs."""

from specjax.diagnostics.linear_maps._interpreter import linear_maps as linear_maps
from specjax.diagnostics.linear_maps._linear_map import Inputs as Inputs
from specjax.diagnostics.linear_maps._linear_map import Kind as Kind
from specjax.diagnostics.linear_maps._linear_map import LinearMap as LinearMap
from specjax.diagnostics.linear_maps._linear_map import inputs_of as inputs_of
