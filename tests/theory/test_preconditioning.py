"""Scalar sequences of Muon, iteration bounds, SignGD on its adversarial instances, and perturbation
bounds (preconditioning).
"""

import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import spectral
from specjax.theory.preconditioning import (
    adversarial,
    conditions,
    iterations,
    perturbation,
    scalar,
    spectral_domain,
)
from tests.theory.near import close
from tests.wrong_calls import wrong_calls

pytestmark = pytest.mark.usefixtures("x64")

RNG = np.random.default_rng(5)


def sequence(x, lam, rates):
    """Eq. 27 in plain Python floats."""
    path = [float(x)]
    for rate in rates.tolist():
        slope = (path[-1] ** 2 - float(lam)) * path[-1]
        x = path[-1] - rate * ((slope > 0) - (slope < 0))
        path.append(x)
    return path


def test_the_scalar_sequences_are_those_of_the_recursions():
    rates = 0.7 * 0.8 ** np.arange(30)
    starts, lams = np.array([0.2, -1.3, 1.0]), np.array([0.5, 1.0, 0.0])
    found = scalar.factorization_path(jnp.asarray(starts), jnp.asarray(lams), jnp.asarray(rates))
    expected = np.transpose([sequence(x, lam, rates) for x, lam in zip(starts, lams, strict=True)])
    np.testing.assert_array_equal(found, expected)
    path = scalar.regression_path(jnp.zeros(2), jnp.asarray([1.0, 0.3]), jnp.asarray(rates))
    assert path.shape == (31, 2)
    assert float(jnp.max(jnp.abs(path[-1] - jnp.asarray([1.0, 0.3])))) <= 2 * 0.7 * 0.8**30


def test_zero_is_where_a_sequence_stays():
    # x_0 = 1 and C = 1 end at exactly 0, a stationary point; any other prefactor does not (Lemma
    # 1).
    rates = jnp.asarray(0.5 ** np.arange(20))
    assert float(scalar.factorization_path(jnp.asarray(1.0), jnp.asarray(0.25), rates)[-1]) == 0
    assert float(
        scalar.factorization_path(jnp.asarray(1.0), jnp.asarray(0.25), 0.999 * rates)[-1]
    ) == pytest.approx(0.5, abs=1e-5)


@pytest.mark.integration
def test_the_bounds_hold_on_random_sequences_and_are_attained():
    ratios = []
    for _ in range(300):
        rho, c, lam = RNG.uniform(0.5, 0.95), RNG.uniform(0.1, 2), 10 ** RNG.uniform(-3, 1)
        start = math.sqrt(lam) + 2 * c * RNG.uniform(-1, 1)
        t = np.arange(60)
        x = np.asarray(sequence(start, lam, c * rho**t))[:-1]
        bound, error = (
            np.asarray(scalar.distance_bound(c, rho, t)),
            np.asarray(scalar.error_bound(c, rho, lam, t)),
        )
        seen = bound > 1e-10  # below it only the rounding of x remains
        ratios.append(np.max((np.abs(np.abs(x) - math.sqrt(lam)) / bound)[seen]))
        assert np.all(np.abs(x**2 - lam) <= error * (1 + 1e-9) + 1e-14)
    # A bound 2% smaller would be violated.
    assert 0.98 < max(ratios) <= 1 + 1e-9


def test_bounds_are_the_formulas_of_the_paper():
    assert float(scalar.distance_bound(0.7, 0.8, 3)) == pytest.approx(2 * 0.7 * 0.8**3)
    assert float(scalar.error_bound(0.7, 0.8, 2.0, 3)) == pytest.approx(
        1.4 * 0.512 * (2 * math.sqrt(2) + 1.4 * 0.512)
    )
    assert float(scalar.travel_bound(0.7, 0.8, 3)) == pytest.approx(0.7 * 0.8**3 / 0.2)
    assert float(scalar.random_prefactor_bound(0.7, 0.8, 3)) == pytest.approx(1.4 * 0.8**3 / 0.2)
    np.testing.assert_allclose(scalar.tail(jnp.asarray([3.0, 2.0, 1.0])), [6, 3, 1])
    np.testing.assert_allclose(
        scalar.tail(jnp.asarray([[3.0, 2.0, 1.0], [1.0, 0.5, 4.0]])), [[6, 3, 1], [5.5, 4.5, 4]]
    )
    assert float(scalar.distance(-3.0, 4.0)) == 1
    # At its root a sequence stays.
    assert float(scalar.regression_step(0.3, 0.3, 0.1)) == 0.3


