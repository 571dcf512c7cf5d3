"""How hard XLA works on a program: by how long it will run, and as the user has said."""

import jax
import pytest

from specjax.sweep import effort as module
from specjax.sweep.effort import effort

LEVEL, EMITTERS, PIECES = (
    "xla_backend_optimization_level",
    "xla_cpu_use_fusion_emitters",
    "xla_cpu_parallel_codegen_split_count",
)


@pytest.fixture
def without_flags(monkeypatch):
    """As in a user's process, which has no switch for quick compilation."""
    monkeypatch.setenv("XLA_FLAGS", "")
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.mark.usefixtures("without_flags")
def test_less_for_what_runs_shortly_and_least_for_what_is_not_kept():
    assert effort(60.0, 3.0) == {LEVEL: 1}
    assert effort(0.2, 3.0) == {LEVEL: 1, EMITTERS: False, PIECES: 1}
    assert effort(None) == {LEVEL: 0, EMITTERS: False, PIECES: 1}


@pytest.mark.usefixtures("without_flags")
def test_what_the_user_sets_stays(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", f"--{LEVEL}=3 --{EMITTERS}=true")
    assert effort(0.2, 3.0) == {PIECES: 1}
    jax.config.update("jax_disable_most_optimizations", True)
    assert effort(0.2, 3.0) == {}


@pytest.mark.usefixtures("without_flags")
def test_an_accelerator_is_left_alone(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert effort(0.2, 3.0) == {}


@pytest.mark.usefixtures("without_flags")
def test_an_option_that_this_jaxlib_does_not_have_is_left_out(monkeypatch):
    monkeypatch.setattr(module, "_LESS", {LEVEL: 1, "xla_cpu_no_such_option": True})
    assert effort(60.0, 3.0) == {LEVEL: 1}
