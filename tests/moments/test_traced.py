"""Words of traced functions: against words written by hand, and against the function itself at
numbers.
"""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import moments
from specjax.models import deep_linear
from tests.wrong_calls import wrong_calls

D, K = moments.symbol("d"), moments.symbol("k")
SHAPE = {"u": ("d", "k")}
U = moments.gaussian("u", "d", "k")
M = moments.constant("m", "d", "d", symmetric=True)
IDENTITY = moments.identity("d")

WRITTEN = {
    "a trace": (lambda u: jnp.trace(u @ u.T), moments.trace(U @ U.T)),
    "a mean": (lambda u: jnp.mean(u**2), moments.squared_norm(U) / (D * K)),
    "a scale by a size": (lambda u: u / jnp.sqrt(u.shape[1]), U * K ** (-1 / 2)),
    "entries": (lambda u: u[0, 1] * u[1, 1] + u[0, 0], U[0, 1] * U[1, 1] + U[0, 0]),
    "a row": (lambda u: u[1], U[1]),
    "a column": (lambda u: u[:, 1], U.T[1]),
    "a diagonal": (lambda u: jnp.diag(u @ u.T), moments.diagonal(U @ U.T)),
    "a diagonal by einsum": (lambda u: jnp.einsum("ii->i", u @ u.T), moments.diagonal(U @ U.T)),
    "an identity": (lambda u: u @ u.T - 2 * jnp.eye(u.shape[0]), U @ U.T - 2 * IDENTITY),
    "what is not on the diagonal": (
        lambda u: jnp.where(jnp.eye(u.shape[0], dtype=bool), 0.0, u @ u.T),
        U @ U.T - IDENTITY * (U @ U.T),
    ),
    "a power": (lambda u: jnp.linalg.matrix_power(u @ u.T, 3), moments.matrix_power(U @ U.T, 3)),
    "a numeric factor": (lambda u: 0.1 * u - u / 3, U * (1 / 10) - U * (1 / 3)),
    "an outer product": (lambda u: jnp.outer(u[:, 0], u[:, 0])[0], U[0, 0] * U.T[0]),
    "a derivative of an entry": (lambda u: jax.grad(lambda w: w[0, 1] ** 2)(u)[0, 1], 2 * U[0, 1]),
    "vmap": (jax.vmap(lambda u: jnp.sum(u**2)), moments.diagonal(U @ U.T)),
    "jit": (jax.jit(lambda u: (u.T @ u).sum(axis=0)), (U.T @ U).sum(0)),
    "custom derivatives": (jax.checkpoint(lambda u: jnp.square(u).sum()), moments.squared_norm(U)),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_a_function_is_the_word_that_is_written_for_it(name):
    function, word = WRITTEN[name]
    assert moments.express_function(function, gaussian=SHAPE) == word


def loss(u, m):
    return jnp.sum((u @ u.T - m) ** 2) / 4


def test_gradients_and_directional_hessians_are_those_by_hand():
    gradient = (U @ U.T - M) @ U
    assert moments.express_function(jax.grad(loss), gaussian=SHAPE, constant={"m": M}) == gradient
    v = moments.constant("v", "d", "k")
    hessian = moments.express_function(
        lambda u, m, v: jax.jvp(jax.grad(loss), (u, m), (v, jnp.zeros_like(m)))[1],
        gaussian=SHAPE,
        constant={"m": M, "v": ("d", "k")},
    )
    assert hessian == (U @ U.T - M) @ v + v @ U.T @ U + U @ v.T @ U


def test_a_step_of_descent_is_a_polynomial_in_its_size():
    found = moments.express_function(
        lambda u, m, eta: u - eta * jax.grad(loss)(u, m),
        gaussian=SHAPE,
        constant={"m": M, "eta": ()},
    )
    assert found == U - moments.symbol("eta") * (U @ U.T - M) @ U


@pytest.mark.usefixtures("unchecked")
def test_models_of_the_library_are_followed():
    """Lists of shapes are tuples of matrices; the structure that is returned is kept."""
    gaussian = {"params": [("d1", "d0"), ("d2", "d1")]}
    first, second = (
        moments.gaussian("params_1", "d1", "d0"),
        moments.gaussian("params_2", "d2", "d1"),
    )
    target = moments.constant("target", "d2", "d0")
    residual = second @ first - target
    found = moments.express_function(
        deep_linear.gradient, gaussian=gaussian, constant={"target": ("d2", "d0")}
    )
    assert found == (second.T @ residual, residual @ first.T)
    assert found == moments.express_function(
        jax.grad(deep_linear.loss), gaussian=gaussian, constant={"target": ("d2", "d0")}
    )
    batch = {**gaussian, "x": ("n", "d0")}
    sampled = moments.express_function(
        deep_linear.sampled_loss, gaussian=batch, constant={"target": ("d2", "d0")}
    )
    x = moments.gaussian("x", "n", "d0")
    assert sampled == moments.squared_norm(x @ residual.T) / (2 * moments.symbol("n"))


NAMED, NUMBERED = ("d", "d"), (3, 3)
ORDINARY = [
    (lambda w, a: (w @ a) ** 3 - 2 * jnp.einsum("ij,ij->j", w, w * a)[None], NAMED),
    (lambda w, a: jnp.where(jnp.eye(3, dtype=bool), w @ a, a**2).sum(axis=1) * w[0, 2], NUMBERED),
    (lambda w, a: jax.grad(lambda x: jnp.sum(jnp.diag(x @ a) ** 2) + x[1, 2] ** 3)(w), NAMED),
    (lambda w, a: jnp.mean(w, axis=0, keepdims=True) * a + jnp.swapaxes(a, 0, 1)[:, :1], NAMED),
    (lambda w, a: jnp.diag(w @ a[0]) + jnp.trace(a) * jnp.ones_like(a), NAMED),
]


@pytest.mark.parametrize(("function", "shape"), ORDINARY)
def test_at_numbers_a_word_is_the_function(function, shape):
    """Both arguments as constants, so that the word has a value."""
    word = moments.express_function(function, gaussian={}, constant={"w": shape, "a": shape})
    w, a = np.random.default_rng(3).normal(size=(2, 3, 3))
    with jax.enable_x64(True):
        found, wanted = jax.jit(lambda w, a: (word(w=w, a=a), function(w, a)))(w, a)
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-13)


