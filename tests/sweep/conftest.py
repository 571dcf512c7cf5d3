"""Settings of the tests of the engine."""

from collections.abc import Iterator

import jax
import pytest

_QUICK = "jax_disable_most_optimizations"


@pytest.fixture(autouse=True, scope="module")
def quick_compilation() -> Iterator[None]:
    """The programs are tiny and run once: their time is compilation. Processes that a test starts inherit the setting."""
    before = jax.config.read(_QUICK)
    jax.config.update(_QUICK, True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(_QUICK.upper(), "1")
        yield
    jax.config.update(_QUICK, before)
