"""A small sweep, of two buckets along an axis `d` of three points, for the tests of stores."""

import numpy as np
import xarray as xr

from specjax.sweep._store import Block, Description

PLACES = [[[1], [0, 1]], [[2, 0], [0, 1]]]  # of the axes d and eta
CONFIG = {"over": {"d": [2, 4, 8], "eta": [0.1, 0.2]}, "key": [0, 7], "dtype": "float32"}
PLAN = {"buckets": [[1], [2, 0]], "blocks": [3, 3]}
SAMPLES = 6
ALL = {Block(bucket, start, start + 3) for bucket in (0, 1) for start in (0, 3)}


def truth(samples=SAMPLES):
    """The dataset: values of all kinds that depend on the point and the seed alone."""
    whole = np.random.default_rng(7).integers(-1000, 1000, (3, 2, 32, 2))[:, :, :samples]
    dims = ("d", "eta", "seed")
    variables = {
        "loss": (dims, whole[..., 0].astype(np.float32), {"units": "1"}),
        "file": ((*dims, "file_dim_0"), (whole * (1 + 2j)).astype(np.complex64)),
        "layer.count": (dims, whole[..., 1].astype(np.int32)),
        "a/hit": ((*dims, "none", "pair"), whole[..., None, :] > 0),
    }
    coords = {
        "d": ("d", [2, 4, 8], {"units": "neurons"}),
        "eta": [0.1, 0.2],
        "twice": ("d", [4.0, 8.0, 16.0]),
    }
    return xr.Dataset(variables, {**coords, "seed": np.arange(samples)})


def described(samples=SAMPLES, config=CONFIG, plan=PLAN):
    return Description.of(truth(samples), "seed", config=config, plan=plan, places=PLACES)


def part(block, samples=SAMPLES):
    """The arrays of a block."""
    d, eta = PLACES[block.bucket]
    found = truth(samples).isel(d=d, eta=eta, seed=slice(block.start, block.stop))
    return {str(name): variable.values for name, variable in found.data_vars.items()}


def compute(store, size=3):
    """Writes what is missing in blocks of at most `size` samples, and returns these."""
    written = set()
    for bucket in range(len(PLACES)):
        for start, stop in store.missing(bucket):
            for first in range(start, stop, size):
                block = Block(bucket, first, min(first + size, stop))
                store.write(block, part(block, store.described.samples), 0.5)
                written.add(block)
    return written


def assert_read(store):
    """The store reads as the truth."""
    outputs, expected = store.read(), truth(store.described.samples)
    assert outputs.keys() == set(expected.data_vars)
    for name, array in outputs.items():
        np.testing.assert_array_equal(array, expected[name].values, err_msg=name, strict=True)
