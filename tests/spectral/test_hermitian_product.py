"""Products of which half is computed, cut from ten rows up here: values, exact symmetry,
derivatives, batches, devices.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from specjax import optim, spectral
from specjax.spectral import NewtonSchulz, _hermitian_product
from specjax.spectral.polynomials import MUON
from specjax.spectral.products import commuting_product, rounded_gram
from tests.spectral.differences import directional

rng = np.random.default_rng(11)
SQUARE = rng.standard_normal((13, 13))
WIDE = rng.standard_normal((16, 40))
COMPLEX = rng.standard_normal((11, 17)) + 1j * rng.standard_normal((11, 17))


@pytest.fixture(autouse=True)
def small_sizes(monkeypatch):
    monkeypatch.setattr(_hermitian_product, "FIRST_SIZE", 10)
    # Two or three blocks, which do not divide the sizes below.
    monkeypatch.setattr(_hermitian_product, "LEAST_ROWS", 5)
    monkeypatch.setattr(_hermitian_product, "MOST_BLOCKS", 3)


def close(measured, expected, tolerance=1e-13):
    np.testing.assert_allclose(measured, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("x", [SQUARE, WIDE, COMPLEX], ids=["square", "wide", "complex"])
@pytest.mark.usefixtures("x64")
def test_it_is_the_product_and_exactly_hermitian(x):
    gram = jax.jit(lambda x: rounded_gram(x, None))(x)
    close(gram, x @ x.conj().T)
    np.testing.assert_array_equal(gram, gram.conj().T)
    # A polynomial of the Gram matrix commutes with it; rounding alone makes the computed product
    # differ from its adjoint.
    other = np.asarray(gram) @ np.asarray(gram) - 2 * np.asarray(gram)
    both = jax.jit(lambda a, b: commuting_product(a, b, None))(gram, other)
    close(np.asarray(both) / np.linalg.norm(both), np.asarray(gram) @ other / np.linalg.norm(both))
    np.testing.assert_array_equal(both, both.conj().T)


def two_steps(x):
    """Of Muon's, by the singular values."""
    u, s, vh = np.linalg.svd(x, full_matrices=False)
    s = s / np.linalg.norm(s)
    for _ in range(2):
        s = MUON(s)
    return u * s @ vh


@pytest.mark.integration
@pytest.mark.parametrize(
    ("x", "gram"),
    [(SQUARE, False), (WIDE, True), (COMPLEX, True)],
    ids=["square", "wide", "complex"],
)
@pytest.mark.usefixtures("x64")
def test_a_step_and_its_derivatives(x, gram):
    dx, w = 0.1 * np.roll(x, 1, axis=1), np.roll(x, 1, axis=0)

    @jax.jit
    def along(x, dx, w):
        factor, pull = jax.vjp(lambda x: spectral.polar(x, NewtonSchulz(2, gram=gram)), x)
        return (
            factor,
            jax.jvp(lambda x: spectral.polar(x, NewtonSchulz(2, gram=gram)), (x,), (dx,))[1],
            pull(w)[0],
        )

    factor, change, pulled = along(x, dx, w)
    close(factor, two_steps(x), 1e-11)
    # The scale of x is held fixed under differentiation, and the direction alone counts.
    close(change, directional(two_steps, x, dx), 1e-8)
    close(np.sum(w * change).real, np.sum(np.asarray(pulled) * dx).real, 1e-11)


@pytest.mark.usefixtures("x64")
def test_a_batch_is_its_slices():
    x = np.stack([SQUARE, SQUARE.T, SQUARE @ SQUARE])
    factors = jax.jit(jax.vmap(lambda x: spectral.polar(x, NewtonSchulz(2))))(x)
    close(factors, np.stack([two_steps(one) for one in x]), 1e-12)


def test_muon_on_stacks_that_are_cut_over_devices():
    devices = jax.devices()
    mesh = jax.make_mesh((len(devices),), ("devices",))
    sharding = NamedSharding(mesh, PartitionSpec("devices"))
    x = jnp.asarray(rng.standard_normal((2 * len(devices), 12, 12)), jnp.float32)
    step = optim.orthogonalize(NewtonSchulz(2), sharding=sharding)
    updates = jax.jit(lambda x: step.update(x, step.init(x))[0])(jax.device_put(x, sharding))
    close(updates, np.stack([two_steps(one.astype(np.float64)) for one in np.asarray(x)]), 1e-4)


def test_cpus_compute_blocks_above_the_diagonal_and_others_all(monkeypatch):
    monkeypatch.undo()

    def lowered(size, platform):
        x = jax.ShapeDtypeStruct((size, 3 * size), jnp.float32)
        trace = jax.jit(lambda x: rounded_gram(x, None)).trace(x)
        return trace.lower(lowering_platforms=(platform,)).as_text().count("dot_general")

    for size, blocks in ((1024, 10), (2048, 36), (4099, 36)):
        assert [lowered(size, "cpu"), lowered(size, "cuda")] == [blocks, 1]
    assert lowered(_hermitian_product.FIRST_SIZE - 1, "cpu") == 1
    product = jax.jit(lambda x: rounded_gram(x, None)).lower(
        jax.ShapeDtypeStruct((1024, 3072), jnp.float32)
    )
    assert product.cost_analysis()["flops"] == pytest.approx(10 / 16 * 2 * 1024**2 * 3072, rel=2e-3)
