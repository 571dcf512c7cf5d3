"""How Theorem 1(b) gets from a small random start to the aligned set (Lemmas 4, 5, 6 and 18), and
what rounding and the metric decide.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import spectral
from specjax.models import matrix_factorization
from specjax.theory.preconditioning import alignment, perturbation
from tests.theory.near import close

pytestmark = pytest.mark.usefixtures("x64")

SIZES = ((8, 3, 3), (8, 5, 3), (20, 10, 2), (5, 1, 1))


@pytest.fixture
def generator():
    return np.random.default_rng(0)


def polar(x, rank=None):
    """By numpy; of the best approximation of that rank, if one is given."""
    u, _, vt = np.linalg.svd(x, full_matrices=False)
    return u[..., :rank] @ vt[..., :rank, :]


def smallest(x):
    return np.linalg.svd(x, compute_uv=False)[..., -1]


def operator_norm(x):
    return np.linalg.norm(x, 2, axis=(-2, -1))


def frames(generator, draws, d, k):
    return np.linalg.qr(generator.standard_normal((draws, d, k)))[0]


def targets(generator, draws, d, spectrum):
    u = frames(generator, draws, d, len(spectrum))
    return (u * spectrum) @ u.mT


def test_the_first_step_obeys_lemma_4(generator):
    tightest = {}
    for d, k, r in SIZES:
        m, v = targets(generator, 200, d, np.geomspace(1, 0.1, r)), frames(generator, 200, d, k)
        image = m @ v
        sigma = np.linalg.svd(image, compute_uv=False)[:, r - 1]
        alpha = np.sqrt(sigma * generator.choice([1e-4, 1e-2, 0.3, 0.9], 200))
        gradient = alpha[:, None, None] ** 2 * v - image
        distance = np.linalg.norm(polar(gradient, r) + polar(image, r), axis=(1, 2))
        tightest[k, r] = np.max(distance / alignment.first_step_bound(sigma, alpha, r, k))
    assert max(tightest.values()) <= 1 + 1e-12
    # Attained for one column, as V comes to a right angle with the target; six times smaller it
    # would be false for every size.
    assert tightest[1, 1] > 0.98
    assert min(tightest.values()) > 1 / 6
    assert float(alignment.first_step_bound(0.01, 0.1, 1, 1)) == math.inf


def test_the_auxiliary_start_is_aligned_and_within_eq_54(generator):
    start = jax.jit(alignment.auxiliary_start, static_argnums=2)
    rate, alpha, d, k, r = 0.7, 1e-3, 8, 5, 3
    distances = []
    for _ in range(20):
        m, v = targets(generator, 1, d, np.geomspace(1, 0.1, r))[0], frames(generator, 1, d, k)[0]
        auxiliary = np.asarray(start(jnp.asarray(m), jnp.asarray(v), r))
        np.testing.assert_allclose(auxiliary.T @ auxiliary, np.eye(k), atol=1e-10)
        # Aligned: its column space holds that of M, so that M and X Xᵀ commute.
        np.testing.assert_allclose(auxiliary @ auxiliary.T @ m, m, atol=1e-10)
        muon = alpha * v - rate * polar(alpha**2 * v - m @ v)
        distances.append(operator_norm(muon - rate * auxiliary) / alpha)
    # 2 α in the paper; α, the start itself, remains to first order.
    assert np.all(np.abs(np.array(distances) - 1) < 0.02)


def test_one_step_magnifies_a_distance_as_lemma_5_says(generator):
    for d, k, r in ((8, 3, 3), (8, 5, 3), (6, 6, 2)):
        for size in (1e-9, 1e-3, 1e-1):
            m = targets(generator, 200, d, np.geomspace(1, 0.1, r))
            x = generator.standard_normal((200, d, k)) * 10 ** generator.uniform(-1, 0, (200, 1, 1))
            y = x + size * generator.standard_normal((200, d, k))
            gradients = [(z @ z.mT - m) @ z for z in (x, y)]
            apart, bound = operator_norm(x - y), np.maximum(operator_norm(x), operator_norm(y))
            lipschitz = np.asarray(alignment.gradient_lipschitz(bound, 1.0))
            assert np.all(operator_norm(gradients[0] - gradients[1]) <= lipschitz * apart)
            factor = np.asarray(alignment.growth_bound(0.5, smallest(gradients[1]), bound, 1.0))
            moved = operator_norm(x - y - 0.5 * (polar(gradients[0]) - polar(gradients[1])))
            assert np.all(moved <= factor * apart * (1 + 1e-9))
    # Far from the target a rotation of x = b I is magnified 1 + η/b times, a third of what the
    # bound adds to 1 as b goes to 0.
    b, turn, m = 0.1, 1e-6 * np.array([[0.0, -1.0], [1.0, 0.0]]), np.eye(2)
    x, y = b * np.eye(2), b * np.eye(2) + turn
    gradients = [(z @ z.T - m) @ z for z in (x, y)]
    moved = operator_norm(turn - 0.5 * (polar(gradients[1]) - polar(gradients[0]))) / operator_norm(
        turn
    )
    added = float(alignment.growth_bound(0.5, smallest(gradients[0]), b, 1.0)) - 1
    assert moved == pytest.approx(1 + 0.5 / b, rel=1e-6)
    assert (moved - 1) / added == pytest.approx((1 - b**2) / (3 * (1 + 3 * b**2)), rel=1e-6)
    # 3 B² + ‖M‖ is sharp: x³ - λx at x = -B, were the signs of the two terms equal, and here to
    # first order with λ = 0.
    assert float(alignment.gradient_lipschitz(2.0, 0.0)) == pytest.approx(
        (2.001**3 - 1.999**3) / 0.002, rel=1e-6
    )


def test_polar_factors_of_tall_matrices_obey_lemma_18(generator):
    bound = jax.jit(perturbation.polar_operator_bound)
    for shape in ((5, 3), (4, 4)):
        ratios = []
        for size in np.logspace(-3, 0.5, 40):
            a = generator.standard_normal(shape)
            b = a + size * generator.standard_normal(shape)
            ratios.append(
                operator_norm(polar(a) - polar(b)) / float(bound(jnp.asarray(a), jnp.asarray(b)))
            )
        assert max(ratios) <= 1 + 1e-12
    # The first term alone, Lemma 17's in the Frobenius norm, is not enough.
    a, direction = np.eye(3, 2), np.array([[0.0, -1 / 3], [1.0, 0.0], [0.0, math.sqrt(8) / 3]])
    for size, tolerance in ((1e-6, 1e-5), (1e-2, 1e-2)):
        moved = operator_norm(polar(a + size * direction) - polar(a))
        first = 2 * size / (smallest(a + size * direction) + 1)
        assert moved / first == pytest.approx(2 / math.sqrt(3), rel=tolerance)
        found = float(bound(jnp.asarray(a + size * direction), jnp.asarray(a)))
        assert found / first == pytest.approx(2, rel=2 * size)


def test_aligned_gradients_are_small_as_rarely_as_in_lemma_6():
    # The measure of {x: |x² - λ| |x| <= δ} on a fine grid; at δ = 2 (λ/3)^(3/2) its intervals meet
    # at √(λ/3), and it is 4 √(λ/3).
    grid = np.linspace(-3, 3, 600_001)
    for lam in (1.0, 0.3):
        worst = 2 * (lam / 3) ** 1.5
        ratios = []
        for share in (0.01, 0.5, 0.9, 1.0, 1.1, 3.0):
            measure = 6 * np.mean(
                np.abs(grid**2 - lam) * np.abs(grid) <= share * worst * (1 + 1e-9)
            )
            ratios.append(
                measure
                / float(alignment.small_gradient_bound(jnp.asarray([lam]), share * worst, 1.0))
            )
        assert max(ratios) <= 1 + 1e-4
        assert ratios[3] == pytest.approx(1, rel=1e-3)
        assert ratios[0] == pytest.approx(2 / 3, rel=1e-2)
    zero = (
        6
        * np.mean(np.abs(grid) ** 3 <= 0.001)
        / float(alignment.small_gradient_bound(jnp.zeros(1), 0.001, 1.0))
    )
    assert zero == pytest.approx(1, rel=1e-3)


@pytest.mark.parametrize(
    "spectrum", [[1.0, 0.3, 0.1], [1.0, 0.3, 0.1, 0.0, 0.0]], ids=["k=r", "k>r"]
)
def test_lemma_6_bounds_the_probability_of_simulated_sequences(generator, spectrum):
    lams, least, rho, steps, draws = np.array(spectrum), 0.5, 0.7, 9, 100_000
    x = np.tile(np.linspace(0.6, 0.9, len(lams)), (draws, 1))
    for t in range(steps):
        # One prefactor moves all sequences.
        rate = least * rho**t * generator.uniform(1, 2, (draws, 1))
        x = x - rate * np.sign((x**2 - lams) * x)
    found = np.min(np.abs(x**2 - lams) * np.abs(x), axis=1)
    shares, bounds = [], []
    for delta in (1e-12, 1e-9, 1e-6, 1e-5):
        bounds.append(
            float(
                alignment.small_gradient_bound(jnp.asarray(lams), delta, least * rho ** (steps - 1))
            )
        )
        shares.append(np.mean(found <= delta))
        assert shares[-1] <= bounds[-1] + 4 * math.sqrt(bounds[-1] / draws)
    assert bounds[1] < 1
    # A tenth of the bound would be too little.
    assert max(share / bound for share, bound in zip(shares, bounds, strict=True)) > 0.1


def test_the_error_in_which_muon_is_free_of_the_condition_number():
    """Relative to ‖M‖ the smallest eigenvalue arrives first. Relative to each eigenvalue it arrives
    ln 10/(2 ln 1/ρ) steps later for every decade of κ: Δ_t must come below ε √λ/2, and falls as
    ρ^t.
    """
    rho, epsilon, steps, draws = 0.8, 1e-8, 160, 4000
    generator = np.random.default_rng(1)
    last = {}
    for lam in (1e-2, 1e-6):
        x, prefactors = generator.uniform(0, 1, draws), generator.uniform(0.5, 1, (steps, draws))
        absolute, relative = np.zeros(draws), np.zeros(draws)
        for t in range(steps):
            error = np.abs(x**2 - lam)
            absolute[error > epsilon] = t
            relative[error > epsilon * lam] = t
            x = x - prefactors[t] * rho**t * np.sign((x**2 - lam) * x)
        last[lam] = absolute, relative
    per_decade = math.log(10) / (2 * math.log(1 / rho))
    for index, sign in ((0, -1), (1, 1)):
        late, early = last[1e-6][index], last[1e-2][index]
        stderr = math.hypot(np.std(late), np.std(early)) / math.sqrt(draws) / 4
        assert stderr < 0.05
        assert abs((np.mean(late) - np.mean(early)) / 4 - sign * per_decade) < 4 * stderr


@pytest.mark.integration
def test_the_floor_of_float32():
    """The same run in both precisions: float32 ends near its rounding, far above an accuracy of
    1e-8 (why float64 scopes are used).
    """

    def error(dtype):
        keys = jax.random.split(jax.random.key(3), 3)
        u = jnp.linalg.qr(jax.random.normal(keys[0], (8, 3), dtype))[0]
        target = u @ jnp.diag(jnp.asarray([1.0, 0.3, 0.1], dtype)) @ u.T
        start = (
            jnp.asarray(0.01, dtype) * jnp.linalg.qr(jax.random.normal(keys[1], (8, 3), dtype))[0]
        )
        prefactors = jax.random.uniform(keys[2], (90,), dtype, 0.5, 1.0)

        def step(x, rate):
            return x - rate * spectral.polar(matrix_factorization.gradient(x, target)), None

        x, _ = jax.lax.scan(
            step, start, prefactors * jnp.asarray(0.7, dtype) ** jnp.arange(90).astype(dtype)
        )
        return jnp.linalg.norm(x @ x.T - target)

    errors = {
        dtype: float(jax.jit(error, static_argnums=0)(dtype))
        for dtype in (jnp.float32, jnp.float64)
    }
    assert 1e-9 < errors[jnp.float32] < 1e-5
    assert errors[jnp.float64] < 1e-12


def test_the_first_step_bound_by_hand():
    # α² = 0.09 and 2 σ - α² = 0.91, with √r for as many columns as the rank and else √(8 r).
    close(alignment.first_step_bound(0.5, 0.3, 3, 3), 2 * math.sqrt(3) * 0.09 / 0.91)
    close(alignment.first_step_bound(0.5, 0.3, 3, 5), 2 * math.sqrt(24) * 0.09 / 0.91)
    close(alignment.first_step_bound(5.0, 2.0, 3, 3), 2 * math.sqrt(3) * 4 / 6)
    assert float(alignment.first_step_bound(0.25, 0.5, 3, 3)) == math.inf


@pytest.mark.parametrize("alpha", [1e-3, 0.2])
def test_the_auxiliary_start_is_the_gradients_at_small_alphas(alpha, rng):
    """As eq. 53 and Lemma 22 make it from polar(G) - polar(G_r), in NumPy."""
    d, k, r = 6, 4, 2
    u, v = (np.linalg.qr(rng.standard_normal((d, n)))[0] for n in (r, k))
    target = (u * [1.0, 0.3]) @ u.T

    def polar(x, rank):
        left, _, right = np.linalg.svd(x, full_matrices=False)
        return left[:, :rank] @ right[:rank]

    gradient = alpha**2 * v - target @ v
    aligned, rest = polar(target @ v, r), polar(gradient, k) - polar(gradient, r)
    outside = (np.eye(d) - aligned @ aligned.T) @ rest @ (np.eye(k) - aligned.T @ aligned)
    found = jax.jit(alignment.auxiliary_start, static_argnums=2)(target, v, r)
    np.testing.assert_allclose(found, aligned - polar(outside, k - r), atol=1e-9)
