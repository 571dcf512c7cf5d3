"""Means of G Gᵀ over part of the weights of a ReLU network: against all of these weights, to
rounding, and against samples.
"""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.models import relu_network
from specjax.models.targets import linear_target
from specjax.sizes import Size
from tests.reference.moments import simulate

D0, D1, D2 = 4, 3, 2
SIGNS = np.array(list(product([-1.0, 1.0], repeat=D1)))


@jax.jit
def problem():
    return relu_network.init(jax.random.key(2), D0, D1, D2), linear_target(
        jax.random.key(1), D2, D0, 2.0
    )


def plain(params, target):
    return relu_network.OuterProducts(*(g @ g.T for g in relu_network.gradient(params, target)))


@jax.jit
def over(w1, rows, w2, weights, target):
    """The mean of G Gᵀ over signs of rows of W_1, and over each W_2 with its weight."""

    def given(signs):
        each = jax.vmap(lambda w: plain(relu_network.Params(signs[:, None] * w1, w), target))(w2)
        return jax.tree.map(lambda p: jnp.tensordot(weights, p, 1), each)

    return jax.tree.map(lambda p: jnp.mean(p, axis=0), jax.vmap(given)(rows))


def all_values(values, weights):
    """Every W_2 whose entries are among the values, and the product of their weights."""
    entries = np.array(list(product(range(len(values)), repeat=D1 * D2)))
    return np.asarray(values)[entries].reshape(-1, D2, D1), np.asarray(weights)[entries].prod(
        axis=1
    )


def largest_error(found, expected):
    pairs = [(np.asarray(a), np.asarray(b)) for a, b in zip(found, expected, strict=True)]
    return max(np.max(np.abs(a - b)) / np.max(np.abs(b)) for a, b in pairs)


@pytest.mark.integration
@pytest.mark.usefixtures("x64")
def test_symmetrized_products_average_over_all_weight_signs():
    params, target = problem()
    signs, weights = all_values([-1.0, 1.0], [0.5, 0.5])
    found = jax.jit(relu_network.symmetrized_outer_products)(params, target)
    assert (
        largest_error(found, over(params.w1, SIGNS, signs * np.asarray(params.w2), weights, target))
        < 1e-13
    )
    # Not over those of either layer alone, nor over one sign for each column of W_2.
    one, columns = np.ones(1), SIGNS[:, None, :] * np.asarray(params.w2)
    for rows, w2, weights_of in (
        (np.ones((1, D1)), signs * np.asarray(params.w2), weights),
        (SIGNS, np.asarray(params.w2)[None], one),
        (SIGNS, columns, np.full(len(columns), 1 / len(columns))),
    ):
        assert largest_error(found, over(params.w1, rows, w2, weights_of, target)) > 1e-3


@pytest.mark.integration
@pytest.mark.usefixtures("x64")
def test_expected_products_average_over_output_weight_nodes():
    """G Gᵀ is of degree 4 in each entry of W_2, for which three nodes of Gauss and Hermite are
    exact.
    """
    params, target = problem()
    nodes, weights = np.polynomial.hermite_e.hermegauss(3)
    w2, weights = all_values(nodes, weights / weights.sum())
    found = jax.jit(relu_network.expected_outer_products, static_argnums=2)(params.w1, target, D2)
    assert largest_error(found, over(params.w1, SIGNS, w2, weights, target)) < 1e-13
    # Not over signs, whose fourth moment is 1, nor with the signs of W_1 as they are.
    signs, halves = all_values([-1.0, 1.0], [0.5, 0.5])
    assert largest_error(found, over(params.w1, SIGNS, signs, halves, target)) > 1e-2
    assert largest_error(found, over(params.w1, np.ones((1, D1)), w2, weights, target)) > 1e-2


MEANS = {
    "signs": relu_network.symmetrized_outer_products,
    "given W₁": lambda params, target: relu_network.expected_outer_products(
        params.w1, target, params.w2.shape[0]
    ),
}


@pytest.mark.integration
@pytest.mark.parametrize("name", MEANS)
@pytest.mark.usefixtures("x64")
def test_sampled_means_have_the_expectation_of_the_gradients(name):
    """Paired, on the same weights; in every entry, with errors that separate it from half of each
    part of an entry.
    """
    target = np.asarray(problem()[1])

    def difference(key):
        params = relu_network.init(key, D0, D1, D2)
        exact, found = plain(params, jnp.asarray(target)), MEANS[name](params, jnp.asarray(target))
        return jnp.concatenate([(a - b).ravel() for a, b in zip(exact, found, strict=True)])

    mean, error = simulate(difference, jax.random.key(3), chunks=25)
    assert (np.abs(mean) < 4 * error).all()
    # Of G_1 the off-diagonal d_0 d_2/4π and on the diagonal d_0 d_2²/4 and ‖Φ‖²/4; of G_2 the part
    # of Φ.
    hidden, output = np.split(mean, [D1**2])
    hidden_error, output_error = np.split(error, [D1**2])
    off = ~np.eye(D1, dtype=bool).ravel()
    parts = {
        "off-diagonal": off * D0 * D2 / (4 * np.pi),
        "own unit": ~off * D0 * D2**2 / 4,
        "signal": ~off * np.sum(target**2) / 4,
    }
    for part, size in parts.items():
        assert (np.abs(hidden - size / 2) > 4 * hidden_error).any(), part
    on_target = (D1 / 4 * target @ target.T).ravel()
    assert (np.abs(output - on_target / 2) > 4 * output_error).any()


@pytest.mark.integration
@pytest.mark.parametrize("name", MEANS)
def test_they_do_not_see_padding(name):
    def products(d0, d1, d2):
        params = relu_network.init(jax.random.key(4), d0, d1, d2)
        target = linear_target(jax.random.key(1), d2, d0)
        if name == "signs":
            return relu_network.symmetrized_outer_products(params, target)
        return relu_network.expected_outer_products(params.w1, target, d2)

    narrow = jax.jit(products, static_argnums=(0, 1, 2))(D0, D1, D2)
    wide = jax.jit(products)(*(Size(n + 3, n) for n in (D0, D1, D2)))
    for few, many in zip(narrow, map(np.asarray, wide), strict=True):
        n = len(few)
        np.testing.assert_allclose(many[:n, :n], few, rtol=1e-5)
        assert not many[n:].any()
        assert not many[:, n:].any()


@pytest.mark.integration
@pytest.mark.usefixtures("unchecked")
def test_targets_of_another_shape_and_wrong_sizes_are_refused():
    params, target = problem()
    with pytest.raises(ValueError, match=r"must have shape \(2, 4\), got \(2, 3\)"):
        relu_network.symmetrized_outer_products(params, target[:, :3])
    with pytest.raises(ValueError, match=r"must have shape \(3, 4\), got \(2, 4\)"):
        relu_network.expected_outer_products(params.w1, target, 3)
    with pytest.raises(ValueError, match=r"Every size must be at least 1, got 0\."):
        relu_network.expected_outer_products(params.w1, target, 0)
    with pytest.raises(ValueError, match="must have finite entries"):
        relu_network.expected_outer_products(params.w1, target * np.nan, D2)
