"""Peak memory of this process, as Linux counts it; it is part of the record of a run."""

import re
from contextlib import suppress
from pathlib import Path

_PROCESS = Path("/proc/self")


def forget() -> None:
    """Reset the peak, if the system counts it."""
    with suppress(OSError):
        # 5 is the request to forget the peak; see proc(5).
        (_PROCESS / "clear_refs").write_text("5")


def peak() -> int | None:
    """Peak bytes in memory since the last `forget`; None if the system does not count them."""
    try:
        found = re.search(r"^VmHWM:\s+(\d+) kB$", (_PROCESS / "status").read_text(), re.MULTILINE)
    except OSError:
        return None
    return None if found is None else int(found[1]) * 1024
