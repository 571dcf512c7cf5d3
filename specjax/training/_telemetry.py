"""Ranks along a training: of the inputs of every linear map, and of its gradient
(spectral-criterion, Table 1).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from specjax.arguments import checked
from specjax.diagnostics.layer_report import stable_ranks_of
from specjax.diagnostics.probe import Probe, listed
from specjax.optim.fused_projections import Splits
from specjax.optim.matrices import map_stacked
from specjax.optim.rank_switch import nuclear_rank
from specjax.spectral import NewtonSchulz
from specjax.spectral.float_range import at_least_float32
from specjax.spectral.polynomials import CUBIC

ITERATIONS = 30
"""Steps of Newton and Schulz' cubic: singular values above 1e-4 of the largest come within 1e-6 of
1, and lower ones add nothing to ‖G‖_*.
"""


class Ranks(NamedTuple):
    """Trees like the parameters, with a number for each matrix, and None for parameters that enter
    no linear map.

    Of a parameter in several products st(A) is the largest and nr(G) the smallest, so that
    nr(G)/st(A) is at most that of each.
    """

    stable: PyTree
    """st(A) of the inputs."""
    nuclear: PyTree
    """nr(G) of the gradient, 0 where it is zero."""


@checked
def measure_ranks(
    loss: Callable[[PyTree, PyTree], Any],
    params: PyTree,
    batch: PyTree,
    *,
    splits: Splits | None = None,
) -> Ranks:
    """Both ranks of every linear map on a batch; a pure function without decompositions, to be
    jitted with a training step.

    Which axes of a parameter are the inputs of its matrices, which the outputs, and which count
    matrices, is read off the products that it enters, as for `diagnostics.layer_report`: a kernel
    (d, heads, head) that maps d to heads · head is one matrix. Of several matrices side by side in
    a leaf, which `diagnostics.matrix_layout(...).splits` names, nr(G) is the smallest.

    Returns:
        Ranks in float32, or in a wider dtype of the parameters.

    Raises:
        ValueError: as `diagnostics.layer_report`.

    Examples:
        >>> from specjax import training
        >>> loss = lambda params, x: jnp.sum((params["w"] @ x) ** 2)
        >>> measure = jax.jit(lambda params, x: training.measure_ranks(loss, params, x))
        >>> ranks = measure({"w": jnp.eye(3)}, jnp.eye(3))
        >>> round(float(ranks.stable["w"]), 1), round(float(ranks.nuclear["w"]), 1)
        (3.0, 3.0)
    """
    probe = Probe(loss, params, batch, splits)
    gradients = jax.grad(probe.loss)(probe.leaves, probe.batch)
    maps = probe.maps_of_this_trace()
    matrices = [at_least_float32(m.matrices(gradients[m.leaf])) for m in maps]
    ranks = map_stacked(
        lambda stack: nuclear_rank(stack, NewtonSchulz(ITERATIONS, CUBIC)), map(listed, matrices)
    )
    nuclear = [rank.reshape(g.shape[:-2]) for rank, g in zip(ranks, matrices, strict=True)]
    return Ranks(stable_ranks_of(probe, maps), probe.by_parameter(maps, nuclear, jnp.minimum))
