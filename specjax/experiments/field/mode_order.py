"""The order in which modes are learned."""

import xarray as xr

from specjax import lab

LARGER, SMALLER = slice(None, -1), slice(1, None)
"""The larger and the smaller of every two successive modes."""


def judge_order(time: xr.DataArray, first: slice, last: slice, least: float = 0.0) -> lab.Relation:
    """Judge that of two successive modes one is half learned before the other, by more than `least`
    in log time.
    """
    log_time = xr.ufuncs.log(time)
    earlier = log_time.isel(mode=first)
    later = log_time.isel(mode=last).assign_coords(mode=earlier.mode)
    return lab.ahead(
        later.rename("log time, the later"), earlier.rename("the earlier"), least=least
    )
