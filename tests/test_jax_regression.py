"""What excludes a version of JAX, or ends a workaround for one."""

import subprocess
import sys

import pytest

from specjax import jaxlib
from specjax.programs.one_at_a_time import IS_NEEDED

_PRODUCTS = """
import jax
import jax.numpy as jnp
import numpy as np

rng = np.random.default_rng(0)
a = rng.standard_normal((3, 3)).astype(np.float32)
rows = rng.standard_normal((40_000, 3)).astype(np.float32)
measured = jax.jit(jax.vmap(lambda v: jnp.sum((jnp.asarray(a) @ v) ** 2)))(jnp.asarray(rows))
exact = np.sum((rows.astype(np.float64) @ a.T.astype(np.float64)) ** 2, axis=1)
np.testing.assert_allclose(measured, exact, rtol=0, atol=1e-5 * exact.max())
"""


# jax issue 39103: jax 0.10.2 computes vmapped products with a small matrix wrongly on a CPU.
@pytest.mark.integration
def test_vmapped_products_with_a_small_matrix_are_right(optimized_environment):
    # Compiled as a user's programs are: the tests' own quick compilation takes other paths through
    # XLA.
    command = [sys.executable, "-c", _PRODUCTS]
    done = subprocess.run(
        command, env=optimized_environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


_CONSTANT_FACTORS = """
import sys
import jax
import jax.numpy as jnp
import numpy as np
from specjax import sweep

# Of an array x, with what each is.
MEASURES = {
    "largest": (lambda x: jnp.max(x @ jnp.ones((24, 24)), axis=1), lambda x: x.sum(axis=1)),
    "squares": (
        lambda x: jnp.sum((x @ jnp.ones((24, 24))) ** 2, axis=1),
        lambda x: 24 * x.sum(axis=1) ** 2,
    ),
    "softmax": (
        lambda x: jax.nn.softmax(x @ jnp.zeros((24, 24)) @ x.T, axis=1),
        lambda x: np.full((60, 60), 1 / 60),
    ),
    "loss at zero": (
        lambda x: jnp.mean((x @ jnp.zeros((24, 24)) - x) ** 2),
        lambda x: np.mean(x**2),
    ),
}
key = jax.random.key(0)
draw = lambda key: jax.random.normal(key, (60, 24))
drawn = [np.asarray(draw(jax.random.fold_in(key, seed)), np.float64) for seed in range(30)]
for name, (function, exact) in MEASURES.items():
    if sys.argv[1] == "plain":
        keys = jax.vmap(lambda seed: jax.random.fold_in(key, seed))(jnp.arange(30))
        found = jax.jit(jax.vmap(lambda key: function(draw(key))))(keys)
    else:
        over = {"c": sweep.values(1)}
        measure = lambda key, c: {"f": function(draw(key))}
        found = sweep.run(measure, over, num_seeds=30, key=key)["f"].sel(c=1)
    expected = np.stack([exact(x) for x in drawn])
    print("right" if np.allclose(found, expected, rtol=1e-2, atol=1e-3) else name)
"""


def _printed(script: str, environment: dict[str, str], *arguments: str) -> str:
    """What a script prints, in a process of its own, without the flags that the tests set."""
    environment = {k: v for k, v in environment.items() if k not in ("XLA_FLAGS", "PJRT_NPROC")}
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=True
    ).stdout.strip()


# Under vmap on a CPU jaxlib 0.11.1 to 0.12.0.1 compute products with constants of equal entries
# wrongly, where a reduction is fused with them: see specjax/jaxlib.py.
@pytest.mark.integration
def test_a_sweep_is_right_where_products_have_constant_factors(optimized_environment):
    assert set(_printed(_CONSTANT_FACTORS, optimized_environment, "sweep").split("\n")) == {"right"}


_PEAK = """
import resource

import jax
import jax.numpy as jnp

from specjax import sizes, spectral, sweep

jax.config.update("jax_enable_x64", True)

def measure(key, rate):
    x = sizes.normal(key, (20, 20))
    polar = lambda y: spectral.polar(x - y, method=spectral.NewtonSchulz(steps=5))
    last = jax.lax.fori_loop(0, 6000, lambda _, y: y + rate * polar(y), jnp.zeros_like(x))
    return {"norm": jnp.linalg.norm(last)}

peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
over = {"rate": sweep.values(1e-3, 2e-3, 3e-3)}
sweep.run(lambda key, rate: measure(key, 0 * rate + 1), {"rate": sweep.values(1.0)}, num_seeds=1,
          key=jax.random.key(0))
before = peak()
sweep.run(measure, over, num_seeds=8, key=jax.random.key(0), chunk=1)
print(peak() - before)
"""


