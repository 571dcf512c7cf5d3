"""Runs of experiments that several tests look at."""

import os
import pickle
from collections.abc import Callable

import pytest

from specjax import experiments
from tests.experiments.streams import Streams, recorded


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
            with recorded() as streams:
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
