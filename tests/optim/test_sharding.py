"""Sharded parameters: eight forced host devices give what one device gives. A process of its own:
the count is set at start-up.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

COLLECTIVES = Path(__file__).parents[2] / "scripts" / "benchmarks" / "collectives.py"

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
specs = {
    "a": P("data", "model"),
    "b": P(None, "model"),
    "stack": P("data", None, "model"),
    "bias": P("model"),
}
sharded = {name: jax.device_put(x, NamedSharding(mesh, specs[name])) for name, x in params.items()}
labels = {"a": "matrix", "b": "matrix", "stack": "matrix", "bias": "other"}
transform = optim.jordan_muon(0.1, weight_decay=0.1, labels=labels)

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

# Leaves of one shape are orthogonalized as one stack, so the compiler may choose one sharding for
# them; out_shardings decides.
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
import jax, jax.numpy as jnp, numpy as np, optax
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from specjax import optim
from specjax.spectral import SVD, NewtonSchulz

def draw(seed, *shape):
    return jax.random.normal(jax.random.key(seed), shape)

def same(found, expected):
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    jax.tree.map(close, found, expected)

single = {f"w{i}": draw(i, 6, 9) for i in range(3)}
single |= {"stack": draw(9, 5, 6, 9), "even": draw(10, 16, 6, 9)}
layers = {"q": draw(0, 24, 16, 16), "k": draw(1, 24, 16, 16), "up": draw(2, 24, 16, 40)}
specs = {
    "q": P(None, "data", "model"),
    "k": P(None, None, ("data", "model")),
    "up": P(("data", "model")),
}
alone = jax.jit(lambda g: optim.orthogonalize().update(g, optax.EmptyState())[0])(layers)
matrices = jax.tree.map(lambda _: "matrix", layers)
for kind in (AxisType.Auto, AxisType.Explicit):
    mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(kind, kind))
    over_all = NamedSharding(mesh, P(("data", "model")))

    # Single matrices share the devices; some devices get none. One matrix more than once, an odd
    # stack, and a decomposition.
    for method in (NewtonSchulz(), SVD()):
        updates = []
        for sharding in (over_all, None):
            t = optim.orthogonalize(method, "sqrt_out_over_in", sharding=sharding)
            updates.append(jax.jit(lambda g, t=t: t.update(g, optax.EmptyState())[0])(single))
        same(*updates)

    # Updates are cut as the gradients are, in a session with this mesh too.
    cut = {name: jax.device_put(x, NamedSharding(mesh, specs[name])) for name, x in layers.items()}
    own = {name: NamedSharding(mesh, spec) for name, spec in specs.items()}
    for sharding in (over_all, None, own):
        transform = optim.orthogonalize(sharding=sharding)
        update = jax.jit(lambda g: transform.update(g, optax.EmptyState())[0])
        same(update(cut), alone)
        with jax.set_mesh(mesh):
            same(update(layers), alone)
        if kind == AxisType.Explicit:
            assert {name: jax.typeof(x).sharding.spec for name, x in update(cut).items()} == {
                name: jax.typeof(x).sharding.spec for name, x in cut.items()
            }

    # Muon takes it too, with a momentum in bfloat16.
    for given in ({}, {"mu_dtype": jnp.bfloat16, "key": jax.random.key(0)}):
        updates = []
        for sharding, g in ((over_all, cut), (None, layers)):
            t = optim.muon(
                0.1, sharding=sharding, labels=matrices, weight_decay=0.1, **given
            )
            updates.append(jax.jit(lambda g, t=t: t.update(g, t.init(g), g)[0])(g))
        same(*updates)
"""


TWO_CUTS = """
import json, re
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from specjax import optim

mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(getattr(AxisType, KIND),) * 2)
moves, whole = {}, jax.random.normal(jax.random.key(0), (8, 16, 40))
specs = {
    "layers": P(("data", "model")),
    "rows": P(None, ("data", "model")),
    "both": P(None, "model", "data"),
}
for name, spec in specs.items():
    cut = NamedSharding(mesh, spec)
    w = jax.device_put(whole, cut)
    muon = optim.muon(0.1, labels="matrix", sharding={"w": cut})
    state = muon.init({"w": w})
    update = jax.jit(muon.update, out_shardings=({"w": cut}, None))
    compiled = update.lower({"w": w}, state, {"w": w}).compile()
    pattern = "(all-gather|all-to-all|all-reduce|collective-permute|reduce-scatter)(?:-start)?[(]"
    moves[name] = re.findall(pattern, compiled.as_text())
    plain = optim.muon(0.1, labels="matrix")
    expected, _ = plain.update({"w": whole}, plain.init({"w": whole}), {"w": whole})
    found, _ = compiled({"w": w}, state, {"w": w})
    np.testing.assert_allclose(found["w"], expected["w"], rtol=1e-4, atol=1e-5)
print(json.dumps(moves))
"""

