"""Muon's blindness to the target: the bound, the law of the transition and the prediction of the
step, against samples and by hand.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.theory import target_erasure

polar_change_bound = jax.jit(target_erasure.polar_change_bound)


def numpy_polar(matrix):
    left, _, right = np.linalg.svd(matrix, full_matrices=False)
    return left @ right


def draws(seed, count, d, k):
    return np.random.default_rng(seed).standard_normal((count, d, k))


def symmetric(seed, d):
    z = np.random.default_rng(seed).standard_normal((d, d))
    return (z + z.T) / np.linalg.norm(z + z.T, 2)


@pytest.mark.parametrize(
    ("k", "scale", "reached"), [(12, 1.0, 0.3), (40, 4.0, 0.5), (200, 1.0, 0.5)]
)
def test_the_bound_holds_and_is_of_the_size_of_what_it_bounds(k, scale, reached):
    ratios = []
    with jax.enable_x64(True):
        for seed, u in enumerate(draws(0, 60, 5, k)):
            m = scale * symmetric(seed, 5)
            bound = float(polar_change_bound(u, m))
            if np.isfinite(bound):
                ratios.append(
                    np.linalg.norm(numpy_polar((u @ u.T - m) @ u) - numpy_polar(u)) / bound
                )
    # A third, and at large widths half, of the bound would be violated: no constant is lost in it.
    assert len(ratios) > 30
    assert reached < max(ratios) <= 1 + 1e-9


def test_commuting_targets_change_nothing_and_large_lack_a_bound():
    (u,) = draws(1, 1, 4, 30)
    with jax.enable_x64(True):
        commuting = 0.3 * u @ u.T
        assert float(polar_change_bound(u, commuting)) < 1e-12
        assert np.isinf(polar_change_bound(u, 100 * symmetric(2, 4)))
    np.testing.assert_allclose(numpy_polar((u @ u.T - commuting) @ u), numpy_polar(u), atol=1e-12)


@pytest.mark.parametrize(("d", "k", "mu"), [(3, 3, 0.5), (4, 9, 6.0), (6, 20, 12.0)])
def test_the_law_of_the_transition(d, k, mu):
    count = 40_000
    u = draws(d, count, d, k)
    spike = np.zeros((d, d))
    spike[1, 1] = mu
    share = np.mean(np.linalg.eigvalsh(u @ u.transpose(0, 2, 1) - spike)[:, 0] < 0)
    law = target_erasure.reversal_probability(mu, d, k)
    stderr = np.sqrt(law * (1 - law) / count)
    assert abs(share - law) < 4 * stderr
    # One degree of freedom more or less is seen.
    for other in (
        target_erasure.reversal_probability(mu, d, k + 1),
        target_erasure.reversal_probability(mu, d - 1, k + 1),
    ):
        assert abs(share - other) > 6 * stderr


def test_the_prediction_follows_steps_that_shorten_all_values():
    (u,), v = draws(3, 1, 4, 12), np.array([0.6, 0, 0.8, 0])
    lengths = np.array([0.0, 0.5, 1.0, 1e3])
    with jax.enable_x64(True):
        found = np.asarray(jax.jit(target_erasure.along)(u, v, lengths))
    for length, value in zip(lengths[:-1], found, strict=False):
        left = u - length * numpy_polar(u)
        assert value == pytest.approx(1 / (v @ np.linalg.inv(left @ left.T) @ v), rel=1e-9)
    assert found[-1] == 0
    assert int(target_erasure.first_true(jnp.asarray([False, True, False]))) == 1
    assert int(target_erasure.first_true(jnp.asarray([False, False]))) == 2


def test_what_is_refused():
    with pytest.raises(ValueError, match="k >= d, got d=5 and k=4"):
        target_erasure.reversal_probability(1.0, 5, 4)
    with pytest.raises(ValueError, match="mu"):
        target_erasure.reversal_probability(-1.0, 4, 5)
