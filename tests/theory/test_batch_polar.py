"""The mean polar factor of a batch's gradient, against decompositions of sampled batches."""

import numpy as np
import pytest

from specjax.theory import batch_polar, polar_signal


def network(seed, d0, d1, d2):
    """A linear network's residual and first layer, so that δ = R x and h = W_1 x."""
    rng = np.random.default_rng(seed)
    w1, w2 = rng.standard_normal((d1, d0)), rng.standard_normal((d2, d1))
    return w2 @ w1 - 3 * rng.standard_normal((d2, d0)), w1


def moments(back, into):
    return back @ into.T, back @ back.T, into @ into.T


def sampled(back, into, batch, seeds, seed=0):
    """Mean and standard error of ⟨polar(G), M⟩/‖M‖_*, singular values of zero left out."""
    rng, signal = np.random.default_rng(seed), back @ into.T
    x = rng.standard_normal((seeds, back.shape[1], batch))
    gradients = (back @ x) @ np.swapaxes(into @ x, -1, -2)
    left, values, right = np.linalg.svd(gradients, full_matrices=False)
    left = left * (values > 1e-9 * values[:, :1])[:, None]
    kept = np.einsum("sik,skj,ij->s", left, right, signal)
    kept /= np.linalg.svd(signal, compute_uv=False).sum()
    return kept.mean(), kept.std(ddof=1) / np.sqrt(seeds)


@pytest.mark.integration
@pytest.mark.parametrize("batch", [6, 24, 40, 160])
def test_batches_of_a_linear_network_keep_as_much(batch):
    back, into = network(1, 50, 40, 32)
    signal, left, right = moments(back, into)
    mean, error = sampled(back, into, batch, 600)
    found = float(batch_polar.kept_share(signal, left, right, batch))
    more = float(batch_polar.kept_share(signal, left, right, batch * 7 / 6))
    gaussian = float(batch_polar.kept_share(signal, left * 1e3, right * 1e3, batch * 1e6))
    within = 4 * error + 0.02 * found * (1 - found)
    assert abs(mean - found) < within
    # The nearest wrong numbers: a sixth more examples; and Gaussian noise of the same covariance,
    # whose formula is the limit of many examples with moments that are as much larger.
    assert abs(mean - more) > 2 * within
    assert abs(mean - gaussian) > 10 * within


@pytest.mark.integration
def test_many_examples_are_gaussian_noise():
    """With S_δ = I and S_h = I the noise of a large batch has equal entries: `kept_shares`."""
    values = np.array([2e-3, 1e-3, 5e-4, 0.0])
    signal, batch = np.diag(np.repeat(values, 8)), 1e6
    shares = np.asarray(polar_signal.kept_shares(np.diag(signal), 32, 32, batch**-0.5))
    found = np.diagonal(batch_polar.mean_polar(signal, np.eye(32), np.eye(32), batch))
    np.testing.assert_allclose(found, shares, atol=2e-5)
    assert shares[0] == pytest.approx(0.4, abs=0.2)


@pytest.mark.integration
def test_all_examples_give_the_polar_factor_of_the_population():
    back, into = network(2, 12, 9, 6)
    signal, left, right = moments(back, into)
    u, _, vt = np.linalg.svd(signal, full_matrices=False)
    found = batch_polar.mean_polar(signal, left, right, 1e12)
    np.testing.assert_allclose(found, u @ vt, atol=1e-4)


@pytest.mark.integration
def test_one_example_is_its_own_direction():
    """polar(δ hᵀ) = δ hᵀ/(‖δ‖ ‖h‖), whose mean is M/√(tr S_δ tr S_h) where norms concentrate."""
    back, into = network(3, 300, 200, 150)
    signal, left, right = moments(back, into)
    found = np.asarray(batch_polar.mean_polar(signal, left, right, 1))
    expected = signal / np.sqrt(np.trace(left) * np.trace(right))
    np.testing.assert_allclose(found, expected, atol=0.05 * np.abs(expected).max())


@pytest.mark.integration
def test_scales_of_the_moments_do_not_matter():
    back, into = network(4, 20, 16, 12)
    signal, left, right = moments(back, into)
    plain = batch_polar.mean_polar(signal, left, right, 10)
    scaled = batch_polar.mean_polar(1e-25 * signal, 1e-30 * left, 1e-20 * right, 10)
    np.testing.assert_allclose(scaled, plain, rtol=1e-6, atol=1e-12)
    turned = batch_polar.mean_polar(signal.T, right, left, 10)
    np.testing.assert_allclose(turned, np.asarray(plain).T, rtol=1e-6, atol=1e-9)


@pytest.mark.integration
def test_many_matrices_at_a_time_are_each_by_itself():
    back, into = network(5, 20, 16, 12)
    signal, left, right = moments(back, into)
    batches = np.array([4.0, 30.0, 500.0])
    together = batch_polar.kept_share(signal, left, right, batches)
    alone = [float(batch_polar.kept_share(signal, left, right, b)) for b in batches]
    np.testing.assert_allclose(together, alone, rtol=1e-7)
    assert np.all(np.diff(together) > 0.05)


@pytest.mark.integration
def test_without_signal_nothing_is_kept():
    zero, one = np.zeros((6, 8)), (np.eye(6), np.eye(8))
    assert float(batch_polar.kept_share(zero, *one, 4)) == 0
    assert not np.asarray(batch_polar.mean_polar(zero, 0 * one[0], one[1], 4)).any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.ones((2, 3)), np.eye(3), np.eye(3), 4), "left and right need the shapes"),
        ((np.ones((2, 3)), np.eye(2), np.eye(3), 0.5), r"batch must be in \[1, inf\)"),
        ((np.ones((2, 3)), -np.eye(2), np.eye(3), 4), "diagonal of left must be in"),
    ],
)
def test_what_has_no_mean_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        batch_polar.mean_polar(*arguments)
