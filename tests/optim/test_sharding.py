"""Sharded parameters: eight forced host devices give what one device gives. A process of its own: the count is set at start-up."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.integration

PROGRAM = """
import jax, jax.numpy as jnp, numpy as np, optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from specjax import optim
from specjax.spectral import NewtonSchulz

assert jax.device_count() == 8
mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("data", "model"))
key = jax.random.key(0)
params = {
    "a": jax.random.normal(key, (8, 16)),
    "b": jax.random.normal(jax.random.fold_in(key, 1), (8, 16)),
    "stack": jax.random.normal(jax.random.fold_in(key, 2), (4, 16, 8)),
    "bias": jnp.ones(8),
}
specs = {"a": P("data", "model"), "b": P(None, "model"), "stack": P("data", None, "model"), "bias": P("model")}
sharded = {name: jax.device_put(x, NamedSharding(mesh, specs[name])) for name, x in params.items()}
labels = {"a": "matrix", "b": "matrix", "stack": "matrix", "bias": "other"}
transform = optim.muon(0.1, weight_decay=0.1, labels=labels)

@jax.jit
def run(params):
    state = transform.init(params)
    for _ in range(2):
        updates, state = transform.update(jax.tree.map(jnp.sin, params), state, params)
        params = optax.apply_updates(params, updates)
    return params

one, eight = run(params), run(sharded)
for name in params:
    np.testing.assert_allclose(one[name], eight[name], rtol=1e-4, atol=1e-5)

# Leaves of one shape are orthogonalized as one stack, so the compiler may choose one sharding for them; out_shardings decides.
shardings = {name: x.sharding for name, x in sharded.items()}
state = transform.init(params)
free, _ = jax.jit(transform.update)(sharded, state, sharded)
pinned, _ = jax.jit(transform.update, out_shardings=(shardings, None))(sharded, state, sharded)
alone, _ = jax.jit(transform.update)(params, state, params)
for name, x in sharded.items():
    assert pinned[name].sharding.is_equivalent_to(x.sharding, x.ndim), name
    for updates in (free, pinned):
        assert not updates[name].is_fully_replicated, name
        np.testing.assert_allclose(updates[name], alone[name], rtol=1e-4, atol=1e-5)
for name in ("stack", "bias"):
    assert free[name].sharding.is_equivalent_to(sharded[name].sharding, sharded[name].ndim), name
"""


def test_sharded_parameters_give_the_same_steps_and_keep_their_sharding():
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=os.environ | flags, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
