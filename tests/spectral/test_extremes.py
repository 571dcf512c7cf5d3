"""Every function of `specjax.spectral` at the ends of its dtype: tiny, huge, half-precision, NaN,
infinite and empty matrices.

Each is registered once with how it follows the scale of its argument, so that a new function
without a row fails here.
"""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import spectral
from specjax.spectral import averaged_polar, gram_power_norm

KEY = jax.random.key(0)
WIDE = np.random.default_rng(0).uniform(1, 2, (6, 4)) * np.random.default_rng(1).choice(
    [-1, 1], (6, 4)
)
SQUARE = WIDE[:4] * np.where(np.eye(4), np.sign(WIDE[:4]), 1)
SAMPLES = np.stack([WIDE[:4], WIDE[2:]])
"""Entries in [1, 2) in absolute value, so that a power of two takes none of them below the smallest
normal number.
"""


def ends(*estimates):
    return jnp.ravel(jnp.asarray(estimates))


def ranks_and_norms(found):
    return (
        ends(found.stable, found.nuclear, found.effective),
        ends(found.spectral_norm, found.frobenius_norm, found.nuclear_norm),
    )


# Compiled once for the rows of ranks and of norms.
of_array = jax.jit(lambda x: ranks_and_norms(spectral.estimate_ranks(x, KEY)))
of_map = jax.jit(
    lambda x: ranks_and_norms(
        spectral.estimate_ranks(lambda v: x.astype(v.dtype) @ v, KEY, columns=x.shape[1])
    )
)


MEASURES = {
    "spectral_norm": (spectral.spectral_norm, WIDE, 1),
    "nuclear_norm": (spectral.nuclear_norm, WIDE, 1),
    "schatten_norm": (lambda x: spectral.schatten_norm(x, 3.0), WIDE, 1),
    "schatten_norm-half": (lambda x: spectral.schatten_norm(x, 0.5), WIDE, 1),
    "stable_rank": (spectral.stable_rank, WIDE, 0),
    "nuclear_rank": (spectral.nuclear_rank, WIDE, 0),
    "effective_rank": (spectral.effective_rank, WIDE, 0),
    "entropy_rank": (spectral.entropy_rank, WIDE, 0),
    "estimate_stable_rank": (lambda x: ends(spectral.estimate_stable_rank(x, KEY)), WIDE, 0),
    "estimate_ranks": (lambda x: of_array(x)[0], WIDE, 0),
    "estimate_ranks-norms": (lambda x: of_array(x)[1], WIDE, 1),
    "estimate_ranks-map": (lambda x: of_map(x)[0], WIDE, 0),
    "estimate_ranks-map-norms": (lambda x: of_map(x)[1], WIDE, 1),
    "power_iteration": (lambda x: ends(spectral.power_iteration(x, KEY)), WIDE, 1),
    "squaring.squared_norm": (gram_power_norm.squared_norm, WIDE, 2),
    "squaring.stable_rank_above": (gram_power_norm.stable_rank_above, WIDE, 0),
    "diagonal_mean": (spectral.dominance.diagonal_mean, SQUARE, 1),
    "off_diagonal_mean": (spectral.dominance.off_diagonal_mean, SQUARE, 1),
    "dominance_ratio": (spectral.dominance_ratio, SQUARE, 0),
    "row_dominance": (spectral.row_dominance, SQUARE, 0),
    "off_diagonal_energy": (spectral.dominance.off_diagonal_energy, SQUARE, 0),
    "off_block_energy": (spectral.dominance.off_block_energy, SQUARE, 0),
    "traceless_cosine": (lambda p: spectral.dominance.traceless_cosine(p, p.T), SQUARE, 0),
    "off_diagonal_coefficient": (
        lambda p: spectral.dominance.off_diagonal_coefficient(p, p.T),
        SQUARE,
        0,
    ),
    "off_diagonal_coefficient-of": (
        lambda p: spectral.dominance.off_diagonal_coefficient(
            p, jnp.arange(16).reshape(4, 4).astype(p.dtype)
        ),
        SQUARE,
        1,
    ),
    "direction_error": (lambda x: spectral.direction_error(x, x[::-1]), WIDE, 0),
}
"""Numbers by name: the function, its argument, and the power of a factor on the argument that the
result has.

Half precision is measured in float32.
"""

MATRICES = {
    "polar": (spectral.polar, WIDE, 0),
    "normalize_rows": (spectral.normalize_rows, WIDE, 0),
    "normalize_columns": (spectral.normalize_columns, WIDE, 0),
    "off_diagonal": (spectral.dominance.off_diagonal, SQUARE, 1),
    "row_metric": (spectral.row_metric, SQUARE, 1),
    "averages.polar_of_mean": (averaged_polar.polar_of_mean, SAMPLES, 0),
    "averages.mean_of_polar": (averaged_polar.mean_of_polar, SAMPLES, 0),
    "averages.microbatched_polar": (lambda x: averaged_polar.microbatched_polar(x, 1), SAMPLES, 0),
    "averages.jackknifed_polar": (averaged_polar.jackknifed_polar, SAMPLES, 0),
    "averages.mean_of_rank_one_polar": (
        lambda x: averaged_polar.mean_of_rank_one_polar(x, x[:, :3]),
        WIDE,
        0,
    ),
    "averages.mean_of_rank_one_polar-right": (
        lambda x: averaged_polar.mean_of_rank_one_polar(jnp.asarray(WIDE, x.dtype), x),
        WIDE,
        0,
    ),
}
"""Matrices, whose dtype is kept."""

