"""The control variates: parts of a statistic with mean zero, subtracted or measured apart because they carry its variance."""

from functools import partial
from itertools import product

import jax
import numpy as np
import pytest

from specjax import experiments, spectral, sweep
from specjax.experiments.outer_product.statistics import (
    controlled_relu_statistics,
    gram,
    relu_hidden_control,
    relu_output_control,
    relu_statistics,
)
from specjax.models import deep_linear, matrix_factorization, relu_network
from specjax.models.targets import low_rank_target, sign_target


def moments(measure, d1, seeds=4000):
    data = sweep.run(measure, {"d1": sweep.widths(d1)}, seeds=seeds, key=jax.random.key(3))
    mean, stderr = sweep.mean_and_stderr(data.isel(d1=0))
    return {name: (float(mean[name]), float(stderr[name])) for name in mean}


def relu_draw(key, d1, d0, d2):
    target = sign_target(jax.random.key(1), d2, d0, 3.0)
    params = relu_network.init(key, d0, d1, d2)
    return params, relu_network.gradient(params, target), target


def test_gram_is_the_outer_product_with_itself():
    g = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
    by_entry = [[sum(x * y for x, y in zip(a, b, strict=True)) for b in g] for a in g]
    np.testing.assert_allclose(gram(jax.numpy.asarray(g)), by_entry, rtol=1e-5, atol=1e-5)


def relu_control(key, d1, d0, d2):
    params, gradient, target = relu_draw(key, d1, d0, d2)
    coefficient = relu_statistics(gradient, target, d1, d2)["g2_coefficient"]
    control = relu_output_control(params, gradient, target)
    return {"plain": coefficient, "control": control, "controlled": coefficient - control}


def test_the_relu_control_has_mean_zero():
    # Small sizes, where the control is not so much larger than the coefficient d_1/4 = 1 that a bias could hide in its noise.
    found = moments(partial(relu_control, d0=3, d2=3), 4, 40_000)
    mean, stderr = found["control"]
    assert stderr < 0.02
    assert abs(mean) < 4 * stderr
    assert abs(found["controlled"][0] - 1) < 4 * found["controlled"][1] < 0.1


def test_the_relu_control_carries_the_variance():
    found = moments(partial(relu_control, d0=25, d2=12), 160, 1000)
    # A reduction by a factor in variance is one by its square root in the standard error.
    assert found["controlled"][1] * np.sqrt(10) < found["plain"][1]
    assert abs(found["controlled"][0] - 40) < 4 * found["controlled"][1] < 10


def test_the_relu_control_is_odd_in_each_row_of_the_output_weight():
    params, _, target = relu_draw(jax.random.key(5), 20, 25, 12)
    flipped = params._replace(w2=params.w2 * jax.numpy.where(np.arange(12) == 4, -1.0, 1.0)[:, None])

    def off_diagonal(p):
        # G_2 + ½ Φ W_1ᵀ = W_2 H, so the control is the coefficient of W_2 H² W_2ᵀ.
        return spectral.off_diagonal(gram(p.w2 @ relu_network.hidden_gram(p.w1)))

    signs = np.where((np.arange(12) == 4)[:, None] != (np.arange(12) == 4)[None, :], -1.0, 1.0)
    np.testing.assert_allclose(off_diagonal(flipped), signs * off_diagonal(params), rtol=1e-6)
    expected = spectral.off_diagonal_coefficient(off_diagonal(params), gram(target))
    control = relu_output_control(params, relu_network.gradient(params, target), target)
    # The coefficient is a sum of 132 entries of both signs, thousands of times larger than it.
    np.testing.assert_allclose(control, expected, rtol=1e-2)


@pytest.mark.usefixtures("x64")
def test_the_hidden_control_is_zero_over_all_signs_of_weights():
    """The law of the weights is the same under every sign of a row of W_1 and of a column of W_2: over all 64 the control is zero."""
    d0, d1, d2 = 4, 3, 2
    params, _, target = relu_draw(jax.random.key(2), d1, d0, d2)
    signs = jax.numpy.asarray(list(product([-1.0, 1.0], repeat=d1)))
    rows, columns = (jax.numpy.repeat(signs, 8, axis=0), jax.numpy.tile(signs, (8, 1)))
    flipped = jax.vmap(lambda r, c: params._replace(w1=r[:, None] * params.w1, w2=params.w2 * c[None, :]))(
        rows, columns
    )
    controls = jax.vmap(lambda p: relu_hidden_control(p, target, d1))(flipped)
    assert abs(controls.mean()) < 1e-12 * abs(controls).max()
    # Not so by the signs of either layer alone.
    for one in (controls.reshape(8, 8).mean(0), controls.reshape(8, 8).mean(1)):
        assert abs(one).max() > 1e-3 * abs(controls).max()


