"""What is wrong with a sweep is said in one sentence, before anything is compiled."""

# ruff: noqa: ARG001, ARG005 (a measurement is called by its argument names, whether it uses them or not)

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from measures import overlap

from specjax import sizes
from specjax.sweep import run, values, widths

KEY = jax.random.key(0)
OVER = {"d": widths(2, 4)}


@pytest.fixture(autouse=True)
def _nothing_compiled(monkeypatch):
    """The tests of this file end before the compiler; the first shows that this is where a sound
    sweep would arrive.
    """

    def refuse(*_, **__):
        raise AssertionError("compiled a sweep that should have been refused")

    monkeypatch.setattr("specjax.sweep._executor.compile_program", refuse)


def test_a_sound_sweep_reaches_the_compiler():
    with pytest.raises(AssertionError, match="compiled a sweep"):
        run(overlap, OVER, num_seeds=2, key=KEY)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: widths(), "widths needs at least one point"),
        (lambda: values(), "values needs at least one point"),
        (lambda: widths(0), "positive ints, got 0"),
        (lambda: widths(-3), "positive ints, got -3"),
        (lambda: widths(2.5), "positive ints, got 2.5"),
        (lambda: widths(True), "positive ints, got True"),
        (
            lambda: widths([16, 32]),
            r"one by one, got a list; unpack it, e.g. widths\(\*\[16, 32\]\)",
        ),
        (lambda: values(np.linspace(0, 1, 3)), "one by one, got a ndarray"),
        (lambda: values(float("nan")), "finite numbers, got nan"),
        (lambda: values(float("inf")), "finite numbers, got inf"),
        (lambda: values("a"), "finite numbers, got 'a'"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_axes_refuse(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_axes_keep_the_order_given():
    assert widths(32, np.int64(8), 16).points == (32, 8, 16)
    assert all(isinstance(n, int) for n in widths(np.int64(8)).points)
    assert values(3, 1).points == (3, 1)
    assert all(isinstance(x, float) for x in values(3, 0.5).points)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"over": {}}, "at least one swept name"),
        ({"over": [1, 2]}, "at least one swept name"),
        ({"over": {"d": [16, 32]}}, r"over\['d'\] needs an axis, got a list"),
        ({"over": {"d": widths(8, 8)}}, "8 more than once"),
        ({"over": {**OVER, "lr": values(0.5, 1.0, 0.5)}}, "0.5 more than once"),
        ({"over": {**OVER, "lr": values(1, 1.0)}}, "1.0 more than once"),
        ({"over": {**OVER, "seed": values(1)}}, "'seed' belongs to the sweep"),
        ({"over": {**OVER, "key": values(1)}}, "'key' belongs to the sweep"),
        ({"over": {**OVER, "failed": values(1)}}, "'failed' belongs to the sweep"),
        ({"over": {**OVER, "lr": values(1e-50)}}, "float32 cannot hold the values of 'lr'"),
        (
            {"over": {**OVER, "lr": values(1.0, 1.0 + 1e-12)}},
            "float32 cannot hold the values of 'lr'",
        ),
        ({"over": {**OVER, "steps": values(2**40)}}, "int32 cannot hold the values of 'steps'"),
        ({"num_seeds": 0}, "num_seeds needs to be a positive int, got 0"),
        ({"num_seeds": 2.5}, "num_seeds needs to be a positive int, got 2.5"),
        ({"num_seeds": True}, "num_seeds needs to be a positive int, got True"),
        ({"chunk": 0}, "chunk needs to be a positive int, got 0"),
        (
            {"key": jnp.zeros(2, jnp.uint32)},
            r"typed JAX key, got an array of dtype uint32 and shape \(2,\)",
        ),
        ({"key": 0}, "typed JAX key, got 0"),
        ({"key": jax.random.split(jax.random.key(0))}, r"one typed JAX key, .*shape \(2,\)"),
        ({"plan": "best"}, "'exact', 'padded', 'auto', got 'best'"),
        (
            {"over": {"width": widths(2)}},
            r"measure\(key, width\), but has the signature measure\(key, d\)",
        ),
        (
            {"over": {**OVER, "lr": values(0.1)}},
            r"measure\(key, d, lr\).*unexpected keyword argument 'lr'",
        ),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_run_refuses(change, message):
    arguments = {"over": OVER, "num_seeds": 2, "key": KEY, **change}
    with jax.enable_x64(False), pytest.raises(ValueError, match=message):
        run(overlap, **arguments)


