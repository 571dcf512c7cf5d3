"""Shared parts of these experiments: sampled items, counts after a step, and a sweep over d."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import xarray as xr
from jaxtyping import Array, Float, Key

from specjax import lab, sweep
from specjax.models import associative_memory as memory
from specjax.sizes import AnySize, active

Measure = Callable[..., dict[str, Array]]


class Config(lab.Config):
    """A configuration whose items `n`, and `of_n` of another run, must be more than its `dims`, or
    `of_dims`.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in vars(self).items():
            if name == "n" or name.endswith("_n"):
                check_items(value, getattr(self, f"{name[:-1]}dims", getattr(self, "dims", ())))


def sample(
    key: Key[Array, ""], n: int, d: AnySize, alpha: float | Float[Array, ""]
) -> tuple[Float[Array, "n d"], Float[Array, "n d"], Float[Array, " n"]]:
    """Isotropic unembeddings and embeddings, nested in d up to a factor, and frequencies."""
    of_u, of_v = jax.random.split(key)
    return memory.isotropic(of_u, n, d), memory.isotropic(of_v, n, d), memory.power_law(n, alpha)


def map_alphas(
    of_alpha: Measure, alphas: Sequence[float], *more: Array, anew: bool = False
) -> Measure:
    """A measurement of `of_alpha(key, d, α, …)` at every α, each with samples of its own.

    Means over α then have little noise. With `anew` every d has its own samples too, for means over
    d.
    """

    def measure(key: Array, d: AnySize) -> dict[str, Array]:
        of_d = jax.random.fold_in(key, active(d)) if anew else key
        places = jnp.arange(len(alphas)), jnp.asarray(alphas), *more
        return jax.lax.map(lambda at: of_alpha(jax.random.fold_in(of_d, at[0]), d, *at[1:]), places)

    return measure


def capacities(
    u: Float[Array, "n d"], v: Float[Array, "n d"], ws: Float[Array, "*many d d"]
) -> dict[str, Array]:
    """`count` and `prefix` of the items that each W recovers."""
    mask = memory.recovered(u, v, ws)
    return {"count": memory.count(mask), "prefix": memory.prefix(mask)}


def run(
    of_seed: Measure, dims: Sequence[int], seeds: int, key: Key[Array, ""], **axes: Sequence[Any]
) -> xr.Dataset:
    """Sweep over d; `axes` are the axes of the outputs; an output of fewer has the first ones."""
    data = sweep.run(of_seed, {"d": sweep.widths(*dims)}, num_seeds=seeds, key=key)
    return sweep.labelled(data, *axes, **{name: list(values) for name, values in axes.items()})


def check_items(n: int, dims: Sequence[int]) -> None:
    """Raise ValueError for at most d items, for which the Hessian has no inverse."""
    if n <= max(dims):
        raise ValueError(
            f"n must exceed the largest of dims={dims}, since the Hessian needs full rank, got {n}."
        )
