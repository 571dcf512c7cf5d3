"""Finds the first value of a network that is NaN or infinite, by the names of its parameters."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from specjax.arguments import checked
from specjax.diagnostics.linear_maps import linear_maps
from specjax.diagnostics.probe import Model, Probe
from specjax.jaxlib import cpu_options


@checked
def first_not_finite(model: Model, params: PyTree, batch: PyTree) -> str | None:
    """The name of the first value that is NaN or infinite, or None if all are finite.

    It checks the parameters first, then the inputs of linear maps in the order of use, the loss and
    the gradients.

    The arguments are those of `layer_report`: the loss, its parameters and a batch. The parameters
    of stacked layers are named with their first index, as in "the inputs of blocks.down[3]".

    Examples:
        >>> import jax.numpy as jnp
        >>> from specjax import diagnostics
        >>> params = {"weight": jnp.ones((4, 2)), "bias": jnp.array([0.0, jnp.nan])}
        >>> loss = lambda params, x: jnp.sum(x @ params["weight"] + params["bias"])
        >>> diagnostics.first_not_finite(loss, params, jnp.eye(4))
        'the parameter bias'
    """
    probe = Probe(model, params, batch)
    labels: list[str] = []

    @partial(jax.jit, compiler_options=cpu_options())
    def finite(
        leaves: list[Array], batch: PyTree
    ) -> tuple[list[Array], list[Array], Array, list[Array]]:
        found = linear_maps(lambda x: probe.loss(x, batch), leaves)
        labels.extend(probe.name(m) for m in found)
        value, gradients = jax.value_and_grad(probe.loss)(leaves, batch)
        return (
            [_by_layer(x) for x in leaves],
            [jnp.all(jnp.isfinite(m.inputs)) for m in found],
            jnp.isfinite(value),
            [_by_layer(g) for g in gradients],
        )

    parameters, inputs, value, gradients = jax.device_get(finite(probe.leaves, probe.batch))
    for name, flags in zip(probe.names, parameters, strict=True):
        if not np.all(flags):
            return f"the parameter {name}{_index(flags)}"
    for label, flag in zip(labels, inputs, strict=True):
        if not flag:
            return f"the inputs of {label}"
    if not value:
        return "the loss"
    for name, flags in zip(probe.names, gradients, strict=True):
        if not np.all(flags):
            return f"the gradient of {name}{_index(flags)}"
    return None


def _by_layer(x: Array) -> Array:
    """Whether a parameter is finite, with one answer for each matrix of a stack."""
    return jnp.all(jnp.isfinite(x), axis=(-2, -1) if x.ndim > 2 else None)


def _index(flags: np.ndarray) -> str:
    return "".join(f"[{i}]" for i in np.argwhere(~np.asarray(flags))[0])
