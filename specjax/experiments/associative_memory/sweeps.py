"""How these experiments run: draws of the items, one step on them, counts of what it recovers, and a sweep over d."""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
import xarray as xr
from jax.custom_batching import sequential_vmap
from jaxtyping import Array, Float, Int, Key

from specjax import spectral, sweep
from specjax.models import associative_memory as memory
from specjax.sizes import AnySize, Size
from specjax.spectral.scaling import exactly_scaled

Function = TypeVar("Function", bound=Callable[..., Any])


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


def in_float64(*static: str) -> Callable[[Function], Function]:
    """Compiles a function in a float64 scope, in which alone its arguments can be made float64."""

    def decorated(function: Function) -> Function:
        compiled = jax.jit(function, static_argnames=static)

        @wraps(function)
        def scoped(*arguments: Any) -> Any:
            with jax.enable_x64(True):
                return compiled(*arguments)

        return cast(Function, scoped)

    return decorated


@in_float64("optimizers", "ridge")
def one_step(
    u: Float[Array, "n d"],
    v: Float[Array, "n d"],
    q: Float[Array, " n"],
    optimizers: tuple[str, ...],
    ridge: float = 0.0,
) -> Float[Array, "optimizers d d"]:
    """W after one step from zero of each optimizer, up to the learning rate, which changes no recovery; the ridge is Newton's.

    The singular values of the gradient go down to d^(-α-1) and those of the Hessian to d^-α of the largest, which is rounding in float32:
    the sums over the frequent items, the polar factor and the solution are made in float64.
    """
    centred = u - jnp.mean(u, axis=0)[None, :]
    gradient = -_frequent_in_float64(centred, v, q)

    def newton() -> Array:
        left = jnp.matmul(centred.T, centred, precision=jax.lax.Precision.HIGHEST) / u.shape[0]
        hessian = memory.HessianAtZero(left.astype(jnp.float64), _frequent_in_float64(v, v, q))
        return memory.newton_step(gradient, hessian, ridge)

    steps = {"gd": lambda: -gradient, "muon": lambda: -spectral.polar(gradient), "newton": newton}
    # Newton's entries may lie outside the range of float32, and their scale does not matter.
    return jnp.stack([exactly_scaled(steps[name]()).astype(jnp.float32) for name in optimizers])


@in_float64()
def polar_step(u: Float[Array, "n d"], v: Float[Array, "n d"], q: Float[Array, " n"]) -> Float[Array, "d d"]:
    """The polar factor of Σ q_i u_i v_iᵀ, as exact as in `one_step`."""
    return spectral.polar(_frequent_in_float64(u, v, q)).astype(jnp.float32)


def _frequent_in_float64(a: Array, b: Array, q: Array) -> Array:
    """Σ_i q_i a_i b_iᵀ with the first 8 d items in float64: the others are too rare for their rounding to matter."""
    head = min(len(q), 8 * a.shape[1])
    tail = jnp.matmul(a[head:].T, b[head:] * q[head:, None], precision=jax.lax.Precision.HIGHEST)
    wide_a, wide_b, wide_q = (x[:head].astype(jnp.float64) for x in (a, b, q))
    return jnp.matmul(wide_a.T, wide_b * wide_q[:, None]) + tail.astype(jnp.float64)


def capacities(u: Float[Array, "n d"], v: Float[Array, "n d"], ws: Float[Array, "*many d d"]) -> dict[str, Array]:
    """`count` and `prefix` of the items that each W recovers."""

    def of_one(w: Array) -> dict[str, Array]:
        mask = memory.recovered(u, v, w)
        return {"count": memory.count(mask), "prefix": memory.prefix(mask)}

    found = jax.lax.map(of_one, ws.reshape((-1, *ws.shape[-2:])))
    return {name: values.reshape(ws.shape[:-2]) for name, values in found.items()}


def count_of_few(u: Float[Array, "n d"], v: Float[Array, "n d"], w: Float[Array, "d d"]) -> Int[Array, ""]:
    """The count by all logits at once, which is fast for few items."""
    logits = v @ w.T @ u.T
    others = jnp.where(jnp.eye(len(u), dtype=bool), -jnp.inf, logits)
    return jnp.sum(jnp.diagonal(logits) > jnp.max(others, axis=1))


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
