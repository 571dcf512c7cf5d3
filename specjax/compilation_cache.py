"""JAX's persistent compilation cache during sweeps, trainings and experiments: a script compiles
only in its first run.

The cache is in the user's cache folder (`$XDG_CACHE_HOME/specjax`, else `~/.cache/specjax`). The
environment variable `SPECJAX_COMPILATION_CACHE` switches it "on" or "off", or names another folder.
A cache that the user has set in JAX is left alone. Even programs of one operation are kept, since
reading one takes a tenth of the time to compile it. Each process that finds more than `MOST_BYTES`
there deletes the programs that were used least recently.

By default it is on, except on CPUs with jaxlib 0.10. There XLA prints a false alarm for every
program it reads from the cache (openxla/xla issue 44565). Only a setting made before JAX starts
silences it: the `specjax` command makes it, a library cannot.
"""

import hashlib
import logging
import os
import platform as host
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import jax
from jax.experimental.compilation_cache import compilation_cache

from specjax.jaxlib import JAXLIB

logger = logging.getLogger("specjax.compilation_cache")

SWITCH = "SPECJAX_COMPILATION_CACHE"
MOST_BYTES = 2**30


def folder(platform: str) -> Path | None:
    """The folder of programs compiled for `platform`; None if the cache is off."""
    gives_false_alarms = platform == "cpu" and JAXLIB < (0, 11)
    chosen = os.environ.get(SWITCH) or ("off" if gives_false_alarms else "on")
    if chosen == "off":
        return None
    if chosen != "on":
        return Path(chosen) / _host()
    try:
        parent = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        logger.info("compiling without a cache, since this user has no home folder")
        return None
    return parent / "specjax" / _host()


@contextmanager
def persistent(platform: str | None = None) -> Iterator[None]:
    """Use JAX's compilation cache in `folder` within the block, by default that of JAX's default
    platform.
    """
    where = folder(platform or jax.default_backend())
    before = jax.config.jax_compilation_cache_dir
    if where is None or before is not None or not _writable(where):
        yield
        return
    _trim(where)
    least = jax.config.jax_persistent_cache_min_compile_time_secs
    # JAX looks for a cache once, at the first compilation; a reset makes it look again.
    compilation_cache.reset_cache()
    jax.config.update("jax_compilation_cache_dir", str(where))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    try:
        yield
    finally:
        jax.config.update("jax_compilation_cache_dir", None)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", least)
        compilation_cache.reset_cache()


@cache  # once in each process, since a sweep adds little
def _trim(where: Path) -> None:
    """Delete the programs used least recently until the folder has at most `MOST_BYTES`."""
    # JAX ends the names of its programs so.
    try:
        found = {path: path.stat() for path in where.glob("*-cache")}
        left = sum(each.st_size for each in found.values())
        # Where the file system keeps no time of reading, the time of writing has to do.
        for path, each in sorted(found.items(), key=lambda item: item[1].st_atime):
            if left <= MOST_BYTES:
                break
            path.unlink(missing_ok=True)
            left -= each.st_size
    except OSError as error:
        # Another process may delete the same files.
        logger.info("the programs in %s were not counted: %s", where, error.strerror)


def _writable(where: Path) -> bool:
    try:
        where.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        logger.info(
            "compiling without a cache, since %s cannot be written: %s", where, error.strerror
        )
        return False
    return os.access(where, os.W_OK)


def _host() -> str:
    """A name for this kind of processor, since code for another may not run on it."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    features = next(
        (line for line in lines if line.startswith(("flags", "Features"))), host.processor()
    )
    return f"{host.machine()}-{hashlib.sha256(features.encode()).hexdigest()[:12]}"
