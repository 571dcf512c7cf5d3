"""What the polar factor keeps of a signal, against NumPy's decompositions of sampled matrices."""

import numpy as np
import pytest

from specjax.theory import polar_signal


def sampled(m, n, mu, seeds, sigma=1.0, seed=0):
    """Mean and standard error of uᵀ polar(μ u vᵀ + σ Z) v, with u and v at random."""
    rng = np.random.default_rng(seed)
    u, v = rng.standard_normal(m), rng.standard_normal(n)
    u, v = u / np.linalg.norm(u), v / np.linalg.norm(v)
    left, _, right = np.linalg.svd(
        sigma * rng.standard_normal((seeds, m, n)) + mu * np.outer(u, v), full_matrices=False
    )
    kept = np.einsum("i,sik,skj,j->s", u, left, right, v)
    return kept.mean(), kept.std(ddof=1) / np.sqrt(seeds)


@pytest.mark.integration
@pytest.mark.parametrize(("m", "n"), [(40, 40), (20, 60), (60, 20)])
@pytest.mark.parametrize("theta", [0.5, 1.0, 2.0])
def test_sampled_factors_keep_as_much(m, n, theta):
    mu = theta * np.sqrt(max(m, n))
    mean, error = sampled(m, n, mu, 1500, seed=m)
    value = float(polar_signal.kept_share(mu, m, n))
    assert abs(mean - value) < 4 * error + 0.003
    # The nearest wrong numbers: the sides exchanged in one place, and a tenth more of noise.
    wrong = float(polar_signal.kept_share(mu, m, n, 1.1))
    assert abs(mean - wrong) > 4 * error + 0.003


@pytest.mark.integration
def test_the_noise_may_have_any_scale():
    mean, error = sampled(24, 24, 3.0, 2000, sigma=0.5)
    assert abs(mean - float(polar_signal.kept_share(3.0, 24, 24, 0.5))) < 4 * error + 0.003
    assert float(polar_signal.kept_share(3.0, 24, 24, 0.5)) == pytest.approx(
        float(polar_signal.kept_share(6.0, 24, 24)), rel=1e-12
    )


@pytest.mark.parametrize(("m", "n"), [(50, 50), (30, 90)])
def test_a_weak_signal_is_kept_as_steins_lemma_says(m, n):
    """f'(0) is E‖Z‖_*/(mn), exactly; the limit is larger by a share of some 1/(4n)."""
    rng = np.random.default_rng(1)
    nuclear = np.linalg.svd(rng.standard_normal((400, m, n)), compute_uv=False).sum(-1).mean()
    slope = float(polar_signal.kept_share(1e-4, m, n)) / 1e-4
    assert 1 < slope / (nuclear / (m * n)) < 1 + 0.4 / min(m, n)


def test_square_matrices_have_the_closed_form():
    theta = np.array([0.0, 1e-6, 0.0199, 0.0201, 0.3, 1.0, 5.0, 1e4])
    np.testing.assert_allclose(
        polar_signal.square_kept_share(theta),
        polar_signal.kept_share(theta * 6, 36, 36),
        rtol=1e-9,
        atol=1e-15,
    )
    assert float(polar_signal.square_kept_share(1.0)) == pytest.approx(2 / np.pi, rel=1e-14)


@pytest.mark.integration
def test_momentum_before_gains_what_an_average_keeps():
    rng, n, beta = np.random.default_rng(2), 20, 0.8
    theta, past = 1.0, 40
    weights = (1 - beta) * beta ** np.arange(past) / (1 - beta**past)
    noise = np.tensordot(weights, rng.standard_normal((past, 3000, n, n)), 1)
    noise[:, 0, 0] += theta * np.sqrt(n)
    left, _, right = np.linalg.svd(noise, full_matrices=False)
    before = np.einsum("sk,sk->s", left[:, 0], right[:, :, 0])
    after, _ = sampled(n, n, theta * np.sqrt(n), 6000)
    gain = float(polar_signal.momentum_gain(theta * np.sqrt(n), n, n, beta))
    assert before.mean() / after == pytest.approx(gain, rel=0.015)
    assert gain < 0.6 * ((1 + beta) / (1 - beta)) ** 0.5
    assert float(polar_signal.momentum_gain(1e-3, n, n, beta)) == pytest.approx(3, rel=1e-5)


