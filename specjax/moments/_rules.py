"""Rules for the operations of a traced function on expressions; nearly all are contractions."""

import ast
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from specjax.moments._entries import ENTRY_RULES
from specjax.moments._expression import Expression, as_expression, contract, uniform
from specjax.moments._graph import Size
from specjax.moments._polynomial import Polynomial, polynomial, rational, symbol
from specjax.moments._values import Places, Rule, Value, constant_number, every, number, spread


def _multiply(inputs: Sequence[Any], shape: tuple[Size, ...], _: Any) -> Value:
    a, b = (spread(each, shape) for each in inputs)
    return contract((a, b), (every(a), every(b)), every(a))


def _add(inputs: Sequence[Any], shape: tuple[Size, ...], _: Any) -> Value:
    a, b = inputs[::-1] if isinstance(inputs[1], Places) else inputs
    if not isinstance(a, Places):
        return spread(a, shape) + spread(b, shape)
    if isinstance(b, Places) or b != uniform(b.shape, 0):
        raise ValueError(
            "The function moves places along an axis; only an identity and single places are"
            " followed, no other diagonal."
        )
    return a


def _subtract(inputs: Sequence[Any], shape: tuple[Size, ...], _: Any) -> Value:
    return spread(inputs[0], shape) - spread(inputs[1], shape)


def _divide(inputs: Sequence[Any], shape: tuple[Size, ...], _: Any) -> Value:
    return spread(inputs[0], shape) * (polynomial(1) / number(inputs[1], "div"))


def _power(inputs: Sequence[Any], shape: tuple[Size, ...], params: Mapping[str, Any]) -> Value:
    exponent = params["y"] if "y" in params else constant_number(number(inputs[1], "pow"))
    return _raised(inputs[0], exponent, shape)


def _raised(word: Expression, exponent: Any, shape: tuple[Size, ...]) -> Value:
    exponent = rational(exponent)
    if isinstance(exponent, int) and exponent >= 0:
        return word**exponent
    return uniform(shape, number(word, f"the power {exponent}") ** exponent)


def _dot_general(inputs: Sequence[Any], _: tuple[Size, ...], params: Mapping[str, Any]) -> Value:
    a, b = inputs
    (a_summed, b_summed), (a_batch, b_batch) = params["dimension_numbers"]
    left = list(every(a))
    right = [a.ndim + axis for axis in every(b)]
    for x, y in zip((*a_summed, *a_batch), (*b_summed, *b_batch), strict=True):
        right[y] = left[x]
    free = [left[x] for x in every(a) if x not in (*a_summed, *a_batch)]
    free += [right[y] for y in every(b) if y not in (*b_summed, *b_batch)]
    return contract((a, b), (left, right), [left[x] for x in a_batch] + free)


def _reduce_sum(inputs: Sequence[Any], _: tuple[Size, ...], params: Mapping[str, Any]) -> Value:
    return inputs[0].sum(tuple(int(axis) for axis in params["axes"]))


def _transpose(inputs: Sequence[Any], _: tuple[Size, ...], params: Mapping[str, Any]) -> Value:
    return contract(inputs, (every(inputs[0]),), params["permutation"])


def _broadcast_in_dim(
    inputs: Sequence[Any], shape: tuple[Size, ...], params: Mapping[str, Any]
) -> Value:
    word, dims = inputs[0], params["broadcast_dimensions"]
    if isinstance(word, Places):
        return Places(shape, int(dims[word.axis]))
    return spread(word, shape, [int(dim) for dim in dims])


