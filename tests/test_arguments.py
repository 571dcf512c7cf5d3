"""One check for arrays and one for numbers, that all rooms share."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.arguments import REAL, as_array, check_number


@pytest.mark.parametrize("x", [[1.0, 2.0], np.ones(2, np.float16), jnp.ones(2), 3, (1, 2)])
def test_lists_numpy_arrays_and_numbers_are_arrays(x):
    np.testing.assert_array_equal(as_array(x, "x", "f"), np.asarray(x))


@pytest.mark.parametrize(
    "x",
    [
        None,
        "text",
        ["a"],
        np.array(["a"]),
        [[1.0], [1.0, 2.0]],
        {"a": 1},
        object(),
        10**400,
        [10**30],
        10**5000,
        jax.random.key(0),
    ],
    ids=lambda x: type(x).__name__,
)
def test_what_is_no_array_is_refused_in_one_sentence(x):
    with pytest.raises(ValueError, match=r"^f needs an array of numbers as x, got [^\n]*\.$"):
        as_array(x, "x", "f")


@pytest.mark.parametrize(
    ("value", "interval", "inside"),
    [
        (0, "[0, 1)", True),
        (1.0, "[0, 1)", False),
        (0.0, "(0, inf]", False),
        (math.inf, "(0, inf]", True),
        (math.inf, "(0, inf)", False),
        (math.nan, "(0, inf]", False),
        (math.nan, REAL, False),
        (-math.inf, REAL, False),
        (-3, REAL, True),
        (np.float32(0.5), "(0, 1)", True),
        (jnp.bfloat16(0.5), "(0, 1)", True),
        (np.array([0.5, 1.0]), "(0, 1)", False),
        (jnp.array([0.5, 0.25]), "(0, 1)", True),
        (None, REAL, False),
        ("0.5", REAL, False),
        (True, REAL, False),
        (1j, REAL, False),
        (jnp.array(1j), REAL, False),
        (jnp.array(True), REAL, False),
        ([0.5], REAL, False),
        (10**400, "(0, inf)", False),
    ],
)
def test_numbers_are_those_of_the_interval(value, interval, inside):
    if inside:
        check_number(value, "rate", interval, "f")
        return
    with pytest.raises(ValueError, match=r"^f needs a (finite )?number [^\n]*as rate, got [^\n]*[.]$"):
        check_number(value, "rate", interval, "f")


def test_of_a_traced_number_only_the_dtype_is_asked():
    jax.jit(lambda x: check_number(x, "rate", "[0, 1)", "f"))(3.0)
    with pytest.raises(ValueError, match="needs a finite number as rate"):
        jax.jit(lambda x: check_number(x, "rate", REAL, "f"))(1j)
