"""The formulas of `theory` that were derived by hand come out of the engine."""

import numpy as np
import pytest

from specjax import moments
from specjax.experiments.outer_product import statistics, table_c7
from specjax.models import deep_linear
from specjax.theory import deep_linear as linear_theory
from specjax.theory import matrix_factorization, wishart

# The types of `models` name sizes as int; a traced function has symbolic ones.
pytestmark = pytest.mark.usefixtures("unchecked")

RNG = np.random.default_rng(11)
# Extreme ratios; wrong powers of a size differ by orders of magnitude.
DIMS = ((3, 50, 1, 7, 2, 20, 4), (5, 1, 30, 2, 8, 3, 6))


def gram_of_layers(depth):
    """G_i G_iᵀ for i = 1 … L, as words of d0, d1, …"""
    shapes = [(f"d{layer}", f"d{layer - 1}") for layer in range(1, depth + 1)]
    return moments.express_function(
        lambda params, target: [g @ g.T for g in deep_linear.gradient(params, target)],
        gaussian={"params": shapes},
        constant={"target": (f"d{depth}", "d0")},
    )


@pytest.mark.integration
@pytest.mark.parametrize("depth", range(1, 7))
def test_theorem_2_at_every_depth_and_layer(depth):
    """Every entry of E[G_i G_iᵀ] of a deep linear network, and its target-free part at float64's
    rounding.
    """
    for layer, word in enumerate(gram_of_layers(depth), 1):
        found = moments.expectation(word)
        for dims in DIMS:
            target = RNG.normal(size=(dims[depth], dims[0]))
            sizes = {f"d{i}": size for i, size in enumerate(dims[: depth + 1])}
            wanted = np.asarray(
                linear_theory.expected_outer_product(dims[: depth + 1], target, layer)
            )
            np.testing.assert_allclose(
                found(**sizes, target=target), wanted, rtol=1e-12, atol=1e-12 * wanted.max()
            )


@pytest.mark.parametrize("depth", range(1, 7))
def test_corollary_2_the_exponents_of_the_noise(depth):
    """With d_0 and d_L fixed and a common inner width; the part without Φ is what is left of an
    entry at Φ = 0.
    """
    w = moments.symbol("w")
    for layer, word in enumerate(gram_of_layers(depth), 1):
        entry = moments.expectation(word)[0, 0]
        noise = sum((part for part in entry.parts() if not part.symbols), start=0 * entry)
        grown = moments.orders(
            noise, "w", **{f"d{i}": w for i in range(1, depth)} if depth > 1 else {"d0": 1}
        )
        assert grown.exponent == linear_theory.noise_exponent(depth, layer)


@pytest.mark.integration
def test_theorem_1_and_the_moments_of_wishart_matrices():
    u, target = moments.gaussian("u", "d", "k"), moments.constant("m", "d", "d", symmetric=True)
    gradient = (u @ u.T - target) @ u
    found = moments.expectation(gradient @ gradient.T)
    drawn = RNG.normal(size=(5, 5))
    drawn = drawn + drawn.T
    k = np.array([1, 2, 400])
    np.testing.assert_allclose(
        found(m=drawn, k=k), matrix_factorization.expected_outer_product(drawn, k), rtol=1e-12
    )
    for power, alpha in enumerate(wishart.wishart_moments(9, k), 1):
        mean = moments.expectation(moments.matrix_power(u @ u.T, power)[0, 0])
        np.testing.assert_array_equal(mean(d=9, k=k), alpha)
    # Corollary 1 as printed squares each entry of M instead of M.
    printed = matrix_factorization.corollary_1_as_printed(drawn, k)
    assert np.abs(found(m=drawn, k=k) - printed).max() > 1


def test_corollary_1_entry_by_entry():
    """α₃ δ_ij - 2 α₂ M_ij + k (M²)_ij for entries that are words of their own, of order k³ on and
    k² off the diagonal.
    """
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


@pytest.mark.integration
def test_the_batch_biases_of_table_c7():
    """What 8000 inputs add: to G₁ 17.02 on and 2.092 off the diagonal, by the averages at one input
    and those of Theorem 3.
    """
    found = statistics.batch_bias(
        table_c7.D0, table_c7.D1, table_c7.D2, table_c7.NORM_SQUARED, table_c7.PAPER_SAMPLES
    )
    assert float(found.sel(row="g2_coefficient")) == pytest.approx(
        (20 * 27 / 2 - 20 / 4) / 8000, rel=1e-12
    )
    assert float(found.sel(row="g1_diagonal")) == pytest.approx(
        (138_524.85 - 2364.78) / 8000, abs=1e-4
    )
    assert float(found.sel(row="g1_off_diagonal")) == pytest.approx(
        (105_300 / (2 * np.pi) - 300 / (4 * np.pi)) / 8000, rel=1e-12
    )
