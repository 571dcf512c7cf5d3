"""Runs the sweeps of test_devices in a process of their own and leaves the datasets in a folder.

python sharded_sweep.py FOLDER                                   on the devices that XLA_FLAGS
forces python sharded_sweep.py FOLDER --cuts                            one of them, with random
plans, chunks, budgets and parts of these python sharded_sweep.py FOLDER ADDRESS PROCESSES INDEX
as one process of several, on CPU collectives
"""

import random
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh

sys.path.insert(0, str(Path(__file__).parent))

from measures import bits, overlap

from specjax import sizes, sweep
from specjax.sweep import _devices as machine
from specjax.sweep import _executor, _measurement

CUTS = 7
"""With this generator's seed they have every plan, every number of devices, chunks, budgets and
neither.
"""


def polar(key, n):
    """A decomposition in every program of every device, which jaxlib 0.10 can lock up."""
    x = sizes.normal(key, (n, 4))
    u, s, vt = jnp.linalg.svd(x, full_matrices=False)
    return {
        "nuclear": jnp.sum(s),
        "polar": jnp.sum(jnp.abs(u @ vt)),
        "eigenvalue": jnp.linalg.eigvalsh(x.T @ x)[0],
    }


def both(key, d):
    return {**overlap(key, d), **bits(key, d)}


def sweeps(folder: Path, store: Path | None = None):
    """Uneven numbers of seeds, a plan of several buckets, streamed moments, and a store."""
    over, key = {"d": sweep.widths(5, 9, 2, 16)}, jax.random.key(11)
    every = sweep.run(
        both, {"d": sweep.widths(5, 2)}, num_seeds=13, key=key, plan="exact", progress=False
    )
    padded = sweep.run(both, over, num_seeds=29, key=key, plan="padded", chunk=9, progress=False)
    moments = sweep.run(
        overlap, over, num_seeds=50, key=key, reduce="moments", plan="padded", progress=False
    )
    svd = sweep.run(
        polar, {"n": sweep.widths(4, 6, 8)}, num_seeds=17, key=key, plan="padded", progress=False
    )
    found = {"every": every, "padded": padded, "moments": moments, "svd": svd}
    if store is not None:
        sweep.run(both, over, num_seeds=13, key=key, plan="padded", store=store, progress=False)
        found["stored"] = sweep.run(
            both, over, num_seeds=29, key=key, plan="padded", store=store, progress=False
        )
    for name, data in found.items():
        data.to_netcdf(folder / f"{name}.nc", engine="h5netcdf")


def cut_at_random(folder: Path, times: int):
    """The same sweep, cut in `times` random ways: plan, chunk, memory, devices, blocks."""
    chance, over, key = random.Random(2), {"d": sweep.widths(5, 9, 2, 16)}, jax.random.key(11)
    for i in range(times):
        devices = chance.choice([1, 2, 3, 5, 8])
        machine.seed_mesh = lambda n=devices: (
            None if n == 1 else Mesh(np.array(jax.devices()[:n]), (_measurement.SEEDS,))
        )
        _executor.BLOCK_SECONDS = chance.choice([1e-9, 1.0])
        plan = chance.choice(["exact", "padded", "auto"])
        chunk = chance.choice([None, chance.randint(1, 40)])
        memory = None if chunk else chance.choice([None, "40KB"])
        data = sweep.run(
            both, over, num_seeds=29, key=key, plan=plan, chunk=chunk, memory=memory, progress=False
        )
        assert data.attrs["devices"] == devices
        data.to_netcdf(folder / f"cut-{i}-{devices}-{plan}-{chunk}-{memory}.nc", engine="h5netcdf")


if __name__ == "__main__":
    target = Path(sys.argv[1])
    if sys.argv[2:] == ["--cuts"]:
        cut_at_random(target, CUTS)
    elif len(sys.argv) > 2:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
        assert jax.process_count() == int(sys.argv[3])
        own = target / sys.argv[4]
        own.mkdir()
        sweeps(own, target / "store")
        # Every process refuses a store of another sweep, though only the first one reads it.
        with pytest.raises(ValueError, match="another configuration"):
            sweep.run(
                both,
                {"d": sweep.widths(5)},
                num_seeds=3,
                key=jax.random.key(11),
                store=target / "store",
            )
    else:
        sweeps(target, target / "store")