@pytest.mark.parametrize(
    ("low", "high", "least"), [(1.0, 1.0, 1 / 2), (1.0, 2.0, 2 / 3), (1.0, 3.0, 3 / 4)]
)
def test_the_least_decay_is_sharp(low, high, least):
    assert float(scalar.least_decay(low, high)) == pytest.approx(least)
    prefactors = np.asarray(scalar.overshooting_prefactors(low, high, 400))
    for rho, arrives in ((least - 0.01, False), (least + 0.01, True)):
        x = sequence(10.0 + 1e-12, 100.0, prefactors * rho ** np.arange(400))
        left = abs(x[-1] - 10)
        assert (
            left < 1e-9
            if arrives
            else left == pytest.approx(high - low * rho / (1 - rho), abs=1e-9)
        )


def test_iterations_of_the_theorems_suffice_and_not_many_less():
    epsilon = 1e-8
    for rho in (0.6, 0.7):
        bound = math.ceil(float(iterations.theorem_1a(1.0, epsilon, rho)))
        assert bound == math.ceil(math.log(8e8) / math.log(1 / rho))
        worst = 0
        for _ in range(400):
            lam, c = 10 ** RNG.uniform(-4, 0), RNG.uniform(0.5, 1)
            x = np.asarray(sequence(RNG.uniform(0, 1), lam, c * rho ** np.arange(bound + 20)))
            worst = max(worst, np.flatnonzero(np.abs(x**2 - lam) > epsilon)[-1] + 1)
        assert bound - 8 <= worst <= bound
    for rho in (2 / 3, 0.9):
        bound = math.ceil(float(iterations.theorem_1b(1.0, epsilon, rho)))
        for _ in range(100):
            lam, c = 10 ** RNG.uniform(-4, 0), 0.5 * RNG.uniform(1, 2, bound + 5)
            x = np.asarray(sequence(RNG.uniform(0, 1), lam, c * rho ** np.arange(bound + 5)))
            assert np.all(np.abs(x[bound:] ** 2 - lam) <= epsilon)
    assert float(iterations.theorem_3(50.0, 1e-6, 0.5)) == pytest.approx(math.log2(1e8))


def test_descent_in_context_takes_the_steps_of_the_closed_form():
    kappa, epsilon = 4.0, 1e-6
    eigenvalues = np.array([1, 0.5, 1 / kappa])
    error, t = 1 / eigenvalues, 0
    while np.max(error) > epsilon * kappa:
        error, t = error * (1 - eigenvalues**3), t + 1
    assert t == math.ceil(float(iterations.gradient_descent_regression(kappa, epsilon)))


@pytest.mark.integration
def test_gradient_descent_in_the_spectral_domain_is_the_loop():
    spectra = np.array([[1.0, 0.1], [1.0, 0.02], [2.0, 0.0]])
    starts, rates = np.array([[1e-2, 1e-2], [0.3, 1e-3], [1.0, 1e-5]]), np.array([0.25, 0.5, 0.1])
    count = jax.jit(spectral_domain.gradient_descent_steps, static_argnums=4)
    found = np.asarray(count(starts, spectra, rates, 1e-8, 100_000))
    for x, lam, rate, steps in zip(starts, spectra, rates, found, strict=True):
        t = 0
        while np.max(np.abs(x**2 - lam)) > 1e-8:
            x, t = x - rate * (x**2 - lam) * x, t + 1
        assert t == int(steps)
    # Batches of batches; an accuracy that the start has is reached after no step: |1.5² - 2| = 1/4,
    # in binary exactly.
    again = count(*(x[[[2, 1], [0, 1]]] for x in (starts, spectra, rates)), 1e-8, 100_000)
    assert again.tolist() == found[[[2, 1], [0, 1]]].tolist()
    assert count(
        np.full((1, 1), 1.5), np.full((1, 1), 2.0), np.full(1, 0.1), 0.25, 10**6
    ).tolist() == [0]
    flow = float(iterations.gradient_flow_factorization(1e-3, 1e-3, 1e-8, 0.25))
    (slow,) = count(np.full((1, 1), 1e-3), np.full((1, 1), 1e-3), np.full(1, 0.25), 1e-8, 10**6)
    assert flow == pytest.approx(float(slow), rel=1e-3)
    assert float(iterations.gradient_flow_factorization(0.5, math.sqrt(0.5), 1e-8, 0.25)) == 0
    # The logistic u(t) = λ / (1 + (λ/u_0 - 1) exp(-2 λ t)) is ε = 0.3 below λ = 2 then.
    t = 0.1 * float(iterations.gradient_flow_factorization(2.0, 0.5, 0.3, 0.1))
    assert 2 - 2 / (1 + (2 / 0.25 - 1) * math.exp(-4 * t)) == pytest.approx(0.3, rel=1e-12)