def test_a_missing_swept_name_is_named():
    def measure(key, d, lr):
        raise AssertionError("called although its arguments are wrong")

    with pytest.raises(ValueError, match="missing a required argument: 'lr'"):
        run(measure, OVER, num_seeds=2, key=KEY)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (jnp.ones(3), "dict of arrays, got a "),
        (None, "dict of arrays, got a NoneType"),
        ({}, "dict of arrays, got an empty dict"),
        ({"a": {}}, "got an empty dict under 'a'"),
        ({"a": {"b": [1, 2]}}, "got a list under 'a.b'"),
        ({"a": "text"}, "got a str under 'a'"),
        ({"a": jax.random.key(0)}, "arrays of numbers, got dtype key"),
        ({1: jnp.ones(())}, "non-empty strings without '/', got 1"),
        ({"a/b": jnp.ones(())}, "non-empty strings without '/', got 'a/b'"),
        ({"a": {"b": 1.0}, "a.b": 2.0}, "output 'a.b' twice"),
        ({"seed": 1.0}, "output name 'seed' is already"),
        ({"failed": 1.0}, "output name 'failed' is already"),
        ({"d": 1.0}, "output name 'd' is already"),
        ({"a": jnp.ones(2), "a_dim_0": 1.0}, "output name 'a_dim_0' is already"),
    ],
)
def test_outputs_refuse(result, message):
    with pytest.raises(ValueError, match=message):
        run(lambda key, d: result, OVER, num_seeds=2, key=KEY)


def test_an_output_dimension_cannot_be_a_swept_name():
    with pytest.raises(ValueError, match="swept name 'a_dim_0'"):
        run(lambda key, a_dim_0: {"a": jnp.ones(2)}, {"a_dim_0": widths(2)}, num_seeds=2, key=KEY)


def test_a_width_dependent_shape_is_named_with_both_shapes():
    def measure(key, rows, columns):
        return {"sum": jnp.ones(()), "row": sizes.normal(key, (columns,))}

    message = (
        "'row' has shape (2,) at columns=2 and (6,) at columns=6: an output cannot depend on a"
        " swept width, "
    )
    with pytest.raises(ValueError, match=re.escape(message) + "so reduce over the active block"):
        run(measure, {"rows": widths(3, 4), "columns": widths(4, 2, 6)}, num_seeds=2, key=KEY)


@pytest.mark.filterwarnings("ignore::specjax.sweep.EqualSeedsWarning")
def test_names_that_depend_on_a_width_are_refused():
    def measure(key, d):
        return {f"at_{sizes.padded(d)}": jnp.ones(())}

    with pytest.raises(
        ValueError, match=r"same names at every width, got \['at_2'\] at d=2 and \['at_4'\] at d=4"
    ):
        run(measure, OVER, num_seeds=2, key=KEY)


@pytest.mark.parametrize("wrong", [np.float64(5), np.True_, "5", np.int64(0)])
@pytest.mark.usefixtures("unchecked")
def test_what_is_no_int_is_no_number_of_seeds(wrong):
    with pytest.raises(ValueError, match="num_seeds needs to be a positive int, got"):
        run(overlap, OVER, num_seeds=wrong, key=KEY)
    with pytest.raises(ValueError, match="chunk needs to be a positive int, got"):
        run(overlap, OVER, num_seeds=2, key=KEY, chunk=wrong)
    if wrong != "5":
        with pytest.raises(ValueError, match="memory needs to be bytes or a size"):
            run(overlap, OVER, num_seeds=2, key=KEY, memory=wrong)