REFUSED = """
jnp.tanh(u)
    'tanh', applied to shape ('d', 'k'): words are polynomials
jax.nn.relu(u @ u.T)
    The function is not followed through 'max', applied to shape ('d', 'd') and ()
jnp.linalg.inv(u @ u.T)
    The function is not followed through 'lu'
jnp.linalg.norm(u)
    The function is not polynomial: 'the power 1/2' of something that is not a number, of shape ().
1 / jnp.sum(u**2)
    The function is not polynomial: 'div' of something that is not a number, of shape ().
jax.lax.fori_loop(0, 3, lambda _, w: 2 * w, u)
    The function is not followed through 'scan'
u[-1]
    The function takes the place d - 1; entries are followed at places that are numbers from 0 on.
u.ravel()
    The function makes an axis of size d*k; sizes of axes are names or numbers, so keep axes apart:
    jnp.sum(a * b) in place of jnp.vdot(a, b).
u * jnp.arange(u.shape[1], dtype=u.dtype)[None]
    The function is not followed through
u.astype(int)
    The function rounds, or counts bits, by 'convert_element_type' to int64; words are polynomials.
u * jax.lax.div(jnp.asarray(u.shape[0]), 2)
    The function rounds, or counts bits, by 'div' to int64
u[-1:]
    The function takes the place
jnp.eye(u.shape[0], k=1)
    only an identity and single places are followed, no other diagonal.
u[::2]
    The function makes an axis of size floordiv(d + 1, 2); sizes of axes are names or numbers
"""


