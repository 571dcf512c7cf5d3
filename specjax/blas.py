"""One thread for the matrix routines of NumPy and SciPy, which JAX's decompositions on CPUs are.

OpenBLAS shares one small decomposition among all cores and then waits for them, far longer than the
decomposition takes where anything else runs. The cores are used by decompositions side by side
instead.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Within the block BLAS has one thread; what was set before is set again behind it."""
    with threadpool_limits(limits=1, user_api="blas"):
        yield
