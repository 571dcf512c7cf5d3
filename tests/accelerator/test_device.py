"""What JAX's first device computes is what the CPU computes: samples, polar factors, products,
sweeps. `scripts/accelerator.sh` runs these.

On a machine without an accelerator both are the CPU, which shows that the tests run and nothing
else.
"""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import sizes, spectral

pytestmark = pytest.mark.accelerator

DEVICE, CPU = jax.devices()[0], jax.devices("cpu")[0]
METHODS = {
    "SVD": spectral.SVD(),
    "QDWH": spectral.QDWH(),
    "Newton": spectral.Newton(),
    "Polar Express": spectral.PolarExpress(),
}


def on_both(function, *arguments):
    """What a function returns on the device and on the CPU, as NumPy arrays."""
    return tuple(
        np.asarray(jax.jit(function)(*jax.device_put(arguments, device)), np.float64)
        for device in (DEVICE, CPU)
    )


def spectrum(rows, columns, condition):
    """A matrix with singular values from 1 down to 1/condition, and its polar factor, in
    float64.
    """
    rng, k = np.random.default_rng(0), min(rows, columns)
    u, v = (np.linalg.qr(rng.normal(size=(n, k)))[0] for n in (rows, columns))
    return (u * np.geomspace(1, 1 / condition, k)) @ v.T, u @ v.T


@pytest.mark.parametrize("draw", [sizes.uniform, sizes.rademacher], ids=lambda draw: draw.__name__)
@pytest.mark.parametrize("padded", [False, True])
def test_draws_have_the_same_bits(draw, padded):
    size = sizes.Size(64, 40) if padded else 40
    device, cpu = on_both(lambda key: draw(key, (size, 7)), jax.random.key(0))
    np.testing.assert_array_equal(device, cpu)


def test_normal_samples_differ_by_rounding_of_erfinv_alone():
    device, cpu = on_both(
        lambda key: sizes.normal(key, (sizes.Size(256, 200), 128)), jax.random.key(0)
    )
    np.testing.assert_allclose(device, cpu, rtol=2e-6, atol=2e-7)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("shape", [(128, 128), (64, 256)])
def test_polar_factors_are_as_exact_as_float32(name, shape):
    x, expected = spectrum(*shape, condition=100.0)
    found = np.asarray(
        jax.jit(lambda x: spectral.polar(x, METHODS[name]))(jnp.asarray(x, jnp.float32)), np.float64
    )
    # A method of steps ends within what its steps promise; TF32, which has ten bits, would leave
    # 1e-3 and more of every one.
    assert np.linalg.norm(found - expected, 2) < (2e-2 if name == "Polar Express" else 2e-4)


def test_products_are_not_rounded_to_tf32():
    x = np.random.default_rng(1).normal(size=(512, 512)) / 512**0.5
    found = np.asarray(
        jax.jit(lambda x: spectral.spectral_map(x, lambda s: s**2))(jnp.asarray(x, jnp.float32)),
        np.float64,
    )
    u, s, vt = np.linalg.svd(x)
    np.testing.assert_allclose(found, (u * s**2) @ vt, atol=2e-5)


@pytest.mark.parametrize("name", METHODS)
def test_in_float64_polar_factors_are_as_exact_as_float64(name):
    x, expected = spectrum(64, 48, condition=100.0)
    with jax.enable_x64(True):
        found = np.asarray(jax.jit(lambda x: spectral.polar(x, METHODS[name]))(jnp.asarray(x)))
    assert found.dtype == np.float64
    assert np.linalg.norm(found - expected, 2) < 1e-11


@pytest.mark.parametrize("shape", [(128, 128), (64, 256)])
@pytest.mark.parametrize(
    ("operands", "dtype", "limit"),
    [
        # Operands of ten bits, as those of TF32, are off by more than the first limit and by less
        # than the second.
        (None, jnp.float32, 1e-3),
        (jnp.float16, jnp.float32, 1e-2),
        (jnp.bfloat16, jnp.float32, 0.1),
        (None, jnp.bfloat16, 0.2),
    ],
)
def test_five_muon_steps_are_those_of_float64_within_rounding(shape, operands, dtype, limit):
    x, _ = spectrum(*shape, condition=100.0)
    with jax.enable_x64(True), jax.default_device(CPU):
        expected = np.asarray(spectral.polar(jnp.asarray(x), spectral.NewtonSchulz(5)))
    steps = spectral.NewtonSchulz(5, operands=operands)
    found = np.asarray(
        jax.jit(lambda x: spectral.polar(x, steps))(jnp.asarray(x, dtype)), np.float64
    )
    assert np.linalg.norm(found - expected, 2) < limit


SWEEP = """
import sys
import jax
from specjax import sizes, spectral, sweep


def measure(key, n):
    return {"norm": spectral.nuclear_norm(sizes.normal(key, (n, sizes.times(n, 2))))}


over = {"n": sweep.widths(4, 8, 12, 24)}
key = jax.random.key(3)
data = sweep.run(measure, over, num_seeds=12, key=key, plan=sys.argv[1], progress=False)
print(*data["norm"].values.ravel())
"""


@pytest.mark.parametrize("plan", ["auto", "exact"])
def test_a_sweep_is_the_same_dataset(plan):
    """In processes of their own, since a sweep takes all devices that a process has."""
    found = []
    for platforms in ({}, {"JAX_PLATFORMS": "cpu"}):
        command = [sys.executable, "-c", SWEEP, plan]
        done = subprocess.run(
            command, env={**os.environ, **platforms}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        found.append(np.array(done.stdout.split(), float))
    assert found[0].size == 48
    np.testing.assert_allclose(*found, rtol=2e-5)
