"""Operators, numbers and text of expressions."""

import re
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import moments
from tests.wrong_calls import wrong_calls

D, K = moments.symbol("d"), moments.symbol("k")
U = moments.gaussian("U", "d", "k")
PHI = moments.constant("Phi", "d", "k")
M = moments.constant("M", "d", "d", symmetric=True)


def test_words_are_equal_up_to_rotation_transposition_and_order():
    a, b = moments.constant("A", "d", "d"), moments.constant("B", "d", "d")
    assert moments.trace(a @ b @ U @ U.T) == moments.trace(U @ U.T @ b.T @ a.T)
    assert (a @ b).T == b.T @ a.T != a.T @ b.T
    assert moments.trace(a @ b) * moments.trace(U @ U.T) == moments.trace(U.T @ U) * moments.trace(
        b @ a
    )
    assert a + b - a == b
    assert M.T == M
    assert a != a.T
    assert (a - a).terms == {}
    assert (U * U).sum() == moments.squared_norm(U) == moments.trace(U @ U.T)
    assert moments.diagonal(a @ b).sum() == moments.trace(a @ b)
    assert moments.identity("d") @ a == a == a * moments.ones("d", "d")
    assert moments.trace(moments.identity("d")).value == D
    assert U[:, 1] == U.T[1]
    assert U[:] == U[:, :] == U
    assert U[0, :][1] == U[0, 1]
    assert moments.ones("d", "k").sum().value == D * K


@pytest.mark.integration
def test_values_by_einsum_are_those_of_numpy():
    rng = np.random.default_rng(0)
    phi, m = rng.normal(size=(3, 4)), rng.normal(size=(3, 3))
    m = m + m.T
    word = (
        2 * M @ PHI @ PHI.T
        + D * moments.trace(M) * moments.identity("d")
        - 3 * M**2
        + moments.ones("d", "d")
    )
    wanted = 2 * m @ phi @ phi.T + 3 * np.trace(m) * np.eye(3) - 3 * m**2 + 1
    np.testing.assert_allclose(word(M=m, Phi=phi), wanted, rtol=1e-13)
    np.testing.assert_allclose(word[2, 1](M=m, Phi=phi), wanted[2, 1], rtol=1e-13)
    np.testing.assert_allclose(word[1](M=m, Phi=phi), wanted[1], rtol=1e-13)
    np.testing.assert_allclose(moments.diagonal(word)(M=m, Phi=phi), np.diag(wanted), rtol=1e-13)
    np.testing.assert_allclose(moments.identity("d")[1](d=3), [0, 1, 0])
    np.testing.assert_allclose((M @ PHI).sum(1)(M=m, Phi=phi), (m @ phi).sum(1), rtol=1e-13)


@pytest.mark.integration
@pytest.mark.usefixtures("x64")
def test_values_broadcast_over_sizes_and_differentiate_in_scales():
    sigma = moments.symbol("sigma")
    u = moments.gaussian("U", "d", "k", variance=sigma**2)
    found = moments.expectation(moments.trace(u @ u.T @ u @ u.T))  # σ⁴ d k (d + k + 1)
    d, k = jnp.arange(1, 4)[:, None], jnp.arange(2, 6)
    np.testing.assert_array_equal(
        jax.jit(found)(d=d, k=k, sigma=2.0), 16 * (d * k[None] * (d + k[None] + 1))
    )
    slope = jax.grad(lambda s: found(d=3, k=4, sigma=s))(0.5)
    np.testing.assert_allclose(slope, 4 * 0.5**3 * 96, rtol=1e-14)
    matrix = moments.expectation(u @ u.T)
    assert matrix(d=3, k=k, sigma=1.0).shape == (4, 3, 3)
    assert found(d=3, k=4, sigma=np.float32(2)).dtype == jnp.float64


def test_exact_values_are_integers_of_any_length_and_fractions():
    found = moments.expectation(moments.trace(moments.matrix_power(U @ U.T, 3)))
    n = 10**9
    assert found.exact(d=n, k=n) == 5 * n**4 + 6 * n**3 + 4 * n**2
    assert type(found.exact(d=n, k=n)) is int
    # d = 1: E (x² + y²)³ = 2 · 4 · 6.
    assert (found / K**5).exact(d=1, k=2) == Fraction(2 * 4 * 6, 32)
    values = found.exact(d=np.arange(1, 4), k=np.array([[1], [2]]))
    assert values.shape == (2, 3)
    assert values[1, 2] == found.exact(d=3, k=2)


def test_what_an_expression_has_not_is_left_out_of_its_values():
    """A target that an odd power took away has no say in the shape."""
    found = moments.expectation(U @ U.T)
    assert found(d=2, k=3, Phi=np.ones((5, 7))).shape == (2, 2)
    assert moments.trace(found).exact(d=2, k=3, n=[1, 2]) == 6


