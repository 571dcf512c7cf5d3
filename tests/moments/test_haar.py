"""Averages over orthogonal matrices against the inverse Gram matrix of all pairings, known moments,
and draws.
"""

import math
import re
from fractions import Fraction
from functools import cache

import jax
import numpy as np
import pytest
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.stats import beta, dirichlet, ortho_group

from specjax import moments
from specjax.moments._weingarten import loop_lengths, pairings, weingarten
from tests.wrong_calls import wrong_calls

Q = moments.haar("Q", "n")
A, B = moments.constant("A", "n", "n"), moments.constant("B", "n", "n")
N = moments.symbol("n")


def loops(p, q):
    """The components of the graph that has both pairings as edges."""
    ends = np.array([*p, *q]).T
    count = 2 * len(p)
    return connected_components(
        coo_array((np.ones(count), ends), shape=(count, count)), directed=False
    )[0]


@pytest.mark.parametrize("k", [1, 2, 3])
def test_weingarten_inverts_the_gram_matrix_of_all_pairings(k):
    every = pairings(2 * k)
    counts = np.array([[loops(p, q) for q in every] for p in every])
    for n in (k, k + 1, 40):
        inverse = np.linalg.inv(float(n) ** counts)
        found = [[float(weingarten(k).at(loop_lengths(p, q), n)) for q in every] for p in every]
        np.testing.assert_allclose(found, inverse, rtol=1e-8, atol=1e-10 * np.abs(inverse).max())


def test_eight_factors_invert_the_gram_matrix_at_new_sizes():
    """One row of the product, in fractions; the sizes of the solution are 4 to 8."""
    every = pairings(8)
    n = 23
    row = [Fraction(n) ** loops(every[0], q) for q in every]
    for r in every[::13]:
        total = sum(
            x * weingarten(4).at(loop_lengths(q, r), n) for x, q in zip(row, every, strict=True)
        )
        assert total == (r == every[0])


@pytest.mark.parametrize("n", [4, 5, 11])
def test_weingarten_of_four_and_six_factors_is_the_literatures(n):
    """Collins and Śniady (2006), Section 3 and the table of Collins and Matsumoto (2009)."""
    two, three = weingarten(2), weingarten(3)
    below = n * (n - 1) * (n + 2)
    assert [two.at(lengths, n) for lengths in ((1, 1), (2,))] == [
        Fraction(n + 1, below),
        Fraction(-1, below),
    ]
    below = n * (n - 1) * (n - 2) * (n + 2) * (n + 4)
    assert three.at((1, 1, 1), n) == Fraction(n**2 + 3 * n - 2, below)
    assert three.at((2, 1), n) == Fraction(-(n + 2), below)
    assert three.at((3,), n) == Fraction(2, below)


@pytest.mark.parametrize("k", [1, 2, 3, 4, 6])
def test_an_entry_is_one_of_a_point_on_the_sphere(k):
    found = moments.haar_expectation(Q[0, 1] ** (2 * k))
    for n in (k, 9, 100):
        assert found.exact(n=n) == Fraction(
            math.prod(range(1, 2 * k, 2)), math.prod(range(n, n + 2 * k, 2))
        )


@cache
def power_of_the_trace(power):
    return moments.haar_expectation(moments.trace(Q) ** power)


@pytest.mark.integration
@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 6])
def test_powers_of_the_trace_have_normal_moments(k):
    """Diaconis and Shahshahani (1994): exactly, at all sizes from k on."""
    found = power_of_the_trace(2 * k)
    assert (found.numerator.value, found.below) == (math.prod(range(1, 2 * k, 2)), ())
    assert found.exact(n=k) == math.prod(range(1, 2 * k, 2))


