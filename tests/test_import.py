"""What an import does: the core, for bare accelerator images, loads a closed list, and no module
starts a backend.
"""

import json
import os
import subprocess
import sys

import pytest

CORE = ("specjax", "specjax.sizes", "specjax.spectral", "specjax.theory", "specjax.models")
LATER = (
    "xarray h5netcdf h5py matplotlib jinja2 PIL tqdm tyro argparse equinox optax pandas hypothesis"
    " torch"
)


def loaded_by(*modules):
    """The top-level modules in memory after a fresh interpreter imported the given ones."""
    code = (
        f"import json, sys; import {', '.join(modules)}; print(json.dumps(sorted({{m.split('.')[0]"
        " for m in sys.modules})))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


@pytest.mark.integration
def test_the_core_adds_nothing_to_what_jax_loads():
    base = loaded_by("jax", "jax.numpy", "jaxtyping", "numpy", "scipy")
    core = loaded_by(*CORE)
    assert "specjax" in core
    # argparse and its like may come with jax itself; what specjax adds is only itself.
    assert core - base <= {"specjax"} | set(sys.stdlib_module_names)
    assert not (core - base) & set(LATER.split())


IMPORT_ALL = """
import importlib, pkgutil, specjax

for module in pkgutil.walk_packages(specjax.__path__, "specjax."):
    importlib.import_module(module.name)
"""


@pytest.mark.integration
def test_no_import_starts_a_backend():
    """After that `jax.distributed.initialize` and PJRT_NPROC would come too late. A platform that
    there is not cannot be started.
    """
    environment = {**os.environ, "JAX_PLATFORMS": "none_such"}
    subprocess.run([sys.executable, "-c", IMPORT_ALL], env=environment, check=True)
