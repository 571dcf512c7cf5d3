"""Random words, and statistics of trainings, against samples."""

import math
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import moments
from specjax.models import deep_linear
from specjax.moments._expression import contract

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("unchecked")]

SIZES = {"d": 3, "k": 2, "n": 4}
SHAPES = {"U": ("d", "k"), "W": ("d", "d"), "V": ("n", "k"), "M": ("d", "k"), "v": ("n",)}
SYMBOLS = {
    name: (moments.constant if name in ("M", "v") else moments.gaussian)(name, *shape)
    for name, shape in SHAPES.items()
}
DRAWS = 20_000


def random_scalar(rng):
    """A contraction of at most four pairs: a list of nodes with labels, each size with two or three
    labels to share.
    """
    labels = {"d": (0, 1, 2), "k": (3, 4), "n": (5, 6)}
    names = [
        *rng.choice(["U", "W", "V"], rng.integers(1, 4)),
        *rng.choice(["M", "v"], rng.integers(0, 3)),
    ]
    names += [name for name in names if name not in ("M", "v")]
    return [
        (str(name), tuple(int(rng.choice(labels[size])) for size in SHAPES[name])) for name in names
    ]


def nearest_wrong(word, values):
    """How far the value moves at the least if the coefficient of one monomial changes by one."""
    moved = []
    for part in word.parts():
        ((number,),) = [coefficient.terms.values() for coefficient in part.terms.values()]
        moved.append(abs(float((part / number)(**values))))
    return min(moved)


def test_words_have_their_sample_mean_and_wrong_ones_do_not():
    rng = np.random.default_rng(5)
    draws = {
        name: rng.normal(size=(DRAWS, *(SIZES[size] for size in SHAPES[name])))
        for name in ("U", "W", "V")
    }
    constants = {
        name: rng.integers(1, 3, [SIZES[size] for size in SHAPES[name]]).astype(float)
        for name in ("M", "v")
    }
    worst, rejected, words = 0.0, 0, 0
    while words < 200:
        nodes = random_scalar(rng)
        word = moments.expectation(
            contract([SYMBOLS[name] for name, _ in nodes], [labels for _, labels in nodes], ())
        )
        if not word.terms:
            continue
        words += 1
        operands = [
            item
            for name, labels in nodes
            for item in (
                (constants[name], list(labels))
                if name in constants
                else (draws[name], [9, *labels])
            )
        ]
        sample = np.einsum(*operands, [9], optimize="greedy")
        values = {
            **SIZES,
            **{name: array for name, array in constants.items() if name in word.symbols},
        }
        error = sample.std(ddof=1) / np.sqrt(DRAWS)
        z = (sample.mean() - float(word(**values))) / error
        worst = max(worst, abs(z))
        rejected += nearest_wrong(word, values) > (4 + abs(z)) * error
    assert worst < 4
    # Where a coefficient counts for less than the noise of a word of high degree, no test sees it.
    assert rejected > 100


def momentum_gram(u, m, eta, beta):
    """V Vᵀ after two steps of gradient descent with momentum on ‖U Uᵀ - M‖²/4."""
    gradient = jax.grad(lambda w: jnp.sum((w @ w.T - m) ** 2) / 4)
    first = gradient(u)
    velocity = beta * first + gradient(u - eta * first)
    return velocity @ velocity.T


def sampled_gram(params, target, x):
    """Ĝ₁ Ĝ₁ᵀ of a batch, less G₁ G₁ᵀ of the population: what a batch adds."""
    sampled = jax.grad(deep_linear.sampled_loss)(params, target, x)[0]
    exact = deep_linear.gradient(params, target)[0]
    return sampled @ sampled.T - exact @ exact.T


def first_gram(u, m):
    """G Gᵀ of the first gradient of matrix factorization."""
    gradient = (u @ u.T - m) @ u
    return gradient @ gradient.T


def layer_gram(params, target):
    """G₁ G₁ᵀ of a two-layer linear network."""
    gradient = deep_linear.gradient(params, target)[0]
    return gradient @ gradient.T


def symmetric(d=3):
    drawn = np.random.default_rng(2).normal(size=(d, d))
    return drawn + drawn.T


def batch(d0, d1, d2, n):
    """The arguments of a two-layer linear network on n inputs."""
    target = np.random.default_rng(3).normal(size=(d2, d0))
    return {"params": [(d1, d0), (d2, d1)], "x": (n, d0)}, {"target": target}


# Ratios of sizes from 1/30 to 30.
MEANS = {
    "momentum": (momentum_gram, {"u": (3, 5)}, {"m": symmetric(), "eta": 0.01, "beta": 0.7}),
    "momentum, one column": (
        momentum_gram,
        {"u": (3, 1)},
        {"m": symmetric(), "eta": 0.05, "beta": 0.7},
    ),
    "momentum, many columns": (
        momentum_gram,
        {"u": (3, 30)},
        {"m": symmetric(), "eta": 0.002, "beta": 0.7},
    ),
    "momentum, many rows": (
        momentum_gram,
        {"u": (12, 1)},
        {"m": symmetric(12), "eta": 0.02, "beta": 0.7},
    ),
    "a batch of a narrow network": (sampled_gram, *batch(30, 1, 2, 1)),
    "a small batch": (sampled_gram, *batch(6, 2, 1, 3)),
    "a wide network": (sampled_gram, *batch(1, 9, 4, 2)),
    "a narrow layer": (
        layer_gram,
        {"params": [(1, 9), (3, 1)]},
        {"target": np.random.default_rng(4).normal(size=(3, 9))},
    ),
    "first gradient": (first_gram, {"u": (3, 5)}, {"m": symmetric()}),
    "first gradient, one column": (first_gram, {"u": (3, 1)}, {"m": symmetric()}),
    "first gradient, many columns": (first_gram, {"u": (3, 30)}, {"m": symmetric()}),
    "first gradient, many rows": (first_gram, {"u": (12, 1)}, {"m": symmetric(12)}),
}
DRAWN = 100_000