def test_a_barrier_keeps_coordinate_one_above_its_threshold():
    barrier = jax.jit(adversarial.barrier)
    for _ in range(50):
        moves = np.sort(RNG.uniform(0.01, 1, 40))[::-1].copy()
        tau = RNG.uniform(0.02, 0.3)
        start, frozen = barrier(jnp.asarray(moves), tau)
        assert int(frozen) == np.sum(moves >= 2 * tau)
        a = float(start)
        for t in range(int(frozen)):
            assert tau * (1 - 1e-9) <= abs(a) <= moves[t] - tau * (1 - 1e-9)
            a, before = a - moves[t] * np.sign(a), a
            assert np.sign(a) == -np.sign(before)
    # A move of 2 τ exactly is held: a_0 = τ.
    assert [float(x) for x in adversarial.barrier(jnp.asarray([0.5, 0.25]), 0.25)] == [0.25, 1]
    none = adversarial.barrier(jnp.asarray([0.1, 0.1]), 1.0)
    assert (float(none.start), int(none.frozen)) == (0, 0)


@pytest.mark.integration
def test_instances_have_the_theorems_condition_and_start():
    rates = jnp.asarray(0.1 * 0.9 ** np.arange(200))
    kappa = 50.0
    for instance in (
        adversarial.quadratic(kappa, rates, 0.1),
        adversarial.factorization(kappa, rates),
        adversarial.regression(kappa, rates, 0.1),
    ):
        values, vectors = np.linalg.eigh(instance.matrix)
        np.testing.assert_allclose(values, [1 / kappa, 1], rtol=1e-12)
        np.testing.assert_allclose(np.abs(vectors), np.full((2, 2), math.sqrt(0.5)), rtol=1e-12)
    x = np.asarray(adversarial.factorization(kappa, rates).start)
    first, second = x[0, 0] + x[0, 1] - 1, x[0, 0] - x[0, 1] - kappa**-0.5
    assert 0 < first <= adversarial.RADIUS
    assert second == pytest.approx(adversarial.RADIUS / math.sqrt(kappa))
    assert float(adversarial.quadratic(kappa, rates, 0.1).accuracy) == 0.1


def test_sign_descent_on_the_instance_needs_the_bounds_steps():
    kappa = 40.0
    for decay in (0.8, 0.95):
        rates = np.maximum(0.2 * decay ** np.arange(400), 2e-3) * np.exp(-np.arange(400) / 200)
        instance = adversarial.quadratic(kappa, jnp.asarray(rates), 0.1)
        z, t, h = np.asarray(instance.start), 0, np.asarray(instance.matrix)
        while np.linalg.norm(z) > 0.1 and t < 400:
            z, t = z - rates[t] * np.sign(h @ z), t + 1
            if t == int(instance.frozen):
                assert (z[0] - z[1]) / math.sqrt(2) == pytest.approx(0.2, abs=1e-12)
        assert t >= float(iterations.sign_gradient_quadratic(kappa, int(instance.frozen)))
    kappas, frozen = jnp.asarray([10.0, 20.0]), jnp.asarray([3.0, 5.0])
    np.testing.assert_allclose(iterations.sign_gradient_quadratic(kappas, frozen), [5.5, 10])
    np.testing.assert_allclose(
        iterations.sign_gradient_factorization(kappas, frozen), [3 + 10 / 12, 5 + 20 / 12]
    )
    np.testing.assert_allclose(iterations.sign_gradient_regression(kappas, frozen), [253, 2005])


