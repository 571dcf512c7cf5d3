"""What LAPACK is to decompose in a lowered program, read off its StableHLO text."""

import re

_CALL = re.compile(r"@lapack_\w+\(.*\) .*: \(tensor<((?:\d+x){2,})")


def calls_lapack(text: str) -> bool:
    """Whether a program hands anything to LAPACK."""
    return "@lapack_" in text


def decomposed(text: str) -> list[tuple[int, ...]]:
    """The extents of what each call decomposes, in the order of the text: three or more are a batch of matrices."""
    return [tuple(map(int, extents.split("x")[:-1])) for extents in _CALL.findall(text)]
