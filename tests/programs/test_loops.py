"""Loops: how many inputs are constants and carried, under the spelling of the JAX that runs the
tests.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from specjax.programs import UnreadableProgramError, _loops, scan, trace, while_loop

A, B, C = np.arange(3.0, dtype=np.float32), np.float32(2), np.float32(0.5)
XS = np.arange(12.0, dtype=np.float32).reshape(4, 3)


def recurrence(a, b, c, xs, *, reverse=False):
    """Two constants, three that are carried, one that is sliced; two results are stacked."""

    def step(carry, x):
        i, total, last = carry
        new = b * total + a * x
        return (i + 1, new, c * last + x), (new.sum(), x - last)

    return lax.scan(step, (0, jnp.zeros(3), x0 := a - 1), xs, reverse=reverse), x0


def only(program, name):
    (found,) = (equation for equation in program.equations if equation.name == name)
    return found


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_is_read_and_run_again(reverse):
    program, _ = trace(lambda *given: recurrence(*given, reverse=reverse), A, B, C, XS)
    loop = scan(only(program, "scan"))
    # Of the constants b, a and c, those that the body takes.
    assert (loop.consts, loop.carry, loop.length, loop.reverse) == (3, 3, 4, reverse)
    assert len(loop.body.inputs) == 3 + 3 + 1
    assert len(loop.body.outputs) == 3 + 2

    def again(*given):
        (carry, ys), _ = recurrence(*given, reverse=reverse)
        start = [np.int32(0), jnp.zeros(3), given[0] - 1]
        order = [given[1], given[0], given[2]]
        return [*carry, *ys], loop.run(
            [*order, *start, given[3]], lambda _, inputs: loop.body(*inputs)
        )

    expected, found = jax.jit(again)(A, B, C, XS)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_the_steps_are_counted_in_their_order():
    program, _ = trace(
        lambda x: lax.scan(lambda c, _: (c + 1, c), x, None, length=3, reverse=True), np.float32(0)
    )
    loop = scan(only(program, "scan"))
    _, indices = loop.run([np.float32(0)], lambda index, inputs: [inputs[0], index])
    np.testing.assert_array_equal(indices, [0, 1, 2])


def test_just_one_spelling_is_that_of_this_jax():
    program, _ = trace(recurrence, A, B, C, XS)
    found = [spelling(only(program, "scan").parameters) for spelling in _loops._SPELLINGS]
    assert sorted(found, key=str) == [(3, 3), None]


def test_an_unknown_spelling_is_refused_with_its_parameters(monkeypatch):
    monkeypatch.setattr(_loops, "_SPELLINGS", ())
    program, _ = trace(recurrence, A, B, C, XS)
    with pytest.raises(
        UnreadableProgramError,
        match=(
            r"^This version of specjax cannot read the primitive 'scan' with the parameters"
            rf" .*length.* of JAX {jax.__version__}; "
            "update specjax, or install an older JAX.$"
        ),
    ):
        scan(only(program, "scan"))


def test_a_while_loop_is_read():
    def until(x, bound, step):
        return lax.while_loop(
            lambda c: c[1] < bound, lambda c: (c[0] * step, c[1] + step + bound), (x, 0.0)
        )

    program, _ = trace(until, A, np.float32(9), np.float32(2))
    loop = while_loop(only(program, "while"))
    # The bound for the test, the step and the bound for the body.
    assert (loop.test_consts, loop.body_consts) == (1, 2)
    test, body, carry = loop.split(["bound", "step", "bound again", "x", "number"])
    assert (test, body, carry) == (["bound"], ["step", "bound again"], ["x", "number"])
    assert [len(program.inputs) for program in (loop.test, loop.body)] == [1 + 2, 2 + 2]


def test_what_is_no_loop_is_none():
    program, _ = trace(lambda x: jnp.sin(x), A)
    assert scan(only(program, "sin")) is while_loop(only(program, "sin")) is None