@pytest.mark.integration
def test_an_instance_is_followed_as_by_a_loop_of_one_s_own():
    kappa, times = 6.0, np.arange(3000)
    rates = 0.1 * np.maximum(0.93**times, 0.01) * np.exp(-times / 400)
    s = np.array([[1 + 1 / kappa, 1 - 1 / kappa], [1 - 1 / kappa, 1 + 1 / kappa]]) / 2
    problems = (
        (adversarial.quadratic(kappa, jnp.asarray(rates), 0.1), lambda z: s @ z, np.linalg.norm),
        (
            adversarial.factorization(kappa, jnp.asarray(rates)),
            lambda x: (x @ x.T - s) @ x,
            lambda x: np.linalg.norm(x @ x.T - s),
        ),
        (
            adversarial.regression(kappa, jnp.asarray(rates), 0.1),
            lambda q: s @ (s @ q - np.eye(2)) @ s,
            lambda q: np.linalg.norm(q - np.linalg.inv(s)),
        ),
    )
    for instance, gradient, error in problems:
        found = adversarial.follow(instance, jnp.asarray(rates))
        x, t = np.asarray(instance.start), 0
        while error(x) > float(instance.accuracy) and t < len(rates):
            # Entries that are equal but for rounding have one sign.
            x, t = x - rates[t] * np.sign(np.round(gradient(x), 13)), t + 1
        assert (int(found.steps), bool(found.arrived)) == (t, True)
        assert int(found.steps) > int(instance.frozen) > 0
        assert float(found.moved) < 1e-12
        assert int(instance.frozen) == np.sum(rates >= float(instance.least_rate))
        # Without a first coordinate, less its root, nothing holds the second.
        ones = np.ones_like(x) / np.sqrt(x.size)
        first = np.sum(ones * np.asarray(instance.start)) - (0 if x.ndim == 1 else 1)
        away = adversarial.follow(
            instance, jnp.asarray(rates), instance.start - jnp.asarray(first * ones)
        )
        assert float(away.moved) > 0.01
    short = adversarial.follow(problems[0][0], jnp.asarray(rates[:5]))
    assert (int(short.steps), bool(short.arrived)) == (5, False)


def test_tied_signs_ignore_what_rounding_adds():
    found = adversarial.tied_sign(jnp.asarray([[1.0, 1e-17], [-3e-17, 0.5]]))
    np.testing.assert_array_equal(found, [[1, -1], [-1, 1]])
    # Whichever of two equal entries rounding moves, and where their mean is zero.
    for pair in ((1.0, -0.25), (-0.25, 1.0), (0.25, -1.0), (-1.0, 0.25), (1.0, -1.0)):
        mean = (pair[0] + pair[1]) / 2
        diagonal = adversarial.tied_sign(jnp.asarray([[pair[0], 3.0], [3.0, pair[1]]]))
        np.testing.assert_array_equal(diagonal, [[np.sign(mean), 1], [1, np.sign(mean)]])
        other = adversarial.tied_sign(jnp.asarray([[-3.0, pair[0]], [pair[1], -3.0]]))
        np.testing.assert_array_equal(other, [[-1, np.sign(mean)], [np.sign(mean), -1]])


def low_rank(rows, columns, rank):
    return RNG.standard_normal((rows, rank)) @ RNG.standard_normal((rank, columns))


@pytest.mark.integration
def test_polar_factors_of_equal_rank_obey_lemma_17():
    @jax.jit
    def ratio(a, b):
        difference = spectral.polar(a) - spectral.polar(b)
        return jnp.linalg.norm(difference) / perturbation.polar_bound(a, b, 3)

    ratios = []
    for size in np.logspace(-3, 0, 40):
        u, v = RNG.standard_normal((6, 3)), RNG.standard_normal((5, 3))
        near = (u + size * RNG.standard_normal((6, 3))) @ (v + size * RNG.standard_normal((5, 3))).T
        ratios.append(float(ratio(jnp.asarray(u @ v.T), jnp.asarray(near))))
    assert max(ratios) <= 1
    # With the constant 1 in place of 2 it is false: a rotation of a rank-one matrix turns its
    # factor by the same angle.
    a, b = jnp.eye(2)[:, :1] @ jnp.eye(2)[:1], jnp.asarray([[math.cos(0.1), 0], [math.sin(0.1), 0]])
    turn = float(
        jnp.linalg.norm(spectral.polar(a) - spectral.polar(b)) / perturbation.polar_bound(a, b, 1)
    )
    assert 0.5 < turn <= 1 + 1e-12


