import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from specjax.theory.geometry import affine_invariant_distance, dispersion, karcher_mean

pytestmark = pytest.mark.usefixtures("x64")


def definite(seed, n=3, spread=1.0):
    a = np.random.default_rng(seed).standard_normal((n, n))
    return scipy.linalg.expm(spread * (a + a.T) / 2)


def cloud(seed, k=5, n=3, spread=1.0):
    return jnp.asarray([definite(100 * seed + i, n, spread) for i in range(k)])


mean = jax.jit(karcher_mean)


def test_the_distance_is_the_norm_of_the_matrix_logarithm():
    a, b = definite(0), definite(1)
    root = np.linalg.inv(scipy.linalg.sqrtm(a))
    expected = np.linalg.norm(scipy.linalg.logm(root @ b @ root))
    assert affine_invariant_distance(jnp.asarray(a), jnp.asarray(b)) == pytest.approx(
        expected, rel=1e-12
    )
    # Not the distance of the logarithms, which is smaller unless the matrices commute.
    assert expected > np.linalg.norm(scipy.linalg.logm(a) - scipy.linalg.logm(b)) * (1 + 1e-3)


def test_the_distance_is_symmetric_batched_and_zero_if_equal():
    a, b = cloud(1), cloud(2)
    there, back = affine_invariant_distance(a, b), affine_invariant_distance(b, a)
    np.testing.assert_allclose(there, back, rtol=1e-12)
    assert there[3] == pytest.approx(float(affine_invariant_distance(a[3], b[3])), rel=1e-14)
    assert jnp.max(affine_invariant_distance(a, a)) < 1e-14


@pytest.mark.integration
def test_an_indefinite_matrix_has_no_distance():
    indefinite = jnp.diag(jnp.asarray([1.0, -1.0, 2.0]))
    assert jnp.isnan(affine_invariant_distance(jnp.eye(3), indefinite))
    assert jnp.isnan(affine_invariant_distance(indefinite, jnp.eye(3)))
    assert jnp.all(
        jnp.isnan(mean(jnp.stack([jnp.eye(3), indefinite, jnp.eye(3), jnp.eye(3), jnp.eye(3)])))
    )


@pytest.mark.parametrize("spread", [0.1, 1.0, 3.0])
def test_the_karcher_mean_is_stationary_and_the_least(spread):
    matrices = cloud(3, spread=spread)
    centre = np.asarray(mean(matrices))
    # The logarithms from it cancel, by an independent matrix logarithm.
    root = np.real(scipy.linalg.sqrtm(centre))
    inverse = np.linalg.inv(root)
    logs = [scipy.linalg.logm(inverse @ np.asarray(m) @ inverse) for m in matrices]
    assert np.linalg.norm(np.mean(logs, axis=0)) < np.finfo(float).eps ** (2 / 3)
    least = dispersion(matrices, jnp.asarray(centre))
    assert least == pytest.approx(np.mean([np.linalg.norm(x) ** 2 for x in logs]), rel=1e-9)
    for seed in range(3):
        a = np.random.default_rng(seed).standard_normal((3, 3))
        moved = root @ scipy.linalg.expm(0.01 * (a + a.T)) @ root
        assert dispersion(matrices, jnp.asarray(moved)) > least
    assert dispersion(matrices, jnp.mean(matrices, axis=0)) > least


@pytest.mark.parametrize("spread", [0.3, 2.0])
def test_one_step_is_the_one_of_the_docstring(spread):
    """X^(1/2) exp(θ S) X^(1/2), θ = 2/(1 + c), by SciPy's functions of matrices; so wide a
    tolerance is met after one step.
    """
    matrices = np.asarray(cloud(6, spread=spread))
    start = matrices.mean(axis=0)
    root = np.real(scipy.linalg.sqrtm(start))
    inverse = np.linalg.inv(root)
    tangent = np.mean([scipy.linalg.logm(inverse @ m @ inverse) for m in matrices], axis=0)
    halves = [np.ptp(np.log(np.real(scipy.linalg.eigvals(m, start)))) / 2 for m in matrices]
    theta = 2 / (1 + np.mean([x / np.tanh(x) for x in halves]))
    found = karcher_mean(jnp.asarray(matrices), tolerance=1e9)
    np.testing.assert_allclose(found, root @ scipy.linalg.expm(theta * tangent) @ root, rtol=1e-10)


def test_two_or_commuting_matrices_have_their_geometric_mean():
    a, b = definite(7), definite(8)
    root = scipy.linalg.sqrtm(a)
    inverse = np.linalg.inv(root)
    midpoint = root @ scipy.linalg.sqrtm(inverse @ b @ inverse) @ root
    np.testing.assert_allclose(karcher_mean(jnp.asarray([a, b])), midpoint, rtol=1e-9, atol=1e-9)
    diagonals = np.exp(np.random.default_rng(0).standard_normal((5, 3)))
    expected = np.diag(np.exp(np.mean(np.log(diagonals), axis=0)))
    np.testing.assert_allclose(
        mean(jnp.asarray([np.diag(d) for d in diagonals])), expected, atol=1e-12
    )


def test_it_commutes_with_congruence_and_inversion():
    matrices, a = cloud(4), jnp.asarray(np.random.default_rng(0).standard_normal((3, 3)))
    np.testing.assert_allclose(
        mean(a @ matrices @ a.T), a @ mean(matrices) @ a.T, rtol=1e-8, atol=1e-9
    )
    np.testing.assert_allclose(
        mean(jnp.linalg.inv(matrices)), jnp.linalg.inv(mean(matrices)), rtol=1e-8, atol=1e-9
    )


def test_a_mean_that_is_not_reached_is_nan():
    assert jnp.all(jnp.isnan(karcher_mean(cloud(5, spread=2.0), steps=2)))
    with pytest.raises(ValueError, match=r"karcher_mean needs steps >= 1, got steps=0\."):
        karcher_mean(cloud(5), steps=0)


@pytest.mark.integration
def test_proportional_matrices_reach_their_mean_in_one_step():
    """Their logarithms have no spread, so that the Hessian is 1 and the whole step is the best; the
    second step sees that it is done.
    """
    base = jnp.asarray([[2.0, 1.0], [1.0, 3.0]])
    found = karcher_mean(jnp.stack([base, 4 * base, 16 * base]), steps=2)
    np.testing.assert_allclose(found, 4 * base, rtol=1e-9)
    np.testing.assert_allclose(karcher_mean(jnp.stack([base, base]), steps=1), base, rtol=1e-12)
