from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import spectral
from specjax.spectral import QDWH, Newton, NewtonSchulz, polar
from specjax.spectral.polynomials import CUBIC
from tests.reference.spectra import matrix_with, named, orthogonal
from tests.spectral.differences import directional

pytestmark = pytest.mark.usefixtures("x64")

CASES = {
    "generic": matrix_with((1.3, 0.9, 0.5, 0.2), (4, 4), 1),
    "identity": np.eye(4),
    "all-equal": named("repeated"),
    "pair-equal": named("repeated-pair"),
    "wide": named("wide"),
    "tall": named("tall"),
    "row": named("row"),
    "scalar": named("scalar"),
}
every_case = pytest.mark.parametrize("x", CASES.values(), ids=CASES)
wide_square_tall = pytest.mark.parametrize("name", ["generic", "pair-equal", "tall"])


def reference(x):
    """The polar factor by numpy's own decomposition."""
    u, _, vt = np.linalg.svd(x, full_matrices=False)
    return u @ vt


def direction(x, seed=0):
    d = np.random.default_rng(seed).standard_normal(x.shape)
    return 0.1 * d / np.linalg.norm(d)


@partial(jax.jit, static_argnums=0)
def derivative(f, x, dx):
    return jax.jvp(f, (x,), (dx,))[1]


@jax.jit
def second_derivative(x, dx, other):
    return jax.jvp(lambda x: jax.jvp(polar, (x,), (dx,))[1], (x,), (other,))[1]


def close(measured, expected, tolerance=1e-9):
    np.testing.assert_allclose(measured, expected, rtol=0, atol=tolerance)


@every_case
def test_it_is_the_limit_of_differences(x):
    dx = direction(x)
    close(derivative(polar, x, dx), directional(reference, x, dx))


@pytest.mark.parametrize(
    "method", [Newton(), QDWH(), NewtonSchulz(16, CUBIC)], ids=["newton", "qdwh", "cubic"]
)
@pytest.mark.parametrize("name", ["pair-equal"])
def test_converged_methods_share_one_derivative(method, name):
    x, dx = CASES[name], direction(CASES[name])
    close(derivative(lambda x: polar(x, method), x, dx), derivative(polar, x, dx), 1e-11)


@pytest.mark.integration
@pytest.mark.parametrize("name", ["generic", "pair-equal"])
def test_newton_schulz_is_differentiated_as_its_polynomials(name):
    """Muon's five steps do not converge: their derivative is that of their own map."""
    x, dx = CASES[name], direction(CASES[name])

    @jax.jit
    def muon(x):
        return polar(x, NewtonSchulz())

    measured = derivative(muon, x, dx)
    close(measured, directional(muon, x, dx, 1e-4), 1e-7)
    assert np.abs(measured - derivative(polar, x, dx)).max() > 1e-2


@pytest.mark.parametrize("x", [CASES[name] for name in ("generic", "identity", "pair-equal")])
def test_second_derivatives_are_limits_of_first_differences(x):
    dx, other = direction(x), direction(x, 1)
    measured = second_derivative(x, dx, other)
    close(
        measured, directional(lambda x: directional(reference, x, dx, 1e-2), x, other, 1e-2), 2e-6
    )
    # The order of differentiation does not matter.
    close(measured, second_derivative(x, other, dx), 1e-11)


@pytest.mark.integration
def test_the_third_derivative_at_repeated_singular_values():
    """Along x + t k, k antisymmetric, the factor of the identity is exp of arctan: (1 + t k) (1 -
    t² k²)^(-1/2).
    """
    k = jnp.asarray([[0.0, 1.0], [-1.0, 0.0]])

    def along(t):
        return polar(jnp.eye(2) + t * k)[0, 1]

    orders = [along]
    for _ in range(3):
        orders.append(jax.grad(orders[-1]))
    # sin(arctan t) = t - t³/2 + ...
    found = jax.jit(lambda t: jnp.stack([f(t) for f in orders]))(0.0)
    np.testing.assert_allclose(found, [0, 1, 0, -3], atol=1e-12)


@pytest.mark.integration
@wide_square_tall
def test_the_jacobian_is_the_hessian_of_the_nuclear_norm(name):
    x = CASES[name]
    functions = jax.jacfwd(polar), jax.jacrev(polar), jax.grad(spectral.nuclear_norm), polar
    forward, reverse, slope, factor = map(
        np.asarray, jax.jit(lambda x: [f(x) for f in functions])(x)
    )
    jacobian = forward.reshape(x.size, x.size)
    close(jacobian, jacobian.T, 1e-13)
    close(reverse, forward, 1e-13)
    eigenvalues = np.linalg.eigvalsh(jacobian)
    # The norm is convex, and linear along x itself.
    assert eigenvalues.min() > -1e-12
    close(jacobian @ x.ravel(), np.zeros(x.size), 1e-13)
    close(slope, factor, 1e-12)