def equal_share(theta, rank):
    """f of equal signals in a share `rank` of all directions of square matrices, integrated by
    hand.
    """
    half = (1 - theta**2) / 2
    w = (half + (half**2 + (1 - rank) * theta**2) ** 0.5) ** 0.5
    angle, square = np.arctan(theta / w), w**2 + theta**2
    return (
        angle
        + (1 - rank) * (1 / (theta * w) - angle / theta**2)
        - rank * (angle - theta * w / square) / (4 * theta**2)
        + rank * theta * w / (2 * square**2)
    ) * (2 / np.pi)


@pytest.mark.parametrize("rank", [4, 20, 39])
@pytest.mark.parametrize("theta", [0.3, 1.0, 5.0])
def test_equal_signals_have_a_closed_form(rank, theta):
    found = polar_signal.kept_shares(np.full(rank, theta * 40**0.5), 40, 40)
    np.testing.assert_allclose(found, equal_share(theta, rank / 40), rtol=1e-9)


def test_equal_signals_in_all_directions_keep_all_but_a_square():
    for theta in (1.0, 2.0, 30.0):
        found = polar_signal.kept_shares(np.full(9, 3 * theta), 9, 9)
        np.testing.assert_allclose(found, 1 - 1 / (4 * theta**2), rtol=1e-9)


@pytest.mark.parametrize(("m", "n"), [(24, 24), (16, 48), (48, 16)])
def test_sampled_factors_keep_as_much_of_many_signals(m, n):
    """Against NumPy's decompositions, for a spectrum that falls from 3 to 3/16 of the noise."""
    mus = 3 * max(m, n) ** 0.5 / np.arange(1.0, 17.0)
    noise = np.random.default_rng(m).standard_normal((2000, m, n))
    noise[:, np.arange(16), np.arange(16)] += mus
    left, _, right = np.linalg.svd(noise, full_matrices=False)
    kept = np.einsum("sik,ski->si", left[:, :16], right[:, :, :16])
    mean, error = kept.mean(0), kept.std(0, ddof=1) / 2000**0.5
    found = np.asarray(polar_signal.kept_shares(mus, m, n))
    assert np.all(np.abs(mean - found) < 4 * error + 0.004)
    # The nearest wrong numbers: each by itself, and a twentieth more of noise.
    for wrong in (
        polar_signal.kept_share(mus, m, n),
        polar_signal.kept_shares(mus, m, n, 1.05),
    ):
        assert np.any(np.abs(mean - np.asarray(wrong)) > 4 * error + 0.004)


def test_few_signals_of_large_matrices_are_kept_each_by_itself():
    mus = np.array([1e-2, 1.0, 30.0]) * 1e3
    np.testing.assert_allclose(
        polar_signal.kept_shares(mus, 10**6, 10**6),
        polar_signal.kept_share(mus, 10**6, 10**6),
        rtol=1e-5,
    )
    batch = polar_signal.kept_shares(np.stack([mus, 2 * mus]), 10**6, 10**6, np.array([1.0, 2.0]))
    np.testing.assert_allclose(batch[0], batch[1], rtol=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: polar_signal.kept_share(-1.0, 4, 4), "mu"),
        (lambda: polar_signal.kept_share(1.0, 0, 4), "m"),
        (lambda: polar_signal.kept_share(1.0, 4, 4, 0.0), "sigma"),
        (lambda: polar_signal.square_kept_share(-1.0), "theta"),
        (lambda: polar_signal.kept_shares(np.ones(5), 4, 6), r"1 to 4 singular values"),
        (lambda: polar_signal.kept_shares(1.0, 4, 6), r"got the shape \(\)"),
        (lambda: polar_signal.kept_shares(-np.ones(2), 4, 6), "mu"),
        (lambda: polar_signal.momentum_gain(1.0, 4, 4, 1.0), "beta"),
    ],
)
def test_numbers_outside_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
