"""Limit the BLAS of NumPy, SciPy and JAX's decompositions on CPUs to one thread.

OpenBLAS splits one small decomposition among all cores and then waits for them, far longer than the
decomposition takes if anything else runs. The cores are used by decompositions side by side
instead.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread within the block."""
    with threadpool_limits(limits=1, user_api="blas"):
        yield