def test_the_hidden_control_is_all_but_what_signs_leave_where_rows_are_orthogonal():
    """Its K is then G_1 itself."""
    d0, d1, d2 = 6, 3, 2
    params, _, target = relu_draw(jax.random.key(4), d1, d0, d2)
    orthogonal, _ = np.linalg.qr(np.asarray(params.w1).T)
    lengths = np.array([0.5, 1.0, 2.0], np.float32)
    params = params._replace(w1=jax.numpy.asarray(orthogonal.T * lengths[:, None]))
    off = relu_statistics(relu_network.gradient(params, target), target, d1, d2)["g1_off_diagonal"]
    overlaps = np.asarray(params.w2.T @ params.w2)
    left = np.mean(
        [overlaps[a, c] ** 2 * lengths[a] * lengths[c] / (4 * np.pi) for a in range(3) for c in range(3) if a != c]
    )
    np.testing.assert_allclose(off - relu_hidden_control(params, target, d1), left, rtol=1e-4)


def test_the_hidden_control_carries_the_variance():
    def measure(key, d1):
        params, gradient, target = relu_draw(key, d1, 25, 12)
        arguments = (target, d1, 12)
        return {
            "plain": relu_statistics(gradient, *arguments)["g1_off_diagonal"],
            "controlled": controlled_relu_statistics(params, gradient, *arguments)["g1_off_diagonal"],
        }

    found = moments(measure, 20, 2000)
    assert 7 * found["controlled"][1] < found["plain"][1]


@pytest.mark.parametrize("depth", [2, 3])
def test_the_odd_part_of_the_linear_output_has_mean_zero_on_and_off_the_target(depth):
    target = sign_target(jax.random.key(1), 4, 5)

    def measure(key, d1):
        params = deep_linear.init(key, (5, *(d1,) * (depth - 1), 4))
        g = deep_linear.gradient(params, target)[-1]
        product = params[0] if depth == 2 else params[1] @ params[0]
        p, signal = gram(g), gram(target @ product.T)
        return {
            "odd": spectral.off_diagonal_coefficient(p - signal, gram(target)),
            "signal": spectral.off_diagonal_coefficient(signal, gram(target)),
        }

    found = moments(measure, 8)
    mean, stderr = found["odd"]
    signal, signal_stderr = found["signal"]
    assert abs(mean) < 4 * stderr
    # The product of the inner widths: the whole coefficient, none of which is left in the odd part.
    assert abs(signal - 8 ** (depth - 1)) < 4 * signal_stderr
    assert signal_stderr < 0.05 * signal


def test_the_control_of_the_factorization_has_mean_zero_and_carries_the_variance():
    m = low_rank_target(jax.random.key(1), 6, 3)

    def measure(key, d1):
        u = matrix_factorization.init(key, 6, d1)
        p, control = gram(matrix_factorization.gradient(u, m)), gram(gram(u) @ u)
        return {
            "plain": spectral.off_diagonal_coefficient(p, m),
            "control": spectral.off_diagonal_coefficient(control, m),
            "controlled": spectral.off_diagonal_coefficient(p - control, m),
        }

    found = moments(measure, 64)
    mean, stderr = found["control"]
    assert abs(mean) < 4 * stderr
    assert found["controlled"][1] * np.sqrt(10) < found["plain"][1]


@pytest.mark.integration
def test_the_table_has_draws_enough_to_tell_the_off_diagonal_from_the_printed_one(smoke_data):
    experiment = experiments.load("table-c7")
    draws = smoke_data("table-c7")["exact"]["controlled.g1_off_diagonal"].values
    half_width = 4 * draws.std() / np.sqrt(experiment.at("quick").inits)
    # 23.873 against 23.381.
    assert half_width < 0.3
