"""Expectations, variances and covariances against the enumeration of pairings and against
identities that need no enumeration.
"""

import functools
import itertools
import math
import operator
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specjax import moments
from specjax.moments._expression import contract
from tests.moments import pairings

SIZES = ({"d": 2, "k": 3}, {"d": 3, "k": 1})
SHAPES = {
    "U": ("d", "k"),
    "V": ("d", "k"),
    "W": ("d", "d"),
    "X": ("k", "d"),
    "M": ("d", "k"),
    "S": ("d", "d"),
    "v": ("k",),
}
S = moments.constant("S", "d", "d", symmetric=True)
SYMBOLS = {
    "U": moments.gaussian("U", "d", "k"),
    "W": moments.gaussian("W", "d", "d"),
    "X": moments.gaussian("X", "k", "d", covariance={1: S}),
    "M": moments.constant("M", "d", "k"),
    "S": S,
    "v": moments.constant("v", "k"),
}
COVARIANCES = ((("X", 1), "S"),)


def arrays(sizes):
    """Integers, so that every contraction is exact in float64."""
    rng = np.random.default_rng(7)
    drawn = {
        name: rng.integers(-3, 4, [sizes[size] for size in SHAPES[name]]).astype(float)
        for name in ("M", "S", "v")
    }
    return {**drawn, "S": drawn["S"] + drawn["S"].T}


def agrees(word, nodes, out):
    """The engine's expectation of `word` is that of the pairings of `nodes`, at all sizes that are
    tried.
    """
    found = moments.expectation(word)
    for sizes in SIZES:
        constants = arrays(sizes)
        wanted = pairings.expectation(nodes, out, SHAPES, sizes, constants, COVARIANCES)
        used = {name: array for name, array in constants.items() if name in found.symbols}
        np.testing.assert_array_equal(found(**sizes, **used), wanted)


FACTORS = [(name, *SHAPES[name], turned) for name in ("U", "V", "W") for turned in (False, True)]
"""Name, rows and columns of a matrix, and whether it stands transposed."""


def ends(factor):
    _, rows, columns, turned = factor
    return (columns, rows) if turned else (rows, columns)


def closed_words(length):
    """Every word of these factors whose sizes chain to a ring and that is not odd, one of those
    that rotation and transposition make.
    """
    words = [(factor,) for factor in FACTORS]
    for _ in range(length - 1):
        words = [
            (*word, factor)
            for word in words
            for factor in FACTORS
            if ends(word[-1])[1] == ends(factor)[0]
        ]
    seen = set()
    for word in words:
        counts = Counter(name for name, *_ in word).values()
        if (
            word in seen
            or ends(word[-1])[1] != ends(word[0])[0]
            or any(count % 2 for count in counts)
        ):
            continue
        back = tuple((*factor[:3], not factor[3]) for factor in word[::-1])
        seen.update(each[i:] + each[:i] for each in (word, back) for i in range(length))
        yield word


@pytest.mark.integration
@pytest.mark.parametrize(
    ("length", "least"), [(6, 80), pytest.param(8, 300, marks=pytest.mark.slow)]
)
def test_traces_of_few_factors_are_the_count_of_pairings(length, least):
    """Of three matrices, two of one shape; the polynomials are compared, so that one wrong
    coefficient is seen.
    """
    gaussian = {name: moments.gaussian(name, *SHAPES[name]) for name in ("U", "V", "W")}
    words = 0
    for word in itertools.chain.from_iterable(map(closed_words, range(2, length + 1, 2))):
        product = functools.reduce(
            operator.matmul,
            (gaussian[name].T if turned else gaussian[name] for name, *_, turned in word),
        )
        found = moments.expectation(moments.trace(product)).value
        assert dict(found.terms) == pairings.trace_polynomial(word), word
        words += 1
    assert words > least


@st.composite
def chains(draw):
    """A product of eight Gaussian factors at most, whose sizes chain, with some constants between,
    and whether its trace is taken.

    Its second half has the factors of the first in reverse, so that the word is not odd.
    """
    start = here = draw(st.sampled_from(["d", "k"]))
    half = []
    for _ in range(draw(st.integers(1, 4))):
        name = draw(st.sampled_from([name for name in ("U", "W", "X") if here in SHAPES[name]]))
        rows, columns = SHAPES[name]
        half.append((name, here != rows))
        here = rows if here != rows else columns
    factors = [*half, *((name, not turned) for name, turned in half[::-1])]
    word, here = [], start
    for name, turned in factors:
        if here == "d" and draw(st.booleans()):
            word.append(("S", False))
        word.append((name, draw(st.booleans()) if name == "W" else turned))
        here = ends((name, *SHAPES[name], turned))[1]
    return word, draw(st.booleans())


