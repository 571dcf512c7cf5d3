"""Compiled programs are kept between runs, in silence, and change no bit."""

import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import jax
import jax.numpy as jnp
import optax
import pytest

from specjax import compilation_cache, experiments, sweep, training
from specjax.jaxlib import JAXLIB
from specjax.report import runner

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
    monkeypatch.setattr(compilation_cache, "JAXLIB", jaxlib)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(compilation_cache.SWITCH, raising=False)
    found = compilation_cache.folder(platform)
    assert (found is not None) == expected
    assert found is None or found.is_relative_to(tmp_path / "specjax")
    monkeypatch.setenv(compilation_cache.SWITCH, "on")
    assert compilation_cache.folder(platform).is_relative_to(tmp_path / "specjax")
    monkeypatch.setenv(compilation_cache.SWITCH, "off")
    assert compilation_cache.folder(platform) is None


@pytest.mark.integration
@pytest.mark.skipif(
    JAXLIB < (0, 11), reason="XLA of jaxlib 0.10 gives a false alarm for every program it reads."
)
def test_a_second_run_silently_reads_its_programs_for_equal_bits(optimized_environment, tmp_path):
    environment = {**optimized_environment, compilation_cache.SWITCH: str(tmp_path)}
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
        env={**environment, compilation_cache.SWITCH: "off"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert alone.stdout == first


def test_without_a_home_folder_there_is_none(monkeypatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(compilation_cache.Path, "home", homeless)
    monkeypatch.setattr(compilation_cache, "JAXLIB", (0, 12))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv(compilation_cache.SWITCH, raising=False)
    assert compilation_cache.folder("cpu") is None


def test_programs_used_least_recently_are_deleted(monkeypatch, tmp_path):
    monkeypatch.setattr(compilation_cache, "MOST_BYTES", 250)
    for place, name in enumerate(("b-cache", "a-cache", "notes", "d-cache", "c-cache")):
        (tmp_path / name).write_bytes(bytes(100))
        os.utime(tmp_path / name, (1000 + place, 1000 + place))
    compilation_cache._trim(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c-cache", "d-cache", "notes"]


@pytest.fixture
def compiled(monkeypatch, tmp_path):
    """Runs a function with an empty memory of programs, and counts those that it compiled."""
    monkeypatch.setenv(compilation_cache.SWITCH, str(tmp_path))
    seen = Counter()

    def listen(event, **_):
        seen.update([event.removeprefix("/jax/compilation_cache/")])

    def count(function):
        jax.clear_caches()
        seen.clear()
        function()
        return seen["compile_requests_use_cache"] - seen["cache_hits"]

    jax.monitoring.register_event_listener(listen)
    yield count
    jax.monitoring.unregister_event_listener(listen)


_KEY = jax.random.key(0)
_PARAMS = jnp.ones(2)


def _swept():
    over = {"d": sweep.widths(2, 3), "a": sweep.values(1.0, 2.0)}
    sweep.run(
        lambda key, d, a: {"x": a * jnp.sum(jax.random.normal(key, (d,)))},
        over,
        num_seeds=2,
        key=_KEY,
        plan="exact",
        progress=False,
    )


def _trained():
    training.train(
        lambda w, x: jnp.sum((w - x) ** 2),
        _PARAMS,
        lambda step: jnp.full(2, step, jnp.float32),
        optax.sgd(0.1),
        steps=4,
        every=2,
    )


def _produced():
    experiment = experiments.load("field-rate")
    with tempfile.TemporaryDirectory() as out:
        runner.produce(experiment, "smoke", experiment.at("smoke"), Path(out))


@pytest.mark.integration
@pytest.mark.parametrize("call", [_swept, _trained, _produced])
def test_a_second_call_compiles_nothing(compiled, call):
    assert compiled(call) > 0
    assert compiled(call) == 0
