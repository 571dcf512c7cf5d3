"""Equations: what they call, what they hold, and how they are evaluated alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from specjax.programs import (
    Program,
    UnreadableProgramError,
    decomposes,
    dtype_of,
    evaluate,
    interpret,
    is_traced,
    shape_of,
    trace,
)

X = np.arange(6.0, dtype=np.float32).reshape(2, 3) / 7


@jax.custom_jvp
def by_jvp(x):
    return jnp.sin(x) * 2


by_jvp.defjvp(lambda primals, tangents: (by_jvp(*primals), tangents[0]))


@jax.custom_vjp
def by_vjp(x):
    return jnp.sin(x) * 2


by_vjp.defvjp(lambda x: (by_vjp(x), None), lambda _, dy: (dy,))


@pytest.mark.parametrize(
    "function",
    [jax.jit(lambda x: jnp.sin(x) * 2), jax.checkpoint(lambda x: jnp.sin(x) * 2), by_jvp, by_vjp],
    ids=["jit", "checkpoint", "custom_jvp", "custom_vjp"],
)
def test_a_call_has_the_program_that_it_calls(function):
    program, _ = trace(function, X)
    (call,) = program.equations
    assert [equation.name for equation in call.called.equations if equation.name != "copy"][:2] == [
        "sin",
        "mul",
    ]
    np.testing.assert_allclose(call.called(X)[0], 2 * np.sin(X), rtol=1e-6)


def test_a_call_under_a_new_name_is_read_but_not_evaluated(monkeypatch):
    monkeypatch.setattr("specjax.programs._program._CALLS", frozenset())
    (call,) = trace(jax.jit(lambda x: jnp.sin(x) * 2), X)[0].equations
    assert call.called is None
    assert [equation.name for equation in call.wrapped.equations] == ["sin", "mul"]


def test_a_function_with_a_rule_of_its_own_for_vmap_keeps_it():
    """Its program is read, but what evaluates a program binds it as a whole."""
    twice = jax.custom_batching.sequential_vmap(lambda x: 2 * x)
    program, _ = trace(twice, X)
    (call,) = program.equations
    assert call.called is None
    assert call.wrapped is not None
    mapped = jax.make_jaxpr(jax.vmap(lambda x: evaluate(program, [x], lambda e, v: e.bind(*v))))(
        np.stack([X, X])
    )
    assert "scan" in str(mapped)


def in_shards(x):
    mesh = jax.sharding.AbstractMesh((1,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec()
    return jax.shard_map(
        lambda x: lax.psum(x, "d"), mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False
    )(x)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: lax.scan(lambda c, _: (c + 1, None), x, None, length=2)[0],
        lambda x: lax.while_loop(lambda c: c[0, 0] < 1, lambda c: c + 1, x),
        lambda x: lax.reduce(x, np.float32(0), lambda a, b: a + 2 * b, (0, 1)),
        lambda x: lax.reduce(x[0, 0], np.float32(0), lambda a, b: a + 2 * b, ()),
        in_shards,
    ],
    ids=["scan", "while", "reduce", "reduce-scalar", "shard_map"],
)
def test_a_loop_a_reduction_and_a_shard_are_no_calls(function):
    equations = trace(function, X)[0].equations
    holding = [equation for equation in equations if equation.bodies]
    assert all(equation.called is None for equation in holding)
    assert all(
        (equation.wrapped is not None) == (equation.name == "shard_map") for equation in holding
    )


def test_branches_are_those_of_a_cond():
    program, _ = trace(lambda x: lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x), X)
    (choice,) = (equation for equation in program.equations if equation.branches)
    assert [branch.equations[0].name for branch in choice.branches] == ["cos", "sin"]
    assert not choice.is_by_platform
    by_platform, _ = trace(lambda x: lax.platform_dependent(x, cpu=jnp.sin, default=jnp.cos), X)
    assert any(equation.is_by_platform for equation in by_platform.equations)


def test_a_parameter_that_is_not_there_is_refused_by_name():
    (equation,) = trace(lambda x: x.T, X)[0].equations
    assert equation.parameters["permutation"] == (1, 0)
    with pytest.raises(
        UnreadableProgramError,
        match=r"cannot read the parameter 'order' of the primitive 'transpose'",
    ):
        equation.parameters["order"]


def test_what_is_no_program_is_refused():
    with pytest.raises(UnreadableProgramError, match=r"cannot read a program of type str of JAX"):
        Program.from_traced("{ lambda ; a. let in a }")


def everything(x):
    """A call, a loop, branches, a constant, and numbers of 64 bits, within a function of 32."""
    y = jax.checkpoint(jnp.sin)(x) + jnp.asarray(X)
    y = lax.scan(lambda c, row: (c + row, c * row), y[0], y)[1]
    y = lax.cond(y[0, 0] > 0, jnp.exp, jnp.cos, y)
    with jax.enable_x64(True):
        wide = y.astype(jnp.float64)
        narrow = ((wide + 1e-12 - wide) * 1e12).astype(jnp.float32)
    return y, narrow


@pytest.mark.integration
def test_a_program_evaluated_by_equations_is_the_function():
    program, _ = trace(everything, X)
    found = evaluate(program, [X], lambda equation, inputs: equation.bind(*inputs))
    for one, other in zip(found, everything(X), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


def test_under_jit_the_scope_of_64_bits_stays():
    """In 32 bits 1e-12 is lost beside 1, and 0 is left of it."""
    program, _ = trace(everything, X)
    narrow = jax.jit(
        lambda x: evaluate(program, [x], lambda equation, inputs: equation.bind(*inputs))[1]
    )(X)
    np.testing.assert_allclose(narrow, 1, atol=1e-3)


def test_a_program_is_followed_on_values_of_any_kind():
    program, _ = trace(lambda x: (jnp.sin(x) + jnp.sin(x) * 3.0, 2.0), X)

    def deepest(equation, depths):
        return [1 + max(depths)] * len(equation.outputs)

    assert interpret(program, [], [0], deepest, lambda _: -100) == [3, -100]
    assert program.equations[0].place == 0


def test_constants_are_held():
    program, _ = trace(lambda x: x + jnp.asarray(X), X)
    np.testing.assert_array_equal(program.constants[0], X)
    (variable,) = program.constant_variables
    assert (shape_of(variable), dtype_of(variable)) == ((2, 3), np.float32)


def test_equal_programs_are_one():
    square = jax.jit(lambda x: x * x)
    program, _ = trace(lambda x: square(square(x)), X)
    first, second = (equation.called for equation in program.equations)
    assert first == second
    assert len({first, second}) == 1
    assert first != program


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: x @ x.T, False),
        (lambda x: jnp.linalg.eigvalsh(x @ x.T), True),
        (
            lambda x: lax.scan(lambda c, _: (jnp.linalg.qr(c)[0], None), x.T, None, length=2)[0],
            True,
        ),
        (
            lambda x: lax.cond(x[0, 0] > 0, lambda x: jnp.linalg.svd(x)[1], lambda x: x[:, 0], x),
            True,
        ),
        (lambda x: jnp.linalg.solve(x @ x.T + jnp.eye(2), x), True),
    ],
    ids=["product", "eigh", "in-a-scan", "in-a-branch", "solve"],
)
def test_decompositions_are_seen_wherever_they_are(function, expected):
    assert decomposes(trace(function, X)[0]) == expected


def test_a_value_is_traced_or_not():
    seen = []
    jax.jit(lambda x: seen.append(is_traced(x)))(1.0)
    assert [*seen, is_traced(X), is_traced(1.0), is_traced(jnp.ones(2))] == [
        True,
        False,
        False,
        False,
    ]
