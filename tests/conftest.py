"""Settings and fixtures of every test: strict promotion, quick compilation, one hypothesis profile,
float64 on request.
"""

import gc
import os
from collections.abc import Iterator
from importlib.metadata import version

# Before the workers start: OpenBLAS, from which LAPACK comes too, on one thread, unless it is set.
# Where each of two workers has a thread for each of two cores, they wait for each other a hundred
# times as long as the decomposition of a 100×100 matrix takes.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Where in Python each operation of a program was called is of use to profilers alone, and takes 4 %
# of the time of what compiles.
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")

import jax
import jaxtyping
import optax
import pytest
from hypothesis import HealthCheck, settings

# Importing makes almost no garbage, and every search for it would go through all that is imported.
gc.disable()

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")
# Optax's Adam raises a float to an int32 count, which strict promotion refuses.
optax.tree.bias_correction = jax.numpy_dtype_promotion("standard")(optax.tree.bias_correction)

# XLA ends the process at a flag that it does not know, and jaxlib 0.11 has no older emitters any
# more.
_JAXLIB = tuple(map(int, version("jaxlib").split(".")[:2]))
_IS_OLD = _JAXLIB < (0, 11)
# Several batched LAPACK calls at once, in one program or in two, can wait for each other without
# end on two cores in jaxlib 0.10.
_SERIAL = ("--xla_cpu_enable_concurrency_optimized_scheduler=false",) if _IS_OLD else ()
# By XLA's older emitters and in one piece a program compiles in a third of the time there.
_QUICK = (
    ("--xla_cpu_use_fusion_emitters=false", "--xla_cpu_parallel_codegen_split_count=1")
    if _IS_OLD
    else ()
)
# Without it products with constants are wrong there: see specjax/jaxlib.py, which is not imported
# before its shapes can be checked.
_RIGHT = (
    ()
    if _IS_OLD or _JAXLIB >= (0, 13)
    else ("--xla_cpu_experimental_ynn_fusion_type=LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT",)
)
_NO_OPTIMIZATIONS = "jax_disable_most_optimizations"
# Workers inherit what their parent has set, which is not what the user did.
_FLAGS = [
    flag
    for flag in os.environ.get("XLA_FLAGS", "").split()
    if flag not in (*_SERIAL, *_QUICK, *_RIGHT)
]
# A level of optimization that is asked for is kept: `XLA_FLAGS=--xla_backend_optimization_level=3
# python -m pytest`.
_LEVEL_IS_SET = any("xla_backend_optimization_level" in flag for flag in _FLAGS)
os.environ["XLA_FLAGS"] = " ".join([*_FLAGS, *_SERIAL, *_RIGHT, *(() if _LEVEL_IS_SET else _QUICK)])
jax.config.update("jax_cpu_enable_async_dispatch", False)

# What modules of tests compile when they are imported.
_WITHOUT_OPTIMIZATIONS = jax.config.read(_NO_OPTIMIZATIONS)
jax.config.update(_NO_OPTIMIZATIONS, not _LEVEL_IS_SET)

# What a test compiles is neither taken from the user's cache nor left there.
os.environ["SPECJAX_COMPILATION_CACHE"] = "off"

# How many objects are made between two searches for garbage, and how many searches of the young
# between one of the older ones. By default each 700 new objects are searched, of which a trace
# makes many thousands that live on: a tenth of the time of what compiles.
_COLLECTED_AFTER = (20_000, 20, 10)


def pytest_collection_finish() -> None:
    """Exempts all imports from garbage collection; from here on each module says how it
    compiles.
    """
    jax.config.update(_NO_OPTIMIZATIONS, _WITHOUT_OPTIMIZATIONS)
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECTED_AFTER)


# No deadline: the first example compiles. Derandomized: a run fails today exactly if it failed
# yesterday. Function-scoped fixtures are allowed: the ones here set a mode that every example
# shares.
settings.register_profile(
    "specjax",
    deadline=None,
    derandomize=True,
    max_examples=25,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
settings.load_profile("specjax")


@pytest.fixture(autouse=True, scope="module")
def quick_compilation() -> Iterator[None]:
    """Compiles without most optimizations; a module that computes more than it compiles overrides
    this fixture.

    Processes that a test starts inherit it through the environment, unless they are given
    `optimized_environment`.
    """
    if _LEVEL_IS_SET:
        yield
        return
    before = jax.config.read(_NO_OPTIMIZATIONS)
    jax.config.update(_NO_OPTIMIZATIONS, True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(_NO_OPTIMIZATIONS.upper(), "1")
        yield
    jax.config.update(_NO_OPTIMIZATIONS, before)


@pytest.fixture(scope="session")
def optimized_environment() -> dict[str, str]:
    """The environment of a process that compiles as a user's does."""
    return {
        **os.environ,
        _NO_OPTIMIZATIONS.upper(): "0",
        "XLA_FLAGS": " ".join([*_FLAGS, *_SERIAL]),
    }


@pytest.fixture
def x64() -> Iterator[None]:
    """Float64 for one test."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Runs one test without jaxtyping's checks, as a user does: the test is of our own error
    messages.
    """
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def standard_promotion() -> Iterator[None]:
    """JAX's default promotion, on which optax's schedules and injected hyperparameters rely."""
    with jax.numpy_dtype_promotion("standard"):
        yield
