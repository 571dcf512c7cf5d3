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

OWN_MATRICES = """
import re
import jax, jax.numpy as jnp, numpy as np, optax, optax.contrib
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from specjax import optim
from specjax.spectral import SVD, NewtonSchulz

mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("data", "model"))
over_all = NamedSharding(mesh, P(("data", "model")))
COLLECTIVE = re.compile(r"= [^=]*\\b(all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter)(-start)?\\(")

def collectives(update, tree, shardings):
    compiled = jax.jit(update, in_shardings=(shardings,), out_shardings=shardings).lower(tree).compile()
    return len(COLLECTIVE.findall(compiled.as_text())), compiled(jax.device_put(tree, shardings))

def ours(steps, sharding):
    transform = optim.orthogonalize(NewtonSchulz(steps, gram=False), sharding=sharding)
    return lambda g: transform.update(g, optax.EmptyState())[0]

def theirs(steps):
    orthogonalize = optax.contrib._muon.orthogonalize_via_newton_schulz
    dims = optax.contrib.MuonDimensionNumbers(1, 2)
    return lambda g: jax.tree.map(lambda x: orthogonalize(x, jnp.array([3.4445, -4.775, 2.0315]), steps, dimension_numbers=dims), g)

def draw(seed, *shape):
    return jax.random.normal(jax.random.key(seed), shape)

def same(found, expected):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), found, expected)

# 24 stacked layers, each device three of them: nothing moves.
layers = {"q": draw(0, 24, 16, 16), "k": draw(1, 24, 16, 16), "up": draw(2, 24, 16, 40)}
by_layer = jax.tree.map(lambda _: NamedSharding(mesh, P(("data", "model"), None, None)), layers)
count, found = collectives(ours(5, over_all), layers, by_layer)
assert count == 0, count
same(found, ours(5, None)(layers))
print("layers over the mesh: ours", count, "by default", collectives(ours(5, None), layers, by_layer)[0],
      "optax", collectives(theirs(5), layers, by_layer)[0])

# Tensor parallel and FSDP: as many collectives for five steps as for one, so none is inside the iteration.
specs = {"q": P(None, "data", "model"), "k": P(None, None, ("data", "model")), "up": P(None, "data", "model")}
cut = {name: NamedSharding(mesh, spec) for name, spec in specs.items()}
one, five = (collectives(ours(steps, over_all), layers, cut) for steps in (1, 5))
assert one[0] == five[0] > 0, (one[0], five[0])
same(five[1], ours(5, None)(layers))
print("matrices cut: ours", [one[0], five[0]], "by default", [collectives(ours(s, None), layers, cut)[0] for s in (1, 5)],
      "optax", [collectives(theirs(s), layers, cut)[0] for s in (1, 5)])

# Single matrices share the devices; some devices get none. One matrix more than once, an odd stack, and a decomposition.
single = {f"w{i}": draw(i, 6, 9) for i in range(3)} | {"stack": draw(9, 5, 6, 9), "even": draw(10, 16, 6, 9)}
for method in (NewtonSchulz(), SVD()):
    transforms = [optim.orthogonalize(method, "sqrt_out_over_in", sharding=s) for s in (over_all, None)]
    same(*(jax.jit(lambda g, t=t: t.update(g, optax.EmptyState())[0])(single) for t in transforms))

# Muon takes it too.
muon = [optim.muon(0.1, sharding=s, labels=jax.tree.map(lambda _: "matrix", layers)) for s in (over_all, None)]
with jax.numpy_dtype_promotion("standard"):
    same(*(jax.jit(lambda g, t=t: t.update(g, t.init(g), g)[0])(layers) for t in muon))
"""


def run_on_eight_devices(program):
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | flags, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_each_device_orthogonalizes_its_own_matrices_without_a_collective_inside_the_iteration():
    print(run_on_eight_devices(OWN_MATRICES))


def test_sharded_parameters_give_the_same_steps_and_keep_their_sharding():
    run_on_eight_devices(PROGRAM)