def _reshape(inputs: Sequence[Any], shape: tuple[Size, ...], _: Any) -> Value:
    """Add or remove axes of size 1; any other reshape is refused."""
    (word,) = inputs
    longer = [axis for axis, size in enumerate(word.shape) if size != 1]
    kept = [axis for axis, size in enumerate(shape) if size != 1]
    if [word.shape[axis] for axis in longer] != [shape[axis] for axis in kept]:
        raise ValueError(
            f"The function reshapes {word.shape} to {shape}; keep axes apart, entries in a row are"
            " not followed."
        )
    labels = [len(shape) + axis for axis in every(word)]
    for axis, new in zip(longer, kept, strict=True):
        labels[axis] = new
    sizes = {axis: size for axis, size in enumerate(shape) if axis not in kept}
    return contract((word,), (labels,), range(len(shape)), sizes=sizes)


def _not(inputs: Sequence[Any], shape: tuple[Size, ...], _: Any) -> Value:
    return uniform(shape, 1) - inputs[0]


def _pad(inputs: Sequence[Any], _: tuple[Size, ...], params: Mapping[str, Any]) -> Value:
    if any(number != 0 for config in params["padding_config"] for number in config):
        raise ValueError("The function pads an array, which is not followed; keep axes apart.")
    return inputs[0]


def _split(inputs: Sequence[Any], _shape: tuple[Size, ...], params: Mapping[str, Any]) -> Value:
    """Split into one piece, as derivatives with respect to one array do."""
    if len(params["sizes"]) != 1:
        raise ValueError(
            f"The function splits an axis into {len(params['sizes'])} pieces; keep axes apart."
        )
    return inputs[0]


def _same(inputs: Sequence[Any], _shape: tuple[Size, ...], _params: Any) -> Value:
    return inputs[0]


def _dimension(_: Sequence[Any], _shape: tuple[Size, ...], params: Mapping[str, Any]) -> Value:
    return as_expression(_read(ast.parse(str(params["dim"]).replace("^", "**"), mode="eval").body))


def _read(node: ast.expr) -> Polynomial:
    """Parse a symbolic size, which JAX writes as `2*d*k + d^2`, into a polynomial."""
    match node:
        case ast.Constant(value=int(number)):
            return polynomial(number)
        case ast.Name(id=name):
            return symbol(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_read(operand)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _read(left) + _read(right)
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            return _read(left) - _read(right)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _read(left) * _read(right)
        case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int(power))):
            return _read(left) ** power
    raise ValueError(
        f"The function computes with the size {ast.unparse(node)}, which is not a"
        " polynomial in sizes."
    )


def _root(exponent: Fraction) -> Rule:
    return lambda inputs, shape, _: _raised(inputs[0], exponent, shape)


def _square(inputs: Sequence[Any], _: tuple[Size, ...], _params: Any) -> Value:
    return inputs[0] ** 2


def _negative(inputs: Sequence[Any], _: tuple[Size, ...], _params: Any) -> Value:
    return -inputs[0]


def _first_platform(_: Sequence[Any], _shape: tuple[Size, ...], _params: Any) -> Value:
    """Choose the first of several platforms' versions of a function, which compute the same."""
    return uniform((), 0)


def _never_read(_: Sequence[Any], shape: tuple[Size, ...], _params: Any) -> Value:
    """A value that one branch leaves empty for another, as versions for several platforms do."""
    return uniform(shape, 0)


RULES: Mapping[str, Rule] = {
    **ENTRY_RULES,
    "add": _add,
    "add_any": _add,
    "and": _multiply,
    "broadcast_in_dim": _broadcast_in_dim,
    "convert_element_type": _same,
    "copy": _same,
    "dim_as_value": _dimension,
    "div": _divide,
    "dot_general": _dot_general,
    "empty2": _never_read,
    "integer_pow": _power,
    "mul": _multiply,
    "neg": _negative,
    "not": _not,
    "pad": _pad,
    "platform_index": _first_platform,
    "pow": _power,
    "reduce_sum": _reduce_sum,
    "reshape": _reshape,
    "rsqrt": _root(Fraction(-1, 2)),
    "sqrt": _root(Fraction(1, 2)),
    "split": _split,
    "square": _square,
    "squeeze": _reshape,
    "stop_gradient": _same,
    "sub": _subtract,
    "transpose": _transpose,
}
