"""Sweeps of an experiment, each with its own random stream."""

from collections.abc import Callable, Mapping
from typing import Any

import xarray as xr
from jaxtyping import Array, Key

from specjax import sizes, sweep
from specjax.arguments import checked
from specjax.sweep.axes import Axis


@checked
def seeded_sweep(
    key: Key[Array, ""],
    stream: str,
    measure: Callable[..., Mapping[str, Any]],
    num_seeds: int,
    **over: Axis,
) -> xr.Dataset:
    """Run `sweep.run` over the arguments of `measure`, with the stream of that name from the run's
    root key.

    Raises:
        ValueError: as `sweep.run` does.

    Examples:
        >>> from specjax import lab, sizes, sweep
        >>> norm = lambda key, d: {"norm": jnp.sum(sizes.normal(key, (d,)) ** 2)}
        >>> key = jax.random.key(0)
        >>> data = lab.seeded_sweep(key, "norms", norm, 3, d=sweep.widths(4, 8))
        >>> dict(data["norm"].sizes)
        {'d': 2, 'seed': 3}
    """
    return sweep.run(measure, over, num_seeds=num_seeds, key=sizes.stream(key, stream))