EVERY = MEASURES | MATRICES
ELSEWHERE = {
    "band, best_composition, best_quintic": "numbers of the host; test_polynomials",
    "factor_error, method_error": "of orthogonal factors, which have no scale; test_polar_error",
    "spectral_map, spectral_power, stabilized_sign": (
        "refuse half precision; test_spectral_functions"
    ),
    "inverse_root": "refuses half precision; tests/optim/test_pieces",
}


def test_every_function_has_a_row():
    listed = list(vars(spectral).values())
    for module in (spectral.dominance, spectral.polar_error, spectral.polynomials):
        listed += [
            f for f in vars(module).values() if getattr(f, "__module__", "") == module.__name__
        ]
    names = {f.__name__ for f in listed if hasattr(f, "__name__") and not inspect.ismodule(f)}
    functions = {name for name in names if name.islower() and not name.startswith("_")}
    functions |= {
        f"averages.{name}"
        for name in vars(averaged_polar)
        if name.endswith("_polar") or name.startswith("polar_")
    }
    rows = {name.split("-")[0] for name in EVERY}
    assert functions - rows == set(", ".join(ELSEWHERE).split(", "))


PROGRAMS = {
    name: f if name.startswith("estimate_ranks") else jax.jit(f)
    for name, (f, _, _) in EVERY.items()
}


def result(name, dtype, scale=1.0, bad=None, rounded="float32"):
    """What a row gives for its argument times `scale`, with two entries in every sample that are
    `bad`.
    """
    x = np.array(EVERY[name][1], np.float32) * np.float32(scale)
    if bad is not None:
        x[..., 0, 0] = x[..., 1, 0] = bad
    return PROGRAMS[name](x.astype(rounded).astype(dtype))


# Next to the function, so that all that is asked of a row is asked by one worker, which has
# compiled it.
every_row = pytest.mark.parametrize("name", EVERY)


@pytest.mark.parametrize("exponent", [-126, -90, 90, 126])
@every_row
def test_it_follows_the_scale_to_both_ends_of_float32(name, exponent):
    """What does not depend on the scale follows to the very ends, what does as long as the result
    is a normal number.
    """
    degree = EVERY[name][2]
    # What a map returns it has computed itself: its sums and products must be floats.
    limit = 110 if "-map" in name else {0: 126, 1: 120, 2: 58}[degree]
    exponent = np.clip(exponent, -limit, limit)
    unit = np.asarray(result(name, "float32"), float)
    found = np.asarray(result(name, "float32", 2.0 ** int(exponent)), float) / 2.0 ** int(
        degree * exponent
    )
    np.testing.assert_allclose(found, unit, rtol=1e-5, atol=1e-6 * np.abs(unit).max())


@pytest.mark.parametrize(
    ("dtype", "scale"),
    [("float16", 1.0), ("float16", 2.0**-12), ("float16", 2.0**14), ("bfloat16", 1.0)],
)
@every_row
def test_half_precision_is_computed_in_float32_and_kept(name, dtype, scale):
    found, expected = result(name, dtype, scale), result(name, "float32", scale, rounded=dtype)
    kept = name in MATRICES
    assert found.dtype == (dtype if kept else "float32")
    rounding = 2 * float(jnp.finfo(dtype).eps) if kept else 1e-5
    np.testing.assert_allclose(np.asarray(found, float), expected, rtol=rounding, atol=rounding)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@every_row
def test_what_is_not_finite_stays_visible(name, dtype, bad):
    found = np.isfinite(np.asarray(result(name, dtype, bad=bad), float))
    assert not found.all()
    if name in MEASURES and name != "row_dominance":
        assert not found.any()


@pytest.mark.integration
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)], ids=str)
def test_an_empty_matrix_has_norm_and_rank_zero(shape):
    @jax.jit
    def measured(x, stack):
        numbers = {
            name: f(x)
            for name, (f, given, _) in MEASURES.items()
            if given is WIDE and name != "direction_error" and "-map" not in name
        }
        of_each = [
            f(stack) for f in (spectral.spectral_norm, spectral.nuclear_norm, spectral.stable_rank)
        ]
        of_each.append(spectral.power_iteration(stack, KEY).value)
        matrices = [
            f(x) for f in (spectral.normalize_rows, spectral.normalize_columns, spectral.polar)
        ]
        return numbers, of_each, matrices

    numbers, of_each, matrices = measured(jnp.zeros(shape), jnp.zeros((2, *shape)))
    assert len(numbers) > 10
    for name, found in numbers.items():
        assert not np.asarray(found).any(), name
    assert [found.tolist() for found in of_each] == [[0, 0]] * 4
    assert [found.shape for found in matrices] == [shape] * 3


@pytest.mark.integration
@pytest.mark.parametrize("name", [name for name in EVERY if not name.startswith("estimate_ranks")])
def test_the_derivative_follows_the_scale(name):
    """(df)(cx) = c^(degree-1) (df)(x), for a sum of the results with different weights."""
    f, x, degree = EVERY[name]

    @jax.jit
    @jax.grad
    def slope(x):
        found = f(x).ravel()
        return jnp.sum(found * jnp.cos(jnp.arange(found.size, dtype=found.dtype)))

    scale = 2.0**60
    unit = np.asarray(slope(jnp.asarray(x, jnp.float32)), float)
    found = np.asarray(slope(jnp.asarray(x * scale, jnp.float32)), float) * scale ** (1 - degree)
    np.testing.assert_allclose(found, unit, rtol=1e-4, atol=1e-5 * np.abs(unit).max())
