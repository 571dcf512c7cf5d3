"""One check for arrays and one for numbers, that all rooms share."""

import math
from collections.abc import Callable, Sequence
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from jaxtyping import Array, ArrayLike, Float, Key, PyTree

from specjax.arguments import REAL, as_array, check_number, checked, checked_but


@pytest.mark.parametrize("x", [[1.0, 2.0], np.ones(2, np.float16), jnp.ones(2), 3, (1, 2)])
def test_lists_numpy_arrays_and_numbers_are_arrays(x):
    np.testing.assert_array_equal(as_array(x, "x", "f"), np.asarray(x))


@pytest.mark.parametrize(
    "x",
    [
        None,
        "text",
        ["text"],  # not "a", which jax 0.10 takes for a dtype of NumPy
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
        (np.array(0.5), "(0, 1)", True),
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
    with pytest.raises(
        ValueError, match=r"^f needs a (finite )?number [^\n]*as rate, got [^\n]*[.]$"
    ):
        check_number(value, "rate", interval, "f")


def test_of_a_traced_number_only_the_dtype_is_asked():
    jax.jit(lambda x: check_number(x, "rate", "[0, 1)", "f"))(3.0)
    with pytest.raises(ValueError, match="needs a finite number as rate"):
        jax.jit(lambda x: check_number(x, "rate", REAL, "f"))(1j)


@checked
def annotated(
    x: Float[Array, "*batch m n"] = ((1.0,),),
    scale: float | Float[Array, ""] = 1.0,
    rate: ArrayLike = 1.0,
    count: int = 1,
    by: Literal["mean", "median"] = "mean",
    of: Callable[[Array], Array] | None = None,
    names: Sequence[str] = (),
    data: xr.DataArray | float | int = 1,
    key: Key[Array, ""] | None = None,
    host: Float[np.ndarray, " n"] | None = None,
    tree: PyTree = None,
    *rest: int,
    word: str = "",
):
    """Has an argument of each kind."""
    del scale, rate, count, by, of, names, data, key, host, tree, rest, word
    return x


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"x": None}, "annotated needs an array of numbers as x, got None."),
        ({"x": [1.0]}, "annotated needs an array with 2 axes or more as x, got shape (1,)."),
        ({"x": np.ones((2, 2), complex)}, "annotated needs real numbers as x, got complex64."),
        ({"scale": "x"}, "annotated needs an array of numbers as scale, got 'x'."),
        ({"scale": np.ones(2)}, "annotated needs an array with no axes as scale, got shape (2,)."),
        ({"rate": None}, "annotated needs an array of numbers as rate, got None."),
        (
            {"rate": np.array(["a"])},
            "annotated needs an array of numbers as rate, got array(['a'], dtype='<U1').",
        ),
        ({"count": 1.5}, "annotated needs a whole number as count, got 1.5."),
        ({"count": True}, "annotated needs a whole number as count, got True."),
        ({"count": 10**30}, f"annotated needs a whole number as count, got 1{30 * '0'}."),
        ({"by": "log"}, "annotated needs one of 'mean', 'median' as by, got 'log'."),
        ({"by": np.ones(2)}, "annotated needs one of 'mean', 'median' as by, got array([1., 1.])."),
        ({"of": 3}, "annotated needs a function or None as of, got 3."),
        ({"names": "ab"}, "annotated needs a sequence as names, got 'ab'."),
        ({"data": "x"}, "annotated needs a DataArray or a number as data, got 'x'."),
        (
            {"key": 3},
            "annotated needs a typed key as key, got 3; make one with jax.random.key(seed).",
        ),
        ({"host": ["a"]}, "annotated needs an array of numbers as host, got ['a']."),
        ({"word": 3}, "annotated needs text as word, got 3."),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_annotations_are_asked_in_one_sentence(arguments, sentence):
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        annotated(**arguments)
    assert str(refused.value) == sentence


@pytest.mark.usefixtures("unchecked")
def test_what_annotations_say_passes_and_lists_become_arrays():
    found = annotated(
        [[1, 2]],
        np.float32(2),
        [1.0],
        np.int64(3),
        "median",
        len,
        ["a"],
        2.5,
        jax.random.key(0),
        [1.0],
        object(),
        4,
        5,
    )
    assert isinstance(found, jax.Array)
    assert isinstance(jax.jit(annotated)(np.ones((2, 3))), jax.Array)
    with pytest.raises(ValueError, match="needs a whole number as rest, got 'x'"):
        annotated(np.ones((2, 2)), *[1.0, 1.0, 1, "mean", None, (), 1, None, None, None], "x")


def test_arguments_with_their_own_errors_are_left_to_functions():
    def function(x: int, n: int) -> int:
        return x * n

    assert checked_but("x")(function)("a", 2) == "aa"


def test_several_numbers_are_not_one():
    for several in (np.array([0.5, 0.25]), jnp.ones((1, 1))):
        with pytest.raises(
            ValueError, match=r"f needs one number as rate, got shape .*; take jax.vmap for several"
        ):
            check_number(several, "rate", REAL, "f")