def word_of(name):
    function, gaussian, constants = MEANS[name]
    shapes = {argument: np.shape(value) for argument, value in constants.items()}
    if "m" in shapes:
        shapes["m"] = moments.constant("m", *shapes["m"], symmetric=True)
    return moments.express_function(function, gaussian=gaussian, constant=shapes)


@cache
def momentum_mean():
    """Of the matrix after two steps with momentum, in d and k."""
    target = moments.constant("m", "d", "d", symmetric=True)
    constants = {"m": target, "eta": (), "beta": ()}
    return moments.expectation(
        moments.express_function(momentum_gram, gaussian={"u": ("d", "k")}, constant=constants)
    )


def mean_of(name):
    """The mean, and the values that it is a function of: that of momentum is one for all sizes."""
    _, gaussian, constants = MEANS[name]
    if name.startswith("momentum"):
        return momentum_mean(), {**constants, "k": gaussian["u"][1]}
    return moments.expectation(word_of(name)), constants


@cache
def normals():
    """In float64, for every function: as many for each sample as the largest arguments take."""
    with jax.enable_x64(True):
        return np.asarray(jax.random.normal(jax.random.key(1), (DRAWN, 90), jnp.float64))


@cache
def draws_of(name):
    """The function at each sample, in float64."""
    function, gaussian, constants = MEANS[name]
    leaves, tree = jax.tree.flatten(gaussian, is_leaf=lambda leaf: isinstance(leaf, tuple))
    ends = np.cumsum([math.prod(shape) for shape in leaves])
    parts = np.split(normals()[:, : ends[-1]], ends[:-1], axis=1)
    drawn = [part.reshape(DRAWN, *shape) for part, shape in zip(parts, leaves, strict=True)]
    with jax.enable_x64(True):
        fixed = {name: jnp.asarray(value, jnp.float64) for name, value in constants.items()}
        return np.asarray(
            jax.jit(jax.vmap(lambda given: function(**given, **fixed)))(
                jax.tree.unflatten(tree, drawn)
            )
        )


def standard_errors(sample, mean):
    """How many standard errors the mean of the sample is away, at the worst entry."""
    return np.abs(
        (sample.mean(axis=0) - mean) / (sample.std(axis=0, ddof=1) / np.sqrt(len(sample)))
    ).max()


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow) if n.startswith("momentum") else n for n in MEANS],
)
def test_entries_have_their_sample_mean_only_with_all_orders(name):
    mean, values = mean_of(name)
    right = np.asarray(mean(**values))
    assert standard_errors(draws_of(name), right) < 4
    if "eta" in values:
        # Up to the second.
        for power, part in moments.orders(mean, "eta").parts[-3:]:
            wrong = right - values["eta"] ** power * np.asarray(part(**values))
            assert standard_errors(draws_of(name), wrong) > 8, power


@pytest.mark.parametrize(
    "name", [name for name in MEANS if name.startswith(("first gradient", "a narrow layer"))]
)
def test_the_variance_of_the_diagonal_is_that_of_draws(name):
    diagonal, constants = moments.diagonal(word_of(name)), MEANS[name][2]
    mean, variance = (
        np.asarray(moment(diagonal)(**constants))
        for moment in (moments.expectation, moments.variance)
    )
    draws = np.diagonal(draws_of(name), axis1=1, axis2=2)
    assert standard_errors((draws - mean) ** 2, variance) < 4


@cache
def variance_at_named_sizes():
    """Of the diagonal of the first gradient's G Gᵀ, in d and k."""
    target = moments.constant("m", "d", "d", symmetric=True)
    word = moments.express_function(first_gram, gaussian={"u": ("d", "k")}, constant={"m": target})
    return moments.variance(moments.diagonal(word))


def squared_deviations(name):
    draws = np.diagonal(draws_of(name), axis1=1, axis2=2)
    return (draws - draws.mean(axis=0)) ** 2


@pytest.mark.parametrize("name", [name for name in MEANS if name.startswith("first gradient")])
def test_one_variance_holds_at_all_sizes(name):
    _, gaussian, constants = MEANS[name]
    variance = np.asarray(variance_at_named_sizes()(**constants, k=gaussian["u"][1]))
    assert standard_errors(squared_deviations(name), variance) < 4


def test_both_leading_orders_are_needed_at_many_columns():
    name = "first gradient, many columns"
    _, gaussian, constants = MEANS[name]
    d, k = gaussian["u"]
    right = np.asarray(variance_at_named_sizes()(**constants, k=k))
    for power, part in moments.orders(variance_at_named_sizes(), "k").parts[:2]:
        wrong = right - k**power * np.asarray(part(**constants, d=d))
        assert standard_errors(squared_deviations(name), wrong) > 8, power
