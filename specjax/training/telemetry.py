"""Ranks along a training: of the activations that feed every linear map, and of its gradient (spectral-criterion, Table 1)."""

from collections.abc import Callable
from typing import NamedTuple

import jax
from jaxtyping import Array, PyTree

from specjax.diagnostics import activation_stable_ranks
from specjax.optim.switch import nuclear_rank
from specjax.spectral import CUBIC, NewtonSchulz

ITERATIONS = 30
"""Of Newton and Schulz' cubic: singular values above 1e-4 of the largest come within 1e-6 of 1, and lower ones add nothing to ‖G‖_*."""


class Ranks(NamedTuple):
    """Trees like the parameters, with None for those in no linear map, and a number for each matrix of a stacked one."""

    stable: PyTree
    """st(A) of the inputs."""
    nuclear: PyTree
    """nr(G) of the gradient, 0 where it is zero."""


def measure_ranks(loss: Callable[[PyTree, PyTree], Array], params: PyTree, batch: PyTree) -> Ranks:
    """Both ranks of every linear map on a batch; a pure function without decompositions, to be jitted with a training step.

    Raises:
        ValueError: as `diagnostics.layer_report`.

    """
    stable = activation_stable_ranks(loss, params, batch)
    gradients = jax.grad(loss)(params, batch)
    nuclear = jax.tree.map(
        lambda rank, g: None if rank is None else _nuclear_rank(g), stable, gradients, is_leaf=lambda x: x is None
    )
    return Ranks(stable, nuclear)


def _nuclear_rank(gradient: Array) -> Array:
    stack = gradient.reshape(-1, *gradient.shape[-2:])
    return nuclear_rank(stack, NewtonSchulz(ITERATIONS, CUBIC)).reshape(gradient.shape[:-2])