@pytest.mark.parametrize(("value", "message"), wrong_calls(REFUSED))
def test_what_is_not_polynomial_is_refused_by_name(value, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        moments.express_function(eval(f"lambda u: {value}"), gaussian=SHAPE)


def test_numbers_of_the_function_are_arguments():
    """What an array of numbers is at other sizes, nobody knows."""
    message = (
        "The function has an array of shape (2, 2) with numbers of its own; pass it as an argument,"
        " in `constant`."
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        moments.express_function(
            lambda u: u * np.array([[1.0, 2.0], [3.0, 4.0]]), gaussian={"u": (2, 2)}
        )


def test_a_kernel_is_followed_through_jacobians():
    """The neural tangent kernel at two inputs: x·y W_2 W_2ᵀ + W_1 x·W_1 y I, of mean 2 d_1 x·y
    I.
    """
    shapes, inputs = {"w1": ("d1", "d0"), "w2": ("d2", "d1")}, {"x": ("d0",), "y": ("d0",)}
    output = lambda w1, w2, x: w2 @ (w1 @ x)  # noqa: E731
    w1, w2 = (moments.gaussian(name, *shape) for name, shape in shapes.items())
    x, y = (moments.constant(name, "d0") for name in inputs)
    wanted = (x @ y) * (w2 @ w2.T) + ((w1 @ x) @ (w1 @ y)) * moments.identity("d2")

    def kernel(w1, w2, x, y):
        at_x, at_y = (jax.jacrev(output, argnums=(0, 1))(w1, w2, each) for each in (x, y))
        return sum(jnp.einsum("aij,bij->ab", a, b) for a, b in zip(at_x, at_y, strict=True))

    found = moments.express_function(kernel, gaussian=shapes, constant=inputs)
    assert found == wanted
    assert moments.expectation(found) == 2 * moments.symbol("d1") * (x @ y) * moments.identity("d2")


def basis(u):
    """The matrices with one entry 1, of shape (d, k, d, k)."""
    return jnp.einsum(
        "ai,bj->abij", jnp.eye(u.shape[0], dtype=u.dtype), jnp.eye(u.shape[1], dtype=u.dtype)
    )


def test_the_hessian_by_a_matrix_is_followed_along_a_basis():
    """All of it against the directions of one more matrix, and its trace against the mean over
    Gaussian ones (Hutchinson, 1989).
    """
    gradient = jax.grad(loss)

    def along(u, m, v):
        return jax.jvp(lambda w: gradient(w, m), (u,), (v,))[1]

    def hessian(u, m):
        return jax.vmap(jax.vmap(lambda e: along(u, m, e)))(basis(u))

    one, all_of_it, total = (
        moments.express_function(function, gaussian={**SHAPE, **more}, constant={"m": M})
        for function, more in (
            (lambda u, m, v: jnp.sum(v * along(u, m, v)), {"v": ("d", "k")}),
            (lambda u, m, v: jnp.einsum("abij,ab,ij->", hessian(u, m), v, v), {"v": ("d", "k")}),
            (lambda u, m: jnp.einsum("abab->", hessian(u, m)), {}),
        )
    )
    assert one == all_of_it
    wanted = (D + K + 1) * moments.squared_norm(U) - K * moments.trace(M)
    assert moments.expectation(one, over="v") == total == wanted


def test_second_derivatives_by_a_vector_are_followed():
    hessian = moments.express_function(
        jax.hessian(lambda v: jnp.sum(v**2) ** 2), gaussian={"v": ("d",)}
    )
    v = moments.gaussian("v", "d")
    column = moments.express_function(lambda v: v[:, None] @ v[None], gaussian={"v": ("d",)})
    assert hessian == 4 * moments.squared_norm(v) * IDENTITY + 8 * column


def test_arguments_are_gaussian_or_constant_and_have_shapes():
    with pytest.raises(
        ValueError,
        match=r"^The function has the arguments a, b; `gaussian` and `constant` name u\.$",
    ):
        moments.express_function(lambda a, b: a @ b, gaussian=SHAPE)
    with pytest.raises(ValueError, match=r"^An argument is Gaussian or constant, and u is both\.$"):
        moments.express_function(lambda u: u, gaussian=SHAPE, constant=SHAPE)
    with pytest.raises(
        ValueError,
        match=r"The argument 'u' needs a shape such as \('d', 'k'\) or a symbol, got 'd'.",
    ):
        moments.express_function(lambda u: u, gaussian={"u": "d"})
