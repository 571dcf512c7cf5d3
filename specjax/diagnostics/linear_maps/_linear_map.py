"""One linear map W: the position of its matrices in a parameter, and its inputs A."""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from specjax.optim.fused_projections import Interleaved
from specjax.spectral.float_range import scaled

Kind = Literal["linear", "convolution", "lookup"]


class Inputs(NamedTuple):
    """The inputs of a map W of shape (m, k), in one of three forms: A Aᵀ, A itself where n < k, or
    counts of its rows.

    A is divided by a power of two, `scale`, so that its squares stay in the range of float32.
    """

    gram: Float[Array, "*maps k k"] | None
    columns: Float[Array, "*maps k n"] | None
    counts: Float[Array, " k"] | None
    scale: Float[Array, "*maps"] | None


class LinearMap(NamedTuple):
    """One use of a parameter as a linear map.

    `matrices` takes a tree leaf (the parameter, its gradient) to the matrices (*maps, m, k) that
    act on the columns of the inputs; `layers` lists the steps of a scan over stacked parameters;
    `maps` are the batch axes of batched products, as for attention heads and experts, or the groups
    of a convolution. `after` is a number that multiplies the product, such as an output multiplier,
    before any operation other than a move of its entries or an addition; of several uses it is that
    of the last.
    """

    leaf: int
    layers: tuple[int, ...]
    kind: Kind
    matrices: Callable[[Array], Array]
    signature: tuple[Any, ...]
    inputs: Array
    after: Array | float = 1.0

    def parts(self, split: Interleaved, leaf: Array) -> list["LinearMap"]:
        """The maps that the outputs of this one hold; the map itself if the split does not match
        its outputs.
        """
        outputs = jax.eval_shape(self.matrices, leaf).shape[-2]
        if self.kind == "lookup" or sum(split.totals) != outputs:
            return [self]
        return [
            self._replace(
                matrices=partial(_part, self.matrices, split, i),
                signature=(*self.signature, "part", split, i),
            )
            for i in range(len(split.widths))
        ]


def _part(matrices: Callable[[Array], Array], split: Interleaved, i: int, leaf: Array) -> Array:
    return split.apart(matrices(leaf).mT)[i].mT


def inputs_of(linear_map: LinearMap) -> Inputs:
    """The inputs in the smaller of the two forms; counts for a lookup."""
    if linear_map.kind == "lookup":
        return Inputs(None, None, linear_map.inputs, None)
    a, power = scaled(linear_map.inputs)
    scale = power[..., 0, 0]
    if a.shape[-1] < a.shape[-2]:
        return Inputs(None, a, None, scale)
    return Inputs(jnp.einsum("...kn,...ln->...kl", a, a, precision="highest"), None, None, scale)
