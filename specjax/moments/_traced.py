"""Expressions computed by JAX functions of Gaussian matrices, if these are polynomial.

The function is traced with symbolic sizes, those of `jax.export`, so the result holds at all sizes;
derivatives by `jax.grad`, `vmap`, means over axes and divisions by sizes are supported.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from specjax.arguments import checked
from specjax.moments._entries import OF_PLACES
from specjax.moments._expression import Expression, as_expression
from specjax.moments._graph import Size
from specjax.moments._polynomial import symbol
from specjax.moments._rules import RULES
from specjax.moments._values import Places, Value, literal, size_of
from specjax.moments._words import constant as constant_symbol
from specjax.moments._words import gaussian as gaussian_symbol
from specjax.programs import Equation, Program, dtype_of, interpret, shape_of, trace


@checked
def of(
    function: Callable[..., Any],
    *,
    gaussian: Mapping[str, Any],
    constant: Mapping[str, Any] | None = None,
) -> Any:
    """The expression that a function computes from Gaussian and constant arrays.

    Args:
        function: A function of arrays, with the arguments named below. It may use products, sums,
            traces, transposes, elementwise polynomials, entries at literal places, derivatives,
            `vmap` and division by sizes; all must be polynomial in the arrays.
        gaussian: For each argument its shape, names of sizes or numbers, with independent N(0, 1)
            entries; or a symbol made by `moments.gaussian`; or a list of these, for which the
            function gets a tuple, with symbols `name_1`, `name_2`, and so on.
        constant: The same for arguments that are not random. One of shape () is a scale, such as a
            step size, and appears in the coefficients.

    Returns:
        An expression for each array that the function returns, in the same structure.

    Raises:
        ValueError: an operation that is not polynomial or has no rule, by name; arguments that the
            function lacks, or that are both Gaussian and constant.

    Examples:
        >>> from specjax import moments
        >>> loss = lambda w, x: jnp.sum((w @ x) ** 2)
        >>> word = moments.of(loss, gaussian={"w": ("k", "d"), "x": ("d",)})
        >>> moments.expectation(word)
        d k
    """
    constant = constant or {}
    if both := sorted(set(gaussian) & set(constant)):
        raise ValueError(f"An argument is Gaussian or constant, and {', '.join(both)} is both.")
    arguments = {
        **{name: _symbols(name, given, gaussian_symbol) for name, given in gaussian.items()},
        **{name: _symbols(name, given, _constant) for name, given in constant.items()},
    }
    _check_arguments(function, arguments)
    leaves = jax.tree.leaves(arguments)
    dims = _symbolic_dims(leaves)
    specs = jax.tree.map(
        lambda e: jax.ShapeDtypeStruct(
            tuple(dims.get(size, size) for size in e.shape), jnp.float64
        ),
        arguments,
    )
    # In float64 a literal such as 0.1 is still the number that was written.
    with jax.enable_x64(True):
        program, returned = trace(lambda given: _called(function, given), specs)
    results = _run(program, leaves)
    expressions = []
    for result in results:
        if not isinstance(result, Expression):
            raise ValueError(
                "The function returns places of an array, not a polynomial in its entries."
            )
        expressions.append(result)
    return jax.tree.unflatten(jax.tree.structure(returned), expressions)


def _run(program: Program, arguments: Sequence[Value]) -> list[Value]:
    """Evaluate a program equation by equation."""
    return interpret(
        program, [literal(value) for value in program.constants], arguments, _outputs, literal
    )


def _outputs(equation: Equation, inputs: Sequence[Value]) -> list[Value]:
    if equation.is_by_platform:
        # The first argument chooses among the versions for several platforms.
        return _run(equation.branches[0], inputs[1:])
    return _run(equation.called, inputs) if equation.called else [_applied(equation, inputs)]


def _applied(equation: Equation, inputs: Sequence[Value]) -> Value:
    """Evaluate one operation; ValueError for one without a rule."""
    name = equation.name
    if name not in RULES or (
        name not in OF_PLACES and any(isinstance(each, Places) for each in inputs)
    ):
        shapes = " and ".join(str(each.shape) for each in inputs)
        raise ValueError(
            f"The function is not followed through {name!r}, applied to shape {shapes}: words are"
            " polynomials, made of products, sums, traces, transposes, entries and elementwise"
            f" powers; {_way_out(name)}."
        )
    if _rounds(equation):
        raise ValueError(
            f"The function rounds, or counts bits, by {name!r} to {dtype_of(equation.outputs[0])};"
            " words are polynomials."
        )
    shape = tuple(map(size_of, shape_of(equation.outputs[0])))
    return RULES[name](inputs, shape, equation.parameters)


def _way_out(name: str) -> str:
    if name in ("max", "min", "abs", "sign", "clamp", "select_n"):
        return (
            "for ReLU and the like there are closed forms in specjax.theory, and series by"
            " moments.hermite"
        )
    if name in ("tanh", "logistic", "erf", "exp", "log", "sin", "cos"):
        return "moments.hermite makes a series of an activation"
    if name in ("svd", "eigh", "eig", "qr", "cholesky", "sort"):
        return "of singular values there are the moments tr((A Aᵀ)ⁿ), jnp.trace of matrix powers"
    return "write it by these"


def _rounds(equation: Equation) -> bool:
    """Whether an operation acts differently on integers or booleans, such as conversions."""
    name, made = equation.name, np.dtype(dtype_of(equation.outputs[0])).kind
    if name in ("and", "not"):
        return made != "b"
    if name == "convert_element_type":
        given = np.dtype(dtype_of(equation.inputs[0])).kind
        return (made in "iub" and given not in "iub") or (made == "b" and given != "b")
    return name == "div" and made in "iu"


def _check_arguments(function: Callable[..., Any], given: Mapping[str, Any]) -> None:
    signature = inspect.signature(function)
    try:
        signature.bind(**given)
    except TypeError as error:
        raise ValueError(
            f"The function has the arguments {', '.join(signature.parameters) or 'none'};"
            f" `gaussian` and `constant` name {', '.join(given) or 'none'}."
        ) from error


def _called(function: Callable[..., Any], given: Mapping[str, Any]) -> Any:
    """The function at arguments by name, which are passed in place where it takes them so:
    `jax.grad` counts those.
    """
    bound = inspect.signature(function).bind(**given)
    return function(*bound.args, **bound.kwargs)


def _symbols(name: str, given: Any, make: Callable[..., Expression]) -> Any:
    if isinstance(given, list):
        return tuple(_symbols(f"{name}_{place}", each, make) for place, each in enumerate(given, 1))
    if isinstance(given, Expression):
        return given
    if not isinstance(given, tuple):
        raise ValueError(
            f"The argument {name!r} needs a shape such as ('d', 'k') or a symbol, got {given!r}."
        )
    return make(name, *given)


def _constant(name: str, *shape: Size) -> Expression:
    return constant_symbol(name, *shape) if shape else as_expression(symbol(name))


def _symbolic_dims(expressions: Sequence[Expression]) -> dict[Size, Any]:
    names = sorted(
        {size for expression in expressions for size in expression.shape if isinstance(size, str)}
    )
    return dict(zip(names, export.symbolic_shape(", ".join(names)), strict=True)) if names else {}