def test_best_approximations_obey_lemma_19():
    approximation_bound = jax.jit(perturbation.approximation_bound, static_argnums=2)
    best_approximation = jax.jit(perturbation.best_approximation, static_argnums=1)
    for size in np.logspace(-3, 0, 40):
        a = low_rank(6, 5, 2) + 0.1 * RNG.standard_normal((6, 5))
        b = a + size * RNG.standard_normal((6, 5))
        bound = approximation_bound(jnp.asarray(a), jnp.asarray(b), 2)
        best = [np.asarray(best_approximation(jnp.asarray(x), 2)) for x in (a, b)]
        assert np.linalg.norm(best[0] - best[1], 2) <= float(bound) * (1 + 1e-12)
    exact = np.diag([3.0, 2.0, 1.0])
    np.testing.assert_allclose(best_approximation(exact, 2), np.diag([3.0, 2.0, 0.0]), atol=1e-14)
    assert float(approximation_bound(exact, 1.1 * exact, 1)) == pytest.approx(
        0.3 * (3 + 4.2 / (3.3 - 2)), rel=1e-12
    )


def test_complements_follow_each_other_as_lemma_22_says():
    matched = jax.jit(perturbation.matched_complements)
    ratios, naive = [], []
    for size in np.logspace(-2, 0, 30):
        a = np.linalg.qr(RNG.standard_normal((7, 3)))[0]
        b = np.linalg.qr(a + size * RNG.standard_normal((7, 3)))[0]
        first, second = matched(jnp.asarray(a), jnp.asarray(b))
        whole = [np.hstack([x, np.asarray(c)]) for x, c in ((a, first), (b, second))]
        for q in whole:
            np.testing.assert_allclose(q.T @ q, np.eye(7), atol=1e-12)
        ratios.append(np.linalg.norm(whole[0] - whole[1], 2) / np.linalg.norm(a - b, 2))
        naive.append(np.linalg.norm(np.asarray(first @ first.T - second @ second.T), 2))
    assert max(ratios) <= math.sqrt(2) + 1e-12
    assert max(naive) > 0.1


def test_gaussian_singular_values_stay_within_lemma_20():
    n, d, draws = 30, 10, 4000
    s = np.linalg.svd(RNG.standard_normal((draws, n, d)), compute_uv=False) / math.sqrt(n)
    for delta in (0.05, 0.1, 0.2):
        bound = float(perturbation.gaussian_tail(n, delta))
        noise = 4 * math.sqrt(bound / draws)
        assert np.mean(s[:, 0] >= 1 + delta + math.sqrt(d / n)) <= bound + noise
        assert np.mean(s[:, -1] <= 1 - delta - math.sqrt(d / n)) <= bound + noise
    assert float(perturbation.gaussian_tail(30, 0.2)) == pytest.approx(math.exp(-0.6))


def test_least_gaussian_singular_values_have_the_lemma_21_tail():
    # For a square N×N matrix P(σ_min <= ε/√N) is ε (Edelman), of the order C ε of the lemma; for
    # N×(N-1) it is of order ε².
    n, draws = 8, 40_000
    for columns, power in ((n, 1), (n - 1, 2)):
        s = np.linalg.svd(RNG.standard_normal((draws, n, columns)), compute_uv=False)[:, -1]
        gap = math.sqrt(n) - math.sqrt(columns - 1)
        shares = [np.mean(s <= epsilon * gap) for epsilon in (0.1, 0.4)]
        exponent = math.log(shares[1] / shares[0]) / math.log(4)
        assert abs(exponent - power) < 0.2


def test_a_haar_frame_sees_the_target_as_lemma_10_says():
    # σ_r(M V) >= λ_r σ_min(U*ᵀ V), and σ_min of that block of a Haar frame is above c/√(d k) in all
    # but 0.5% of samples.
    d, k, r, draws = 10, 4, 2, 2000
    v = np.linalg.qr(RNG.standard_normal((draws, d, k)))[0]
    lams = np.array([1.0, 0.05])
    block = v[:, :r]
    found = np.linalg.svd(lams[:, None] * block, compute_uv=False)[:, r - 1]
    assert np.all(found >= lams[-1] * np.linalg.svd(block, compute_uv=False)[:, -1] * (1 - 1e-9))
    assert np.mean(found >= 0.05 * lams[-1] / math.sqrt(d * k)) >= 0.995


