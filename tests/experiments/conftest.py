"""Runs of experiments that several tests look at."""

import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import jax
import pytest

from specjax import experiments
from tests.experiments.streams import Streams, recorded


@contextmanager
def promotion_of(name: str) -> Iterator[None]:
    """JAX's own promotion of types and ranks for a submitted claim, which is written for that; the
    strict one of the tests for all others.
    """
    if not (experiments.SUBMITTED / name.replace("-", "_")).is_dir():
        yield
        return
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@pytest.fixture(scope="session")
def smoke_data(tmp_path_factory: pytest.TempPathFactory) -> Callable:
    """The data of an experiment at its smallest scale by name: run once, whichever test and worker
    needs them first.
    """
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "smoke-data"
    folder.mkdir(exist_ok=True)

    def data(name):
        path = folder / f"{name}.pickle"
        if not path.exists():
            experiment = experiments.load(name)
            with recorded() as streams, promotion_of(name):
                found = experiment.run(experiment.at("smoke"))
            for kept, suffix in ((streams, "streams"), (found, "pickle")):
                part = folder / f"{name}.{suffix}.{os.getpid()}"
                part.write_bytes(pickle.dumps(kept))
                part.replace(folder / f"{name}.{suffix}")
        return pickle.loads(path.read_bytes())

    return data


@pytest.fixture(scope="session")
def smoke_streams(
    smoke_data: Callable, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Streams]:
    """The keys that the same run of an experiment hands out, by name."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "smoke-data"

    def streams(name: str) -> Streams:
        smoke_data(name)
        found: Streams = pickle.loads((folder / f"{name}.streams").read_bytes())
        return found

    return streams
