"""The decomposition of a matrix for which LAPACK's divide and conquer does not converge."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from specjax import spectral
from specjax.linalg import svd

# Met along spectral gradient descent on factorization; singular values from 4e-3 to 1e-20. The
# failure hangs on its last bits.
HARD = np.load(Path(__file__).parent / "data" / "gesdd_gives_up.npy")

pytestmark = pytest.mark.usefixtures("x64", "unchecked")


def batch():
    easy = np.random.default_rng(0).normal(size=HARD.shape)
    return jnp.asarray(np.stack([easy, HARD, np.full_like(HARD, np.nan)]))


def test_this_matrix_is_hard_for_jax_alone():
    if not np.isnan(jnp.linalg.svd(HARD)[1]).any():
        pytest.skip(
            "The LAPACK of this machine decomposes the matrix: the other tests of this file say"
            " nothing here."
        )


def test_it_is_decomposed_as_by_qr_iteration():
    u, s, vh = (np.asarray(part) for part in svd(jnp.asarray(HARD)))
    expected = scipy.linalg.svd(HARD, lapack_driver="gesvd", compute_uv=False)
    scale = expected[0] * np.finfo(float).eps
    np.testing.assert_allclose(s, expected, rtol=0, atol=10 * scale)
    np.testing.assert_allclose((u * s) @ vh, HARD, rtol=0, atol=10 * scale)
    np.testing.assert_allclose(u.T @ u, np.eye(len(s)), rtol=0, atol=1e-13)
    np.testing.assert_allclose(vh @ vh.T, np.eye(len(s)), rtol=0, atol=1e-13)


def test_its_polar_factor_is_a_partial_isometry_of_its_rank():
    left, s, right = scipy.linalg.svd(HARD, lapack_driver="gesvd")
    kept = s > 64 * np.finfo(float).eps * s[0]
    # The factor is that of a matrix a few roundings away, so it moves by some roundings over the
    # smallest value that is kept.
    moved = 100 * np.finfo(float).eps * s[0] / s[kept].min()
    factor = spectral.polar(jnp.asarray(HARD))
    np.testing.assert_allclose(np.linalg.matrix_rank(factor), kept.sum())
    np.testing.assert_allclose(factor, (left * kept) @ right, rtol=0, atol=moved)


@pytest.mark.parametrize(
    "map_over", [spectral.polar, jax.vmap(spectral.polar), jax.jit(jax.vmap(spectral.polar))]
)
def test_in_a_batch_the_others_keep_their_bits(map_over):
    easy, hard, bad = map_over(batch())
    u, _, vh = np.linalg.svd(batch()[0], full_matrices=False)
    np.testing.assert_allclose(easy, u @ vh, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(easy, spectral.polar(batch()[0]))
    assert np.isfinite(hard).all()
    assert np.isnan(bad).all()


def test_its_derivative_is_finite():
    gradient = jax.jit(jax.grad(lambda x: jnp.sum(spectral.polar(x)[:, 0])))(HARD)
    assert np.isfinite(gradient).all()
