import math
from fractions import Fraction
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.models import deep_linear as model
from specjax.theory import deep_linear as theory
from tests.reference import gradients
from tests.reference.moments import gaussian_average, simulate, wishart


def matrix(rows, columns, scale=1.0):
    return scale * np.random.default_rng(rows + 10 * columns).standard_normal((rows, columns))


@pytest.mark.integration
@pytest.mark.parametrize(
    "dims",
    [
        (2, 3),
        (2, 1, 3),
        (1, 2, 3),
        (2, 2, 1),
        (1, 3, 1),
        (1, 2, 2, 1),
        (2, 1, 2, 1),
        (1, 2, 1, 2),
        (1, 2, 1, 2, 1),
        (2, 1, 1, 2, 1),
    ],
    ids=str,
)
@pytest.mark.usefixtures("x64")
def test_the_expectation_is_exact_at_every_layer(dims):
    """The squared gradient has degree 4 in each weight, so enumeration of a three-point grid is
    exact.
    """
    target = matrix(dims[-1], dims[0])

    def outers(*weights):
        return np.array(
            [np.pad(g @ g.T, (0, 3 - len(g))) for g in gradients.linear(weights, target)]
        )

    exact = gaussian_average(outers, list(zip(dims[1:], dims[:-1], strict=True)), degree=4)
    for layer in range(1, len(dims)):
        measured = theory.expected_outer_product(dims, jnp.asarray(target), layer)
        n = dims[layer]
        np.testing.assert_allclose(measured, exact[layer - 1][:n, :n], rtol=1e-11, atol=1e-10)


