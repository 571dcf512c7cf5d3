"""What these experiments share: draws of the items, one step on them, counts of what it recovers, and tests that have two sides."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax.custom_batching import sequential_vmap
from jaxtyping import Array, Float, Key

from specjax import lab, spectral, sweep
from specjax.models import associative_memory as memory
from specjax.sizes import AnySize, Size
from specjax.spectral.scaling import exactly_scaled
from specjax.theory import finite_capacity

PAPER = "associative-memory"
SETTLES = "It asked for a local exponent between -1/4 and 1/4, whose interval was too wide at these sizes; judged on a fresh seed."
"""Why the rules that ask for the slope over all sizes instead are post hoc."""
NAMES = {"gd": "GD", "muon": "Muon", "newton": "Newton"}


def draw(key: Key[Array, ""], n: int, d: AnySize) -> tuple[Float[Array, "n d"], Float[Array, "n d"]]:
    """Isotropic unembeddings and embeddings; those of a smaller d are columns of those of a larger, up to the factor."""
    of_u, of_v = jax.random.split(key)
    return memory.isotropic(of_u, n, d), memory.isotropic(of_v, n, d)


def one_step(
    u: Float[Array, "n d"], v: Float[Array, "n d"], q: Float[Array, " n"], optimizers: Sequence[str], ridge: float = 0.0
) -> Float[Array, "optimizers d d"]:
    """W after one step from zero of each optimizer, up to the learning rate, which changes no recovery; the ridge is Newton's.

    The singular values of the gradient go down to d^(-α-1) and those of the Hessian to d^-α of the largest, which is rounding in float32:
    the sums over the frequent items, the polar factor and the solution are made in float64.
    """
    with jax.enable_x64(True):
        return _one_step(u, v, q, tuple(optimizers), ridge)


@partial(jax.jit, static_argnames=("optimizers", "ridge"))
def _one_step(u: Array, v: Array, q: Array, optimizers: tuple[str, ...], ridge: float) -> Array:
    centred = u - jnp.mean(u, axis=0)[None, :]
    gradient = -_frequent_in_float64(centred, v, q)

    def newton() -> Array:
        left = jnp.matmul(centred.T, centred, precision=jax.lax.Precision.HIGHEST) / u.shape[0]
        hessian = memory.HessianAtZero(left.astype(jnp.float64), _frequent_in_float64(v, v, q))
        return memory.newton_step(gradient, hessian, ridge)

    steps = {"gd": lambda: -gradient, "muon": lambda: -spectral.polar(gradient), "newton": newton}
    # Newton's entries may lie outside the range of float32, and their scale does not matter.
    return jnp.stack([exactly_scaled(steps[name]()).astype(jnp.float32) for name in optimizers])


def polar_step(u: Float[Array, "n d"], v: Float[Array, "n d"], q: Float[Array, " n"]) -> Float[Array, "d d"]:
    """The polar factor of Σ q_i u_i v_iᵀ, as exact as in `one_step`."""
    with jax.enable_x64(True):
        return _polar_step(u, v, q)


@jax.jit
def _polar_step(u: Array, v: Array, q: Array) -> Array:
    return spectral.polar(_frequent_in_float64(u, v, q)).astype(jnp.float32)


def _frequent_in_float64(a: Array, b: Array, q: Array) -> Array:
    """Σ_i q_i a_i b_iᵀ with the first 8 d items in float64: the others are too rare for their rounding to matter."""
    head = min(len(q), 8 * a.shape[1])
    tail = jnp.matmul(a[head:].T, b[head:] * q[head:, None], precision=jax.lax.Precision.HIGHEST)
    wide_a, wide_b, wide_q = (x[:head].astype(jnp.float64) for x in (a, b, q))
    return jnp.matmul(wide_a.T, wide_b * wide_q[:, None]) + tail.astype(jnp.float64)


def capacities(u: Float[Array, "n d"], v: Float[Array, "n d"], ws: Float[Array, "*many d d"]) -> dict[str, Array]:
    """`count` and `prefix` of the items that each W recovers."""
    flat = ws.reshape((-1, *ws.shape[-2:]))

    def of_one(w: Array) -> tuple[Array, Array]:
        mask = memory.recovered(u, v, w)
        return memory.count(mask), memory.prefix(mask)

    count, prefix = jax.lax.map(of_one, flat)
    return {"count": count.reshape(ws.shape[:-2]), "prefix": prefix.reshape(ws.shape[:-2])}


def run(
    of_seed: Callable[[Array, AnySize], dict[str, Array]],
    dims: Sequence[int],
    seeds: int,
    key: Key[Array, ""],
    labels: Mapping[str, Mapping[str, Sequence[Any]]],
) -> xr.Dataset:
    """A sweep over d in which every seed runs alone, since one seed of N items fills the machine.

    `labels` gives each output with axes of its own their names and coordinates, in order.
    """

    def measure(key: Array, d: AnySize) -> dict[str, Array]:
        if isinstance(d, Size):
            # The active size is traced too, and what is traced goes through as an argument.
            extent = d.padded
            one = sequential_vmap(lambda key, active: of_seed(key, Size(extent, active)))
            padded: dict[str, Array] = one(key, d.active)
            return padded
        exact: dict[str, Array] = sequential_vmap(lambda key: of_seed(key, d))(key)
        return exact

    data = sweep.run(measure, {"d": sweep.widths(*dims)}, seeds=seeds, key=key, plan="auto")
    for name, axes in labels.items():
        renamed = {f"{name}_dim_{k}": axis for k, axis in enumerate(axes)}
        points = {axis: list(values) for axis, values in axes.items()}
        data[name] = data[name].drop_vars(list(renamed), errors="ignore").rename(renamed).assign_coords(points)
    return data.drop_vars([name for name in data.coords if "_dim_" in str(name)])


def log(counts: xr.DataArray) -> xr.DataArray:
    """The natural logarithm of counts, or of their means, with its labels; none, which has none, counts as a hundredth of an item."""
    return counts.copy(data=np.log(np.maximum(counts.values, 0.01))).rename(f"log {counts.name}")


def both_sides(values: xr.DataArray, target: xr.DataArray | float = 0.0) -> xr.DataArray:
    """What exceeds the target, and what is lacking, along a dimension of its own: both are small where the values are close to it."""
    excess = values - target
    sides = xr.DataArray(["above", "below"], dims="side", name="side")
    return xr.concat([excess, -excess], sides, coords="minimal", compat="override").rename(values.name)


def slopes(values: xr.DataArray, dim: str = "d") -> xr.DataArray:
    """The slope of a straight line in the logarithm of the size, in every draw."""
    x = np.log(values[dim].astype(float))
    x = x - x.mean()
    return ((x * values).sum(dim) / (x**2).sum()).rename(f"slope of {values.name}")


def jackknife(draws: xr.DataArray, of: Callable[[xr.DataArray], xr.DataArray]) -> xr.DataArray:
    """A function of the mean over draws, as pseudo-values: draws with its mean and spread, but for terms of the order of 1/draws.

    For counts of a few items, whose single logarithms are biased, or do not exist.
    """
    n, values = draws.sizes["seed"], draws.astype(float)
    return n * of(values.mean("seed")) - (n - 1) * of((values.sum("seed") - values) / (n - 1))


def pseudo_slopes(counts: xr.DataArray, dim: str = "d") -> xr.DataArray:
    """The slope of the logarithm of the mean over draws, as pseudo-values."""
    return jackknife(counts, lambda mean: slopes(log(mean), dim)).rename(f"slope of {counts.name}")


def has_exponent(values: xr.DataArray, exponent: float, within: float) -> lab.Relation:
    """Straight lines through the logarithms of `values` over log d have the slope `exponent`, to less than `within`."""
    excess = both_sides(slopes(log(values.astype(float))), exponent)
    return lab.below(excess, within, f"{within:g}, half the distance to the next exponent,")


def in_groups(values: xr.DataArray, size: int) -> xr.DataArray:
    """Means of every `size` draws: draws again, of which logarithms are taken with little bias."""
    groups = values.sizes["seed"] // size
    return values.isel(seed=slice(0, groups * size)).coarsen(seed=size).mean().assign_coords(seed=np.arange(groups))


def formula(count: xr.DataArray, n: int) -> xr.DataArray:
    """The count of `finite_capacity` at the coordinates d, alpha and optimizer of counts."""
    d, alpha, optimizer = points = xr.broadcast(count.d, count.alpha, count.optimizer)
    values = [
        expected(str(o), int(k), n, float(a))
        for o, k, a in zip(*(p.values.ravel() for p in (optimizer, d, alpha)), strict=True)
    ]
    return points[0].copy(data=np.reshape(values, d.shape)).rename("formula")


@lru_cache(maxsize=1024)
def expected(optimizer: str, d: int, n: int, alpha: float) -> float:
    """The count of `finite_capacity`, kept, since checks, tables and figures all ask for it."""
    return finite_capacity.expected_count(optimizer, d, n, alpha)


def check_items(n: int, dims: Sequence[int]) -> None:
    """Raises ValueError for too few items: fewer than 2, or no more than d, when the Hessian has no inverse."""
    if n < 2:
        raise ValueError(f"n must be at least 2 items, got {n}.")
    if n <= max(dims, default=0):
        raise ValueError(
            f"n must exceed the largest of dims={tuple(dims)}, since the Hessian needs full rank, got {n}."
        )