WRONG_CALLS = """
conditions.check_condition_number(0.5)
    A condition number is the largest eigenvalue over the smallest, at least 1, got 0.5; exchange
    the two if you have its inverse.
conditions.check_condition_number(float("inf"))
    A condition number is the largest eigenvalue over the smallest, at least 1, got inf; exchange
    the two if you have its inverse.
conditions.check_spectrum([1, 0])
    A spectrum needs positive finite eigenvalues on one axis, got [1.0, 0.0]; leave out the zeros,
    the rank is its length.
conditions.check_spectrum([1.0, 2.0])
    A spectrum needs its eigenvalues in descending order, got [1.0, 2.0]; sort it with [::-1].
conditions.check_ranks(5, 2, 3)
    A factor with k=2 columns cannot reach a target of rank r=3; take k of at least 3 columns.
conditions.check_ranks(5, 9, 6)
    A target of shape (5, 5) has a rank from 1 to 5, got r=6.
iterations.theorem_1a(1.0, 1e-8, 0.4)
    The decay rho must be in [0.5, 1) for the theorem to hold, got 0.4; a smaller one stops short of
    the target.
iterations.theorem_1b(1.0, 1e-8, 0.6)
    The decay rho must be in [0.6667, 1) for the theorem to hold, got 0.6; a smaller one stops short
    of the target.
iterations.theorem_3(1.0, 1e-8, 1)
    The decay rho must be in [0.5, 1) for the theorem to hold, got 1.0; a smaller one stops short of
    the target.
iterations.gradient_descent_regression(0.9, 1e-8)
    A condition number is the largest eigenvalue over the smallest, at least 1, got 0.9; exchange
    the two if you have its inverse.
adversarial.barrier(jnp.asarray([0.1, 0.2]), 0.01)
    The lower bounds for SignGD need learning rates that never increase, but step 1 has a larger one
    than step 0 (0.2 > 0.1); take np.minimum.accumulate of them.
adversarial.barrier(jnp.asarray([0.5, 0.4, 0.1, 0.2, 0.3]), 0.01)
    The lower bounds for SignGD need learning rates that never increase, but step 3 has a larger one
    than step 2 (0.2 > 0.1); take np.minimum.accumulate of them.
adversarial.barrier(jnp.asarray([0.5, 0.0]), 0.01)
    A schedule needs positive finite learning rates on one axis, got [0.5, 0.0].
adversarial.barrier(jnp.zeros(0), 0.01)
    A schedule needs positive finite learning rates on one axis, got [].
adversarial.barrier(jnp.full((2, 1), 0.5), 0.01)
    A schedule needs positive finite learning rates on one axis, got [[0.5], [0.5]].
adversarial.barrier(jnp.full(9, -1.0), 0.01)
    A schedule needs positive finite learning rates on one axis, got [-1.0, -1.0, -1.0, -1.0, -1.0,
    -1.0, -1.0, -1.0].
adversarial.quadratic(10.0, jnp.asarray([0.1, -0.1]), 0.1)
    A schedule needs positive finite learning rates on one axis, got [0.14142135623730953,
    -0.14142135623730953].
adversarial.factorization(10.0, jnp.asarray([0.2, 0.1]))
    The factorization instance needs a first learning rate of at most 0.125, got 0.2; scale the
    schedule.
adversarial.regression(0.1, jnp.asarray([0.2]), 0.1)
    A condition number is the largest eigenvalue over the smallest, at least 1, got 0.1; exchange
    the two if you have its inverse.
"""


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("call", "sentence"), wrong_calls(WRONG_CALLS))
def test_inputs_beyond_the_theorems_are_refused_in_a_sentence(call, sentence):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        eval(call)


def test_muon_and_sign_steps_are_preconditioned_gradients():
    # Eqs. 17 and 18, with rows stacked: a block for each row in Muon, a diagonal in SignGD.
    g = RNG.standard_normal((4, 3))
    values, vectors = np.linalg.eigh(g.T @ g)
    block = vectors @ np.diag(values**-0.5) @ vectors.T
    muon = np.kron(np.eye(4), block) @ g.reshape(-1)
    np.testing.assert_allclose(
        np.asarray(spectral.polar(jnp.asarray(g))).reshape(-1), muon, atol=1e-13
    )
    np.testing.assert_allclose(
        np.diag(1 / np.abs(g.reshape(-1))) @ g.reshape(-1), np.sign(g).reshape(-1), atol=1e-15
    )
    # Momentum (eq. 2a) as an average or as a sum differs by a factor, which the polar factor does
    # not see.
    average, total = np.zeros((4, 3)), np.zeros((4, 3))
    for _ in range(5):
        gradient = RNG.standard_normal((4, 3))
        average, total = 0.9 * average + 0.1 * gradient, 0.9 * total + gradient
    np.testing.assert_allclose(
        spectral.polar(jnp.asarray(average)), spectral.polar(jnp.asarray(total)), atol=1e-13
    )


