"""jax issue 39103: jax 0.10.2 computes vmapped products with a small matrix wrongly on CPU."""

import subprocess
import sys

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


def test_vmapped_products_with_a_small_matrix_are_right(optimized_environment):
    # Compiled as a user's programs are: the tests' own quick compilation takes other paths through XLA.
    command = [sys.executable, "-c", _PRODUCTS]
    done = subprocess.run(command, env=optimized_environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