BLOCKS = """
import json, re
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from specjax import optim

mesh = jax.make_mesh((8,), ("model",), axis_types=(getattr(AxisType, KIND),))
specs = {"up": P(None, "model"), "down": P("model"), "layers": P(None, None, "model")}
shapes = {"up": (16, 40), "down": (40, 16), "layers": (3, 16, 40)}
grids = {"up": optim.Blocks(1, 8), "down": optim.Blocks(8, 1), "layers": optim.Blocks(1, 8)}
cut = {name: NamedSharding(mesh, spec) for name, spec in specs.items()}
whole = {k: jax.random.normal(jax.random.key(i), x) for i, (k, x) in enumerate(shapes.items())}
sharded = jax.device_put(whole, cut)
moves = {}
for name, where in {"own": cut, "compiler": None}.items():
    transform = optim.orthogonalize_blocks(grids, sharding=where)
    state = transform.init(whole)
    update = jax.jit(lambda tree: transform.update(tree, state)[0], out_shardings=cut)
    compiled = update.lower(sharded).compile()
    pattern = "(all-gather|all-to-all|all-reduce|collective-permute|reduce-scatter)(?:-start)?[(]"
    moves[name] = len(re.findall(pattern, compiled.as_text()))
    plain = optim.orthogonalize_blocks(grids)
    expected, _ = plain.update(whole, plain.init(whole))
    found = compiled(sharded)
    for leaf in specs:
        np.testing.assert_allclose(found[leaf], expected[leaf], rtol=1e-4, atol=1e-5)
print(json.dumps(moves))
"""


def run_on_eight_devices(program):
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
    return output_of(["-c", program], os.environ | flags)


def output_of(arguments, environment):
    done = subprocess.run(
        [sys.executable, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_sharded_stack_has_no_collective_in_its_iteration():
    """A step of 24 stacked layers on eight devices, by the compiled programs, which the script
    counts in; results agree there.
    """
    table = output_of([str(COLLECTIVES)], os.environ).splitlines()[3:]
    rows = [re.split(r"\s{2,}", line) for line in table]
    counts = {
        name: [tuple(map(int, re.findall(r"\d+", cell))) for cell in cells[:3]]
        for name, *cells in rows
    }
    assert len(counts) == 10
    for name, (of_leaves, on_axis, without) in counts.items():
        for one, five, size in (of_leaves, on_axis):
            assert one == five
            assert (one > 0) == (size > 0) == ("layer" not in name)
        assert of_leaves[2] <= on_axis[2] <= without[2]
        if "automatic, rows and columns" in name:
            assert 4 * of_leaves[2] < on_axis[2]


@pytest.mark.parametrize("kind", ["Auto", "Explicit"])
def test_a_stack_that_two_axes_cut_moves_one_at_a_time(kind):
    """Otherwise the compiler replicates it. The momentum stays where it is."""
    program = f"KIND = {kind!r}\n{TWO_CUTS}"
    moves = json.loads(run_on_eight_devices(program).splitlines()[-1])
    assert moves == {"layers": [], "rows": 2 * ["all-to-all"], "both": 4 * ["all-to-all"]}


@pytest.mark.parametrize("kind", ["Auto", "Explicit"])
def test_blocks_that_are_shards_do_not_move(kind):
    program = f"KIND = {kind!r}\n{BLOCKS}"
    moves = json.loads(run_on_eight_devices(program).splitlines()[-1])
    assert moves["own"] == 0 < moves["compiler"]


@pytest.mark.slow
def test_each_device_orthogonalizes_its_own_matrices():
    run_on_eight_devices(OWN_MATRICES)


@pytest.mark.slow
def test_sharded_parameters_keep_their_steps_and_sharding():
    run_on_eight_devices(PROGRAM)
