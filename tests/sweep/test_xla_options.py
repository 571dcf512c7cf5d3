"""How hard XLA works on a program: less than by default, and as the user has said."""

import jax
import pytest

from specjax.jaxlib import is_known
from specjax.sweep import xla_options as module
from specjax.sweep.xla_options import xla_options

LEVEL = "xla_backend_optimization_level"


@pytest.fixture
def without_flags(monkeypatch):
    """As in a user's process, which has no switch for quick compilation."""
    monkeypatch.setenv("XLA_FLAGS", "")
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    monkeypatch.setattr(module, "cpu_options", lambda **_: {})
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.mark.usefixtures("without_flags")
def test_less_for_what_is_kept_and_least_for_a_check():
    assert xla_options(is_kept=True) == {LEVEL: 1}
    assert xla_options(is_kept=False) == {LEVEL: 0}


@pytest.mark.usefixtures("without_flags")
def test_what_the_user_sets_stays(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", f"--{LEVEL}=3")
    assert xla_options(is_kept=True) == {}
    monkeypatch.setenv("XLA_FLAGS", "")
    jax.config.update("jax_disable_most_optimizations", True)
    assert xla_options(is_kept=True) == {}


@pytest.mark.usefixtures("without_flags")
def test_what_makes_results_right_is_always_there(monkeypatch):
    right = {"xla_cpu_parallel_codegen_split_count": 1}
    monkeypatch.setattr(module, "cpu_options", lambda **_: right)
    assert xla_options(is_kept=True) == {LEVEL: 1, **right}
    jax.config.update("jax_disable_most_optimizations", True)
    assert xla_options(is_kept=True) == right


@pytest.mark.usefixtures("without_flags")
def test_an_accelerator_is_left_alone(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert xla_options(is_kept=True) == {}


@pytest.mark.usefixtures("without_flags")
def test_an_option_that_this_jaxlib_does_not_have_is_left_out(monkeypatch):
    monkeypatch.setattr(module, "_KEPT", {LEVEL: 1, "xla_cpu_no_such_option": True})
    assert xla_options(is_kept=True) == {LEVEL: 1}
    assert is_known(LEVEL, 2)
    assert not is_known("xla_cpu_no_such_option", True)
