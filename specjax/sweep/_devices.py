"""The devices of a sweep: seeds are sharded over all of them, in all processes of
`jax.distributed`.

Every process makes the same calls, runs the seeds of its own devices, and ends with the same
dataset. Only the first writes a store.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from specjax.sweep import memory as bytes_of
from specjax.sweep._measurement import SEEDS


def seed_mesh() -> Mesh | None:
    """All devices of all processes in one axis; None for a single device."""
    devices = jax.devices()
    return None if len(devices) == 1 else Mesh(np.array(devices), (SEEDS,))


@dataclass(frozen=True)
class Machine:
    """The devices of a sweep and the bytes that each may hold; `mesh` is None on one device."""

    mesh: Mesh | None
    budget: int

    @staticmethod
    def here(memory: str | int | None) -> "Machine":
        """All devices of all processes, with the budget of the first process."""
        local = jax.local_devices()
        budget = (
            bytes_of.default_budget(local[0], len(local))
            if memory is None
            else bytes_of.parse(memory)
        )
        return Machine(seed_mesh(), agreed(budget))

    @property
    def platform(self) -> str:
        """The platform of the devices, e.g. "cpu"."""
        return jax.local_devices()[0].platform

    @property
    def devices(self) -> int:
        """The number of devices, over all processes."""
        return 1 if self.mesh is None else self.mesh.size

    @property
    def side_by_side(self) -> int:
        """The number of calls that run at once.

        One for each core if the only device is a CPU, since most operations of a small group of
        seeds are too small to be split among cores. Otherwise one, which has the devices to itself.
        """
        return os.cpu_count() or 1 if self.mesh is None and self.platform == "cpu" else 1

    @property
    def calls(self) -> int:
        """The number of calls under way.

        The next call is handed to the device before the results of the last are fetched, so that
        the device never waits.
        """
        return max(self.side_by_side, 2)


def is_first() -> bool:
    """Whether this is the process that stores and reports."""
    return jax.process_index() == 0


def on_devices(seed_ids: np.ndarray, mesh: Mesh | None) -> Any:
    """`seed_ids` sharded as the program takes them."""
    if mesh is None:
        return seed_ids
    sharding = NamedSharding(mesh, PartitionSpec(SEEDS))
    return jax.make_array_from_callback(seed_ids.shape, sharding, lambda index: seed_ids[index])


def on_host(outputs: Mapping[str, jax.Array]) -> dict[str, np.ndarray]:
    """The whole of `outputs`, in every process."""
    if jax.process_count() > 1:
        outputs = multihost_utils.process_allgather(dict(outputs), tiled=True)
    return {name: np.asarray(output) for name, output in outputs.items()}


def agreed(value: Any) -> Any:
    """The first process's value (JSON), in every process; the other processes may pass anything."""
    if jax.process_count() == 1:
        return value
    text = json.dumps(value).encode() if is_first() else b""
    size = int(multihost_utils.broadcast_one_to_all(np.int32(len(text))))
    letters = np.zeros(size, np.uint8)
    letters[: len(text)] = np.frombuffer(text, np.uint8)
    return json.loads(bytes(np.asarray(multihost_utils.broadcast_one_to_all(letters))))


def shared(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays of the first process, in every process; all pass equal shapes and dtypes."""
    if jax.process_count() == 1:
        return dict(arrays)
    # As bytes: outside a float64 scope a broadcast would round float64.
    sent = multihost_utils.broadcast_one_to_all(
        {name: np.ascontiguousarray(a).view(np.uint8) for name, a in arrays.items()}
    )
    return {name: np.array(sent[name]).view(a.dtype).reshape(a.shape) for name, a in arrays.items()}
