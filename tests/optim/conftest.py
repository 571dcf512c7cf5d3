"""Settings of the optimizer tests."""

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture(autouse=True)
def quick_compilation() -> Iterator[None]:
    """Hundreds of programs run once each on tiny matrices: their time is compilation."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture
def optax_promotion() -> Iterator[None]:
    """JAX's standard promotion: optax's bias correction (decay ** count) and Adam do not run under the strict one."""
    with jax.numpy_dtype_promotion("standard"):
        yield