@pytest.mark.usefixtures("unchecked")
def test_expressions_are_no_sequences_and_numpy_scales_them():
    with pytest.raises(TypeError):
        list(U)
    assert np.float64(2) * U == 2 * U == np.int64(2) * U
    assert 1 + moments.trace(M) == K / K + moments.trace(M) == moments.trace(M) - -1


def test_numbers_are_the_simplest_fractions_that_were_written():
    assert (0.1 * U).terms == (Fraction(1, 10) * U).terms
    assert (U / 3.0).terms == (Fraction(1, 3) * U).terms == (U * (1 / 3)).terms
    assert K**-1 * K == 1
    assert (4 * K**2) ** Fraction(1, 2) == 2 * K
    assert (D + K) ** 2 == D**2 + 2 * D * K + K**2
    assert 1 / K - K == -(K - 1 / K)


def test_expressions_print_as_they_are_written():
    gradient = (U @ U.T - M) @ U
    found = moments.expectation(gradient @ gradient.T)
    assert (
        str(found)
        == "k M M + (-2 d k - 2 k^2 - 2 k) M + (3 d k^2 + d^2 k + k^3 + 3 d k + 3 k^2 + 4 k) I"
    )
    assert str(moments.trace(PHI @ PHI.T) ** 2 / 2) == "1/2 tr(Phi Phiᵀ)^2"
    assert str(moments.variance(U @ U.T)) == "k I[i,j] + k"
    assert str((PHI**2).sum(1)) == "(Σ_a Phi[i,a]^2)"
    assert str(U[0, 1]) == "U[0,1]"
    assert str(moments.trace(M) - moments.trace(M)) == "0"
    assert (moments.trace(PHI @ PHI.T) / 2).latex() == r"\frac{1}{2} \mathrm{tr}(\Phi \Phi^{\top})"
    assert moments.expectation(U @ U.T @ U @ U.T).latex() == "(d k + k^{2} + k) I"
    assert (moments.symbol("sigma_w") / moments.symbol("d0")).text(
        latex=True
    ) == r"d_{0}^{-1} \sigma_{w}"


def test_every_term_can_be_dropped():
    found = moments.expectation(U @ U.T @ U @ U.T)
    dropped = found.dropped()
    assert sum(found.parts(), start=0 * found) == found
    assert set(dropped) == {"without d k I", "without k^2 I", "without k I"}
    assert dropped["without k I"] == found - K * moments.identity("d")
    # Along k, d k and k are one term; along nothing each contraction is.
    assert set(found.dropped(along="k")) == {"without (d k + k) I", "without k^2 I"}
    assert found.parts(along=("k", "d")) == found.parts()
    assert (found + M).parts(along=()) == (found, M)


def test_the_powers_of_a_growing_size_add_up_to_the_whole():
    w, c = moments.symbol("w"), moments.symbol("c")
    found = moments.expectation(moments.trace(moments.matrix_power(U @ U.T, 3)))
    grown = moments.orders(found, "w", d=w, k=c * w)
    assert (grown.exponent, str(grown.leading)) == (4, "c^3 + 3 c^2 + c")
    assert [(power, str(part)) for power, part in [grown.correction]] == [(3, "3 c^2 + 3 c")]
    total = sum(part.exact(c=Fraction(1, 2)) * 6**power for power, part in grown.parts)
    assert total == found.exact(d=6, k=3)
    # A size that is not named is fixed, and a size along which it grows needs no other name.
    assert moments.orders(found, "k").exponent == 3
    assert moments.orders(found, "w", d=w, k=w**2).correction[0] == 6
    assert (
        str(moments.orders(moments.expectation(U @ U.T @ U @ U.T), "k")) == "k^2  I\nk^1  (d + 1) I"
    )
    # Leading terms that cancel at one ratio leave the next.
    assert moments.orders((D**2 - K**2 + D) * moments.ones(), "w", d=w, k=w).exponent == 1


