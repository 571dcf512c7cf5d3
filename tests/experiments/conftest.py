"""Settings of the tests of experiments."""

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture(autouse=True, scope="module")
def quick_compilation(request: pytest.FixtureRequest) -> Iterator[None]:
    """At smoke scale the time is compilation; at quick scale it is not, and a user's programs are the optimized ones."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", "quick" not in request.path.name)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
