"""Data-parallel training on several devices, which a process of its own has."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.training import sharded_training

pytestmark = pytest.mark.integration


@pytest.mark.slow
def test_eight_devices_train_as_one(tmp_path):
    path = tmp_path / "losses.npz"
    environment = os.environ | {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
        "JAX_PLATFORMS": "cpu",
    }
    root = Path(__file__).parents[2]
    subprocess.run(
        [sys.executable, str(Path(sharded_training.__file__)), str(path)],
        env=environment,
        cwd=root,
        check=True,
    )
    found = np.load(path)
    assert set(found["layouts"]) == {8}
    alone = sharded_training.trained(None, [])
    np.testing.assert_allclose(found["losses"], alone, rtol=1e-5)
    assert alone[-1] < alone[0] - 0.01
