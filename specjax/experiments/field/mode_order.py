"""In which order modes are learned."""

import xarray as xr

from specjax import lab

LARGER, SMALLER = slice(None, -1), slice(1, None)
"""Of every two modes in a row the larger one, and the smaller one."""


def in_order(time: xr.DataArray, first: slice, last: slice) -> lab.Relation:
    """Of every two modes in a row one is half learned before the other; in logarithms, since times
    are spread by factors.
    """
    log_time = xr.ufuncs.log(time)
    earlier = log_time.isel(mode=first)
    later = log_time.isel(mode=last).assign_coords(mode=earlier.mode)
    return lab.ahead(later.rename("log time, the later"), earlier.rename("the earlier"), least=0)
