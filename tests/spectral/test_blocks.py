import jax.numpy as jnp
import numpy as np
import pytest

from specjax import spectral
from tests.reference.spectra import matrix_with, orthogonal

H = np.random.default_rng(0).standard_normal((6, 6))


@pytest.mark.parametrize("rows", [1, 2, 3, 6])
@pytest.mark.usefixtures("x64")
def test_blocks_are_the_slices_of_each_pair_of_rows(rows):
    n = 6 // rows
    blocks, energy = spectral.row_blocks(jnp.asarray(H), rows), spectral.block_energy(jnp.asarray(H), rows)
    assert blocks.shape == (rows, rows, n, n)
    for a, b in np.ndindex(rows, rows):
        block = H[a * n : (a + 1) * n, b * n : (b + 1) * n]
        np.testing.assert_array_equal(blocks[a, b], block)
        assert energy[a, b] == pytest.approx(np.linalg.norm(block), rel=1e-14)
    share = sum(float(energy[a, a]) ** 2 for a in range(rows)) / np.sum(H**2)
    assert spectral.diagonal_block_share(jnp.asarray(H), rows) == pytest.approx(share, rel=1e-13)


def test_a_block_diagonal_matrix_has_all_its_energy_on_the_diagonal():
    h = jnp.kron(jnp.eye(3), jnp.asarray([[1.0, 2.0], [3.0, 4.0]]))
    assert spectral.diagonal_block_share(h, 3) == 1
    assert spectral.diagonal_block_share(h, 2) < 0.999


def test_rows_that_do_not_divide_the_extent_are_refused():
    with pytest.raises(ValueError, match="extent 6 has no 4 rows of blocks; pass the number of rows"):
        spectral.row_blocks(jnp.asarray(H), 4)


@pytest.mark.parametrize("power", [0.5, -0.5, -1.0, 2.0])
@pytest.mark.usefixtures("x64")
def test_powers_act_on_the_eigenvalues_and_only_on_the_range(power):
    q, values = orthogonal(4, 3), np.array([4.0, 1.0, 0.25])
    p = (q[:, :3] * values) @ q[:, :3].T
    expected = (q[:, :3] * values**power) @ q[:, :3].T
    np.testing.assert_allclose(spectral.psd_power(jnp.asarray(p), power), expected, atol=1e-12)


@pytest.mark.usefixtures("x64")
def test_an_inverse_power_inverts():
    g = matrix_with([3.0, 1.0, 0.2], (3, 5), 4)
    p = jnp.asarray(g @ g.T)
    np.testing.assert_allclose(spectral.psd_power(p, -1.0) @ p, np.eye(3), atol=1e-10)
    root = spectral.psd_power(p, 0.5)
    np.testing.assert_allclose(root @ root, p, atol=1e-12)
    np.testing.assert_array_equal(spectral.psd_power(jnp.zeros((2, 2)), -0.5), np.zeros((2, 2)))


@pytest.mark.usefixtures("x64")
def test_the_polar_step_descends_in_the_muon_metric():
    """H_Muon vec(polar V) = vec V for V of full row rank, vec row by row."""
    v = jnp.asarray(matrix_with([3.0, 1.0, 0.2], (3, 5), 5))
    metric = spectral.muon_metric(v)
    np.testing.assert_allclose(metric @ spectral.polar(v).ravel(), v.ravel(), atol=1e-12)
    assert jnp.linalg.norm(metric @ spectral.polar(v).T.ravel() - v.T.ravel()) > 0.1
    assert spectral.diagonal_block_share(metric, 3) < 0.999
