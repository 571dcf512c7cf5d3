"""Factors that follow the shape of a matrix, named by their formula.

Scales are named by formulas, since projects use one word for different scales: "spectral" is
√(out/in) in one and √max(out, in) in another. `in` and `out` are the inputs and outputs of a layer,
whichever axis holds them.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from specjax.arguments import as_array, check_count
from specjax.optim.leaf_names import leaf_names
from specjax.optim.matrices import Fans, Matrices, prefix_leaves
from specjax.sizes import Size, active

Extent = Float[Array, ""]
Scale = Callable[[Extent, Extent], float | Array]
"""A factor as a function of (fan_in, fan_out), which are scalar arrays: traced where they come from
a `Size`.
"""


def none(fan_in: Extent, fan_out: Extent) -> float:
    """1: the polar factor as it is."""
    del fan_in, fan_out
    return 1.0


def sqrt_max_1_out_over_in(fan_in: Extent, fan_out: Extent) -> Extent:
    """√max(1, out/in): Keller Jordan's Muon; the default of optax and torch ("original")."""
    return jnp.sqrt(jnp.maximum(1.0, fan_out / fan_in))


def sqrt_out_over_in(fan_in: Extent, fan_out: Extent) -> Extent:
    """√(out/in): unit operator norm from RMS to RMS (Bernstein and Newhouse 2024; modula, dion,
    scion).
    """
    return jnp.sqrt(fan_out / fan_in)


def point_two_sqrt_max(fan_in: Extent, fan_out: Extent) -> Extent:
    """0.2 √max(out, in): the RMS of AdamW's updates (Liu et al. 2025, Moonlight; torch
    "match_rms_adamw").
    """
    return rms_sqrt_max(0.2, fan_in, fan_out)


def rms_sqrt_max(rms: float | Array, fan_in: Extent, fan_out: Extent) -> Extent:
    """rms √max(out, in): an update with this root mean square if the factor has full rank."""
    return rms * jnp.sqrt(jnp.maximum(fan_in, fan_out))


SCALES: Mapping[str, Scale] = MappingProxyType(
    {f.__name__: f for f in (none, sqrt_max_1_out_over_in, sqrt_out_over_in, point_two_sqrt_max)}
)
"""Every scale by the name that `orthogonalize` and `muon` take."""


def scale_named(scale: str | Scale) -> Scale:
    """The scale of that name; a function is returned as it is. Raises ValueError for an unknown
    name.
    """
    if not isinstance(scale, str):
        return scale
    if scale not in SCALES:
        raise ValueError(
            f"Unknown scale {scale!r}; choose one of {', '.join(SCALES)}, or pass a function of"
            " (fan_in, fan_out)."
        )
    return SCALES[scale]


def shape_factors(
    scale: Scale, matrices: Matrices, sizes: PyTree | None, tree: PyTree
) -> list[tuple[float | Array, ...]]:
    """The scale of every part of every leaf of `tree`, at the active extents where `sizes`, a
    prefix tree of `Fans`, gives them, else at its shape.

    Raises ValueError for a leaf with both sizes and splits, and for an extent that is not a
    positive whole number.
    """
    result: list[tuple[float | Array, ...]] = []
    for i, (given, view) in enumerate(
        zip(prefix_leaves(sizes, tree, Fans, "sizes"), matrices.views, strict=True)
    ):
        if given is not None and view.split:
            raise ValueError(
                f"The leaf {leaf_names(tree)[i]} has both sizes and splits; split a matrix that is"
                " not padded."
            )
        for name, fan in [] if given is None else given._asdict().items():
            if not isinstance(fan, Size):
                check_count(fan, name, 1, "Fans")
        parts = view.parts if given is None else (given,)
        factors = (scale(*(jnp.asarray(active(fan), float) for fan in fans)) for fans in parts)
        result.append(tuple(as_array(factor, "a factor", "A scale") for factor in factors))
    return result