@pytest.mark.integration
def test_this_gradient_is_finite_where_grad_of_svd_is_nan():
    def through_svd(x):
        u, _, vt = jnp.linalg.svd(x, full_matrices=False)
        return (u @ vt)[0, 1]

    functions = through_svd, lambda x: polar(x)[0, 1]
    plain, found = jax.jit(lambda x: [jax.grad(f)(x) for f in functions])(np.eye(3))
    assert np.isnan(plain).any()
    # dP = (dx - dxᵀ) / 2 at the identity.
    expected = np.zeros((3, 3))
    expected[0, 1], expected[1, 0] = 0.5, -0.5
    close(found, expected, 1e-15)


@pytest.mark.integration
def test_a_batch_and_a_map_are_their_slices():
    x = np.random.default_rng(2).standard_normal((2, 3, 4))
    dx = np.random.default_rng(3).standard_normal(x.shape)
    batched = derivative(polar, x, dx)
    mapped = jax.jit(jax.vmap(lambda x, dx: jax.jvp(polar, (x,), (dx,))[1]))(x, dx)
    pulled = jax.jit(jax.vmap(lambda x, dx: jax.vjp(polar, x)[1](dx)[0]))(x, dx)
    for i in range(2):
        expected = derivative(polar, x[i], dx[i])
        for measured in (batched[i], mapped[i], pulled[i]):
            close(measured, expected, 1e-13)


@pytest.mark.parametrize("exponent", [-30, 0, 30])
def test_it_scales_as_the_reciprocal_of_x(exponent):
    x, dx = CASES["wide"], direction(CASES["wide"])
    close(
        10.0**exponent * derivative(polar, 10.0**exponent * x, dx), derivative(polar, x, dx), 1e-11
    )


@pytest.mark.parametrize("smallest", [1e-3, 1e-6, 1e-9])
def test_it_grows_as_one_over_the_smallest_singular_values(smallest):
    u, v = orthogonal(3, 5), orthogonal(5, 6)
    x = (u * [1.0, 0.5, smallest]) @ v[:3]
    turn, tilt = (np.outer(u[:, 2], v[j]) for j in (1, 4))
    # Into the row space the denominator is s_2 + s_3, out of it s_3 alone.
    expected = (np.outer(u[:, 2], v[1]) - np.outer(u[:, 1], v[2])) / (0.5 + smallest)
    close(derivative(polar, x, turn), expected, 1e-14 / smallest)
    close(smallest * derivative(polar, x, tilt), tilt, 1e-14 / smallest)


@pytest.mark.parametrize("name", ["rank-deficient", "rank-deficient-tall"])
def test_it_is_exact_along_deficient_matrices_of_equal_rank(name):
    x = named(name)
    rng = np.random.default_rng(1)
    left, right = (0.1 * rng.standard_normal((n, n)) for n in x.shape)

    def along(t):
        # (1 + t left) x (1 + t right) keeps the rank.
        y = (np.eye(len(left)) + t * left) @ x @ (np.eye(len(right)) + t * right)
        u, s, vt = np.linalg.svd(y, full_matrices=False)
        return (u * (s > 1e-9)) @ vt

    expected = directional(along, np.asarray(0.0), np.asarray(1.0))
    close(derivative(polar, x, left @ x + x @ right), expected)


@pytest.mark.integration
def test_between_null_spaces_and_at_zero_it_is_zero():
    x = np.diag([2.0, 1.0, 0.0])
    across = np.zeros((3, 3))
    across[2, 2] = 1
    close(derivative(polar, x, across), np.zeros((3, 3)), 0)
    close(derivative(polar, np.zeros((2, 3)), np.ones((2, 3))), np.zeros((2, 3)), 0)
    muon = jax.jit(jax.grad(lambda x: jnp.sum(polar(x, NewtonSchulz()))))
    assert np.isfinite(muon(np.zeros((2, 3)))).all()


@wide_square_tall
def test_zero_padding_commutes_with_it(name):
    x, dx = CASES[name], direction(CASES[name])
    pad = ((0, 2), (0, 3))
    close(
        derivative(polar, np.pad(x, pad), np.pad(dx, pad)),
        np.pad(derivative(polar, x, dx), pad),
        1e-13,
    )


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_lower_precision_keeps_its_dtype(dtype):
    x = jnp.asarray(CASES["generic"]).astype(dtype)
    dx = jnp.asarray(direction(CASES["generic"])).astype(dtype)
    measured = derivative(polar, x, dx)
    assert measured.dtype == dtype
    exact = derivative(polar, np.asarray(x, np.float64), np.asarray(dx, np.float64))
    close(np.asarray(measured, np.float64), exact, 4 * float(jnp.finfo(dtype).eps))