@pytest.mark.integration
@given(chains())
def test_random_products_agree_with_the_pairings(chain):
    factors, traced = chain
    word = functools.reduce(
        operator.matmul, (SYMBOLS[name].T if turned else SYMBOLS[name] for name, turned in factors)
    )
    last = 0 if traced else len(factors)
    labels = [*itertools.pairwise([*range(len(factors)), last])]
    nodes = [
        (name, pair[::-1] if turned else pair)
        for (name, turned), pair in zip(factors, labels, strict=True)
    ]
    agrees(moments.trace(word) if traced else word, nodes, () if traced else (0, last))


@st.composite
def contractions(draw):
    """Up to eight nodes, Gaussian ones in pairs, whose axes share labels in any way, and some
    labels as axes.

    Elementwise powers and diagonals are such.
    """
    labels = {"d": (0, 1, 2), "k": (3, 4)}
    random = draw(st.lists(st.sampled_from(["U", "X", "W"]), min_size=1, max_size=3))
    names = [*random, *random, *draw(st.lists(st.sampled_from(["M", "S", "v"]), max_size=2))]
    nodes = [
        (name, tuple(draw(st.sampled_from(labels[size])) for size in SHAPES[name]))
        for name in names
    ]
    used = sorted({label for _, ends in nodes for label in ends})
    out = draw(st.lists(st.sampled_from(used), max_size=2, unique=True))
    return nodes, tuple(out)


@pytest.mark.integration
@given(contractions())
def test_random_contractions_agree_with_the_pairings(contraction):
    nodes, out = contraction
    word = contract([SYMBOLS[name] for name, _ in nodes], [labels for _, labels in nodes], out)
    agrees(word, nodes, out)


@pytest.mark.integration
@given(
    contractions(), st.permutations(range(8)), st.permutations(range(3)), st.permutations((3, 4))
)
def test_a_word_has_one_form_however_it_is_written(contraction, order, rows, columns):
    """The same nodes in another order, the indices with other names."""
    nodes, out = contraction
    renamed = dict(zip(range(5), (*rows, *columns), strict=True))
    other = [nodes[place] for place in order if place < len(nodes)]
    words = [
        contract([SYMBOLS[name] for name, _ in some], [labels for _, labels in some], axes)
        for some, axes in (
            (nodes, out),
            (
                [(name, tuple(renamed[label] for label in labels)) for name, labels in other],
                [renamed[label] for label in out],
            ),
        )
    ]
    assert words[0] == words[1]
    assert hash(words[0]) == hash(words[1])


def cubic(edges):
    """The product of S over the edges of a graph, summed over its vertices."""
    return contract([S] * len(edges), edges, ())


def edges(pairs):
    """Edges from pairs of digits."""
    return [(int(a), int(b)) for a, b in pairs.split()]


# Connected graphs with three edges at every vertex, so that no count of neighbors tells the
# vertices apart.
CUBIC = {
    "K33": [(a, b) for a in (0, 1, 2) for b in (3, 4, 5)],
    "prism": [(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3), (0, 3), (1, 4), (2, 5)],
    "cube": [(a, a ^ bit) for a in range(8) for bit in (1, 2, 4) if a < a ^ bit],
    # Two diamonds joined at both ends: of its vertices only some lie on triangles.
    "diamonds": edges("01 02 12 13 23 45 46 56 57 67 34 70"),
    "one triangle": edges("01 12 20 03 14 25 36 37 46 47 56 57"),
}


@pytest.mark.parametrize("name", CUBIC)
def test_a_regular_graph_has_one_form_however_it_is_numbered(name):
    rng = np.random.default_rng(0)
    words = []
    for _ in range(12):
        numbers = rng.permutation(8)
        edges = [tuple(int(numbers[v]) for v in edge) for edge in CUBIC[name]]
        words.append(cubic([edges[place] for place in rng.permutation(len(edges))]))
    assert all(word == words[0] for word in words)


def test_graphs_that_are_not_the_same_are_not_equal():
    assert len({cubic(edges) for edges in CUBIC.values()}) == len(CUBIC)


def test_inputs_with_a_covariance_have_general_wishart_moments():
    """E[(Xᵀ X)²] = n (n + 1) Σ² + n tr(Σ) Σ."""
    n = moments.symbol("n")
    x = moments.gaussian("X", "n", "d", covariance={1: S})
    assert moments.expectation(x.T @ x) == n * S
    assert moments.expectation(x.T @ x @ x.T @ x) == n * (n + 1) * S @ S + n * moments.trace(S) * S
    assert moments.expectation(x @ x.T) == moments.trace(S) * moments.identity("n")


def wishart(power):
    u = moments.gaussian("U", "d", "k")
    return moments.trace(moments.matrix_power(u @ u.T, power))


