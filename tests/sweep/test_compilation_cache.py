"""Compiled programs are kept between runs, in silence, and change no bit."""

import subprocess
import sys

import pytest

from specjax.jaxlib import JAXLIB
from specjax.sweep import _compilation_cache

_SWEEP = """
import jax, jax.numpy as jnp
from specjax import sizes, spectral, sweep

def measure(key, d):
    x = sizes.normal(key, (d, 12))
    w = jax.lax.fori_loop(0, 9, lambda _, w: w - 0.1 * spectral.polar(w), x)
    return {"norm": spectral.nuclear_norm(w), "largest": jnp.max(jnp.linalg.qr(w @ w.T)[1])}

over = {"d": sweep.widths(6, 9)}
data = sweep.run(measure, over, num_seeds=7, key=jax.random.key(1), progress=False)
print({name: output.values.tobytes().hex() for name, output in data.data_vars.items()})
"""


@pytest.mark.parametrize(
    ("platform", "jaxlib", "expected"),
    [
        ("cpu", (0, 10), False),
        ("cpu", (0, 11), True),
        ("cpu", (1, 0), True),
        ("gpu", (0, 10), True),
    ],
)
def test_it_is_on_where_nothing_gives_a_false_alarm(
    monkeypatch, tmp_path, platform, jaxlib, expected
):
    monkeypatch.setattr(_compilation_cache, "JAXLIB", jaxlib)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(_compilation_cache.SWITCH, raising=False)
    found = _compilation_cache.folder(platform)
    assert (found is not None) == expected
    assert found is None or found.is_relative_to(tmp_path / "specjax")
    monkeypatch.setenv(_compilation_cache.SWITCH, "on")
    assert _compilation_cache.folder(platform).is_relative_to(tmp_path / "specjax")
    monkeypatch.setenv(_compilation_cache.SWITCH, "off")
    assert _compilation_cache.folder(platform) is None


@pytest.mark.integration
@pytest.mark.skipif(
    JAXLIB < (0, 11), reason="XLA of jaxlib 0.10 gives a false alarm for every program it reads."
)
def test_a_second_run_silently_reads_its_programs_for_equal_bits(optimized_environment, tmp_path):
    environment = {**optimized_environment, _compilation_cache.SWITCH: str(tmp_path)}
    # XLA prints errors unless that is switched off.
    environment.pop("TF_CPP_MIN_LOG_LEVEL", None)

    def run():
        done = subprocess.run(
            [sys.executable, "-c", _SWEEP],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        # When a program was read last stands in a file of its own.
        programs = {
            path.name
            for path in tmp_path.rglob("*")
            if path.is_file() and not path.name.endswith("-atime")
        }
        return done.stdout, done.stderr, programs

    first, _, written = run()
    again, reported, kept = run()
    assert written
    assert kept == written
    assert reported == ""
    assert again == first
    alone = subprocess.run(
        [sys.executable, "-c", _SWEEP],
        env={**environment, _compilation_cache.SWITCH: "off"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert alone.stdout == first


def test_without_a_home_folder_there_is_none(monkeypatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(_compilation_cache.Path, "home", homeless)
    monkeypatch.setattr(_compilation_cache, "JAXLIB", (0, 12))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv(_compilation_cache.SWITCH, raising=False)
    assert _compilation_cache.folder("cpu") is None
