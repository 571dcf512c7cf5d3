import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.models import deep_linear, matrix_factorization, relu_network, targets
from specjax.sizes import Size

X = jnp.ones((5, 3))
CALLS = {
    "factorization": lambda t, f: getattr(matrix_factorization, f)(
        jnp.ones((3, 2)), t, *([X, X] if f == "sampled_loss" else [])
    ),
    "linear": lambda t, f: getattr(deep_linear, f)(
        (jnp.ones((3, 3)),), t, *([X] if f == "sampled_loss" else [])
    ),
    "relu": lambda t, f: getattr(relu_network, f)(
        relu_network.Params(jnp.ones((2, 3)), jnp.ones((3, 2))),
        t,
        *([X] if f == "sampled_loss" else []),
    ),
}
each_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
each_function = pytest.mark.parametrize("function", ["loss", "sampled_loss", "gradient"])


@each_call
@each_function
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("shape", [(3, 4), (4, 3), (1, 1), (3,), ()], ids=str)
def test_a_target_of_another_shape_is_refused(call, function, shape):
    with pytest.raises(
        ValueError, match=rf"must have shape \(3, 3\), got \({', '.join(map(str, shape))},?\)"
    ):
        call(jnp.ones(shape), function)


@each_call
@each_function
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_non_finite_target_is_refused_before_compilation(call, function, bad):
    target = jnp.ones((3, 3)).at[1, 2].set(bad)
    with pytest.raises(ValueError, match="must have finite entries, got NaN or infinity"):
        call(target, function)
    with pytest.raises(ValueError, match="must have finite entries"):
        jax.jit(lambda scale: scale * jax.tree.leaves(call(target, function))[0])(jnp.ones(()))


@each_call
@pytest.mark.usefixtures("unchecked")
def test_a_traced_target_is_checked_for_its_shape_only(call):
    jax.jit(lambda t: call(t, "loss"))(jnp.full((3, 3), jnp.nan))
    with pytest.raises(ValueError, match="must have shape"):
        jax.jit(lambda t: call(t, "loss"))(jnp.ones((3, 4)))


@pytest.mark.parametrize("dims", [(), (3,)], ids=str)
def test_a_linear_network_needs_two_sizes(dims):
    with pytest.raises(ValueError, match="at least an input and an output size, got dims="):
        deep_linear.init(jax.random.key(0), dims)


@pytest.mark.integration
def test_linear_targets_have_the_given_scale_and_nest():
    big = targets.linear_target(jax.random.key(0), 300, 400, 3.0)
    # The variance of n squares of N(0, 9) has relative standard error √(2/n).
    assert abs(np.mean(np.square(big)) / 9 - 1) < 4 * np.sqrt(2 / big.size)
    np.testing.assert_array_equal(targets.linear_target(jax.random.key(0), 2, 3, 3.0), big[:2, :3])
    padded = targets.linear_target(jax.random.key(0), Size(5, 2), 3, 3.0)
    np.testing.assert_array_equal(padded, np.pad(big[:2, :3], ((0, 3), (0, 0))))


def test_sign_targets_have_two_values_and_nest():
    big = targets.sign_target(jax.random.key(0), 30, 40, 3.0)
    assert set(np.unique(big)) == {-3, 3}
    assert abs(np.mean(big) / 3) * np.sqrt(big.size) < 4
    padded = targets.sign_target(jax.random.key(0), Size(5, 2), 3, 3.0)
    np.testing.assert_array_equal(padded, np.pad(big[:2, :3], ((0, 3), (0, 0))))


@pytest.mark.usefixtures("x64")
def test_low_rank_targets_are_semidefinite_of_their_rank():
    m = targets.low_rank_target(jax.random.key(1), 30, 4, 0.5)
    values = np.linalg.eigvalsh(m)
    np.testing.assert_allclose(m, m.T, rtol=0, atol=1e-14)
    np.testing.assert_allclose(values[:26], 0, atol=1e-12)
    assert values[26] > 1
    # E tr(s F Fᵀ) = s d rank, with standard deviation s √(2 d rank).
    assert abs(np.trace(m) - 60) < 4 * 0.5 * np.sqrt(240)
    assert (
        abs(np.trace(targets.low_rank_target(jax.random.key(1), 30, 4, 2.0)) - 4 * np.trace(m))
        < 1e-10
    )


def test_a_factorization_refuses_a_target_that_is_not_symmetric():
    u, m = jnp.ones((3, 2)), jnp.asarray([[1.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.1, 1.0]])
    for function in (matrix_factorization.loss, matrix_factorization.gradient):
        with pytest.raises(
            ValueError, match=r"must be symmetric, got a matrix that is not; pass \(M \+ M\.T\) / 2"
        ):
            function(u, m)
    symmetric = np.array(m + m.T)
    symmetric[0, 1] = np.nextafter(
        symmetric[0, 1], 9, dtype=np.float32
    )  # what rounding may leave of a product F Fᵀ
    assert jnp.isfinite(matrix_factorization.loss(u, jnp.asarray(symmetric)))
