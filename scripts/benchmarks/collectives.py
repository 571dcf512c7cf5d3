"""Collectives in one orthogonalization of stacked layers over eight devices: specjax with and
without `sharding=`, and optax.

Three leaves of 24 stacked matrices each lie over a mesh of 4 × 2 devices, forced on this machine's
processor, and are cut

* by layer: three layers on each device;
* in the matrices: the stack is whole on each device, rows and columns are cut (FSDP, tensor
  parallel).

Axes of the mesh are automatic (the compiler decides how arrays in between are cut) or explicit (the
default of `jax.make_mesh`: their types say it). Counted are the all-reduces, all-gathers,
all-to-alls, permutations and reduce-scatters in the compiled program with one step of Newton and
Schulz and with five: what is equal is outside of the iteration. Products of matrices that are cut
along what they contract are refused by explicit types, so optax has no count there. Before anything
is printed all results are compared with those of one device.

    python scripts/benchmarks/collectives.py
"""

import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

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
from specjax.spectral import MUON, NewtonSchulz

Update = Callable[[Any], Any]

AXES = ("data", "model")
SHAPES = {"query": (24, 16, 16), "key": (24, 16, 16), "up": (24, 16, 40)}
CUTS = {
    "by layer": dict.fromkeys(SHAPES, PartitionSpec(AXES)),
    "in the matrices": {
        "query": PartitionSpec(None, *AXES),
        "key": PartitionSpec(None, None, AXES),
        "up": PartitionSpec(None, *AXES),
    },
}
TYPES = {"automatic": AxisType.Auto, "explicit": AxisType.Explicit}
STEPS = (1, 5)
COLLECTIVE = re.compile(
    r"= [^=]*\b(all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter)(-start)?\("
)


def specjax_update(steps: int, sharding: NamedSharding | None) -> Update:
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


def collectives(update: Update, gradients: Any, expected: Any) -> int:
    """How many there are, where results are cut as the gradients are. Raises AssertionError where
    results are others.
    """
    shardings = jax.tree.map(lambda x: x.sharding, gradients)
    compiled = jax.jit(update, out_shardings=shardings).lower(gradients).compile()
    for found, one in zip(
        jax.tree.leaves(compiled(gradients)), jax.tree.leaves(expected), strict=True
    ):
        np.testing.assert_allclose(found, one, rtol=1e-4, atol=1e-5)
    return len(COLLECTIVE.findall(compiled.as_text()))


def row(kind: str, cut: str) -> tuple[str, ...]:
    mesh = Mesh(np.array(jax.devices()).reshape(4, 2), AXES, axis_types=(TYPES[kind],) * 2)
    whole = {
        name: jax.random.normal(jax.random.key(i), shape)
        for i, (name, shape) in enumerate(sorted(SHAPES.items()))
    }
    gradients = {
        name: jax.device_put(x, NamedSharding(mesh, CUTS[cut][name])) for name, x in whole.items()
    }
    over_all = NamedSharding(mesh, PartitionSpec(AXES))
    sides = {
        "sharding=": lambda steps: specjax_update(steps, over_all),
        "without": lambda steps: specjax_update(steps, None),
        "optax": optax_update,
    }
    cells = []
    for side in sides.values():
        try:
            counts = [
                collectives(side(steps), gradients, jax.jit(side(steps))(whole)) for steps in STEPS
            ]
            cells.append(", ".join(map(str, counts)))
        except Exception as error:
            # jax has no public name for the class.
            if type(error).__name__ != "ShardingTypeError":
                raise
            cells.append("refused")
    return f"{kind}, cut {cut}", *cells


def main() -> None:
    assert jax.device_count() == 8
    print("collectives with one step, with five")
    print(
        table(
            (
                ("axes", "sharding=", "without", "optax"),
                *(row(kind, cut) for kind in TYPES for cut in CUTS),
            )
        )
    )


if __name__ == "__main__":
    with jax.numpy_dtype_promotion("standard"):
        main()
