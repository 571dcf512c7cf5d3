import jax
import numpy as np
import pytest

from specjax import sizes
from specjax.theory.wishart import wishart_moments
from tests.reference.moments import simulate, wishart_diagonal


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.usefixtures("x64")
def test_moments_are_the_sum_over_all_pairings(d, k):
    assert [float(m) for m in wishart_moments(d, k)] == [
        wishart_diagonal(d, k, power) for power in (1, 2, 3)
    ]


@pytest.mark.integration
@pytest.mark.usefixtures("x64")
def test_moments_agree_with_simulation():
    d, k = 8, 12

    def diagonals(key):
        u = sizes.normal(key, (d, k))
        w = u @ u.T
        return jax.numpy.stack([jax.numpy.trace(p) / d for p in (w, w @ w, w @ w @ w)])

    mean, error = simulate(diagonals, jax.random.key(0), chunks=10)
    exact = np.array([float(m) for m in wishart_moments(d, k)])
    assert (np.abs(mean - exact) < 4 * error).all()
    # d in the place of d + 1 in the second and third moment
    wrong = np.array([k * (k + d), k**3 + 3 * d * k**2 + (d**2 + 3 * d + 4) * k])
    assert (np.abs(mean[1:] - wrong) > 8 * error[1:]).all()


@pytest.mark.usefixtures("x64")
def test_sizes_broadcast():
    batch = wishart_moments(3, np.array([1, 2, 4]))
    for i, k in enumerate((1, 2, 4)):
        assert [float(m[i]) for m in batch] == [float(m) for m in wishart_moments(3, k)]
