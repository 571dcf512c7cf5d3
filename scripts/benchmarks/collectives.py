"""Collectives in one orthogonalization of stacked layers over eight devices: specjax with the
shardings of the leaves, with one of the stack axis, and without; and optax.

Three leaves of stacked matrices lie over a mesh of 4 × 2 devices, forced on this machine's
processor, and are cut

* by layer: three of 24 layers on each device;
* in rows, in columns (FSDP), or in both (FSDP and tensor parallel); the stack is whole on each
  device;
* in both, with 20 layers, which eight does not divide.

Axes of the mesh are automatic (the compiler decides how arrays in between are cut) or explicit (the
default of `jax.make_mesh`: their types say it). Counted are the all-reduces, all-gathers,
all-to-alls, permutations and reduce-scatters in the compiled program with one step of Newton and
Schulz and with five, and the bytes of their results on one device with five: what is equal is
outside of the iteration. Products of matrices that are cut along what they contract are refused by
explicit types, so optax has no count there. Before anything is printed all results are compared
with those of one device.

    python scripts/benchmarks/collectives.py
"""

import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

import math
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from optax.contrib._muon import orthogonalize_via_newton_schulz
from timing import table

from specjax import optim
from specjax.spectral import NewtonSchulz
from specjax.spectral.polynomials import MUON

Update = Callable[[Any], Any]

AXES = ("data", "model")
SHAPES = {"query": (16, 16), "key": (16, 16), "up": (16, 40)}
CUTS = {
    "by layer": (24, PartitionSpec(AXES)),
    "rows": (24, PartitionSpec(None, AXES)),
    "columns": (24, PartitionSpec(None, None, AXES)),
    "rows and columns": (24, PartitionSpec(None, *AXES)),
    "rows and columns of 20": (20, PartitionSpec(None, *AXES)),
}
TYPES = {"automatic": AxisType.Auto, "explicit": AxisType.Explicit}
STEPS = (1, 5)
COLLECTIVE = re.compile(
    r"= (.*?) (?:all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter)(?:-start)?\("
)
ARRAY = re.compile(r"f32\[([\d,]*)\]")


def specjax_update(steps: int, sharding: Any) -> Update:
    transform = optim.orthogonalize(NewtonSchulz(steps, gram=False), sharding=sharding)
    return lambda gradients: transform.update(gradients, optax.EmptyState())[0]


def optax_update(steps: int) -> Update:
    numbers = optax.contrib.MuonDimensionNumbers(1, 2)
    return lambda gradients: jax.tree.map(
        lambda x: orthogonalize_via_newton_schulz(
            x, jnp.asarray(MUON), steps, dimension_numbers=numbers
        ),
        gradients,
    )


def collectives(update: Update, gradients: Any, expected: Any) -> tuple[int, int]:
    """Their number and the bytes of their results on a device, where results are cut as the
    gradients are. Raises AssertionError where results are others.
    """
    shardings = jax.tree.map(lambda x: x.sharding, gradients)
    compiled = jax.jit(update, out_shardings=shardings).lower(gradients).compile()
    for found, one in zip(
        jax.tree.leaves(compiled(gradients)), jax.tree.leaves(expected), strict=True
    ):
        np.testing.assert_allclose(found, one, rtol=1e-4, atol=1e-5)
    results = COLLECTIVE.findall(compiled.as_text())
    sizes = [
        4 * math.prod(int(n) for n in shape.split(",") if n)
        for result in results
        for shape in ARRAY.findall(result)
    ]
    return len(results), sum(sizes)


def row(kind: str, cut: str) -> tuple[str, ...]:
    mesh = Mesh(np.array(jax.devices()).reshape(4, 2), AXES, axis_types=(TYPES[kind],) * 2)
    layers, spec = CUTS[cut]
    whole = {
        name: jax.random.normal(jax.random.key(i), (layers, *shape))
        for i, (name, shape) in enumerate(sorted(SHAPES.items()))
    }
    gradients = {name: jax.device_put(x, NamedSharding(mesh, spec)) for name, x in whole.items()}
    shardings = jax.tree.map(lambda x: x.sharding, gradients)
    over_all = NamedSharding(mesh, PartitionSpec(AXES))
    sides = {
        "leaves": lambda steps: specjax_update(steps, shardings),
        "stack axis": lambda steps: specjax_update(steps, over_all),
        "without": lambda steps: specjax_update(steps, None),
        "optax": optax_update,
    }
    cells = []
    for side in sides.values():
        try:
            (one, _), (five, size) = (
                collectives(side(steps), gradients, jax.jit(side(steps))(whole)) for steps in STEPS
            )
            cells.append(f"{one}, {five}: {size / 1024:.0f}")
        except Exception as error:
            # jax has no public name for the class.
            if type(error).__name__ != "ShardingTypeError":
                raise
            cells.append("refused")
    return f"{kind}, {cut}", *cells


def main() -> None:
    assert jax.device_count() == 8
    print("collectives with one step, with five: KiB with five")
    print(
        table(
            (
                ("axes, cut", "leaves", "stack axis", "without", "optax"),
                *(row(kind, cut) for kind in TYPES for cut in CUTS),
            )
        )
    )


if __name__ == "__main__":
    with jax.numpy_dtype_promotion("standard"):
        main()
