"""The memory a sweep may use: a budget in bytes, or a share of the device's memory."""

import os
import re
from numbers import Integral

import jax

from specjax.arguments import shown

_UNITS = {unit: 1000**i for i, unit in enumerate(("B", "KB", "MB", "GB", "TB"))}
_UNITS |= {unit: 1024 ** (i + 1) for i, unit in enumerate(("KiB", "MiB", "GiB", "TiB"))}
# A host also holds the results and other programs; an accelerator holds only other arrays.
_HOST_SHARE, _ACCELERATOR_SHARE = 0.25, 0.75
_UNKNOWN = 2**30
_MOST = 2**60  # the dataset holds it as an int64


def parse(memory: str | int) -> int:
    """The bytes of e.g. "4GiB", "500 MB" or an int.

    Raises:
        ValueError: neither a positive int nor a positive number with a unit.
    """
    number: float | int = 0
    if isinstance(memory, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]i?B|B)\s*", memory)
        number = float(match[1]) * _UNITS[match[2]] if match else 0
    elif isinstance(memory, Integral) and not isinstance(memory, bool):
        number = int(memory)
    if number > _MOST:
        raise ValueError(
            f"memory needs to be at most 2**60 bytes, got {shown(memory)}; leave it out for the"
            " default."
        )
    if number < 1:
        raise ValueError(
            f"memory needs to be bytes or a size such as '4GiB' or '500MB', got {shown(memory)}."
        )
    return int(number)


def default_budget(device: jax.Device, devices: int) -> int:
    """The bytes of one of `devices` local devices: a share of the host's memory, or of its own."""
    if device.platform == "cpu":
        return int(host_memory() * _HOST_SHARE) // devices
    statistics = device.memory_stats() or {}
    return int(statistics.get("bytes_limit", _UNKNOWN / _ACCELERATOR_SHARE) * _ACCELERATOR_SHARE)


def host_memory() -> int:
    """The bytes of physical memory of this host."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def described(number: int | float) -> str:
    """Bytes in a readable unit, e.g. "3.5 MiB"."""
    units = ("B", "KiB", "MiB", "GiB", "TiB")
    power = min(max(int(number).bit_length() - 1, 0) // 10, len(units) - 1)
    return f"{number / 1024**power:.3g} {units[power]}"
