"""The formulas of `theory` that were derived by hand come out of the engine."""

from math import comb

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import moments
from specjax.experiments.outer_product import statistics, table_c7
from specjax.models import deep_linear
from specjax.theory import deep_linear as linear_theory
from specjax.theory import matrix_factorization, relu_network, wishart

# The types of `models` name sizes as int; a traced function has symbolic ones.
pytestmark = pytest.mark.usefixtures("unchecked")

RNG = np.random.default_rng(11)
# Extreme ratios; wrong powers of a size differ by orders of magnitude.
DIMS = ((3, 50, 1, 7, 2, 20, 4), (5, 1, 30, 2, 8, 3, 6))


def gram_of_layers(depth):
    """G_i G_iᵀ for i = 1 … L, as words of d0, d1, …"""
    shapes = [(f"d{layer}", f"d{layer - 1}") for layer in range(1, depth + 1)]
    return moments.of(
        lambda params, target: [g @ g.T for g in deep_linear.gradient(params, target)],
        gaussian={"params": shapes},
        constant={"target": (f"d{depth}", "d0")},
    )


@pytest.mark.parametrize("depth", range(1, 7))
def test_theorem_2_at_every_depth_and_layer(depth):
    """Every entry of E[G_i G_iᵀ] of a deep linear network, and its target-free part at float64's rounding."""
    for layer, word in enumerate(gram_of_layers(depth), 1):
        found = moments.expectation(word)
        for dims in DIMS:
            target = RNG.normal(size=(dims[depth], dims[0]))
            sizes = {f"d{i}": size for i, size in enumerate(dims[: depth + 1])}
            wanted = np.asarray(linear_theory.expected_outer_product(dims[: depth + 1], target, layer))
            np.testing.assert_allclose(found(**sizes, target=target), wanted, rtol=1e-12, atol=1e-12 * wanted.max())


@pytest.mark.parametrize("depth", range(1, 7))
def test_corollary_2_the_exponents_of_the_noise(depth):
    """With d_0 and d_L fixed and a common inner width; the part without Φ is what is left of an entry at Φ = 0."""
    w = moments.symbol("w")
    for layer, word in enumerate(gram_of_layers(depth), 1):
        entry = moments.expectation(word)[0, 0]
        noise = sum((part for part in entry.parts() if not part.symbols), start=0 * entry)
        grown = moments.orders(noise, "w", **{f"d{i}": w for i in range(1, depth)} if depth > 1 else {"d0": 1})
        assert grown.exponent == linear_theory.noise_exponent(depth, layer)


def test_theorem_1_and_the_moments_of_wishart_matrices():
    u, target = moments.gaussian("u", "d", "k"), moments.constant("m", "d", "d", symmetric=True)
    gradient = (u @ u.T - target) @ u
    found = moments.expectation(gradient @ gradient.T)
    drawn = RNG.normal(size=(5, 5))
    drawn = drawn + drawn.T
    k = np.array([1, 2, 400])
    np.testing.assert_allclose(found(m=drawn, k=k), matrix_factorization.expected_outer_product(drawn, k), rtol=1e-12)
    for power, alpha in enumerate(wishart.wishart_moments(9, k), 1):
        mean = moments.expectation(moments.matrix_power(u @ u.T, power)[0, 0])
        np.testing.assert_array_equal(mean(d=9, k=k), alpha)
    # Corollary 1 as printed squares each entry of M instead of M.
    printed = matrix_factorization.corollary_1_as_printed(drawn, k)
    assert np.abs(found(m=drawn, k=k) - printed).max() > 1


def test_corollary_1_entry_by_entry():
    """α₃ δ_ij - 2 α₂ M_ij + k (M²)_ij for entries that are words of their own, of order k³ on and k² off the diagonal."""
    u, target = moments.gaussian("u", "d", "k"), moments.constant("m", "d", "d", symmetric=True)
    gradient = (u @ u.T - target) @ u
    drawn = RNG.normal(size=(4, 4))
    drawn = drawn + drawn.T
    k = np.array([1, 3, 1000])
    wanted = np.asarray(matrix_factorization.expected_outer_product(drawn, k))
    for i, j in ((0, 0), (2, 2), (0, 1), (3, 1)):
        found = moments.expectation((gradient @ gradient.T)[i, j])
        np.testing.assert_allclose(found(m=drawn, k=k, d=4), wanted[:, i, j], rtol=1e-12)
        assert moments.orders(found, "k").exponent == (3 if i == j else 2)