def test_adversarial_gradients_are_within_a_factor_of_three():
    """Theorem 2's proof: |d_i| <= √λ_i/4 keeps each eigenvalue of the gradient, λ_i |d_i| (2 + 3δ +
    δ²), between 1 and 3 of λ_i |d_i|.
    """
    turn = np.array([[1.0, 1.0], [1.0, -1.0]]) / math.sqrt(2)
    ratios = []
    for kappa in (1.0, 30.0):
        lams = np.array([1.0, 1 / kappa])
        for _ in range(200):
            d = adversarial.RADIUS * np.sqrt(lams) * RNG.uniform(-1, 1, 2)
            x = turn @ np.diag(np.sqrt(lams) + d) @ turn
            g = turn @ ((x @ x - turn @ np.diag(lams) @ turn) @ x) @ turn
            np.testing.assert_allclose(g[0, 1], 0, atol=1e-14)
            ratios += list(np.abs(np.diag(g)) / (lams * np.abs(d)))
    assert 1.3125 - 1e-9 < min(ratios) < 1.35
    assert 2.75 < max(ratios) < 2.8125 + 1e-9


def test_a_null_direction_decays_as_one_over_time():
    """With k > r columns x ← x - η x³, so that 1/x² grows by 2 η in each step and a start of scale
    √ε is needed (eq. 10, k > r).
    """
    rate, x, steps = 0.25, 0.1, 20_000
    for _ in range(steps):
        x -= rate * x**3
    assert 1 / x**2 == pytest.approx(1 / 0.1**2 + 2 * rate * steps, rel=5e-3)


def test_the_theorems_iterations_bring_bounds_to_the_accuracy():
    largest, accuracy = 3.0, 1e-5
    for rho in (0.7, 0.9):
        close(8 * largest * rho ** float(iterations.theorem_1a(largest, accuracy, rho)), accuracy)
        close(
            4
            * largest
            * rho ** float(iterations.theorem_1b(largest, accuracy, rho))
            / (1 - rho) ** 2,
            accuracy,
        )


def test_gradient_descent_in_context_at_half_the_rate():
    kappa, accuracy, rate, steps = 3.0, 1e-4, 0.5, 0
    error = 1.0
    while error > accuracy:
        error, steps = error * (1 - rate / kappa**3), steps + 1
    assert math.ceil(float(iterations.gradient_descent_regression(kappa, accuracy, rate))) == steps


def held_start(moves, tau):
    """The first coordinate that stays above τ while moves are at least 2 τ, backward in plain
    Python, and how long it does.
    """
    held = [move for move in moves if move >= 2 * tau]
    a = held[-1] / 2
    for move in held[-2::-1]:
        a = move - a
    return a, len(held)


def test_the_bad_starts_are_the_barrier_and_twice_the_accuracy():
    kappa, accuracy = 6.0, 0.02
    rates = 0.1 * 0.93 ** np.arange(60)
    turn = np.array([[1, 1], [1, -1]]) / math.sqrt(2)
    inverse = turn @ np.diag([1, kappa]) @ turn

    found = adversarial.quadratic(kappa, jnp.asarray(rates), accuracy)
    first, frozen = held_start(math.sqrt(2) * rates, 2 * accuracy / kappa)
    np.testing.assert_allclose(turn @ found.start, [first, 2 * accuracy], atol=1e-12)
    assert (float(found.accuracy), int(found.frozen)) == (accuracy, frozen)

    found = adversarial.regression(kappa, jnp.asarray(rates), accuracy)
    first, frozen = held_start(2 * rates, 2 * accuracy / kappa**3)
    np.testing.assert_allclose(
        turn @ (found.start - inverse) @ turn, np.diag([first, 2 * accuracy]), atol=1e-12
    )
    assert (float(found.accuracy), int(found.frozen)) == (accuracy, frozen)

    found = adversarial.factorization(kappa, jnp.asarray(rates))
    second = 0.25 / math.sqrt(kappa)
    first, frozen = held_start(2 * rates, 3 * second / kappa)
    root = turn @ np.diag([1, kappa**-0.5]) @ turn
    np.testing.assert_allclose(
        turn @ (found.start - root) @ turn, np.diag([first, second]), atol=1e-12
    )
    assert (float(found.accuracy), int(found.frozen)) == (pytest.approx(1 / (5 * kappa)), frozen)
    # The largest rate that Theorem 2 allows.
    assert adversarial.factorization(kappa, jnp.asarray([0.125, 0.1])).start.shape == (2, 2)


