"""The dimension of independent replicates: seeds, or batches of seeds in a dataset of moments."""

import numpy as np
import xarray as xr

SEED, BATCH = "seed", "batch"
SEEDS = "seeds"  # the coordinate of the number of seeds of each width


def replicate_dim(data: xr.DataArray | xr.Dataset) -> str:
    """The dimension "batch" if `data` have it and no seeds, else "seed"."""
    return BATCH if BATCH in data.dims and SEED not in data.dims else SEED


def present(data: xr.DataArray | xr.Dataset, dim: str) -> xr.DataArray | None:
    """Which entries along `dim` exist at each width; None if all do.

    In a sweep with a number of seeds for each width, the coordinate `seeds` of that axis is the
    number: the width has the seeds 0 to `seeds` - 1, and other entries are not results.

    Raises:
        ValueError: the coordinate does not hold positive integers along one dimension.
    """
    if dim != SEED or SEEDS not in data.coords:
        return None
    seeds = data.coords[SEEDS]
    if seeds.ndim > 1 or not np.issubdtype(seeds.dtype, np.integer) or (seeds.values < 1).any():
        raise ValueError(
            "The coordinate 'seeds' needs one positive integer for each width, got"
            f" {seeds.values.tolist()} over {tuple(seeds.dims)}; drop it or take it from run's"
            " dataset."
        )
    labels = (
        data[SEED] if SEED in data.coords else xr.DataArray(np.arange(data.sizes[SEED]), dims=SEED)
    )
    exists = (labels.drop_vars(SEEDS, errors="ignore") < seeds).reset_coords(drop=True)
    return None if bool(exists.all()) else exists
