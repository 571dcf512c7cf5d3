"""The layered Hessian bound and the step sizes on tanh networks, with derivatives taken by JAX."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specjax.models import mlp
from specjax.theory import layered
from specjax.theory.activations import ACTIVATIONS
from tests.theory.near import close

TANH = ACTIVATIONS["tanh"]
DIMS = (4, 6, 5, 3)


@jax.jit
def second_derivatives(params, direction, x, y):
    """X_ℓ and the loss along W + tΔW: first and second derivatives at 0."""

    def along(t):
        moved = tuple(w + t * d for w, d in zip(params, direction, strict=True))
        inputs = mlp.layer_inputs(moved, x, "tanh")
        return [a @ w.T for a, w in zip(inputs, moved, strict=True)], mlp.loss(
            moved, (x, y), "tanh"
        )

    first = jax.jacfwd(along)
    return along(0.0), first(0.0), jax.jacfwd(first)(0.0)


def draw(seed, n=8, scale=1.0):
    rng = np.random.default_rng(seed)
    shapes = list(zip(DIMS[1:], DIMS[:-1], strict=True))
    params, direction = (
        tuple(jnp.asarray(scale * rng.standard_normal(s) / 2, jnp.float32) for s in shapes)
        for _ in range(2)
    )
    x, y = (jnp.asarray(rng.standard_normal((n, d)), jnp.float32) for d in (DIMS[0], DIMS[-1]))
    return params, direction, x, y


@jax.jit
def terms(params, direction, x, y):
    """The constants of the bound and the two terms that it has them of."""
    residuals = mlp.forward(params, x, "tanh") - y
    constants = layered.squared_loss_constants(residuals, params, TANH.slope, TANH.bend)
    inputs = mlp.layer_inputs(params, x, "tanh")
    feature = sum(jnp.sum((a @ d.T) ** 2) for a, d in zip(inputs, direction, strict=True))
    weight = sum(jnp.linalg.norm(d, 2) ** 2 for d in direction)
    return constants, feature, weight


@pytest.mark.slow
@pytest.mark.integration
@given(seed=st.integers(0, 2**31), scale=st.sampled_from([0.1, 1.0, 3.0]))
def test_lemmas_4_1_and_4_2_and_proposition_4_3(seed, scale):
    params, direction, x, y = draw(seed, scale=scale)
    _, (first, _), (second, curvature) = second_derivatives(params, direction, x, y)
    constants, feature, weight = terms(params, direction, x, y)
    u, v = (np.sqrt(sum(float(jnp.sum(a**2)) for a in xs)) for xs in (first, second))
    assert u <= layered.growth(constants) * np.sqrt(feature) * (1 + 1e-4)
    assert v <= layered.second_order_bound(constants, np.sqrt(feature), np.sqrt(weight)) * (
        1 + 1e-4
    )
    for constant in (
        layered.feature_constant(constants),
        layered.samplewise_feature_constant(constants),
    ):
        assert abs(curvature) <= constant * feature + layered.weight_constant(constants) * weight
    assert layered.samplewise_feature_constant(constants) <= layered.feature_constant(constants)


@pytest.mark.integration
def test_the_bound_is_attained_by_one_linear_layer():
    """L = 1: Γ² = 2(1 + 2J²W²) is not 1, but the curvature is exactly H_f times the feature
    term.
    """
    params, direction, x, y = draw(0)
    one = (params[0][:3],), (direction[0][:3],)
    hessian = jax.jvp(jax.grad(lambda p: mlp.loss(p, (x, y))), (one[0],), (one[1],))[1]
    curvature = sum(float(jnp.sum(h * d)) for h, d in zip(hessian, one[1], strict=True))
    assert curvature == pytest.approx(float(jnp.sum((x @ one[1][0].T) ** 2)) / len(x), rel=1e-5)


@pytest.mark.integration
def test_feature_constants_fall_with_the_number_of_samples():
    """Erratum 10: the same samples repeated r times have the same loss and curvature; C_F falls as
    r^(-1/2), not as 1/r.
    """
    params, direction, x, y = draw(1)
    constants = [
        terms(params, direction, jnp.tile(x, (r, 1)), jnp.tile(y, (r, 1)))[0] for r in (1, 1024)
    ]
    printed = [float(layered.feature_constant(c)) for c in constants]
    corrected = [float(layered.samplewise_feature_constant(c)) for c in constants]
    assert corrected[0] / corrected[1] == pytest.approx(1024, rel=1e-3)
    assert 32 <= printed[0] / printed[1] < 150


@given(seed=st.integers(0, 2**31), alpha=st.floats(1e-3, 1e3))
def test_conditions_4_16_to_4_18(seed, alpha):
    """The spectral guarantee is the larger one exactly under (4.16); nr ≥ s implies it; with nr in
    place of st both are the same.
    """
    rng = np.random.default_rng(seed)
    g = rng.standard_normal((4, 5)) * np.exp(rng.standard_normal(4))[:, None]
    s = np.linalg.svd(g)[1]
    nr, stable = s.sum() ** 2 / np.sum(s**2), np.sum(s**2) / s[0] ** 2
    rank = rng.uniform(1, 5)
    curvature = 0.7
    gradient = jnp.asarray(g, jnp.float32)
    euclidean = float(layered.euclidean_decrease(gradient, curvature, alpha * curvature))
    spectral = float(layered.spectral_decrease(gradient, curvature * rank, alpha * curvature))
    needed = float(layered.nuclear_rank_needed(rank, stable, alpha))
    if abs(nr / needed - 1) > 1e-4:
        assert (spectral >= euclidean) == (nr >= needed)
    if nr >= rank:
        assert nr >= needed * (1 - 1e-5)
    own = float(layered.nuclear_rank_needed(rank, nr, alpha))
    if abs(nr / rank - 1) > 1e-4:
        assert (nr >= own) == (nr >= rank)


@pytest.mark.integration
def test_diagonal_ranks_and_the_sharp_threshold():
    rng = np.random.default_rng(0)
    # Rows of similar size, nearly parallel: st(A) is near 1.
    g, a = (
        rng.standard_normal((50, 6)),
        rng.standard_normal(20) + 0.1 * rng.standard_normal((6, 20)),
    )
    diagonal_ranks = jax.jit(layered.diagonal_ranks)
    ranks = diagonal_ranks(jnp.asarray(g, jnp.float32))
    np.testing.assert_allclose(ranks.nuclear, np.abs(g).sum(1) ** 2 / np.sum(g**2, 1), rtol=1e-5)
    np.testing.assert_allclose(ranks.stable, np.sum(g**2, 1) / np.max(g**2, 1), rtol=1e-5)
    assert np.all(np.asarray(ranks.nuclear) >= np.asarray(ranks.stable))
    # Of a batch of batches, and of the zero gradient.
    again = diagonal_ranks(jnp.asarray(g.reshape(5, 10, 6), jnp.float32))
    np.testing.assert_allclose(again, np.reshape(ranks, (2, 5, 10)), rtol=1e-5)
    assert [float(rank) for rank in diagonal_ranks(jnp.zeros(6))] == [0, 0]
    # Curvatures of u ↦ ‖Diag(u) A‖²: max over unit u in the two norms, over all directions.
    u = rng.standard_normal((100_000, 6))
    energies = np.sum(a**2, axis=1)
    along = u**2 @ energies
    euclidean, sign = np.max(along / np.sum(u**2, 1)), np.max(along / np.max(u**2, 1))
    threshold = float(jax.jit(layered.diagonal_threshold)(jnp.asarray(a, jnp.float32)))
    assert sign / euclidean == pytest.approx(threshold, rel=0.15)
    assert threshold > 4 * np.sum(a**2) / np.linalg.norm(a, 2) ** 2


@pytest.mark.usefixtures("x64")
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


@pytest.mark.usefixtures("x64")
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


@pytest.mark.usefixtures("x64")
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