SQUARE = moments.gaussian("W", "d", "d")
BAD = """
U @ U
    The sizes of a product do not chain: shapes ('d', 'k') and ('d', 'k'); transpose one of them
    with .T.
moments.trace(U)
    A trace is one of a square matrix, got shape ('d', 'k').
moments.diagonal(U)
    A diagonal is one of a square matrix, got shape ('d', 'k').
moments.matrix_power(U, 2)
    A power is one of a square matrix, got shape ('d', 'k').
moments.matrix_power(SQUARE, -1)
    A power of a matrix that is polynomial is at least 0, got -1.
U + U.T
    A sum needs equal shapes, got ('d', 'k') and ('k', 'd'); a number times a matrix is 2 *
    identity(size).
SQUARE - 1
    A sum needs equal shapes, got ('d', 'd') and (); a number times a matrix is 2 * identity(size).
U * U.T
    An elementwise product needs equal shapes, got ('d', 'k') and ('k', 'd'); matrices take @.
moments.trace(SQUARE) @ U
    A product needs matrices or vectors, got shapes () and ('d', 'k'); numbers take *.
U[0, 1, 2]
    An entry of shape ('d', 'k') has up to 2 places, each counted from 0 or ':', got (0, 1, 2).
U[-1]
    An entry of shape ('d', 'k') has up to 2 places, each counted from 0 or ':', got (-1,).
U[0:2]
    An entry of shape ('d', 'k') has up to 2 places, each counted from 0 or ':', got (slice(0, 2,
    None),).
moments.identity("d")(d=2.5)
    The size d is the length of an axis of the result, one whole number of at least 0, got 2.5.
moments.identity("d")(d=np.array([2, 3]))
    The size d is the length of an axis of the result, one whole number of at least 0, got [2 3].
moments.gaussian("V", 2, 3)[2]
    An axis of size 2 has the places 0 to 1, got 2.
U.sum(2)
    An expression of shape ('d', 'k') has no axis 2.
U / U
    This is not a polynomial in sizes and scales alone: U.
U**-1
    This is not a polynomial in sizes and scales alone: U.
D / (D + K)
    Only one monomial has the power -1, got d + k.
(2 * K) ** Fraction(1, 2)
    2 has no rational power 1/2; give the whole scale a name of its own.
U * float("nan")
    Coefficients are finite numbers, got nan.
moments.gaussian("U 1", "d")
    A name is an identifier such as "d", "d0" or "Phi", got 'U 1'.
moments.gaussian("U", "d", 0)
    A size is a name or an int of at least 1, got 0 in the shape of 'U'.
moments.constant("M", "d", "k", symmetric=True)
    A symmetric constant is a square matrix, got 'M' of shape ('d', 'k').
U @ moments.gaussian("U", "k", "d")
    Two different symbols have the name 'U': Gaussian of shape ('d', 'k'), variance 1 and Gaussian
    of shape ('k', 'd'), variance 1.
moments.gaussian("X", "n", "d", covariance={1: PHI})
    The covariance along axis 1 must be a symmetric constant; make it with constant(name, size,
    size, symmetric=True).
moments.gaussian("X", "n", "d", covariance={0: M})
    The covariance along axis 0 must have its size n, got shape ('d', 'd').
U(d=2, k=3)
    An expression has a value after `expectation`, and the symbols U are random.
M[0, 3](M=np.eye(3))
    The expression has the entry at place 3 of an axis of M, which here has the size 3.
moments.identity("d")[3](d=2)
    The expression has the entry at place 3 of an axis of the identity, which here has the size 2.
(K**0.5 * moments.ones()).exact(k=4)
    The expression has roots of k; call it for a float64 value.
moments.trace(M)()
    A value needs M; got nothing.
moments.expectation(U @ U.T)(k=2)
    A value needs d; got k.
(M @ PHI)(M=np.eye(3), Phi=np.ones((2, 4)))
    Phi has the shape ('d', 'k') with d = 3, got an array of shape (2, 4).
moments.trace(M)(M=np.ones(3))
    M has the shape ('d', 'd'), got an array of shape (3,).
moments.trace(M).exact()
    An exact value is that of a scalar without symbols left; call the expression for a float64 one.
moments.expectation(moments.squared_norm(U)).exact(d=2, k=0.5)
    Exact values need integers or Fractions, got k=0.5.
moments.covariance(U, U.T)
    A covariance entry by entry needs equal shapes, got ('d', 'k') and ('k', 'd').
moments.orders(0 * U, "w")
    An expression that is zero has no order of growth.
moments.orders(K * moments.identity("d"), "w", n=1)
    The expression has no n; it has k.
"""


@pytest.mark.parametrize(("call", "message"), wrong_calls(BAD))
@pytest.mark.usefixtures("unchecked")
def test_a_wrong_call_is_refused_in_one_sentence(call, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        eval(call)


@pytest.mark.usefixtures("unchecked")
def test_several_words_at_once_are_mapped():
    with pytest.raises(
        TypeError,
        match=(
            r"^An expectation is that of an Expression, got tuple; of several at once, jax.tree.map"
        ),
    ):
        moments.expectation((U, U))
    assert jax.tree.map(moments.expectation, (U, U @ U.T)) == (0 * U, K * moments.identity("d"))