@pytest.mark.integration
@pytest.mark.skipif(sys.platform != "linux", reason="The unit of ru_maxrss is that of Linux.")
def test_loops_with_products_side_by_side_keep_no_memory(optimized_environment):
    """YNNPACK of jaxlib 0.12 keeps 0.3 GB a second: see specjax/jaxlib.py."""
    assert int(_printed(_PEAK, optimized_environment)) < 100_000


@pytest.mark.integration
def test_the_flags_of_the_command_make_such_products_right(optimized_environment):
    flags = {"XLA_FLAGS": jaxlib.with_cpu_flags("")}
    command = [sys.executable, "-c", _CONSTANT_FACTORS, "plain"]
    done = subprocess.run(
        command,
        env=optimized_environment | flags,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert set(done.stdout.split("\n")) == {"right", ""}


@pytest.mark.slow
@pytest.mark.skipif(not jaxlib._IS_FAULTY, reason="This jaxlib has not had the fault yet.")
@pytest.mark.xfail(reason="The fault is still there; once it is gone specjax/jaxlib.py can go.")
def test_plain_jax_is_right_where_products_have_constant_factors(optimized_environment):
    assert set(_printed(_CONSTANT_FACTORS, optimized_environment, "plain").split("\n")) == {"right"}


def test_flags_that_are_set_stay(monkeypatch):
    monkeypatch.setattr(jaxlib, "_IS_FAULTY", True)
    monkeypatch.setattr(jaxlib, "_HAS_FLAG", True)
    assert jaxlib.with_cpu_flags("--a=1").startswith(
        "--a=1 --xla_cpu_experimental_ynn_fusion_type=LIBRARY"
    )
    own = "--xla_cpu_experimental_ynn_fusion_type="
    assert jaxlib.with_cpu_flags(own) == own
    assert jaxlib.with_cpu_flags("/etc/flags.txt") == "/etc/flags.txt"
    monkeypatch.setenv("XLA_FLAGS", own)
    assert jaxlib.cpu_options() == jaxlib.cpu_options(side_by_side=True) == {}
    monkeypatch.setenv("XLA_FLAGS", "")
    monkeypatch.setattr(jaxlib, "_OPTION", "xla_cpu_no_such_option")
    assert jaxlib.cpu_options() == {}
    monkeypatch.setattr(jaxlib, "_HAS_FLAG", False)
    assert jaxlib.with_cpu_flags("--a=1") == "--a=1"
    monkeypatch.setattr(jaxlib, "_HAS_FLAG", True)
    monkeypatch.setattr(jaxlib, "_IS_FAULTY", False)
    assert jaxlib.with_cpu_flags("--a=1") == "--a=1"


_TOGETHER = """
import jax, jax.numpy as jnp

@jax.jit
def several(key):
    total = 0.0
    for i, k in enumerate(jax.random.split(key, 6)):
        a = jax.random.normal(k, (40, 24 + 8 * i, 24 + 8 * i))
        total += jnp.linalg.svd(a)[1].sum() + jnp.linalg.eigvalsh(a @ a.mT).sum()
        total += jnp.linalg.qr(a)[1].sum()
    return total

for repetition in range(30):
    several(jax.random.key(repetition)).block_until_ready()
print("done")
"""


# The program that never ends on jaxlib 0.10 and 0.11.0, on few cores: as long as it ends,
# `programs.one_at_a_time` is not needed.
@pytest.mark.slow
@pytest.mark.skipif(IS_NEEDED, reason="Known not to end: the workaround is on.")
def test_several_batches_of_decompositions_in_one_program_end(optimized_environment):
    assert _ended(_TOGETHER, optimized_environment)


_TRAINING = """
import jax, jax.numpy as jnp, optax
from specjax import optim, spectral
from specjax.models import factorization_spectra, random_features
from specjax.models import transformer

architecture = transformer.Architecture(vocabulary=48, width=32, context=16, blocks=2, heads=2)
model = transformer.init(jax.random.key(0), architecture)
optimizer = optim.orthogonalize(spectral.QDWH(), dimension_numbers=optim.OUT_IN)

@jax.jit
def step(model, key):
    batch = transformer.Sequences(jax.random.randint(key, (8, 17), 0, 48))
    gradient = jax.grad(transformer.loss)(model, batch)
    return optax.apply_updates(model, optimizer.update(gradient, optimizer.init(model))[0])

for i in range(20):
    model = step(model, jax.random.key(i))
jax.block_until_ready(model)
print("done")
"""


@pytest.mark.slow
def test_a_training_with_several_decompositions_ends(optimized_environment):
    assert _ended(_TRAINING, optimized_environment)


def _ended(script: str, environment: dict[str, str]) -> bool:
    return _printed(script, environment) == "done"
