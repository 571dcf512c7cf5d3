"""Functions whose other tests are inequalities or limits, to the last constant.

Against numbers by hand in which every symbol is another number, optima by brute force, samples, and
plain Python.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.theory import (
    activations,
    capacity,
    geometry,
    gradient_rank,
    layered,
    one_step,
    random_features,
    second_moment,
    stable_rank,
)
from specjax.theory.preconditioning import (
    adversarial,
    alignment,
    conditions,
    iterations,
    perturbation,
    spectral_domain,
)

pytestmark = pytest.mark.usefixtures("x64")


@pytest.fixture
def rng():
    return np.random.default_rng(11)


residual_bound = jax.jit(stable_rank.residual_bound)
auxiliary_start = jax.jit(alignment.auxiliary_start, static_argnums=2)


def close(found, expected, rel=1e-12):
    np.testing.assert_allclose(found, expected, rtol=rel)


def test_the_constants_of_a_layered_model_by_hand():
    """L = 3, J = 1/2, W = 6: J W = 3, so Γ² = 2·19³ = 13718 and Θ = 4²."""
    c = layered.LayeredConstants(3, 0.5, 3.0, 5.0, 2.0, 7.0, 6.0)
    close(layered.growth(c) ** 2, 13718)
    close(layered.compounding(c), 16)
    mixed, bent = 2 * 16 * 0.5 * math.sqrt(3 * 13718) * 11 * 5, 16 * 6 * 3 * 13718 * 3 * 25
    close(layered.second_order_bound(c, 5.0, 11.0), mixed + bent)
    close(layered.feature_constant(c), 13718 * (7 + 5 * 16 * 6 * 3 * 3 + 25 * 16 * 3))
    close(layered.samplewise_feature_constant(c), 13718 * (7 + 2 * 16 * 6 * 3 * 3 + 25 * 16 * 3))
    close(layered.weight_constant(c), 4)
    close(layered.nuclear_rank_needed(3.0, np.float32(2), 0.2), 3.2 / 1.1)


@pytest.mark.integration
def test_the_constants_of_the_squared_loss_are_its_derivatives(rng):
    residuals = rng.standard_normal((5, 3))
    weights = tuple(rng.standard_normal(shape) for shape in ((4, 3), (3, 4)))

    def loss(r):
        return jnp.sum(r**2) / 10

    @jax.jit
    def constants_and_derivatives(residuals, weights):
        found = layered.squared_loss_constants(residuals, weights, 0.5, 3.0)
        return found, jax.grad(loss)(residuals), jax.hessian(loss)(residuals)

    found, g, hessian = jax.device_get(constants_and_derivatives(residuals, weights))
    close(found.loss_gradient, np.linalg.norm(g))
    close(found.largest_sample_gradient, np.max(np.linalg.norm(g, axis=1)))
    close(found.loss_hessian * np.eye(15), hessian.reshape(15, 15))
    close(found.largest_weight, max(np.linalg.svd(w, compute_uv=False)[0] for w in weights))
    assert (found.depth, found.activation_jacobian, found.activation_hessian) == (2, 0.5, 3.0)


def test_decreases_are_the_largest_of_the_quadratic_model(rng):
    """Over all lengths t of the step: t ⟨G, D⟩ - t²/2 (L ‖D‖_F² + C ‖D‖_op²), D = G or ‖G‖_*
    polar(G) with L^op for the first term.
    """
    g = rng.standard_normal((3, 4))
    s, curvature, weight = np.linalg.svd(g, compute_uv=False), 0.7, 0.4
    t = np.linspace(0, 3, 300_001)
    euclidean = np.max(
        t * np.sum(s**2) - t**2 / 2 * (curvature * np.sum(s**2) + weight * s[0] ** 2)
    )
    spectral = np.max(t * s.sum() ** 2 - t**2 / 2 * (curvature + weight) * s.sum() ** 2)
    close(layered.euclidean_decrease(jnp.asarray(g), curvature, weight), euclidean, 1e-9)
    close(layered.spectral_decrease(jnp.asarray(g), curvature, weight), spectral, 1e-9)


def test_the_bounds_on_stable_ranks_by_hand():
    close(stable_rank.small_ball_bound(3.0, 0.5, 0.25, 0.2), 240)
    # A number of less precision among the arguments does not lower that of the result.
    close(stable_rank.concentrated_bound(3.0, np.float32(0.5), 0.1), 3 * 1.5 / 0.81)
    close(stable_rank.embedding_bound(np.float32(0.25), 0.1), 5 / 3 / 0.1)
    close(stable_rank.rms_norm_bound(np.float32(3), 0.7, 2.0), 6 / 0.7)
    assert [stable_rank.quadratic_nsr_bound(layer) for layer in (0, 1, 2, 3)] == [3, 9, 81, 6561]
    close(stable_rank.quadratic_samples(2, 0.25), 18 * 6561 * math.log(4))
    close(stable_rank.perturbation_failure(0.25, 512), 4 * math.exp(-0.5))
    # The failure allowed and the samples that keep it, Chernoff's exp(-p_0 n/8) and as printed.
    close(math.exp(-0.3 * stable_rank.small_ball_samples(0.3, 0.05) / 8), 0.05)
    close(math.exp(-8 * 0.3 * stable_rank.small_ball_samples_as_printed(0.3, 0.05)), 0.1)
    spike = stable_rank.RareSpike(p0=0.2, rows=5, ratio=3.0)
    a, b = spike.scales()
    moments = np.array([0.2 * a, *[0.8 * b / 4] * 4])
    close(spike.effective_rank(), moments.sum() / moments.max())
    close(moments[0] / moments[1], 3)


def test_the_bounds_of_a_decoder_block_by_hand():
    """δ = 0.2, c_- = 1/2, c_+ = 2, st = 3: (1 + δ)/(1 - δ) = 3/2, 1 + 2/c_- = 5, and c_σ = P(N(0,
    1) > 1)/2.
    """
    bounds = stable_rank.block_bounds(np.float32(3), stable_rank.ColumnNorms(0.5, 2.0), 0.2)
    share = math.erfc(math.sqrt(0.5)) / 4
    expected = (12, 22.5, 2.25 * 6 * 5 * 3, 2 * math.pi, 3 * math.pi * (1 + 4.5 / share))
    close(np.array(bounds), expected)


@pytest.mark.parametrize("scale", [0.1, 10.0], ids=["X", "H"])
def test_a_residual_branch_is_bounded_whichever_part_is_larger(scale, rng):
    x, h = rng.standard_normal((3, 6)), scale * rng.standard_normal((5, 6))
    parts = [
        [np.sum(s**2), s[0] ** 2]
        for s in (np.linalg.svd(y, compute_uv=False) for y in (x, math.sqrt(0.6) * h))
    ]
    expected = 1.3 / 0.7 * (parts[0][0] + parts[1][0]) / max(parts[0][1], parts[1][1])
    close(residual_bound(x, h, 0.3), expected)


def test_the_norm_tail_matches_samples_and_its_bound_is_cramers(rng):
    d, eps = 20, 1.0
    share = np.mean(rng.chisquare(d, 200_000) / d > 1 + eps / 4)
    tail = math.exp(stable_rank.norm_log_tail(eps, d))
    stderr = math.sqrt(tail / 200_000)
    assert abs(share - tail) < 4 * stderr
    assert 4 * stderr < 0.03 * tail
    # Cramér: log 2 + min over s of log E exp(s ‖g‖²) - s d (1 + ε/4).
    s = np.linspace(0, 0.4999, 200_001)
    cramer = np.log(2) + np.min(-d / 2 * np.log(1 - 2 * s) - s * d * (1 + eps / 4))
    close(stable_rank.norm_log_tail_bound(eps, d), cramer, 1e-8)
    close(stable_rank.norm_log_tail_as_printed(0.5, 128), math.log(2) - 0.5)


def test_the_gelus_noise_to_signal_bound_is_one_over_its_share():
    s = np.array([0.1, 1.0, 4.0])
    close(activations.gelu_nsr_bound(s) * activations.gelu_alpha(s), np.ones(3))


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


def test_smooth_rates_for_the_squared_loss_are_its_step_sizes(
    rng,
):
    """L = 1/n: 1/λ_1(B) and 1/tr B with B = A Aᵀ/n; as printed n times as long."""
    a = rng.standard_normal((3, 8))
    eigenvalues = np.linalg.eigvalsh(a @ a.T / 8)
    for rates, longer in (
        (one_step.smooth_rates(jnp.asarray(a), 1 / 8), 1),
        (one_step.smooth_rates_as_printed(jnp.asarray(a), 1 / 8), 8),
    ):
        close(rates.gd, longer / eigenvalues[-1])
        close(rates.spectral, longer / eigenvalues.sum())


def test_residuals_are_relative_distances_at_the_best_multiple(rng):
    mu, z = rng.standard_normal((4, 2)), rng.standard_normal((4, 4))
    moment = z @ z.T
    moved, cubed = moment @ mu, mu @ mu.T @ mu
    found = second_moment.condition_residual(jnp.asarray(moment), jnp.asarray(mu))
    close(found, np.linalg.norm(moved - cubed) / np.linalg.norm(cubed))
    _, (rest,), _, _ = np.linalg.lstsq(cubed.reshape(-1, 1), moved.ravel())
    close(
        second_moment.direction_residual(jnp.asarray(moment), jnp.asarray(mu)),
        math.sqrt(rest) / np.linalg.norm(moved),
    )


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
    # α² = 0.09 and 2 σ - α² = 0.91, with √r for as many columns as the rank and else √(8 r).
    close(alignment.first_step_bound(0.5, 0.3, 3, 3), 2 * math.sqrt(3) * 0.09 / 0.91)
    close(alignment.first_step_bound(0.5, 0.3, 3, 5), 2 * math.sqrt(24) * 0.09 / 0.91)
    close(alignment.first_step_bound(5.0, 2.0, 3, 3), 2 * math.sqrt(3) * 4 / 6)
    assert float(alignment.first_step_bound(0.25, 0.5, 3, 3)) == math.inf


def test_steps_end_at_the_limit_if_the_accuracy_is_not_reached():
    """Rounded up to whole turns of the loop; one that arrives before keeps its own number."""
    start, spectrum = jnp.asarray([[0.1], [1.0]]), jnp.asarray([[1.0], [1.0]])
    found = spectral_domain.gradient_descent_steps(
        start, spectrum, jnp.asarray([1e-4, 1e-4]), 1e-6, 33
    )
    assert found.tolist() == [2 * spectral_domain.UNROLLED, 0]


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
    found = auxiliary_start(target, v, r)
    np.testing.assert_allclose(found, aligned - polar(outside, k - r), atol=1e-9)


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
    assert capacity.multi_step_exponents("gd", 1.5, 0) == [0.0]
    for spectrum in (np.zeros(0), np.ones((1, 1))):
        with pytest.raises(ValueError, match="positive finite eigenvalues on one axis"):
            conditions.check_spectrum(spectrum)


def test_the_power_of_a_moment_of_rank_one():
    v = np.array([1.0, 2.0, 2.0])
    found = second_moment.symmetric_power(jnp.asarray(np.outer(v, v)), -0.5)
    np.testing.assert_allclose(found, np.outer(v, v) / 27, atol=1e-12)


def test_proportional_matrices_reach_their_mean_in_one_step():
    """Their logarithms have no spread, so that the Hessian is 1 and the whole step is the best; the
    second step sees that it is done.
    """
    base = jnp.asarray([[2.0, 1.0], [1.0, 3.0]])
    found = geometry.karcher_mean(jnp.stack([base, 4 * base, 16 * base]), steps=2)
    np.testing.assert_allclose(found, 4 * base, rtol=1e-9)
    np.testing.assert_allclose(
        geometry.karcher_mean(jnp.stack([base, base]), steps=1), base, rtol=1e-12
    )


BATCHES = {
    "shrinkage": (lambda x, rate: gradient_rank.shrinkage(x, rate, 3), (5,), ()),
    "nuclear rank": (
        lambda x, rate: gradient_rank.orthogonal_teacher_nuclear_rank(x, rate, 3),
        (5,),
        (),
    ),
    "gap": (lambda x, rate: gradient_rank.expected_gap(x, rate, 3), (5,), ()),
    "relative steps": (lambda x, rate: gradient_rank.steps_to_relative_gap(x, rate, 0.1), (5,), ()),
    "absolute steps": (
        lambda x, rate: gradient_rank.steps_to_absolute_gap(x, rate, rate, 0.1),
        (5,),
        (),
    ),
    "bordered": (lambda row, a: gradient_rank.bordered_singular_value_bound(a, row, 0.3), (4,), ()),
    "indicator": (stable_rank.indicator_stable_rank, (6,)),
    "noise to signal": (lambda v: activations.nsr(activations.ACTIVATIONS["gelu"], v), (6,)),
    "mean": (random_features.feature_mean, (4, 2)),
    "printed mean": (random_features.feature_mean_as_printed, (4, 2)),
    "covariance": (random_features.feature_covariance, (4, 2), (3, 2)),
    "expansion": (jax.numpy_rank_promotion("allow")(random_features.covariance_expansion), (4, 2)),
    "cross": (random_features.cross_covariance_expansion, (4, 2), (3, 2)),
    "printed cross": (random_features.cross_covariance_expansion_as_printed, (4, 2), (3, 2)),
    "cross with norms": (random_features.cross_covariance_expansion_with_norms, (4, 2), (3, 2)),
    "bulk": (random_features.cross_bulk, (4, 2), (3, 2)),
    "rates": (lambda a: jnp.stack(one_step.smooth_rates(a, 0.5), axis=-1), (2, 4)),
    "printed rates": (
        lambda a: jnp.stack(one_step.smooth_rates_as_printed(a, 0.5), axis=-1),
        (2, 4),
    ),
}


@pytest.mark.parametrize("name", BATCHES)
def test_leading_axes_are_batch_axes(name, rng):
    f, *shapes = BATCHES[name]
    f = jax.jit(f)
    arrays = [rng.uniform(0.2, 0.9, (3, *shape)) for shape in shapes]
    each = [f(*slices) for slices in zip(*arrays, strict=True)]
    np.testing.assert_allclose(f(*arrays), each, rtol=1e-12, atol=1e-15)
