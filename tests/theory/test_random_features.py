"""Moments of ReLU features against samples, their expansions, spike and bulk, and the rank of the
gradient from eigenvalues.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate

from specjax import spectral
from specjax.models import random_features as model
from specjax.models import relu_network
from specjax.theory import gradient_rank, random_features
from tests.theory.near import close, leading_axes_are_batch_axes

pytestmark = pytest.mark.usefixtures("x64")


def test_phi_has_its_values_and_derivatives():
    # Taylor coefficients at 0 from a polynomial through Chebyshev points of [-1/2, 1/2].
    nodes = np.cos(np.pi * (np.arange(21) + 0.5) / 21) / 2
    values = np.asarray(jax.jit(random_features.phi)(jnp.asarray([-1.0, 0.0, 1.0, *nodes])))
    np.testing.assert_allclose(values[:3], [-1, 0, math.pi - 1], atol=1e-12)
    fitted = np.polynomial.Polynomial.fit(nodes, values[3:], 20).convert().coef
    np.testing.assert_allclose(fitted[:6], [0, math.pi / 2, 1 / 2, 0, 1 / 24, 0], atol=1e-8)


@pytest.mark.integration
def test_mean_and_covariance_are_those_of_samples():
    @jax.jit
    def of_samples(key):
        key_v, key_x = jax.random.split(key)
        v, v_bar = jax.random.normal(key_v, (2, 4, 3))
        x = jax.random.normal(key_x, (3, 200_000))
        means = (random_features.feature_mean, random_features.feature_mean_as_printed)
        of_each = [(w, model.relu_features(w, x), *(mean(w) for mean in means)) for w in (v_bar, v)]
        return of_each, [random_features.feature_covariance(w, v) for w in (v_bar, v)]

    of_each, covariances = jax.device_get(of_samples(jax.random.key(0)))
    centered = []
    for w, a, mean, found_as_printed in of_each:
        stderr = a.std(axis=1) / math.sqrt(a.shape[1])
        assert np.all(np.abs(a.mean(axis=1) - mean) < 4 * stderr)
        printed = np.sqrt(np.sum(np.square(w), axis=1)) / 6.283185307179586
        np.testing.assert_allclose(found_as_printed, printed, rtol=1e-12)
        assert np.all(np.abs(a.mean(axis=1) - printed) > 100 * stderr)
        centered.append(a - a.mean(axis=1, keepdims=True))
    for left, expected in zip(centered, covariances, strict=True):
        products = left[:, None] * centered[1][None]
        stderr = products.std(axis=-1) / math.sqrt(products.shape[-1])
        assert np.all(np.abs(products.mean(axis=-1) - expected) < 4 * stderr)


@pytest.mark.integration
def test_opposite_parallel_and_zero_rows_have_a_covariance():
    """σ(t) σ(-t) = 0, so that Cov = -‖v‖²/2π; rounding takes cosines beyond ±1. A zero row has no
    variance.
    """
    v = np.random.default_rng(0).standard_normal((200, 7))
    squares, without = np.sum(v**2, axis=1), np.where(np.arange(200)[:, None] == 3, 0, v)
    covariance = jax.jit(random_features.feature_covariance)
    opposite, parallel, zero = (np.asarray(covariance(w, v)) for w in (-v, v, without))
    np.testing.assert_allclose(np.diagonal(opposite), -squares / (2 * math.pi), rtol=1e-6)
    np.testing.assert_allclose(
        np.diagonal(parallel), squares * (0.5 - 1 / (2 * math.pi)), rtol=1e-6
    )
    np.testing.assert_array_equal(zero[3], np.zeros(200))


@pytest.mark.integration
def test_covariance_and_mean_make_the_networks_second_moment():
    @jax.jit
    def moments(v):
        mean, covariance = random_features.feature_mean(v), random_features.feature_covariance(v, v)
        return mean, covariance, relu_network.hidden_gram(v)

    mean, covariance, second = moments(np.random.default_rng(0).standard_normal((6, 4)))
    np.testing.assert_allclose(covariance + np.outer(mean, mean), second, rtol=1e-7)


@pytest.mark.integration
def test_the_expansion_is_exact_on_the_diagonal_else_third_order():
    both = jax.jit(
        lambda v: (
            random_features.feature_covariance(v, v),
            random_features.covariance_expansion(v),
        )
    )
    exact, expanded = both(np.random.default_rng(0).standard_normal((5, 7)))
    np.testing.assert_allclose(np.diagonal(expanded), np.diagonal(exact), rtol=1e-7)
    # Two unit rows at cosine t: the remainder is t⁴/48π + O(t⁶).
    for t in (0.1, 0.2):
        exact, expanded = map(np.asarray, both(jnp.asarray([[1.0, 0.0], [t, math.sqrt(1 - t**2)]])))
        np.testing.assert_allclose((exact - expanded)[0, 1], t**4 / (48 * math.pi), rtol=t**2)


@pytest.mark.integration
@pytest.mark.parametrize(("rows", "k", "d"), [(600, 600, 300), (50, 800, 200)])
def test_the_error_of_the_cross_expansion_has_its_constant(rows, k, d):
    @jax.jit
    def rest(key):
        v_bar, v = jnp.split(jax.random.normal(key, (rows + k, d)) / math.sqrt(d), [rows])
        return random_features.feature_covariance(
            v_bar, v
        ) - random_features.cross_covariance_expansion(v_bar, v)

    limit = float(jax.jit(random_features.cross_covariance_error)(rows, k, d))
    found = np.mean(
        [np.linalg.norm(rest(key), 2) for key in jax.random.split(jax.random.key(5), 4)]
    )
    # √(2(rows + k)) in place of √rows + √k is off by 16 % in the second, 2√k by 60 %, and twice the
    # variance by 41 % in both.
    assert abs(found / limit - 1) < 0.1


@pytest.mark.integration
def test_the_expansion_with_norms_is_within_the_error():
    k, d = 1200, 40

    @jax.jit
    def errors(key):
        v_bar, v = jax.random.normal(key, (2, k, d)) / math.sqrt(d)
        exact = random_features.feature_covariance(v_bar, v)
        with_norms = random_features.cross_covariance_expansion_with_norms(v_bar, v)
        without = random_features.cross_covariance_expansion(v_bar, v)
        return [exact - with_norms, exact - without], random_features.cross_covariance_error(
            k, k, d
        )

    rests, limit = errors(jax.random.key(6))
    with_norms, without = (np.linalg.norm(rest, 2) / float(limit) for rest in rests)
    assert with_norms < 1.5 < 1.6 < without


@pytest.mark.integration
def test_cross_expansions_match_covariances_unlike_as_printed():
    k, d = 300, 150
    names = (
        "cross_covariance_expansion",
        "cross_covariance_expansion_as_printed",
        "cross_covariance_expansion_with_norms",
    )
    scale_bar, scale = np.linspace(0.5, 2, k)[:, None], np.linspace(3, 1, k)[:, None]

    @jax.jit
    def expansions(key):
        v_bar, v = jax.random.normal(key, (2, k, d)) / math.sqrt(d)
        found = {name: getattr(random_features, name)(v_bar, v) for name in names}
        scaled = random_features.cross_covariance_expansion_with_norms(scale_bar * v_bar, scale * v)
        return random_features.feature_covariance(v_bar, v), found, scaled

    exact, expanded, scaled = jax.device_get(expansions(jax.random.key(3)))
    found = {name: np.linalg.norm(expansion - exact, 2) for name, expansion in expanded.items()}
    assert found["cross_covariance_expansion"] < 0.5 * math.sqrt(k) / d
    assert found["cross_covariance_expansion_with_norms"] < 0.5 * math.sqrt(k) / d
    # With its norms it scales with every row, as the ReLU does.
    unscaled = expanded["cross_covariance_expansion_with_norms"]
    np.testing.assert_allclose(scaled, scale_bar * scale.T * unscaled, rtol=1e-10, atol=1e-12)
    # Its spike alone is off by (1 - 1/4π) k/d.
    assert found["cross_covariance_expansion_as_printed"] > (1 - 1 / (4 * math.pi)) * k / d - 0.1


def test_the_spike_is_that_of_a_large_draw():
    k, d = 800, 400
    mean = jax.jit(
        lambda key: random_features.feature_mean(jax.random.normal(key, (k, d)) / math.sqrt(d))
    )
    np.testing.assert_allclose(
        np.sum(mean(jax.random.key(4)) ** 2),
        random_features.spike(k),
        rtol=5 * math.sqrt(2 / (k * d)),
    )


@pytest.fixture(scope="module")
def spectrum():
    """Two spikes above a bulk, and the largest stable rate."""
    eigenvalues = np.concatenate([np.linspace(0.5, 1.5, 30), [20.0, 40.0]])
    return eigenvalues, 1 / 40.0


@pytest.mark.integration
def test_an_orthogonal_teacher_has_the_rank_of_the_factors(spectrum):
    eigenvalues, rate = spectrum
    nuclear_rank = jax.jit(gradient_rank.orthogonal_teacher_nuclear_rank)
    q, b = np.linalg.qr(np.random.default_rng(0).standard_normal((32, 32)))[0], np.diag(eigenvalues)
    for steps in (0, 1, 30):
        s = np.linalg.svd(
            q @ b @ np.linalg.matrix_power(np.eye(32) - rate * b, steps), compute_uv=False
        )
        found = nuclear_rank(eigenvalues, rate, steps)
        np.testing.assert_allclose(found, s.sum() ** 2 / np.sum(s**2), rtol=1e-10)


@pytest.mark.integration
def test_the_expected_gap_is_the_mean_over_teachers(spectrum):
    eigenvalues, rate = map(jnp.asarray, spectrum)
    b = jnp.asarray(np.diag(eigenvalues))

    @jax.jit
    def gaps_and_mean(key, steps):
        teachers = jax.random.normal(key, (400, 8, 32)) / math.sqrt(8)
        gaps = jax.vmap(lambda w: model.gap_at(model.trajectory(b, b, w), steps))(teachers)
        return gaps, gradient_rank.expected_gap(eigenvalues, rate, steps)

    for steps in (0, 5):
        gaps, expected = map(np.asarray, gaps_and_mean(jax.random.key(7), steps))
        stderr = gaps.std() / 20
        assert abs(gaps.mean() - expected) < 4 * stderr < 0.1 * expected


def test_late_ranks_are_the_integrals_over_the_bulk():
    k = np.array([1, 700])

    def integral(density, time, low):
        def moment(power):
            return integrate.quad(
                lambda x: density(x) * ((low + x) * math.exp(-time * x)) ** power, 0, 1
            )[0]

        return moment(1) ** 2 / moment(2)

    uniform = gradient_rank.late_nuclear_rank_uniform(k, 0.5, 1.5, 30.0)
    exact = [integral(lambda _, n=n: n, 30.0, 0.5) for n in k]
    np.testing.assert_allclose(uniform, exact, rtol=1e-5)
    semicircle = gradient_rank.late_nuclear_rank_square_root(k, 1.0, 1000.0)
    exact = [
        integral(lambda x, n=n: n * 8 / math.pi * math.sqrt(x * (1 - x)), 1000.0, 0.5) for n in k
    ]
    np.testing.assert_allclose(semicircle, exact, rtol=0.01)


@pytest.mark.parametrize(("m", "k"), [(400, 400), (200, 800)])
def test_the_nuclear_rank_of_a_gaussian_matrix(m, k):
    found = jax.jit(lambda key: spectral.nuclear_rank(jax.random.normal(key, (m, k))))(
        jax.random.key(6)
    )
    predicted = gradient_rank.gaussian_nuclear_rank(min(m, k) / max(m, k))
    np.testing.assert_allclose(float(found) / min(m, k), predicted, rtol=0.005)


def test_a_square_gaussian_matrix_has_the_closed_form():
    assert gradient_rank.gaussian_nuclear_rank(1.0) == pytest.approx(
        gradient_rank.GAUSSIAN_NUCLEAR_RANK, rel=1e-6
    )
    for aspect in (2.0, 0.0):
        with pytest.raises(
            ValueError,
            match=rf"^gaussian_nuclear_rank needs 0 < aspect <= 1, got {aspect}; pass min\(m",
        ):
            gradient_rank.gaussian_nuclear_rank(aspect)


# The lemmas on which the proofs of Section 3 rest, on random matrices of many shapes; each has a
# case that is nearly tight.


@pytest.fixture
def generator():
    return np.random.default_rng(0)


def _norm(x):
    return np.linalg.norm(x, 2)


def test_hadamard_products(generator):
    """Lemma 3.1: ‖Q∘P‖ <= max|Q_ij| ‖P‖_F, <= max Q_ii ‖P‖ for Q >= 0, and Q∘P >= 0 for both."""
    tightest = [0.0, 0.0]
    for _ in range(300):
        k, rank = generator.integers(1, 8, 2)
        q, p = generator.standard_normal((2, k, k))
        psd = [x[:, :rank] @ x[:, :rank].T for x in (q, p)]
        ratios = (
            _norm(q * p) / (np.max(np.abs(q)) * np.linalg.norm(p)),
            _norm(psd[0] * p) / (np.max(np.diag(psd[0])) * _norm(p)),
        )
        assert max(ratios) <= 1 + 1e-12
        assert np.linalg.eigvalsh(psd[0] * psd[1])[0] >= -1e-12 * _norm(psd[0]) * _norm(psd[1])
        tightest = np.maximum(tightest, ratios)
    assert np.min(tightest) > 0.99


def test_singular_values_interlace_under_low_rank_changes(generator):
    """s_{i+p}(Σ) <= s_i(Σ + H) <= s_{i-p}(Σ) for H of rank p (proof of Theorem 3.11)."""
    for _ in range(300):
        k, p = 8, generator.integers(1, 4)
        sigma = generator.standard_normal((k, k))
        low_rank = 10 * generator.standard_normal((k, p)) @ generator.standard_normal((p, k))
        before, after = (np.linalg.svd(x, compute_uv=False) for x in (sigma, sigma + low_rank))
        assert np.all(before[p:] <= after[: k - p] + 1e-12)
        assert np.all(after[p:] <= before[: k - p] + 1e-12)


@pytest.mark.integration
def test_batches_of_weights_are_expanded_one_by_one():
    @jax.jit
    def expansions(v):
        covariance = random_features.feature_covariance(v, v)
        cross = random_features.cross_covariance_expansion_with_norms(v, v)
        return covariance, cross, random_features.covariance_expansion(v)

    v = np.random.default_rng(0).standard_normal((2, 4, 3))
    for batch, *one_by_one in zip(expansions(v), *map(expansions, v), strict=True):
        np.testing.assert_allclose(batch, one_by_one, rtol=1e-6)


@pytest.mark.integration
def test_the_mean_of_the_cross_covariance_beside_its_linear_part(rng):
    """1/4πd for each pair of independent rows N(0, I/d): E t²/2 · 1/2π, with the fourth order of t
    = cos below one per cent.
    """
    k, d = 800, 40
    v_bar, v = rng.standard_normal((2, k, d)) / math.sqrt(d)
    forms = (
        random_features.feature_covariance,
        random_features.cross_covariance_expansion,
        random_features.cross_covariance_expansion_with_norms,
        random_features.cross_covariance_expansion_as_printed,
    )
    *found, printed = jax.device_get(
        jax.jit(lambda v_bar, v: [form(v_bar, v) for form in forms])(v_bar, v)
    )
    exact, *expansions = (np.mean(each - v_bar @ v.T / 4) for each in found)
    assert expansions == pytest.approx([exact, exact], rel=0.05)
    close(printed, v_bar @ v.T / 6.283185307179586 + 0.025, 1e-9)


BATCHES = {
    "mean": (random_features.feature_mean, (4, 2)),
    "printed mean": (random_features.feature_mean_as_printed, (4, 2)),
    "covariance": (random_features.feature_covariance, (4, 2), (3, 2)),
    "expansion": (jax.numpy_rank_promotion("allow")(random_features.covariance_expansion), (4, 2)),
    "cross": (random_features.cross_covariance_expansion, (4, 2), (3, 2)),
    "printed cross": (random_features.cross_covariance_expansion_as_printed, (4, 2), (3, 2)),
    "cross with norms": (random_features.cross_covariance_expansion_with_norms, (4, 2), (3, 2)),
    "bulk": (random_features.cross_bulk, (4, 2), (3, 2)),
}


@pytest.mark.parametrize("name", BATCHES)
def test_leading_axes_are_batch_axes(name, rng):
    f, *shapes = BATCHES[name]
    leading_axes_are_batch_axes(f, shapes, rng)