def test_a_sign_step_moves_the_coordinate_that_lemma_14_names(rng):
    kappa, turn = 5.0, np.asarray(adversarial.rotation())
    for a, b in rng.standard_normal((50, 2)) * [0.3, 1.0]:
        step = turn @ np.sign(turn @ np.diag([1, 1 / kappa]) @ [a, b])
        assert (abs(step[0]) > 1) == bool(adversarial.first_moves(a, b, kappa))


def test_constants_of_the_perturbation_bounds():
    # Two lines at an angle, of lengths 3 and 2; at equal lengths the factors are as far apart as
    # the bound allows.
    line, turned = np.array([[1.0, 0], [0, 0]]), np.array([[math.cos(0.1), 0], [math.sin(0.1), 0]])
    apart = np.linalg.norm(3 * line - 2 * turned)
    close(
        perturbation.polar_bound(jnp.asarray(3 * line), jnp.asarray(2 * turned), 1),
        2 * apart / 5,
        1e-9,
    )
    close(
        perturbation.polar_bound(jnp.asarray(line), jnp.asarray(turned), 1),
        2 * math.sin(0.05),
        1e-9,
    )
    # Without a gap behind the rank best approximations may be anywhere.
    assert float(perturbation.approximation_bound(jnp.eye(2), 3 * jnp.eye(2), 1)) == pytest.approx(
        2 * (3 + 4 / 2)
    )
    assert float(perturbation.approximation_bound(jnp.eye(2), jnp.eye(2), 1)) == math.inf
    # σ_2 = 2 and 1/2, and 3/2 between them.
    a, b = jnp.diag(jnp.asarray([3.0, 2.0])), jnp.diag(jnp.asarray([2.5, 0.5]))
    for pair in ((a, b), (b, a)):
        assert float(perturbation.polar_operator_bound(*pair)) == pytest.approx(
            (2 / 2.5 + 1 / 2) * 1.5
        )
    a = jnp.diag(jnp.asarray([2.0, 1.0]))
    assert float(
        perturbation.approximation_bound(a, jnp.diag(jnp.asarray([4.0, 1.0])), 1)
    ) == pytest.approx(2 * (3 + 2 / 3))
    # A gap below 1: 0.2, of the larger matrix.
    a, b = jnp.diag(jnp.asarray([1.1, 1.0])), jnp.diag(jnp.asarray([1.2, 1.0]))
    assert float(perturbation.approximation_bound(a, b, 1)) == pytest.approx(0.1 * (3 + 2 / 0.2))


def test_steps_end_at_the_limit_if_the_accuracy_is_not_reached():
    """Rounded up to whole turns of the loop; one that arrives before keeps its own number."""
    start, spectrum = jnp.asarray([[0.1], [1.0]]), jnp.asarray([[1.0], [1.0]])
    found = spectral_domain.gradient_descent_steps(
        start, spectrum, jnp.asarray([1e-4, 1e-4]), 1e-6, 33
    )
    assert found.tolist() == [2 * spectral_domain.UNROLLED, 0]


def test_ties_are_on_the_side_that_keeps_the_inequalities_strict():
    assert not bool(adversarial.first_moves(1.0, 5.0, 5.0))
    assert int(adversarial.regression(2.0, jnp.asarray([0.125]), 0.5).frozen) == 0
    assert int(adversarial.regression(2.0, jnp.asarray([0.126]), 0.5).frozen) == 1


def test_the_ends_of_what_the_theorems_cover_are_covered():
    conditions.check_condition_number(1.0)
    conditions.check_spectrum([1.0, 1.0])
    # Differences of unsigned numbers would be positive.
    conditions.check_spectrum(np.array([3, 2], np.uint8))
    conditions.check_ranks(5, 1, 1)
    conditions.check_ranks(5, 5, 5)
    for spectrum in (np.zeros(0), np.ones((1, 1))):
        with pytest.raises(ValueError, match="positive finite eigenvalues on one axis"):
            conditions.check_spectrum(spectrum)