def test_eighteen_factors_have_narayana_numbers_and_pairings():
    """The highest degree of E tr(U Uᵀ)ⁿ counts planar pairings by the Narayana numbers; at d = k =
    1 it is E x^(2n) = (2n - 1)!!.
    """
    n = 9
    found = moments.expectation(wishart(n))
    assert found.exact(d=1, k=1) == math.prod(range(1, 2 * n, 2))
    top = moments.orders(
        found, "w", d=moments.symbol("w"), k=moments.symbol("c") * moments.symbol("w")
    ).leading
    narayana = [math.comb(n, r) * math.comb(n, r - 1) // n for r in range(1, n + 1)]
    assert [
        top.value.terms[(("c", r),) if r > 1 else (("c", 1),)] for r in range(1, n + 1)
    ] == narayana


def test_two_layers_of_sixteen_factors_ignore_width_order():
    """Traces of powers of a product of Gaussian matrices have that symmetry (Ipsen and Kieburg,
    2014).
    """
    first, second = moments.gaussian("W1", "d1", "d0"), moments.gaussian("W2", "d2", "d1")
    product = second @ first
    found = moments.expectation(moments.trace(moments.matrix_power(product @ product.T, 4)))
    assert found.exact(d0=1, d1=1, d2=1) == 105**2
    assert (
        len({found.exact(d0=a, d1=b, d2=c) for a, b, c in itertools.permutations((2, 3, 5))}) == 1
    )


@pytest.mark.parametrize("power", [1, 2, 3, 4])
def test_the_squared_norm_moves_a_word_by_its_degree(power):
    """E[‖U‖² f] = (d k + deg f) E f for a homogeneous f, by integration by parts in the radius
    alone.
    """
    u, word = moments.gaussian("U", "d", "k"), wishart(power)
    d, k = moments.symbol("d"), moments.symbol("k")
    mean = moments.expectation(word)
    assert moments.expectation(moments.squared_norm(u) * word) == mean * (d * k + 2 * power)
    assert moments.covariance(moments.squared_norm(u), word) == mean * (2 * power)


def test_the_variance_of_wishart_entries_is_k_and_twice_k():
    u = moments.gaussian("U", "d", "k")
    w, k = u @ u.T, moments.symbol("k")
    assert moments.variance(w) == k * (moments.ones("d", "d") + moments.identity("d"))
    assert moments.variance(w[0, 1]).value == k
    assert moments.variance(w[2, 2]).value == 2 * k
    assert moments.total_variance(w).value == k * moments.symbol("d") * (moments.symbol("d") + 1)
    assert moments.covariance(w[0, 0], w[1, 1]).value == 0


def test_some_matrices_are_averaged_over_with_the_others_given():
    """E[f | others], and the law of total variance: Var f = E Var(f | U) + Var E(f | U)."""
    u, w = SYMBOLS["U"], SYMBOLS["W"]
    word = moments.trace(w @ u @ u.T @ w.T @ S) + moments.trace(w) * moments.squared_norm(u)
    given = moments.expectation(word, over="W")
    assert given == moments.trace(S) * moments.squared_norm(u)
    assert (
        moments.expectation(given)
        == moments.expectation(word)
        == moments.expectation(word, over=("U", "W"))
    )
    within, between = moments.variance(word, over=["W"]), moments.variance(given)
    assert set(within.symbols) == {"S", "U"}
    assert moments.expectation(within) + between == moments.variance(word)
    assert moments.total_variance(w @ u, over="W") == moments.symbol("d") * moments.squared_norm(u)
    with pytest.raises(
        ValueError, match=r"^The word has no Gaussian symbol S, x to average over; it has U, W\.$"
    ):
        moments.expectation(word, over=("x", "U", "S"))


def test_a_variance_scales_each_pair():
    sigma, k = moments.symbol("sigma"), moments.symbol("k")
    scaled = moments.gaussian("U", "d", "k", variance=sigma**2 / k)
    unit = moments.expectation(wishart(3)).value
    found = moments.expectation(moments.trace(moments.matrix_power(scaled @ scaled.T, 3))).value
    assert found == unit * sigma**6 / k**3


def test_an_odd_word_is_zero_at_once():
    """Also one of 31 factors, which have 10¹⁷ pairings of all but one."""
    w = moments.gaussian("W", "n", "n")
    long = w
    for _ in range(30):
        long = long @ w
    assert moments.expectation(long).terms == {}
    assert moments.expectation(long).shape == ("n", "n")


def test_a_word_of_different_constants_is_refused_with_its_time():
    u = moments.gaussian("U", "d", "d")
    word = u
    for n in range(9):
        word = word @ moments.constant(f"A{n}", "d", "d") @ u
    with pytest.raises(
        ValueError,
        match="of 10 Gaussian factors, after 3 of 5 pairings, more than most=99 different",
    ):
        moments.expectation(moments.trace(word), most=99)