def relu_of_one_input(w1, w2, x, target, mask):
    """E[g gᵀ] of both layers at one input, the ReLU as t times a mask."""
    h = mask * (w1 @ x)
    r = w2 @ h - target @ x
    g1 = (mask * (w2.T @ r))[:, None] * x[None]
    g2 = r[:, None] * h[None]
    return jnp.sum(g1**2), g2 @ g2.T


@pytest.mark.parametrize(("d0", "d1", "d2"), [(25, 20, 12), (1, 30, 2), (40, 1, 3)])
def test_relu_networks_at_one_input(d0, d1, d2):
    """The sign of t is independent of |t|, and these averages are even in every t: so they are means over masks of half ones.

    A batch of n has the n-th part of what this is above E[G Gᵀ]; the mask counts by its number of ones alone.
    """
    words = moments.of(
        relu_of_one_input,
        gaussian={"w1": ("d1", "d0"), "w2": ("d2", "d1"), "x": ("d0",)},
        constant={"target": ("d2", "d0"), "mask": ("d1",)},
    )
    first, second = map(moments.expectation, words)
    target = RNG.normal(size=(d2, d0))
    sizes = {"d0": d0, "d1": d1, "d2": d2, "target": target}
    masks = np.tri(d1 + 1, d1, -1)
    shares = np.array([comb(d1, ones) for ones in range(d1 + 1)]) / 2**d1
    on_diagonal = shares @ np.asarray(jax.vmap(lambda mask: first(**sizes, mask=mask))(masks)) / d1
    outputs = np.tensordot(shares, jax.vmap(lambda mask: second(**sizes, mask=mask))(masks), 1)
    assert on_diagonal == pytest.approx(
        float(relu_network.one_input_diagonal_1(d0, d1, d2, (target**2).sum())), rel=1e-12
    )
    wanted = np.asarray(relu_network.one_input_outer_product_2(target, d1))
    np.testing.assert_allclose(outputs, wanted, rtol=1e-12, atol=1e-12 * np.abs(wanted).max())


def test_relu_networks_at_one_input_off_the_diagonal():
    """The engine averages over W_2 to d_2 (d_2 + 1) h_a h_c, and ‖x‖⁴ to d_0 (d_0 + 2); E h_a h_c is ‖x‖²/2π."""
    h, x = moments.constant("h", "d1"), moments.constant("x", "d0")
    w2, target = moments.gaussian("w2", "d2", "d1"), moments.constant("target", "d2", "d0")
    backward = w2.T @ (w2 @ h - target @ x)
    over_outputs = moments.expectation(backward[0] * backward[1])
    d0, d2 = moments.symbol("d0"), moments.symbol("d2")
    assert over_outputs == d2 * (d2 + 1) * (h[0] * h[1])
    norm = moments.expectation(moments.squared_norm(moments.gaussian("x", "d0")) ** 2)
    assert norm.value == d0 * (d0 + 2)
    wanted = relu_network.one_input_off_diagonal_1(25, 12)
    assert (norm.value * d2 * (d2 + 1)).evaluate({"d0": 25, "d2": 12}) / (2 * np.pi) == pytest.approx(float(wanted))


def test_the_batch_biases_of_table_c7():
    """What 8000 inputs add to G₁: 17.02 on and 2.092 off the diagonal, by the averages at one input above and those of Theorem 3."""
    found = statistics.batch_bias(table_c7.D0, table_c7.D1, table_c7.D2, table_c7.NORM_SQUARED, table_c7.PAPER_SAMPLES)
    assert float(found.sel(row="g1_diagonal")) == pytest.approx((138_524.85 - 2364.78) / 8000, abs=1e-4)
    assert float(found.sel(row="g1_off_diagonal")) == pytest.approx(
        (105_300 / (2 * np.pi) - 300 / (4 * np.pi)) / 8000, rel=1e-12
    )
