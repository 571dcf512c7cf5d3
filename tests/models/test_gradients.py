"""Population losses and gradients: against autodiff, against samples, and against padding."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.models import deep_linear, matrix_factorization, relu_network, targets
from specjax.sizes import Size
from specjax.spectral import SVD, polar
from tests.reference import gradients as reference
from tests.reference.moments import simulate


@jax.jit
def flat(tree):
    return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(tree)])


def drawn(init, target):
    """Weights and target in one program."""
    return jax.jit(lambda: (init(), target()))()


@cache
def factorization():
    probes = 8

    def sampled(u, target, key):
        x, y = jax.random.normal(key, (2, probes, 4))
        return matrix_factorization.sampled_loss(u, target, x, y)

    params, target = drawn(
        lambda: matrix_factorization.init(jax.random.key(1), 4, 3),
        lambda: targets.low_rank_target(jax.random.key(2), 4, 2),
    )
    return matrix_factorization, params, target, sampled


@cache
def linear():
    params, target = drawn(
        lambda: deep_linear.init(jax.random.key(3), (3, 4, 2, 3)),
        lambda: targets.linear_target(jax.random.key(4), 3, 3, 2.0),
    )
    return deep_linear, params, target, on_batch(deep_linear, 3)


@cache
def relu():
    params, target = drawn(
        lambda: relu_network.init(jax.random.key(5), 3, 4, 2),
        lambda: targets.linear_target(jax.random.key(6), 2, 3, 2.0),
    )
    return relu_network, params, target, on_batch(relu_network, 3)


def on_batch(model, d0):
    return lambda params, target, key: model.sampled_loss(
        params, target, jax.random.normal(key, (8, d0))
    )


each_model = pytest.mark.parametrize("problem", [factorization, linear, relu])


@pytest.mark.integration
@each_model
@pytest.mark.usefixtures("x64")
def test_the_gradient_is_the_derivative_of_the_population_loss(problem):
    model, params, target, _ = problem()
    gradient, automatic = jax.jit(lambda *at: (model.gradient(*at), jax.grad(model.loss)(*at)))(
        params, target
    )
    np.testing.assert_allclose(flat(gradient), flat(automatic), rtol=1e-12, atol=1e-12)
    assert jax.tree.structure(gradient) == jax.tree.structure(params)


@pytest.mark.integration
@each_model
@pytest.mark.usefixtures("x64")
def test_sampled_losses_and_gradients_average_to_the_population(problem):
    model, params, target, sampled = problem()

    def measure(key):
        value, slope = jax.value_and_grad(sampled)(params, target, key)
        return jnp.concatenate([value[None], flat(slope)])

    def population():
        """Of the target, and the gradient of none."""
        slope, without = (
            flat(model.gradient(params, phi)) for phi in (target, jnp.zeros_like(target))
        )
        return jnp.append(model.loss(params, target), slope), jnp.append(0.0, without)

    mean, error = simulate(measure, jax.random.key(7), chunks=25)
    exact, without = map(np.asarray, jax.jit(population)())
    assert (np.abs(mean - exact) < 4 * error).all()
    # A loss twice as large, and a gradient whose signal part lost or gained a factor of two.
    assert abs(mean[0] - 2 * exact[0]) > 8 * error[0]
    for factor in (0.5, 2.0):
        assert (np.abs(mean - without - factor * (exact - without)) > 8 * error)[1:].any()


@pytest.mark.integration
@pytest.mark.usefixtures("x64")
def test_samples_resolve_each_part_of_the_relu_gradient():
    """The half in ½ W_2ᵀΦ and ½ Φ W_1ᵀ, the part along the own row, and the part along the
    others.
    """
    model, params, target, sampled = relu()
    mean, error = simulate(
        lambda key: flat(jax.grad(sampled)(params, target, key)), jax.random.key(8), chunks=25
    )
    exact = jax.tree.map(np.asarray, jax.jit(model.gradient)(params, target))
    (w1, w2), target = jax.tree.map(np.asarray, (params, target))
    changed = {
        "half in the first layer": (exact.w1 - w2.T @ target / 2, exact.w2),
        "half in the second layer": (exact.w1, exact.w2 - target @ w1.T / 2),
        "own unit": (exact.w1 + np.sum(w2**2, axis=0)[:, None] * w1 / 100, exact.w2),
        "own gram": (exact.w1, exact.w2 + w2 * np.sum(w1**2, axis=1)[None, :] / 100),
    }
    assert (np.abs(mean - flat(exact)) < 4 * error).all()
    for name, wrong in changed.items():
        assert (np.abs(mean - flat(wrong)) > 4 * error).any(), name


@pytest.mark.integration
@pytest.mark.usefixtures("x64")
def test_gradients_agree_with_the_definition_in_numpy():
    _, u, target, _ = factorization()
    np.testing.assert_allclose(
        jax.jit(matrix_factorization.gradient)(u, target),
        reference.factorization(np.asarray(u), np.asarray(target)),
        rtol=1e-12,
        atol=1e-13,
    )
    rng = np.random.default_rng(0)
    for dims in ((3, 2), (2, 5, 3), (3, 4, 1, 5, 2)):
        weights = tuple(
            rng.standard_normal(shape) for shape in zip(dims[1:], dims[:-1], strict=True)
        )
        target = rng.standard_normal((dims[-1], dims[0]))
        measured = jax.jit(deep_linear.gradient)(weights, target)
        expected = reference.linear(weights, target)
        for layer, wanted in zip(measured, expected, strict=True):
            np.testing.assert_allclose(layer, wanted, rtol=1e-11, atol=1e-11)


def padded_problems():
    """Name to (gradient of the plain network, gradient of the padded one) for a key and sizes."""

    def mf(key, d, k):
        return matrix_factorization.gradient(
            matrix_factorization.init(key, d, k), targets.low_rank_target(jax.random.key(0), d, 2)
        )

    def deep(key, *dims):
        return deep_linear.gradient(
            deep_linear.init(key, dims), targets.linear_target(jax.random.key(0), dims[-1], dims[0])
        )

    def two_layer(key, d0, d1, d2):
        return relu_network.gradient(
            relu_network.init(key, d0, d1, d2), targets.linear_target(jax.random.key(0), d2, d0)
        )

    return {
        "factorization": (mf, (3, 2)),
        "linear": (deep, (2, 3, 4, 2)),
        "relu": (two_layer, (3, 4, 2)),
    }


@cache
def plain_and_padded_gradients(name):
    """The leaves of the gradient, and of those with one axis padded and at last with all of them:
    one program for all cases.
    """
    gradient, sizes = padded_problems()[name]
    axes = range(len(sizes))

    def at(key, padded):
        return jax.tree.leaves(
            gradient(key, *(Size(n + 3, n) if i in padded else n for i, n in enumerate(sizes)))
        )

    every = jax.jit(lambda key: [at(key, padded) for padded in ((), *((i,) for i in axes), axes)])
    plain, *wide = jax.tree.map(np.asarray, every(jax.random.key(11)))
    return plain, wide


CASES = [
    (name, i) for name, (_, sizes) in padded_problems().items() for i in (*range(len(sizes)), None)
]


@pytest.mark.integration
@pytest.mark.parametrize(("name", "axis"), CASES, ids=lambda v: str(v))
def test_a_padded_network_has_the_same_gradient_and_zeros_beyond(name, axis):
    plain_leaves, padded = plain_and_padded_gradients(name)
    for plain, wide in zip(plain_leaves, padded[-1 if axis is None else axis], strict=True):
        rows, columns = plain.shape
        np.testing.assert_allclose(wide[:rows, :columns], plain, rtol=2e-5, atol=2e-5)
        assert not wide[rows:].any()
        assert not wide[:, columns:].any()


@pytest.mark.integration
@pytest.mark.parametrize("name", padded_problems())
def test_one_program_maps_over_seeds_and_widths(name):
    gradient, sizes = padded_problems()[name]
    keys, widths = jax.random.split(jax.random.key(12), 3), jnp.asarray([1, 2, 4])

    def at(key, width):
        return flat(gradient(key, *(Size(4, width) if i == 1 else n for i, n in enumerate(sizes))))

    mapped = np.asarray(jax.jit(jax.vmap(jax.vmap(at, (None, 0)), (0, None)))(keys, widths))
    alone = jax.jit(lambda key: [at(key, width) for width in (1, 2, 4)])
    for i, key in enumerate(keys):
        np.testing.assert_allclose(mapped[i], alone(key), rtol=2e-5, atol=2e-5)
    assert len(np.unique(mapped.round(4), axis=0)) == 3


@pytest.mark.integration
def test_narrow_networks_are_the_leading_blocks_of_wide_ones():
    narrow, wide = (deep_linear.init(jax.random.key(0), (n, 2 * n, n)) for n in (3, 6))
    for small, large in zip(narrow, wide, strict=True):
        np.testing.assert_array_equal(small, large[: small.shape[0], : small.shape[1]])
    narrow, wide = (relu_network.init(jax.random.key(0), n, 2 * n, n) for n in (3, 6))
    for small, large in zip(narrow, wide, strict=True):
        np.testing.assert_array_equal(small, large[: small.shape[0], : small.shape[1]])


def test_layers_and_networks_have_independent_weights():
    for params in (
        deep_linear.init(jax.random.key(0), (3, 3, 3)),
        relu_network.init(jax.random.key(0), 3, 3, 3),
    ):
        assert not np.allclose(params[0], params[1])


@pytest.mark.integration
@pytest.mark.usefixtures("x64")
def test_the_relu_hessian_is_finite_and_symmetric():
    model, params, target, _ = relu()
    shapes = jax.tree.structure(params), [p.shape for p in params]

    @jax.jit
    def gradient(vector):
        first = vector[: 4 * 3].reshape(shapes[1][0])
        return flat(
            model.gradient(
                relu_network.Params(first, vector[4 * 3 :].reshape(shapes[1][1])), target
            )
        )

    vector = np.asarray(flat(params))
    hessian = np.asarray(jax.jit(jax.jacfwd(gradient))(vector))
    np.testing.assert_allclose(hessian, hessian.T, rtol=1e-11, atol=1e-11)
    step = 1e-5
    direction = np.random.default_rng(0).standard_normal(vector.shape)
    ahead, behind = (np.asarray(gradient(vector + sign * step * direction)) for sign in (1, -1))
    difference = (ahead - behind) / (2 * step)
    np.testing.assert_allclose(hessian @ direction, difference, rtol=1e-7, atol=1e-7)


@pytest.mark.integration
@pytest.mark.parametrize("d0", [1, 3])
@pytest.mark.usefixtures("x64")
def test_dead_and_parallel_units_have_finite_gradients(d0):
    w1 = np.outer([1.0, 0.0, -2.0], np.ones(d0))
    gradient = jax.jit(relu_network.gradient)(
        relu_network.Params(w1, np.ones((2, 3))), np.ones((2, d0))
    )
    gradient = jax.tree.map(np.asarray, gradient)
    # Units 0 and 2 are antiparallel: F = 0 between them, and the dead unit feels the target alone.
    np.testing.assert_allclose(gradient.w1[0], 2 * w1[0] / 2 - 1, atol=1e-12)
    np.testing.assert_allclose(gradient.w1[1], 2 * (w1[0] + w1[2]) / 4 - 1, atol=1e-12)
    np.testing.assert_allclose(gradient.w1[2], 2 * w1[2] / 2 - 1, atol=1e-12)


@pytest.mark.integration
@pytest.mark.usefixtures("x64")
def test_hidden_gram_is_the_average_of_the_activations():
    w1 = jnp.asarray(np.random.default_rng(1).standard_normal((3, 2)))

    def sample(key):
        h = jax.nn.relu(w1 @ jax.random.normal(key, (2,)))
        return jnp.outer(h, h)

    mean, error = simulate(sample, jax.random.key(13), chunks=25)
    gram = np.asarray(jax.jit(relu_network.hidden_gram)(w1))
    assert (np.abs(mean - gram) < 4 * error).all()
    assert np.linalg.matrix_rank(jax.jit(lambda gram: polar(gram, SVD()))(gram)) == 3