@pytest.mark.integration
@pytest.mark.parametrize("j", [2, 3, 4, 6, 12])
def test_traces_of_powers_have_normal_moments_at_length_twelve(j):
    """Diaconis and Shahshahani (1994): tr Q^j has the moments of N(1 if j is even else 0, j)."""
    found = moments.haar_expectation(moments.trace(moments.matrix_power(Q, j)) ** (12 // j))
    mean, power = 1 - j % 2, 12 // j
    wanted = sum(
        math.comb(power, i) * mean ** (power - i) * j ** (i // 2) * math.prod(range(1, i, 2))
        for i in range(0, power + 1, 2)
    )
    assert (found.numerator.value, found.below) == (wanted, ())


@cache
def sixth_power_of_a_trace():
    s, t = (moments.constant(name, "n", "n", symmetric=True) for name in "ST")
    return moments.haar_expectation(moments.trace(Q @ s @ Q.T @ t) ** 6)


@pytest.mark.slow
@pytest.mark.parametrize("n", [6, 9])
def test_twelve_factors_of_a_column_have_dirichlet_moments(n):
    """With S = e₀ e₀ᵀ the trace is Σ tᵢ Dᵢ, and the mean of its sixth power is 6!/(n/2)₆ times the
    coefficient of z⁶ in Π (1 - tᵢ z)^(-1/2).
    """
    t = np.arange(1, n + 1) / n - 0.3
    series = np.array([1.0])
    for each in t:
        factor = [math.comb(2 * i, i) * (each / 4) ** i for i in range(7)]
        series = np.convolve(series, factor)[:7]
    wanted = math.factorial(6) / math.prod(n / 2 + i for i in range(6)) * series[6]
    s = np.zeros((n, n))
    s[0, 0] = 1
    assert float(sixth_power_of_a_trace()(S=s, T=np.diag(t))) == pytest.approx(wanted, rel=1e-10)


@pytest.mark.slow
@pytest.mark.integration
def test_twelve_factors_have_the_mean_of_samples():
    n, count = 6, 400_000
    rng = np.random.default_rng(12)
    s, t = (x + x.T for x in rng.normal(size=(2, n, n)))
    draws = ortho_group.rvs(n, size=count, random_state=rng)
    values = np.sum((draws @ s @ draws.transpose(0, 2, 1)) * t, axis=(1, 2)) ** 6
    error = values.std() / math.sqrt(count)
    x = moments.gaussian("Q", "n", "n", variance=1 / N)
    S, T = (moments.constant(name, "n", "n", symmetric=True) for name in "ST")
    wrong = moments.expectation(moments.trace(x @ S @ x.T @ T) ** 6)
    assert abs(values.mean() - float(sixth_power_of_a_trace()(S=s, T=t))) < 4 * error
    assert abs(values.mean() - float(wrong(S=s, T=t))) > 8 * error


def test_orthogonality_is_known():
    assert moments.haar_expectation(Q @ Q.T @ A @ Q.T @ Q).numerator == A
    found = moments.haar_expectation(moments.squared_norm(Q) ** 3)
    assert (found.numerator.value, found.below) == (N**3, ())
    assert moments.haar_expectation(Q @ A @ Q).numerator == A.T
    assert str(moments.haar_expectation(Q @ A @ Q)) == "Aᵀ / n"
    assert str(moments.haar_expectation(Q @ A @ Q.T)) == "tr(A) I / n"
    assert (
        str(moments.haar_expectation(Q[0, 0] ** 2 * Q[1, 1] ** 2))
        == "(n + 1) / ((n - 1) n (n + 2))"
    )
    assert moments.haar_expectation(Q[0, 0] ** 4).latex() == r"\frac{3}{n (n + 2)}"


def test_an_odd_word_is_zero_at_once():
    word = moments.trace(Q @ A) ** 7
    assert moments.haar_expectation(word).numerator.terms == {}
    assert float(moments.haar_expectation(word)(n=3)) == 0


def test_a_gaussian_matrix_forgets_the_rotation_of_its_rows():
    x = moments.gaussian("X", "n", "m")
    turned = Q @ x
    word, other = (moments.squared_norm(each.T @ A @ each) for each in (turned, x))
    found = moments.haar_expectation(word)
    assert found.least == (("n", 2),)
    a = np.random.default_rng(0).normal(size=(4, 4))
    np.testing.assert_allclose(found(A=a, m=3), moments.expectation(other)(A=a, m=3), rtol=1e-13)
    product = moments.haar("P", "m") @ x.T @ Q
    assert moments.haar_expectation(
        moments.trace(product @ product.T)
    ).numerator == moments.expectation(moments.squared_norm(x))


def test_a_size_that_is_a_number_gives_the_same_numbers():
    word, fixed = (
        moments.trace(q @ A2 @ q.T @ A2) ** 2
        for q, A2 in ((Q, A), (moments.haar("Q", 5), moments.constant("A", 5, 5)))
    )
    a = np.random.default_rng(1).normal(size=(5, 5))
    symbolic, numeric = moments.haar_expectation(word), moments.haar_expectation(fixed)
    assert numeric.below == ()
    np.testing.assert_allclose(symbolic(A=a), numeric(A=a), rtol=1e-12)


def test_values_broadcast_over_sizes():
    found = moments.haar_expectation(Q[0, 0] ** 4)
    np.testing.assert_allclose(found(n=np.array([2, 5])), [3 / 8, 3 / 35], rtol=1e-15)
    assert list(found.exact(n=np.array([2, 5]))) == [Fraction(3, 8), Fraction(3, 35)]


@pytest.mark.parametrize("n", [2, 3, 40])
def test_squares_of_a_row_have_dirichlet_covariances(n):
    """The squares of a point on the sphere are Dirichlet with parameters 1/2."""
    same = moments.haar_variance(Q[0, 0] ** 2)
    other = moments.haar_covariance(Q[0, 0] ** 2, Q[0, 1] ** 2)
    assert float(same(n=n)) == pytest.approx(beta(1 / 2, (n - 1) / 2).var(), rel=1e-13)
    assert float(other(n=n)) == pytest.approx(dirichlet(np.full(n, 1 / 2)).cov()[0, 1], rel=1e-13)
    # A row has length 1.
    assert float(same(n=n)) + (n - 1) * float(other(n=n)) == pytest.approx(0, abs=1e-15)


def test_variances_are_in_lowest_terms():
    assert str(moments.haar_variance(moments.trace(Q))) == "1"
    assert str(moments.haar_variance(Q[0, 0] ** 2)) == "(2 n - 2) / (n^2 (n + 2))"
    assert moments.haar_variance(Q @ Q.T).numerator.terms == {}
    assert moments.haar_covariance(moments.trace(Q), moments.trace(Q @ Q)).numerator.terms == {}


def test_quotients_are_added_and_multiplied():
    second, fourth = (moments.haar_expectation(Q[0, 0] ** power) for power in (2, 4))
    n = np.array([2, 5])
    for found, wanted in (
        (fourth - second * second, moments.haar_variance(Q[0, 0] ** 2)(n=n)),
        (fourth + 2 * second, 3 / (n * (n + 2)) + 2 / n),
        (N * second, 1.0),
        (-(second * fourth), -3 / (n**2 * (n + 2))),
    ):
        np.testing.assert_allclose(found(n=n), wanted, rtol=1e-13)
    x = moments.gaussian("X", "n", "n")
    assert (
        str(moments.haar_expectation(Q @ A @ Q.T) - moments.expectation(x @ A @ x.T))
        == "((-n + 1) tr(A) I) / n"
    )
    assert (
        moments.expectation(x @ x.T) - N * moments.haar_expectation(Q @ Q.T)
    ).numerator.terms == {}
    assert (N * second).below == (fourth - fourth).below == ()
    assert (fourth + second).least == (("n", 2),)


def test_the_orders_of_a_quotient_are_its_expansion():
    """3/(n (n + 2)) = 3/n² - 6/n³ + 12/n⁴ - …; two orders are kept, and the third is the size of
    what is left.
    """
    fourth = moments.haar_expectation(Q[0, 0] ** 4)
    grown = moments.orders(fourth, "n")
    assert [(power, part.value) for power, part in grown.parts] == [(-2, 3), (-3, -6)]
    n = 10_000
    assert fourth.exact(n=n) - (Fraction(3, n**2) - Fraction(6, n**3)) == pytest.approx(
        12 / n**4, rel=1e-3
    )
    # A denominator of one power ends, and a ratio of sizes stays.
    assert [
        power for power, _ in moments.orders(moments.haar_expectation(Q @ A @ Q.T), "n").parts
    ] == [-1]
    w, c = moments.symbol("w"), moments.symbol("c")
    assert str(moments.orders(fourth, "w", n=c * w).leading) == "3 c^(-2)"
    with pytest.raises(
        ValueError, match=r"^Only one monomial has the power -1, got c\^2 \+ 2 c \+ 1\.$"
    ):
        moments.orders(fourth, "w", n=(c + 1) * w)


def gaussian_instead(word):
    """The word with an independent N(0, 1/n) entry for each of Q: what it tends to, and is near at
    no small n.
    """
    return word(moments.gaussian("Q", "n", "n", variance=1 / N))


WORDS = {
    "four": lambda q: moments.trace(q @ A @ q.T @ B @ q @ A.T @ q.T @ B),
    "six, two traces": lambda q: (
        moments.trace(q @ A @ q.T @ B) * moments.trace(q @ A @ q @ B) * moments.trace(q @ q @ A)
    ),
    "eight": (
        lambda q: (
            moments.trace(moments.matrix_power(q @ A @ q.T @ B, 2))
            * moments.trace(q @ A @ q.T @ B) ** 2
        )
    ),
    "an entry": lambda q: (q @ A @ q.T)[0, 1] ** 2,
    "a diagonal": lambda q: (moments.diagonal(q @ A @ q.T) ** 2).sum(),
}


@pytest.mark.integration
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) if name == "eight" else name for name in WORDS],
)
@pytest.mark.usefixtures("x64")
def test_words_have_the_mean_of_samples_unlike_gaussian_ones(name):
    n, count = 4, 200_000
    rng = np.random.default_rng(5)
    a, b = rng.normal(size=(2, n, n))
    draws = ortho_group.rvs(n, size=count, random_state=rng)
    turned, mixed = draws @ a @ draws.transpose(0, 2, 1), draws @ a.T @ draws.transpose(0, 2, 1)
    trace = lambda m: np.trace(m, axis1=1, axis2=2)  # noqa: E731
    values = {
        "four": lambda: trace(turned @ b @ mixed @ b),
        "six, two traces": (
            lambda: trace(turned @ b) * trace(draws @ a @ draws @ b) * trace(draws @ draws @ a)
        ),
        "eight": lambda: trace(turned @ b @ turned @ b) * trace(turned @ b) ** 2,
        "an entry": lambda: turned[:, 0, 1] ** 2,
        "a diagonal": lambda: (np.diagonal(turned, axis1=1, axis2=2) ** 2).sum(1),
    }[name]()
    error = values.std() / math.sqrt(count)
    forms = (
        moments.haar_expectation(WORDS[name](Q)),
        moments.expectation(gaussian_instead(WORDS[name])),
    )
    right, wrong = jax.jit(lambda a, b: [form(A=a, B=b) for form in forms])(a, b)
    assert abs(values.mean() - float(right)) < 4 * error
    assert abs(values.mean() - float(wrong)) > 8 * error


