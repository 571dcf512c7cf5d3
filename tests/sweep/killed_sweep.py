"""A sweep of many small blocks into a store, to be killed: `python killed_sweep.py STORE
RESULT`.
"""

import os
import sys
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
sys.path.insert(0, str(Path(__file__).parent))

import jax
from measures import bits, overlap

from specjax import sweep
from specjax.sweep import _executor


def measure(key, d, lr):
    return {**overlap(key, d), **bits(key, d), "scaled": lr * overlap(key, d)["overlap"]}


def sweep_into(store):
    over = {"d": sweep.widths(5, 40, 2, 16), "lr": sweep.values(0.1, 0.2)}
    return sweep.run(
        measure,
        over,
        num_seeds=401,
        key=jax.random.key(5),
        plan="exact",
        chunk=5,
        store=store,
        progress=False,
    )


if __name__ == "__main__":
    _executor.BLOCK_SECONDS = 1e-9  # every call is a block of its own
    data = sweep_into(Path(sys.argv[1]))
    data.to_netcdf(sys.argv[2], engine="h5netcdf")
