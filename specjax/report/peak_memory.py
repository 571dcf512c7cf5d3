"""The most memory that this process held, as Linux counts it: what a run needs is part of its
record.
"""

import re
from contextlib import suppress
from pathlib import Path

_PROCESS = Path("/proc/self")


def forget() -> None:
    """Begins the count anew, where the system counts."""
    with suppress(OSError):
        # 5 is the request to forget the peak; see proc(5).
        (_PROCESS / "clear_refs").write_text("5")


def peak() -> int | None:
    """The most bytes that were in memory since the last `forget`; None where the system does not
    count them.
    """
    try:
        found = re.search(r"^VmHWM:\s+(\d+) kB$", (_PROCESS / "status").read_text(), re.MULTILINE)
    except OSError:
        return None
    return None if found is None else int(found[1]) * 1024
