import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.models import matrix_factorization as model
from specjax.theory import matrix_factorization as theory
from tests.reference import gradients
from tests.reference.moments import gaussian_average, simulate, wishart


def symmetric(d, scale):
    m = np.random.default_rng(d).standard_normal((d, d)) * scale
    return m + m.T


@pytest.mark.parametrize(("d", "k"), [(1, 1), (1, 3), (2, 1), (2, 2), (2, 3), (3, 2)])
@pytest.mark.usefixtures("x64")
def test_the_expectation_is_exact(d, k):
    target = symmetric(d, 1.0)

    def outer(u):
        g = gradients.factorization(u, target)
        return g @ g.T

    exact = gaussian_average(outer, [(d, k)], degree=6)
    np.testing.assert_allclose(
        theory.expected_outer_product(jnp.asarray(target), k), exact, rtol=1e-11, atol=1e-10
    )
    printed = theory.corollary_1_as_printed(jnp.asarray(target), k)
    assert (d == 1) == bool(np.allclose(printed, exact, rtol=1e-3))


@pytest.mark.integration
@pytest.mark.usefixtures("x64")
def test_simulations_confirm_theorem_1_and_refute_corollary_1():
    d, k = 5, 3
    target = jnp.asarray(symmetric(d, 20.0))

    def outer(key):
        g = model.gradient(model.init(key, d, k), target)
        return g @ g.T

    mean, error = simulate(outer, jax.random.key(0), chunks=10)
    assert (np.abs(mean - theory.expected_outer_product(target, k)) < 4 * error).all()
    # Every entry of M² differs from the square of the entry of M.
    assert (np.abs(mean - theory.corollary_1_as_printed(target, k)) > 8 * error).all()


@pytest.mark.usefixtures("x64")
def test_the_printed_form_is_right_for_a_diagonal_target():
    target = jnp.diag(jnp.asarray([3.0, -2.0]))
    np.testing.assert_allclose(
        theory.corollary_1_as_printed(target, 4),
        theory.expected_outer_product(target, 4),
        rtol=1e-14,
    )


@pytest.mark.parametrize("f", [theory.expected_outer_product, theory.corollary_1_as_printed])
def test_widths_have_any_shape(f):
    target = jnp.asarray(symmetric(3, 1.0), jnp.float32)
    batch = f(target, jnp.asarray([[1, 2], [3, 4]]))
    assert batch.shape == (2, 2, 3, 3)
    for i in np.ndindex(2, 2):
        np.testing.assert_allclose(batch[i], f(target, 2 * i[0] + i[1] + 1), rtol=1e-6)


@pytest.mark.usefixtures("x64")
def test_the_diagonal_grows_with_width_cubed_the_rest_squared():
    low, high = theory.expected_outer_product(
        jnp.asarray(symmetric(3, 1.0)), jnp.asarray([1e5, 1e6])
    )
    exponents = np.log10(np.abs(high / low))
    np.testing.assert_allclose(exponents, 2 + np.eye(3), atol=1e-3)


@pytest.mark.usefixtures("x64")
def test_one_draw_has_its_ratio_in_the_limit():
    """At k = 10⁶ what falls as 1/k is 10⁻⁵ of the ratio, far below the standard error."""
    d, k, draws = 3, 10**6, 40_000
    w, m = wishart(np.random.default_rng(0), draws, d, k), symmetric(d, 3.0)
    p = (w - m) @ w @ (w - m)
    diagonal = np.trace(p, axis1=1, axis2=2) / d
    ratio = (np.abs(p).sum(axis=(1, 2)) - d * diagonal) / (d * (d - 1)) / diagonal
    error = ratio.std() / np.sqrt(draws)
    assert abs(ratio.mean() - theory.one_draw_ratio(k)) < 4 * error
    # Nearest by: 3/√k, the root mean square, and the exponent 1/2 exchanged for 0.51.
    for wrong in (3 / np.sqrt(k), 2 * np.sqrt(2 / np.pi / k), 3 * np.sqrt(2 / np.pi) / k**0.51):
        assert abs(ratio.mean() - wrong) > 8 * error


@pytest.mark.integration
def test_the_targets_change_of_the_first_step_is_simulated():
    rng = np.random.default_rng(0)
    d, k, draws = 7, 40_000, 20_000
    target = symmetric(d, 1.0) + 3 * np.eye(d)
    w = wishart(rng, draws, d, k)
    # U = W^(1/2) stands for every U: all that follows is equivariant under orthogonal maps of its
    # columns.
    values, vectors = np.linalg.eigh(w)
    root = (vectors * np.sqrt(values)[:, None, :]) @ vectors.swapaxes(1, 2)
    steps = [(w - m) @ root for m in (target, 0)]
    unit, unit_of_none = (g / np.linalg.norm(g, axis=(1, 2), keepdims=True) for g in steps)
    left, _, right = np.linalg.svd(steps[0])
    parts = {
        theory.target_part: np.sum((unit - unit_of_none) ** 2, axis=(1, 2)),
        theory.polar_target_part: np.sum((left @ right - np.eye(d)) ** 2, axis=(1, 2)) / d,
    }
    for form, squares in parts.items():
        predicted = float(form(jnp.asarray(target), k)) ** 2
        error = 4 * squares.std(ddof=1) / np.sqrt(draws)
        # Widths of 40,000 leave a relative bias of the order 1/k.
        assert abs(squares.mean() - predicted) < error + 20 / k * predicted
        # The nearest wrong forms have d for 8, and M for M₀.
        assert error < 0.05 * predicted
