"""What the experiments on recent statements stand on, against other ways to compute it, and what
they refuse.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from specjax import sizes
from specjax.experiments.field import (
    batch,
    bilinear,
    dynamics,
    exponent_muon,
    mode_exponents,
    phases,
    power_law,
    separable,
)


def cross_entropy(w, h, labels):
    return -jnp.mean(jax.nn.log_softmax(h @ w.T)[jnp.arange(labels.size), labels])


def separable_data(scale):
    with jax.enable_x64(True):
        rng = np.random.default_rng(0)
        labels = jnp.asarray([0, 1, 2, 0, 1, 2])
        return (
            jnp.asarray(scale * rng.normal(size=(3, 5))),
            jnp.asarray(rng.normal(size=(6, 5))),
            labels,
        )


@pytest.mark.integration
def test_the_weights_are_those_of_the_cross_entropy_gradient():
    with jax.enable_x64(True):
        w, h, labels = separable_data(1.0)
        gradient, log, total = separable.weights(w, h, labels)
        np.testing.assert_allclose(
            -jnp.exp(log) / labels.size * gradient,
            jax.grad(cross_entropy)(w, h, labels),
            rtol=1e-12,
        )
        probabilities = np.asarray(jax.nn.softmax(h @ w.T))
        wrong = probabilities.sum() - probabilities[np.arange(6), labels].sum()
        np.testing.assert_allclose(total * jnp.exp(log), wrong, rtol=1e-12)


def test_weights_stay_finite_where_probabilities_underflow():
    with jax.enable_x64(True):
        w, h, labels = separable_data(1000.0)
        gradient, log, total = separable.weights(w, h, labels)
        assert np.isfinite(gradient).all()
        assert np.isfinite(log)
        assert 1 <= total < 12


@pytest.mark.integration
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_bound_and_margin_enclose_a_largest_margin_that_is_known(momentum):
    method = separable.Method(rate=2.0, power=0.5, momentum=momentum, spectral=True)
    # One sample s e_c for every class: W = I - 11ᵀ/k has the margin s at norm 1, and equal weights
    # bound it by s.
    with jax.enable_x64(True):
        margin, bound = separable.descend(method, 0.7 * jnp.eye(4), jnp.arange(4), 4, 10)
    assert (np.asarray(margin) <= 0.7 + 1e-12).all()
    assert (np.asarray(bound) >= 0.7 - 1e-12).all()
    assert float(bound[-1] - margin[-1]) < 0.02


@pytest.mark.integration
def test_a_step_of_gradient_descent_is_that_of_a_factorization():
    start = dynamics.gaussian(jax.random.key(0), 2, 0.5)
    p, q = start[1], start[0].T
    path = dynamics.descend(start, dynamics.spectrum(0.2), jnp.full(1, 0.1), "gradient descent")
    rest = np.diag(0.2 ** (np.arange(6) / 5)) - p @ q.T
    np.testing.assert_allclose(path[1][0], p + 0.1 * rest @ q, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(path[0][0].T, q + 0.1 * rest.T @ p, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(
        dynamics.values(path)[0], np.diag(path[1][0] @ path[0][0]), rtol=1e-5, atol=1e-7
    )


def test_muon_moves_every_layer_by_an_orthogonal_matrix():
    start = dynamics.gaussian(jax.random.key(0), 3, 1.0)
    path = dynamics.descend(start, dynamics.spectrum(0.2), jnp.full(1, 0.1), "Muon")
    for before, after in zip(start, path, strict=True):
        step = (after[0] - before) / 0.1
        np.testing.assert_allclose(step @ step.T, np.eye(dynamics.N), atol=1e-5)


def test_the_first_step_above_a_level_counts_from_one():
    path = jnp.asarray([[0.0, 0.0], [2.0, 0.0], [0.0, 0.0]])
    assert dynamics.first_above(path, jnp.asarray([1.0, 1.0])).tolist() == [2, 3]


@pytest.mark.integration
def test_the_gradient_averages_residuals_times_both_vectors():
    key, eigenvalues = jax.random.key(0), bilinear.power_law(5, 1.0)
    error = np.random.default_rng(0).normal(size=(5, 5)).astype(np.float32)
    x, z = (np.asarray(jax.random.normal(sizes.stream(key, side), (7, 5))) for side in ("x", "z"))
    x = x / np.sqrt([1, 2, 3, 4, 5])
    expected = sum((b @ error @ a) * np.outer(b, a) for a, b in zip(x, z, strict=True)) / 7
    found = bilinear.gradient(key, jnp.asarray(error), eigenvalues, 7)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_the_loss_is_half_of_the_mean_squared_residual():
    rng, error = np.random.default_rng(0), np.random.default_rng(1).normal(size=(4, 4))
    x, z = rng.normal(size=(400_000, 4)) / np.sqrt([1, 2, 3, 4]), rng.normal(size=(400_000, 4))
    squares = np.einsum("bi,ij,bj->b", z, error, x) ** 2 / 2
    found = float(bilinear.loss(jnp.asarray(error, jnp.float32), bilinear.power_law(4, 1.0)))
    assert abs(squares.mean() - found) < 4 * squares.std() / 400_000**0.5
    assert 4 * squares.std() / 400_000**0.5 < 0.03 * found


def test_signs_are_those_of_the_entries_in_the_given_basis():
    basis = jnp.asarray([[0.6, 0.8], [-0.8, 0.6]])
    g = jnp.asarray([[1.0, -2.0], [3.0, 1.0]])
    expected = np.sign(np.asarray(g) @ np.asarray(basis).T) @ np.asarray(basis)
    np.testing.assert_allclose(bilinear.direction(g, bilinear.SIGN, basis), expected, rtol=1e-6)
    np.testing.assert_array_equal(
        bilinear.direction(g, bilinear.SIGN_DIAGONAL, basis), [[1, -1], [1, 1]]
    )


@pytest.mark.parametrize("q", [0.0, 0.5, 1.0])
def test_responses_that_are_a_power_have_its_exponent(q):
    widths, alphas = [32, 64], [0.75, 1.5]
    parts = [
        [np.split(np.arange(1, n + 1), mode_exponents.edges(n)[1:-1]) for _ in alphas]
        for n in widths
    ]
    # Geometric means, of which the logarithm is linear in the mean of log j.
    power = [
        [
            [np.exp(-q * a * np.log(j).mean()) for j in cut]
            for cut, a in zip(row, alphas, strict=True)
        ]
        for row in parts
    ]
    response = xr.DataArray(power, dims=("width", "alpha", "part")).expand_dims(
        seed=[0, 1, 2], batch=[batch.LARGE], optimizer=[batch.SVD]
    )
    data = xr.Dataset({"response": response}).assign_coords(width=widths, alpha=alphas)
    found = mode_exponents.exponents(data, batch.SVD, batch.LARGE)
    np.testing.assert_allclose(found, q, atol=1e-6)


def test_lengths_are_chosen_on_other_samples_than_judged_ones():
    tuned, judged = np.array([3.0, 1.0, 2.0]), np.array([0.0, 5.0, 6.0])
    losses = np.stack([tuned] * phases.TUNED + [judged] * 2)
    data = xr.Dataset({"log_loss": (("seed", "length"), losses)}).assign_coords(
        seed=range(phases.TUNED + 2), length=[0.5, 1.0, 2.0]
    )
    log_loss, places = phases.best(data)
    assert places.item() == 1
    assert log_loss.values.tolist() == [5.0, 5.0]
    assert log_loss.seed.values.tolist() == [phases.TUNED, phases.TUNED + 1]


@pytest.mark.integration
@pytest.mark.parametrize("size", [4, sizes.Size(7, 4)], ids=["alone", "padded"])
@pytest.mark.parametrize(
    ("optimizer", "power", "damping"),
    [
        ("gradient descent", 0.0, 0.0),
        ("H^-1/2", 0.5, 0.0),
        ("natural gradient", 1.0, 0.0),
        ("damped", 1.0, power_law.DAMPING),
    ],
)
def test_the_remainder_is_that_of_steps_to_an_isotropic_target(optimizer, power, damping, size):
    with jax.enable_x64(True):
        inputs, n, steps = 12, 4, 7
        spread = np.asarray(power_law.variances(1.5, 10.0, inputs))
        np.testing.assert_allclose(
            spread[:10], np.arange(1, 11) ** -1.5 / np.sum(np.arange(1, 11) ** -1.5), rtol=1e-12
        )
        assert (spread[10:] == 0).all()

        @jax.jit
        def left(key, spread):
            return power_law.left(power_law.student(key, size, spread), float(steps))

        found = left(jax.random.key(3), spread)[list(power_law.FACTORS).index(optimizer)]
        f = np.asarray(sizes.normal(jax.random.key(3), (n, inputs)))
    h = f * spread @ f.T
    values, vectors = np.linalg.eigh(h)
    preconditioner = vectors / (values + damping * values[-1]) ** power @ vectors.T
    # One output for every input is an isotropic target. Damped, and with H^-1, a step has the
    # length 1.
    rate = 1 / values[-1] ** (1 - power)
    w = np.zeros((inputs, n))
    for _ in range(steps):
        w -= rate * ((w @ f - np.eye(inputs)) * spread) @ f.T @ preconditioner
    np.testing.assert_allclose(found, np.sum((w @ f - np.eye(inputs)) ** 2 * spread), rtol=1e-9)


@pytest.mark.slow
def test_muon_on_features_is_its_steps_on_the_weights():
    n, outputs, s, key = 5, 3, 1.5, jax.random.key(1)
    with jax.enable_x64(True):
        solved, muon = exponent_muon.losses(key, n, outputs, jnp.asarray(s))
        f = np.asarray(sizes.normal(sizes.stream(key, "features"), (n, power_law.INPUTS)))
        target = np.asarray(sizes.normal(sizes.stream(key, "target"), (outputs, power_law.INPUTS)))
    spread = np.arange(1.0, power_law.INPUTS + 1) ** -s
    spread /= spread.sum()

    def loss(w):
        return np.sum((w @ f - target) ** 2 * spread) / np.sum(target**2 * spread)

    best = (target * spread) @ f.T @ np.linalg.inv(f * spread @ f.T)
    for place, share in enumerate(exponent_muon.SHARES):
        w = np.zeros((outputs, n))
        for k in range(exponent_muon.STEPS):
            u, _, vt = np.linalg.svd(((w @ f - target) * spread) @ f.T, full_matrices=False)
            w -= share * np.linalg.norm(best, 2) * (10 - k) / 55 * u @ vt
        np.testing.assert_allclose(muon[place], loss(w), rtol=1e-7)
    w = np.zeros((outputs, n))
    for _ in range(exponent_muon.STEPS):
        w -= ((w @ f - target) * spread) @ f.T / np.linalg.eigvalsh(f * spread @ f.T)[-1]
    np.testing.assert_allclose(solved, [loss(w), loss(best)], rtol=1e-7)
