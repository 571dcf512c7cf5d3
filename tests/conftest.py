"""Settings and fixtures of every test: strict promotion, one hypothesis profile, float64 on request."""

import os
from collections.abc import Iterator

import jax
import jaxtyping
import pytest
from hypothesis import HealthCheck, settings

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")

# Several batched LAPACK calls at once, in one program or in two, can wait for each other for ever on two cores in jaxlib 0.10.
_SERIAL = "--xla_cpu_enable_concurrency_optimized_scheduler=false"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_SERIAL}".strip()
jax.config.update("jax_cpu_enable_async_dispatch", False)

# What a test compiles is neither taken from the user's cache nor left there.
os.environ["SPECJAX_COMPILATION_CACHE"] = "off"

# No deadline: the first example compiles. Derandomized: a run fails today exactly if it failed yesterday.
# Function-scoped fixtures are allowed: the ones here set a mode that every example shares.
settings.register_profile(
    "specjax",
    deadline=None,
    derandomize=True,
    max_examples=25,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
settings.load_profile("specjax")


@pytest.fixture
def x64() -> Iterator[None]:
    """Float64 for one test."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Runs one test without jaxtyping's checks, as a user does: our own error messages are what is tested."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
