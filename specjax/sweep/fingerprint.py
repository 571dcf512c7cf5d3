"""What a measurement is known by: the programs that a plan compiles of it."""

from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import Array, Key

from specjax import keeping
from specjax.sweep.axes import Over
from specjax.sweep.plan import Bucket
from specjax.sweep.program import Measure, build, coordinates, trace_program


def fingerprint(measure: Measure, over: Over, buckets: Sequence[Bucket], key: Key[Array, ""], *, couple: bool) -> str:
    """A hash of the program of each bucket and of its constants: other code at any width, or other arrays in it, give another one.

    It is the same for every chunk and number of devices. What a callback does on the host is no part of a program, and not seen.
    """
    key_data, impl = np.asarray(jax.random.key_data(key)), str(jax.random.key_impl(key))
    return keeping.digest(
        trace_program(build(measure, bucket, over, impl, couple=couple), key_data, 1, coordinates(bucket, over))
        for bucket in buckets
    )
