import jax.numpy as jnp
import numpy as np
import pytest

from specjax import spectral
from tests.reference.spectra import matrix_with


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
    """H_Muon vec(polar V) = vec V for V of full row rank, vec row by row, H_Muon = (V Vᵀ)^{1/2} ⊗ I
    (outer-product, eq. 2).
    """
    v = jnp.asarray(matrix_with([3.0, 1.0, 0.2], (3, 5), 5))
    metric = jnp.kron(spectral.row_metric(v), jnp.eye(5))
    np.testing.assert_allclose(metric @ spectral.polar(v).ravel(), v.ravel(), atol=1e-12)
    assert jnp.linalg.norm(metric @ spectral.polar(v).T.ravel() - v.T.ravel()) > 0.1