SQUARES = {
    "an entry": (lambda q: (q @ A @ q.T @ B)[0, 1], lambda product: product[:, 0, 1]),
    "a trace": (
        lambda q: moments.trace(q @ A @ q.T @ B),
        lambda product: np.trace(product, axis1=1, axis2=2),
    ),
}


@pytest.mark.integration
@pytest.mark.parametrize("name", SQUARES)
def test_words_have_the_variance_of_samples_unlike_gaussian_ones(name):
    n, count = 4, 200_000
    rng = np.random.default_rng(8)
    a, b = rng.normal(size=(2, n, n))
    draws = ortho_group.rvs(n, size=count, random_state=rng)
    word, value = SQUARES[name]
    drawn = value(draws @ a @ draws.transpose(0, 2, 1) @ b)
    squares = (drawn - drawn.mean()) ** 2
    error = squares.std() / math.sqrt(count)
    arrays = {"A": a, "B": b}
    assert abs(squares.mean() - float(moments.haar_variance(word(Q))(**arrays))) < 4 * error
    gaussian = word(moments.gaussian("Q", "n", "n", variance=1 / N))
    assert abs(squares.mean() - float(moments.variance(gaussian)(**arrays))) > 8 * error


TOO_SMALL = (
    "The word has up to 8 factors of an orthogonal matrix, and its average is known for matrices of"
    " 4 rows or more, got 3."
)
BY_HAAR = (
    "The word has the orthogonal matrices Q; average it by haar_expectation, and haar_variance."
)
EIGHT = moments.trace(Q) ** 8
BAD = """
power_of_the_trace(8)(n=3)
    The word has up to 8 factors of an orthogonal matrix, and its average is known for matrices of 4
    rows or more, got 3.
power_of_the_trace(8).exact(n=np.array([5, 3]))
    The word has up to 8 factors of an orthogonal matrix, and its average is known for matrices of 4
    rows or more, got 3.
moments.haar_expectation(moments.trace(moments.haar("Q", 3)) ** 8)
    The word has up to 8 factors of an orthogonal matrix, and its average is known for matrices of 4
    rows or more, got 3.
power_of_the_trace(8)(k=3)
    A value needs n; got k.
moments.expectation(EIGHT)
    The word has the orthogonal matrices Q; average it by haar_expectation, and haar_variance.
moments.variance(Q)
    The word has the orthogonal matrices Q; average it by haar_expectation, and haar_variance.
moments.haar_covariance(Q, Q[0])
    A covariance entry by entry needs equal shapes, got ('n', 'n') and ('n',).
moments.orders(moments.haar_expectation(Q[0, 0] ** 2), "w", k=3)
    The expression has no k; it has n.
Q(n=3)
    An expression has a value after `expectation`, and the symbols Q are random.
Q @ moments.constant("Q", "n", "n")
    Two different symbols have the name 'Q': orthogonal of shape ('n', 'n') and constant of shape
    ('n', 'n').
moments.haar("Q", 0)
    A size is a name or an int of at least 1, got 0 in the shape of 'Q'.
"""


@pytest.mark.parametrize(("call", "message"), wrong_calls(BAD))
@pytest.mark.usefixtures("unchecked")
def test_a_wrong_call_is_refused_in_one_sentence(call, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        eval(call)


def test_a_word_that_is_too_long_is_refused_with_its_time():
    with pytest.raises(
        ValueError,
        match=(
            r"^A term has 16 factors of the orthogonal matrix Q, more than most=12: their"
            r" Weingarten function takes .* minutes or more; "
        ),
    ):
        moments.haar_expectation(moments.trace(Q) ** 16)


@pytest.mark.integration
def test_too_many_different_words_are_refused_with_their_time():
    constants = [moments.constant(f"A{i}", "n", "n") for i in range(8)]
    word = math.prod((moments.trace(Q @ a) for a in constants), start=moments.trace(Q) ** 4)
    with pytest.raises(
        ValueError,
        match=(
            r"^The word is too long: of its 12 factors of the orthogonal matrix Q, after . of 12"
            r" pairings more than words=500 different words are left, .* up to .*; shorten"
        ),
    ):
        moments.haar_expectation(word, words=500)
