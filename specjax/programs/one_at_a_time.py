"""A workaround for jaxlib 0.10: on a CPU, compute a batch of decompositions one matrix at a time.

jaxlib 0.10 cuts a batched LAPACK call (svd, eigh, qr, lu, cholesky, triangular solves) into tasks
for XLA's pool of threads, and waits for them on a thread of that pool. As many calls at once as the
pool has threads then never end, whether in one program, in two, or in one program on several
devices. A call for one matrix is not cut and waits for nothing.

jaxlib 0.11.0 does the same, and pyproject.toml excludes it. From 0.11.1 on jaxlib itself computes a
batch one matrix after the other (`tests/test_jax_regression.py` holds the program that did not
end): there `IS_NEEDED` is false, and every function of this module is the plain call. So this
module can go, with its uses, when pyproject.toml requires jax 0.11.1.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
from jax import lax
from jaxtyping import Array

from specjax.jaxlib import JAXLIB
from specjax.programs._decompositions import DECOMPOSITIONS, decomposes
from specjax.programs._evaluation import evaluate
from specjax.programs._program import Equation, Program, is_traced, trace

IS_NEEDED = JAXLIB < (0, 11)


def one_at_a_time(function: Callable[..., Any], *arrays: Array) -> Any:
    """function(*arrays), one after the other under `vmap` on a CPU with jaxlib 0.10 if it
    decomposes matrices.

    Derivatives of both modes and any order are those of `function`. Their decompositions come one
    by one as well, except for triangular solves with the tangents themselves, as in the derivative
    of a solution.

    Args:
        function: Maps arrays to a tree of arrays. It may close over traced values.
        *arrays: Its arguments.
    """
    # Outside of transformations there is no batch, and the function may inspect its values.
    if not IS_NEEDED or not any(map(is_traced, arrays)):
        return function(*arrays)
    program, shapes = trace(function, *arrays)
    # A trace without decompositions is used as it is: tracing again would call the function twice.
    call = _alone if decomposes(program) else _plain
    return jax.tree.unflatten(
        jax.tree.structure(shapes), call(program, *program.constants, *arrays)
    )


# Outside of jit a loop would be compiled at each call. The cache keeps each function, so the
# function must not close over traced values.
compiled_one_at_a_time = jax.jit(one_at_a_time, static_argnums=0, inline=True)


def without_batches(traced: jax.stages.Traced) -> Callable[..., Any]:
    """The traced function, in which LAPACK never gets a batch on a CPU, even under a `vmap`."""
    program, tree = Program.of(traced), jax.tree.structure(traced.out_info)
    body = partial(_in_turn, program) if decomposes(program) else program
    return lambda *arguments: jax.tree.unflatten(tree, body(*jax.tree.leaves(arguments)))


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _alone(program: Program, *values: Array) -> tuple[Array, ...]:
    """The results of a program for constants and arguments, one after the other under `vmap`."""
    plain = partial(_plain, program)
    alone = jax.custom_batching.custom_vmap(plain)

    @alone.def_vmap
    def _(
        size: int, batched: Sequence[bool], *values: Array
    ) -> tuple[tuple[Array, ...], tuple[bool, ...]]:
        def in_turn(*values: Array) -> tuple[Array, ...]:
            def member(rows: list[Array]) -> tuple[Array, ...]:
                row = iter(rows)
                # Not `plain`: a further batch axis is taken in turn too.
                return alone(*(next(row) if b else v for v, b in zip(values, batched, strict=True)))

            return lax.map(member, [v for v, b in zip(values, batched, strict=True) if b])

        at_once = jax.vmap(plain, in_axes=[0 if b else None for b in batched], axis_size=size)
        results = lax.platform_dependent(*values, cpu=in_turn, default=at_once)
        return results, (True,) * len(results)

    return alone(*values)


@_alone.defjvp
def _derivative(
    program: Program, primals: tuple[Array, ...], tangents: tuple[Array, ...]
) -> tuple[tuple[Array, ...], Any]:  # tangents of integers are NumPy's float0
    # The loop computes the coefficients of the linear map, since it could not be transposed itself.
    results, linear = one_at_a_time(partial(jax.linearize, partial(_plain, program)), *primals)
    return results, linear(*tangents)


def _plain(program: Program, *values: Array) -> tuple[Array, ...]:
    constants = len(program.constant_variables)
    return tuple(replace(program, constants=values[:constants])(*values[constants:]))


def _in_turn(program: Program, *arguments: Any) -> list[Any]:
    return evaluate(
        program, arguments, _outputs, lambda equation: any(map(decomposes, equation.bodies))
    )


def _outputs(equation: Equation, inputs: list[Any]) -> Sequence[Any]:
    if equation.name in DECOMPOSITIONS and equation.name != "ffi_call":
        each = partial(one_at_a_time, lambda *matrices: tuple(equation.bind(*matrices)))
        for _ in range(inputs[0].ndim - 2):
            each = jax.vmap(each)
        return each(*inputs)
    if equation.name == "custom_linear_solve":
        lengths, solve = equation.parameters["const_lengths"], equation.parameters["jaxprs"].solve
        before = lengths.matvec + lengths.vecmat
        return _in_turn(
            Program.of(solve), *inputs[before : before + lengths.solve], *inputs[sum(lengths) :]
        )
    if equation.name == "ffi_call" or any(map(decomposes, equation.bodies)):
        # The inside cannot be changed, so the whole call runs in turn.
        return one_at_a_time(equation.bind, *inputs)
    return equation.bind(*inputs)