@pytest.mark.parametrize("dims", [(2, 2, 1, 1), (1, 2, 2, 1), (2, 1, 2, 1)], ids=str)
@pytest.mark.usefixtures("x64")
def test_the_moments_of_the_products_are_exact(dims):
    shapes = list(zip(dims[1:], dims[:-1], strict=True))
    (r, v), (s, u) = theory.backward_moments(dims), theory.forward_moments(dims)
    for layer in range(1, len(dims)):
        before, after = shapes[: layer - 1], shapes[layer:]

        def traces(weights, size):
            gram = gradients.product(weights, size)
            gram = gram @ gram.T
            return np.array([np.trace(gram @ gram) / len(gram), np.trace(gram) ** 2])

        backward = (
            gaussian_average(lambda *w: traces(w, dims[0]), before, 4)
            if before
            else traces((), dims[0])
        )
        # A_iᵀ A_i = B Bᵀ with B = A_iᵀ: transposed weights in reversed order.
        forward = (
            gaussian_average(lambda *w: traces([m.T for m in w[::-1]], dims[-1]), after, 4)
            if after
            else traces((), dims[-1])
        )
        np.testing.assert_allclose([r[layer - 1], v[layer - 1]], backward, rtol=1e-12)
        np.testing.assert_allclose([s[layer - 1], u[layer - 1]], forward, rtol=1e-12)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("dims", "chunks"),
    [
        ((4, 6, 3), 12),
        ((3, 5, 4, 2), 12),
        pytest.param((3, 4, 5, 2, 3), 60, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_simulated_gradients_agree_at_every_layer(dims, chunks):
    target = jnp.asarray(matrix(dims[-1], dims[0], 6.0), jnp.float32)

    def diagonals(key):
        grams = [g @ g.T for g in model.gradient(model.init(key, dims), target)]
        # Hidden layers: mean diagonal. Output layer: every diagonal entry, which also sees Φ Φᵀ.
        return jnp.concatenate(
            [jnp.stack([jnp.trace(p) / len(p) for p in grams[:-1]]), jnp.diag(grams[-1])]
        )

    mean, error = simulate(diagonals, jax.random.key(2), chunks)
    depth = len(dims) - 1
    exact = [theory.expected_outer_product(dims, target, layer) for layer in range(1, depth + 1)]
    expected = np.concatenate([[np.diag(e)[0] for e in exact[:-1]], np.diag(exact[-1])])
    assert (np.abs(mean - expected) < 4 * error).all()
    # Without the target, and with d_{i-1} for d_{i-1} + 1 in the recursion of the output layer.
    bare = np.array(
        [
            float(theory.noise_coefficient(dims, layer))
            for layer in (*range(1, depth), *[depth] * dims[-1])
        ]
    )
    apart = np.abs(mean - bare) / error
    assert apart[: depth - 1].min() > 4
    assert apart[depth - 1 :].max() > 8
    r, v, d = [1.0], [dims[0] ** 2], dims
    for i in range(1, depth):
        r, v = (
            [*r, v[-1] + d[i] * d[i - 1] * r[-1]],
            [*v, d[i] ** 2 * v[-1] + 2 * d[i] * d[i - 1] * r[-1]],
        )
    wrong = expected[-dims[-1] :] - bare[-1] + d[depth - 1] * r[-1]
    assert (np.abs(mean[-dims[-1] :] - wrong) > 4 * error[-dims[-1] :]).any()


def test_hidden_layers_have_no_expected_off_diagonal_entry():
    expected = np.asarray(theory.expected_outer_product((3, 4, 5, 2), jnp.ones((2, 3)), 2))
    np.testing.assert_array_equal(expected, expected[0, 0] * np.eye(5))


@pytest.mark.parametrize("depth", [1, 2, 3, 4, 5])
@pytest.mark.usefixtures("x64")
def test_noise_grows_as_in_the_recursion_and_not_as_printed(depth):
    widths = jnp.asarray([1e6, 2e6])
    dims = (25, *[widths] * (depth - 1), 12)
    for layer in range(1, depth + 1):
        low, high = theory.noise_coefficient(dims, layer) * jnp.ones(2)
        local = np.log2(high / low)
        assert local == pytest.approx(theory.noise_exponent(depth, layer), abs=1e-3)
        low, high = theory.order_as_printed(dims, layer) * jnp.ones(2)
        assert np.log2(high / low) == pytest.approx(
            theory.noise_exponent_as_printed(depth, layer), abs=1e-12
        )
        # Too small by one power at the ends of the network, and by two between.
        missing = 0 if depth == 1 else 1 if layer in (1, depth) else 2
        assert (
            theory.noise_exponent(depth, layer) - theory.noise_exponent_as_printed(depth, layer)
            == missing
        )


@pytest.mark.usefixtures("x64")
def test_the_printed_order_multiplies_the_sizes_of_the_paper():
    assert theory.order_as_printed((2, 3, 5, 7), 1) == 2 * 5**2 * 7**2
    assert theory.order_as_printed((2, 3, 5, 7), 2) == 3 * 2**2 * 7**2
    assert theory.order_as_printed((2, 3, 5, 7), 3) == 5 * 2**2 * 3**2


@pytest.mark.usefixtures("x64")
def test_sizes_are_vectorized():
    widths = np.array([[2, 3], [4, 5]])
    for f in (theory.noise_coefficient, theory.target_coefficient, theory.order_as_printed):
        batch = f((3, widths, 4, 2), 2)
        assert batch.shape == (2, 2)
        for i in np.ndindex(2, 2):
            assert batch[i] == pytest.approx(float(f((3, int(widths[i]), 4, 2), 2)), rel=1e-14)


@pytest.mark.parametrize("layer", [0, 3, -1])
def test_a_layer_that_does_not_exist_is_refused(layer):
    for f in (theory.noise_coefficient, theory.target_coefficient, theory.order_as_printed):
        with pytest.raises(ValueError, match=f"has layers 1 to 2, got layer {layer}"):
            f((2, 3, 4), layer)
    for f in (theory.noise_exponent, theory.noise_exponent_as_printed):
        with pytest.raises(ValueError, match=f"has layers 1 to 2, got layer {layer}"):
            f(2, layer)
    with pytest.raises(ValueError, match="has layers 1 to 2"):
        theory.expected_outer_product((2, 3, 4), jnp.ones((4, 2)), layer)


def moments_in_whole_numbers(dims):
    """r_i and v_i from the Wishart average of one more layer: E[W A Wᵀ W A Wᵀ] and E[tr(W A Wᵀ)²]
    in exact arithmetic.
    """
    r, v = [Fraction(1)], [Fraction(dims[0]) ** 2]
    for inner, outer in pairwise(dims[:-1]):
        # E(W A W^T)^2 = ((tr A)^2 + (outer + 1) tr A^2) I for W of `outer` rows; E tr^2 = outer^2
        # (tr A)^2 + 2 outer tr A^2.
        trace_of_square = inner * r[-1]
        r, v = (
            [*r, v[-1] + (outer + 1) * trace_of_square],
            [*v, outer**2 * v[-1] + 2 * outer * trace_of_square],
        )
    return r, v


@pytest.mark.parametrize(
    "dims",
    [(1000,) * 7 + (2,), (2,) + (1000,) * 7, (10**6,) * 11, (1,) * 11, (10**6, 1, 10**6, 3)],
    ids=["deep", "reversed", "largest", "ones", "bottleneck"],
)
def test_large_products_do_not_overflow(dims):
    """In float32, without a scope of the caller's, seven layers of 1000 were NaN."""
    depth = len(dims) - 1
    r, _ = moments_in_whole_numbers(dims)
    s, _ = moments_in_whole_numbers(dims[::-1])
    s = s[::-1]
    for layer in range(1, depth + 1):
        noise = dims[layer - 1] * r[layer - 1] * s[layer - 1]
        assert float(theory.noise_coefficient(dims, layer)) == pytest.approx(
            float(noise), rel=1e-13
        )
        others = math.prod(dims[j] for j in range(1, depth) if j != layer)
        assert float(theory.target_coefficient(dims, layer)) == pytest.approx(
            float(others), rel=1e-13
        )
    if dims[0] == 1000:
        target = np.random.default_rng(0).choice([-1.0, 1.0], (2, 1000)).astype(np.float32)
        signal = (target.astype(int) @ target.T.astype(int)).astype(object) * 1000**6
        noise = int(dims[-2] * r[-1])
        expected = [[float(signal[a, b] + noise * (a == b)) for b in range(2)] for a in range(2)]
        np.testing.assert_allclose(
            theory.expected_outer_product(dims, jnp.asarray(target), depth), expected, rtol=1e-13
        )


def test_sizes_below_one_are_refused():
    for f in (theory.noise_coefficient, theory.target_coefficient, theory.order_as_printed):
        with pytest.raises(ValueError, match=r"^dims must be in \[1, inf\), got 0\.$"):
            f((2, np.array([0, 3]), 4), 1)


@pytest.mark.parametrize(("d0", "d2"), [(8, 6), (2, 3), (3, 2), (1, 4)])
def test_the_ratios_of_one_draw_at_a_large_width_are_simulated(d0, d2):
    rng = np.random.default_rng(d0)
    width, draws, target = 100_000, 30_000, np.ones((d2, d0))

    def root(w):
        values, vectors = np.linalg.eigh(w)
        return (vectors * np.sqrt(values)[:, None, :]) @ vectors.swapaxes(1, 2)

    # Given W₁, W₂ W₁ is Z (W₁ᵀ W₁)^(1/2); given W₂, some of whose columns are drawn one by one, it
    # is (W₂ W₂ᵀ)^(1/2) Z.
    z, columns = rng.standard_normal((draws, d2, d0)), rng.standard_normal((draws, d2, 16))
    w = wishart(rng, draws, d0, width)
    residual = z @ root(w) - target
    p = np.abs(residual @ w @ residual.swapaxes(1, 2))
    traces = np.trace(p, axis1=1, axis2=2)
    output = (p.sum(axis=(1, 2)) - traces) / (d2 * (d2 - 1)) / (traces / d2)
    w = wishart(rng, draws, d2, width - 16) + columns @ columns.swapaxes(1, 2)
    residual = root(w) @ z - target
    rows = residual.swapaxes(1, 2) @ columns
    entries = np.mean(np.abs(np.sum(rows[..., ::2] * rows[..., 1::2], axis=1)), axis=1)
    hidden = entries / (np.sum(residual * (w @ residual), axis=(1, 2)) / width)
    # Nearest by: the output's for independent rows of one norm, and the hidden layer's with inputs
    # and outputs as one more.
    nearest = (np.sqrt(2 / (np.pi * d0)), float(theory.one_draw_ratio_hidden(d0 + 1, d2)))
    cases = (
        (float(theory.one_draw_ratio_output(d0)), output),
        (float(theory.one_draw_ratio_hidden(d0, d2)), hidden),
    )
    for wrong, (predicted, found) in zip(nearest, cases, strict=True):
        error = found.std(ddof=1) / np.sqrt(draws)
        assert abs(found.mean() - predicted) < 4 * error
        assert abs(found.mean() - wrong) > 6 * error


def test_the_ratios_of_one_sample_are_exact_if_elementary():
    # Rows of one number are parallel: |z₁ z₂| for N(0, 1), over the mean square.
    assert float(theory.one_draw_ratio_output(1)) == pytest.approx(2 / np.pi, rel=1e-14)
    assert float(theory.one_draw_ratio_hidden(1, 1)) == pytest.approx(2 / np.pi, rel=1e-14)
    assert float(theory.one_draw_ratio_output(2)) == pytest.approx(0.5, rel=1e-14)
    assert float(theory.one_draw_ratio_output(1e6)) == pytest.approx(
        np.sqrt(2 / (np.pi * 1e6)), rel=1e-6
    )
