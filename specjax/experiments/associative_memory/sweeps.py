"""How these experiments run: draws of the items, one step on them, counts of what it recovers, and a sweep over d."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import xarray as xr
from jax.custom_batching import sequential_vmap
from jaxtyping import Array, Float, Key

from specjax import sweep
from specjax.models import associative_memory as memory
from specjax.sizes import AnySize, Size


def draw(key: Key[Array, ""], n: int, d: AnySize) -> tuple[Float[Array, "n d"], Float[Array, "n d"]]:
    """Isotropic unembeddings and embeddings; those of a smaller d are columns of those of a larger, up to the factor."""
    of_u, of_v = jax.random.split(key)
    return memory.isotropic(of_u, n, d), memory.isotropic(of_v, n, d)


def at_alphas(of_alpha: Callable[..., Any], alphas: Sequence[float], key: Key[Array, ""], *more: Array) -> Any:
    """`of_alpha(key, α, …)` at every α, each with draws of its own, so that means over α have little noise."""

    def of(inputs: tuple[Array, ...]) -> Any:
        place, *rest = inputs
        return of_alpha(jax.random.fold_in(key, place), *rest)

    return jax.lax.map(of, (jnp.arange(len(alphas)), jnp.asarray(alphas), *more))


def capacities(u: Float[Array, "n d"], v: Float[Array, "n d"], ws: Float[Array, "*many d d"]) -> dict[str, Array]:
    """`count` and `prefix` of the items that each W recovers."""

    def of_one(w: Array) -> dict[str, Array]:
        mask = memory.recovered(u, v, w)
        return {"count": memory.count(mask), "prefix": memory.prefix(mask)}

    found = jax.lax.map(of_one, ws.reshape((-1, *ws.shape[-2:])))
    return {name: values.reshape(ws.shape[:-2]) for name, values in found.items()}


def run(
    of_seed: Callable[[Array, AnySize], dict[str, Array]],
    dims: Sequence[int],
    seeds: int,
    key: Key[Array, ""],
    **axes: Sequence[Any],
) -> xr.Dataset:
    """A sweep over d in which every seed runs alone, since one seed of N items fills the machine.

    `axes` are the names and coordinates of the axes that outputs have by themselves; an output of fewer has the first of them.
    """

    def measure(key: Array, d: AnySize) -> dict[str, Array]:
        if isinstance(d, Size):
            # The active size is traced too, and what is traced goes through as an argument.
            extent = d.padded
            return sequential_vmap(lambda key, active: of_seed(key, Size(extent, active)))(key, d.active)
        return sequential_vmap(lambda key: of_seed(key, d))(key)

    data = sweep.run(measure, {"d": sweep.widths(*dims)}, seeds=seeds, key=key, plan="auto")
    return sweep.labelled(data, *axes, **{name: list(values) for name, values in axes.items()})


def check_items(n: int, dims: Sequence[int]) -> None:
    """Raises ValueError for too few items: no more than d, when the Hessian has no inverse."""
    if n <= max(dims, default=0):
        raise ValueError(
            f"n must exceed the largest of dims={tuple(dims)}, since the Hessian needs full rank, got {n}."
        )
