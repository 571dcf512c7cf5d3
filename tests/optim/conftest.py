"""Settings of the optimizer tests."""

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture
def optax_promotion() -> Iterator[None]:
    """JAX's standard promotion: optax's bias correction (decay ** count) and Adam do not run under
    the strict one.
    """
    with jax.numpy_dtype_promotion("standard"):
        yield
