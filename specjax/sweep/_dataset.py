"""The labelled dataset of a sweep, and the table in its attributes of how it was made."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from specjax.arguments import checked
from specjax.sweep._grid import Grid, check_selectable
from specjax.sweep._reduction import Sampling
from specjax.sweep.failures import mark_failed, report_failed_batches
from specjax.sweep.memory import described
from specjax.sweep.seed_dim import SEED, SEEDS, present
from specjax.sweep.seed_moments import quantity

BUCKET_TABLE = "bucket_table"


def assemble(
    outputs: Mapping[str, np.ndarray],
    grid: Grid,
    sampling: Sampling,
    attributes: Mapping[str, str | int | float],
) -> xr.Dataset:
    """The dataset of a sweep, with coordinates, attributes and failed seeds."""
    data = named(outputs, grid, sampling).assign_attrs(attributes)
    computed = present(data, sampling.dim)
    if computed is not None:
        # Integers and booleans have no NaN.
        whole = {
            name: v.astype(np.float64)
            for name, v in data.items()
            if not np.issubdtype(v.dtype, np.inexact)
        }
        data = data.assign(whole).where(computed)
    axes = [*grid.dims]
    return (
        mark_failed(data, axes, computed)
        if sampling.dim == SEED
        else report_failed_batches(data, axes)
    )


def named(outputs: Mapping[str, np.ndarray], grid: Grid, sampling: Sampling) -> xr.Dataset:
    """The arrays of a sweep with their names and coordinates."""
    axes = (*grid.dims, sampling.dim)
    variables = {
        name: ((*axes, *trailing_dims(quantity(name, outputs), array.ndim - len(axes))), array)
        for name, array in outputs.items()
    }
    coordinates: dict[str, Any] = {sampling.dim: np.arange(sampling.samples)}
    for dim in grid.dims.values():
        for name, member in dim.members.items():
            coordinates[name] = dim.name, np.asarray(member.points)
        if dim.seeds is not None:
            coordinates[SEEDS] = dim.name, np.asarray(dim.seeds)
    return xr.Dataset(variables, coordinates)


def trailing_dims(name: str, ndim: int) -> tuple[str, ...]:
    """The names of the dimensions that the output `name` has of its own."""
    return tuple(f"{name}_dim_{i}" for i in range(ndim))


@checked
def labelled(
    data: xr.Dataset, *dims: str, outputs: Sequence[str] = (), **labels: Any
) -> xr.Dataset:
    """`data` with named output dimensions, and with labels along dimensions.

    `labelled(data, "optimizer", "step", optimizer=["adam", "muon"])` calls the first dimension that
    each output has of its own "optimizer" and the second "step"; an output of fewer dimensions has
    the first of these names.

    Args:
        data: The dataset of `specjax.sweep.run`.
        dims: Names of the dimensions, in their order.
        outputs: The outputs that these are dimensions of; by default all.
        labels: Coordinates by dimension, of any kind that xarray takes.

    Raises:
        ValueError: a name for which no output has a dimension, or that is an argument of xarray's
            `sel`; labels along a missing dimension, or of another length.

    Examples:
        >>> from specjax import sweep
        >>> losses = xr.Dataset({"loss": (("seed", "loss_dim_0"), np.ones((3, 2)))})
        >>> sweep.labelled(losses, "optimizer", optimizer=["adam", "muon"])["loss"].dims
        ('seed', 'optimizer')
    """
    for dim in dims:
        check_selectable(dim)
    names = {
        own: dim
        for name in outputs or map(str, data.data_vars)
        for own, dim in zip(trailing_dims(name, len(dims)), dims, strict=True)
        if own in data.dims
    }
    if lacking := [dim for dim in dims if dim not in names.values()]:
        raise ValueError(
            f"No output has a dimension of its own for the name {lacking[0]!r}; give no more names"
            " than dimensions."
        )
    named = data.rename(names)
    # xarray takes a tuple for dimensions and data.
    relabelled = named.assign_coords(
        {dim: list(each) if isinstance(each, tuple) else each for dim, each in labels.items()}
    )
    if added := sorted(set(map(str, relabelled.dims)) - set(map(str, named.dims))):
        raise ValueError(
            f"Labels need a dimension of the data, got labels along {added[0]!r}; the dimensions"
            f" are {sorted(map(str, named.dims))}."
        )
    return relabelled


@checked
def is_explained(data: xr.Dataset) -> bool:
    """Whether `data` come from `specjax.sweep.run`, so that `explain` has a table of them.

    Examples:
        >>> from specjax import sweep
        >>> sweep.is_explained(xr.Dataset({"loss": 1.0}))
        False
    """
    return BUCKET_TABLE in data.attrs


@checked
def explain(data: xr.Dataset) -> str:
    """A table of how `specjax.sweep.run` made a dataset: buckets, padding, chunks, memory, seconds.

    Raises:
        ValueError: the dataset does not come from `run`.

    Examples:
        >>> from specjax import sweep
        >>> noise = lambda key, scale: {"y": scale * jax.random.normal(key)}
        >>> over = {"scale": sweep.values(1.0, 2.0)}
        >>> data = sweep.run(noise, over, num_seeds=2, key=jax.random.key(0))
        >>> sweep.explain(data).splitlines()[1].split()
        ['bucket', 'points', 'seeds', 'chunk', 'memory', 'compile', 's', 'run', 's']
    """
    if not is_explained(data):
        raise ValueError(
            f"explain needs the attribute {BUCKET_TABLE!r} that run adds, got {sorted(data.attrs)};"
            " pass run's dataset."
        )
    attrs, rows = data.attrs, json.loads(data.attrs[BUCKET_TABLE])
    header = ("bucket", "points", "seeds", "chunk", "memory", "compile s", "run s")
    cells = [
        (
            row["label"] or "all",
            *(str(row[name]) for name in ("points", "seeds", "chunk")),
            described(row["bytes"]) if row["bytes"] else "–",
            *(f"{row[name]:.2f}" for name in ("compile_seconds", "run_seconds")),
        )
        for row in rows
    ]
    columns = [max(map(len, column)) for column in zip(header, *cells, strict=True)]
    table = [
        "  ".join(cell.ljust(w) for cell, w in zip(row, columns, strict=True)).rstrip()
        for row in (header, *cells)
    ]
    waste = f"padding does {attrs['padding']:.2f} times the exact work"
    return "\n".join(
        [
            (
                f"plan {attrs['plan']!r} on {attrs['devices']} {attrs['platform']} device(s),"
                f" memory {described(attrs['memory'])}: {waste}"
            ),
            *table,
            f"compiled in {attrs['compile_seconds']:.2f} s, ran in {attrs['run_seconds']:.2f} s",
        ]
    )
