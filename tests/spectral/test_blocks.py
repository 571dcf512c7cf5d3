import jax.numpy as jnp
import numpy as np
import pytest

from specjax import spectral
from tests.reference.spectra import matrix_with

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


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (4, 4)])
@pytest.mark.usefixtures("x64")
def test_the_row_metric_is_the_positive_root_of_the_gram_matrix(shape):
    v = jnp.asarray(matrix_with([3.0, 1.0, 0.2], shape, 4))
    root = spectral.row_metric(v)
    np.testing.assert_allclose(root @ root, v @ v.T, atol=1e-12)
    np.testing.assert_allclose(root, root.T, atol=1e-14)
    assert np.linalg.eigvalsh(root).min() > -1e-12
    assert np.trace(root) == pytest.approx(4.2, rel=1e-12)


@pytest.mark.usefixtures("x64")
def test_the_polar_step_descends_in_the_muon_metric():
    """H_Muon vec(polar V) = vec V for V of full row rank, vec row by row."""
    v = jnp.asarray(matrix_with([3.0, 1.0, 0.2], (3, 5), 5))
    metric = spectral.muon_metric(v)
    np.testing.assert_allclose(metric @ spectral.polar(v).ravel(), v.ravel(), atol=1e-12)
    assert jnp.linalg.norm(metric @ spectral.polar(v).T.ravel() - v.T.ravel()) > 0.1
    assert spectral.diagonal_block_share(metric, 3) < 0.999
