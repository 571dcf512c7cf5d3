"""Runs of experiments that several tests look at."""

import os
import pickle
from collections.abc import Callable

import jax
import pytest

from specjax import experiments

# Optax's Adam does not run under strict promotion.
ADAM = {"gpt-ablation", "gpt-telemetry", "recall-transformer"}


@pytest.fixture(scope="session")
def smoke_data(tmp_path_factory: pytest.TempPathFactory) -> Callable:
    """The data of an experiment at its smallest scale by name: run once, whichever test and worker needs them first."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "smoke-data"
    folder.mkdir(exist_ok=True)

    def data(name):
        path = folder / f"{name}.pickle"
        if not path.exists():
            experiment = experiments.load(name)
            with jax.numpy_dtype_promotion("standard" if name in ADAM else "strict"):
                found = experiment.run(experiment.scales["smoke"])
            part = folder / f"{name}.{os.getpid()}"
            part.write_bytes(pickle.dumps(found))
            part.replace(path)
        return pickle.loads(path.read_bytes())

    return data
