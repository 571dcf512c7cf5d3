"""One gradient step against one spectral step: exact decreases against the losses themselves,
guarantees, rules, corrected steps.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import spectral
from specjax.models import random_features
from specjax.theory import one_step
from tests.theory.near import close, leading_axes_are_batch_axes

pytestmark = pytest.mark.usefixtures("x64")

SHAPES = ((1, 5, 9), (7, 3, 12), (3, 7, 20), (6, 6, 2))
compare = jax.jit(one_step.compare)


@pytest.fixture(scope="module")
def problems():
    """For each shape 50 problems with noise in the targets and skewed features: losses and the
    comparison.
    """

    @jax.jit
    def all_shapes(drawn):
        found = []
        for w, a, y in drawn:
            of_each = [
                jax.vmap(f) for f in (random_features.gd_step, random_features.spectral_step)
            ]
            start, gd, sd = (
                jax.vmap(random_features.loss)(x, a, y) for x in (w, *(f(w, a, y) for f in of_each))
            )
            g = jax.vmap(random_features.gradient)(w, a, y)
            found.append(
                (start, gd, sd, one_step.compare(g, random_features.second_moment(a, a)), g, a)
            )
        return found

    rng, drawn = np.random.default_rng(1), []
    for m, k, n in SHAPES:
        w, a, y = (rng.standard_normal((50, *shape)) for shape in ((m, k), (k, n), (m, n)))
        drawn.append((w, a + 2, y))
    with jax.enable_x64(True):
        return all_shapes(drawn)


@pytest.mark.slow
@pytest.mark.integration
def test_decreases_are_those_of_the_losses(problems):
    for start, gd, sd, found, _, _ in problems:
        np.testing.assert_allclose(found.gd, start - gd, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(found.spectral, start - sd, rtol=1e-9, atol=1e-12)


@pytest.mark.integration
def test_stretches_make_guarantees_exact_and_are_zero_to_one(problems):
    for _, _, _, found, _, _ in problems:
        for stretch in (found.gd_stretch, found.spectral_stretch):
            assert np.all((stretch > 0) & (stretch <= 1 + 1e-12))
        np.testing.assert_allclose(
            found.gd, (2 - found.gd_stretch) * found.guaranteed_gd, rtol=1e-12
        )
        assert np.all(found.gd >= found.guaranteed_gd * (1 - 1e-12))
        assert np.all(found.spectral >= found.guaranteed_spectral * (1 - 1e-12))


@pytest.mark.slow
@pytest.mark.integration
def test_the_guarantees_ratio_is_nuclear_rank_over_stable_rank(problems):
    for _, _, _, found, g, a in problems:
        ranks = spectral.nuclear_rank(g) / spectral.stable_rank(a)
        np.testing.assert_allclose(found.advantage, ranks, rtol=1e-9)
        np.testing.assert_allclose(
            found.guaranteed_spectral / found.guaranteed_gd, ranks, rtol=1e-9
        )


@pytest.mark.integration
def test_the_spectral_step_gains_more_only_above_the_threshold(problems):
    wins = []
    for _, _, _, found, _, _ in problems:
        np.testing.assert_array_equal(found.spectral > found.gd, found.advantage > found.threshold)
        wins.append(found.spectral > found.gd)
    # Both happen, or the statement would be empty.
    assert 0.05 < np.mean(np.concatenate(wins)) < 0.95


@pytest.mark.integration
@pytest.mark.parametrize("fraction", [1e-6, 0.25, 1.0])
def test_the_ratio_of_fractional_steps_is_that_of_the_losses(problems, fraction):
    """L(W - c D) is a parabola in c, which the losses at 0 and 1 and the slope -⟨G, D⟩ = -2 times
    the guarantee determine.
    """
    for start, gd, sd, found, _, _ in problems:
        falls = []
        for end, guarantee in ((gd, found.guaranteed_gd), (sd, found.guaranteed_spectral)):
            slope = 2 * guarantee
            falls.append(slope * fraction - (slope - (start - end)) * fraction**2)
        np.testing.assert_allclose(found.ratio_at(fraction), falls[1] / falls[0], rtol=1e-9)
        np.testing.assert_allclose(found.ratio_at(0.0), found.advantage, rtol=1e-12)


@pytest.mark.integration
def test_the_best_ratio_is_that_of_the_parabolas_minima(problems):
    for start, gd, sd, found, _, _ in problems:
        lowest = [
            guarantee**2 / (2 * guarantee - (start - end))
            for end, guarantee in ((gd, found.guaranteed_gd), (sd, found.guaranteed_spectral))
        ]
        np.testing.assert_allclose(found.best_ratio, lowest[1] / lowest[0], rtol=1e-7)


@pytest.mark.integration
def test_the_spectral_guarantee_is_attained_at_equal_ranks(problems):
    for (m, k, n), (_, _, _, found, _, _) in zip(SHAPES, problems, strict=True):
        if m >= min(k, n):
            np.testing.assert_allclose(found.spectral_stretch, 1, rtol=1e-12)
        else:
            assert np.all(found.spectral_stretch < 1 - 1e-6)


@pytest.mark.parametrize("length", [1e-3, 1e4])
def test_a_gradient_of_rank_one_has_one_direction_in_float32_too(length):
    """τ = vᵀ B v / tr B and ρ = vᵀ B v / λ_1(B) for G ∝ u vᵀ, whose other singular values are its
    rounding; all norms are equal.
    """
    rng = np.random.default_rng(6)
    u, v, a = rng.standard_normal(3), rng.standard_normal(5), rng.standard_normal((5, 7))
    b = a @ a.T
    g = length * np.outer(u / np.linalg.norm(u), v / np.linalg.norm(v))
    found = compare(jnp.asarray(g, jnp.float32), jnp.asarray(b, jnp.float32))
    along, largest, trace = v @ b @ v / (v @ v), np.linalg.eigvalsh(b)[-1], np.trace(b)
    rho, tau, guarantees = (
        along / largest,
        along / trace,
        (length**2 / (2 * largest), length**2 / (2 * trace)),
    )
    expected = one_step.Comparison(
        (2 - rho) * guarantees[0],
        (2 - tau) * guarantees[1],
        *guarantees,
        1,
        trace / largest,
        rho,
        tau,
    )
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_zero_gradient_has_no_direction():
    found = compare(np.zeros((3, 5)), np.eye(5))
    assert (float(found.spectral), float(found.spectral_stretch)) == (0, 0)
    assert np.isnan(found.nuclear_rank)


def test_one_spectral_step_learns_a_scaled_orthogonal_teacher():
    rng = np.random.default_rng(2)
    target = 3 * np.linalg.qr(rng.standard_normal((5, 5)))[0]
    a = rng.standard_normal((5, 8)) + 1
    both = jax.jit(
        lambda *problem: (
            random_features.spectral_step(*problem),
            random_features.gd_step(*problem),
        )
    )
    w, by_gd = both(np.zeros((5, 5)), a, target @ a)
    np.testing.assert_allclose(w, target, atol=1e-12)
    assert np.max(np.abs(by_gd - target)) > 0.1


@pytest.mark.integration
def test_the_spectral_direction_is_nuclear_norm_times_polar():
    of = jax.jit(
        lambda g: (spectral.nuclear_norm(g), spectral.polar(g), one_step.spectral_direction(g))
    )
    norm, factor, found = map(np.asarray, of(np.random.default_rng(3).standard_normal((2, 4, 6))))
    np.testing.assert_allclose(found, norm[:, None, None] * factor, rtol=1e-12)


@pytest.mark.integration
def test_corrected_steps_descend_as_guaranteed_unlike_printed():
    """Logistic loss: f(Z) = mean over the n samples of softplus(-s z), whose gradient has Lipschitz
    constant 1/4n.
    """
    n, rng = 40, np.random.default_rng(4)
    a, w, signs = (
        rng.standard_normal((6, n)) + 1,
        rng.standard_normal((3, 6)),
        rng.choice([-1.0, 1.0], (3, n)),
    )

    @jax.jit
    def steps(a, w):
        def loss(w):
            return jnp.sum(jax.nn.softplus(-signs * (w @ a))) / n

        g = jax.grad(loss)(w)
        direction = one_step.spectral_direction(g)
        corrected, printed = (
            f(a, 1 / (4 * n)) for f in (one_step.smooth_rates, one_step.smooth_rates_as_printed)
        )
        falls = [
            [loss(w) - loss(w - step) for step in (rates.gd * g, rates.spectral * direction)]
            for rates in (corrected, printed)
        ]
        return g, corrected, printed, falls

    g, corrected, printed, (falls, falls_as_printed) = jax.device_get(steps(a, w))
    assert falls[0] >= corrected.gd * np.sum(g**2) / 2
    assert falls[1] >= corrected.spectral * np.linalg.norm(g, "nuc") ** 2 / 2
    np.testing.assert_allclose(
        printed.gd, 1 / ((np.linalg.norm(a, 2) ** 2 / n) / (4 * n)), rtol=1e-12
    )
    assert max(falls_as_printed) < 0


def test_the_stable_rank_of_the_identity_plus_a_mean():
    stable_rank = jax.jit(one_step.identity_plus_rank_one_stable_rank, static_argnums=0)
    for strength in (0.0, 0.05, 2.0):
        s = np.linalg.svd(np.eye(7) + strength, compute_uv=False)
        np.testing.assert_allclose(stable_rank(7, strength), np.sum(s**2) / s[0] ** 2, rtol=1e-12)


def test_one_step_from_an_infinite_gradient_is_nan_and_no_other():
    x = np.random.default_rng(0).normal(size=(2, 4, 6)).astype(np.float32)
    g = x.copy()
    g[1, 0, 2] = np.inf
    found = np.asarray(jax.jit(one_step.compare)(g, x.mT @ x).guaranteed_spectral)
    assert np.isnan(found[1])
    assert np.isfinite(found[0])


def test_smooth_rates_for_the_squared_loss_are_its_step_sizes(rng):
    """L = 1/n: 1/λ_1(B) and 1/tr B with B = A Aᵀ/n; as printed n times as long."""
    a = rng.standard_normal((3, 8))
    eigenvalues = np.linalg.eigvalsh(a @ a.T / 8)
    for rates, longer in (
        (one_step.smooth_rates(jnp.asarray(a), 1 / 8), 1),
        (one_step.smooth_rates_as_printed(jnp.asarray(a), 1 / 8), 8),
    ):
        close(rates.gd, longer / eigenvalues[-1])
        close(rates.spectral, longer / eigenvalues.sum())


@pytest.mark.parametrize("rates", [one_step.smooth_rates, one_step.smooth_rates_as_printed])
def test_leading_axes_are_batch_axes(rates, rng):
    leading_axes_are_batch_axes(lambda a: jnp.stack(rates(a, 0.5), axis=-1), [(2, 4)], rng)
