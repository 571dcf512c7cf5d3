"""Symbols (Gaussian, constant, orthogonal), and words such as traces and powers."""

from collections.abc import Mapping

from specjax.arguments import checked, checked_but
from specjax.moments._expression import Expression, contract, uniform
from specjax.moments._graph import Constant, Gaussian, Orthogonal, Size, Symbol, Vertex, assemble
from specjax.moments._polynomial import Polynomial, PolynomialLike, check_name, polynomial


@checked_but("variance")
def gaussian(
    name: str,
    *shape: Size,
    variance: PolynomialLike = 1,
    covariance: Mapping[int, Expression] | None = None,
) -> Expression:
    """An array of centered Gaussian entries; symbols of different names are independent.

    Args:
        name: An identifier; the same name is the same matrix.
        *shape: Sizes: names such as "d", or numbers.
        variance: The variance of an entry: a number, or a monomial in sizes and scales such as
            `symbol("sigma")**2 / symbol("k")`.
        covariance: By axis, a symmetric constant: the covariance along it, times `variance`. Rows x
            ~ N(0, Σ) are `gaussian("X", "n", "d", covariance={1: constant("Sigma", "d", "d",
            symmetric=True)})`.

    Raises:
        ValueError: a name that is not an identifier, a size below 1, or a covariance other than a
            symmetric constant of the size of its axis.

    Examples:
        >>> from specjax import moments
        >>> x = moments.gaussian("x", "d", variance=2)
        >>> moments.expectation(x @ x)
        2 d
    """
    _check_shape(name, shape)
    factors: list[Constant | None] = [None] * len(shape)
    for axis, expression in (covariance or {}).items():
        factors[axis] = _covariance(expression, axis, shape)
    return _expression(Gaussian(name, shape, polynomial(variance), tuple(factors)))


@checked
def constant(name: str, *shape: Size, symmetric: bool = False) -> Expression:
    """A matrix, or an array of any rank, that is not random, such as a target.

    Args:
        name: An identifier.
        *shape: Sizes: names, or numbers.
        symmetric: Whether it is a matrix that equals its transpose.

    Raises:
        ValueError: a name that is not an identifier, a size below 1, or a symmetric one that is not
            square.

    Examples:
        >>> from specjax import moments
        >>> A, x = moments.constant("A", "d", "d"), moments.gaussian("x", "d")
        >>> moments.expectation(x @ A @ x)
        tr(A)
    """
    _check_shape(name, shape)
    if symmetric and (len(shape) != 2 or shape[0] != shape[1]):
        raise ValueError(f"A symmetric constant is a square matrix, got {name!r} of shape {shape}.")
    return _expression(Constant(name, shape, symmetric))


@checked
def haar(name: str, size: Size) -> Expression:
    """A random orthogonal matrix, uniform on the group; different names are independent.

    Average its words by `haar_expectation`. The averages use Q Qᵀ = I; words are not simplified by
    it.

    Raises:
        ValueError: a name that is not an identifier, or a size below 1.

    Examples:
        >>> from specjax import moments
        >>> Q, A = moments.haar("Q", "n"), moments.constant("A", "n", "n")
        >>> moments.haar_expectation(Q @ A @ Q.T)
        tr(A) I / n
    """
    _check_shape(name, (size, size))
    return _expression(Orthogonal(name, (size, size)))


@checked
def identity(size: Size) -> Expression:
    """The identity matrix.

    Examples:
        >>> from specjax import moments
        >>> moments.trace(moments.identity("n"))
        n
    """
    _check_shape("I", (size, size))
    return contract((), (), (0, 0), sizes={0: size})


@checked
def ones(*shape: Size) -> Expression:
    """The array of ones.

    Examples:
        >>> from specjax import moments
        >>> x = moments.gaussian("x", "d")
        >>> moments.expectation((moments.ones("d") @ x) ** 2)
        d
    """
    _check_shape("1", shape)
    return uniform(shape, 1)


@checked
def trace(word: Expression) -> Expression:
    """The trace of a square matrix; ValueError for anything else.

    Examples:
        >>> from specjax import moments
        >>> W = moments.gaussian("W", "n", "n")
        >>> moments.expectation(moments.trace(W @ W))
        n
    """
    _check_square(word, "A trace")
    return contract((word,), ((0, 0),), ())


@checked
def diagonal(word: Expression) -> Expression:
    """The diagonal of a square matrix, a vector; ValueError for anything else.

    Examples:
        >>> from specjax import moments
        >>> W = moments.gaussian("W", "n", "d")
        >>> moments.expectation(moments.diagonal(W @ W.T))
        d
    """
    _check_square(word, "A diagonal")
    return contract((word,), ((0, 0),), (0,))


@checked
def matrix_power(word: Expression, power: int) -> Expression:
    """A power of a square matrix, 0 for the identity; ValueError for a negative one.

    Examples:
        >>> from specjax import moments
        >>> W = moments.gaussian("W", "n", "d")
        >>> moments.expectation(moments.matrix_power(W @ W.T, 2))
        (d n + d^2 + d) I
    """
    _check_square(word, "A power")
    if power < 0:
        raise ValueError(f"A power of a matrix that is polynomial is at least 0, got {power}.")
    result = identity(word.shape[0])
    for _ in range(power):
        result = result @ word
    return result


@checked
def squared_norm(word: Expression) -> Expression:
    """The sum of the squares of the entries: ‖A‖_F² of a matrix, |v|² of a vector.

    Examples:
        >>> from specjax import moments
        >>> x = moments.gaussian("x", "d")
        >>> moments.expectation(moments.squared_norm(x) ** 2)
        d^2 + 2 d
    """
    axes = tuple(range(word.ndim))
    return contract((word, word), (axes, axes), ())


def _expression(symbol: Symbol) -> Expression:
    axes = tuple(range(len(symbol.shape)))
    vertices = [Vertex(size, (axis,)) for axis, size in enumerate(symbol.shape)]
    return Expression(
        symbol.shape, {assemble(vertices, [(symbol, axes)]).graph: Polynomial({(): 1})}
    )


def _covariance(expression: Expression, axis: int, shape: tuple[Size, ...]) -> Constant:
    if not 0 <= axis < len(shape):
        raise ValueError(
            f"A covariance belongs to one of the axes 0 to {len(shape) - 1}, got axis {axis}."
        )
    found = list(expression.symbols.values())
    if (
        len(found) != 1
        or not isinstance(found[0], Constant)
        or not found[0].symmetric
        or expression != _expression(found[0])
    ):
        raise ValueError(
            f"The covariance along axis {axis} must be a symmetric constant; make it with"
            " constant(name, size, size, symmetric=True)."
        )
    if found[0].shape[0] != shape[axis]:
        raise ValueError(
            f"The covariance along axis {axis} must have its size {shape[axis]}, got shape"
            f" {found[0].shape}."
        )
    return found[0]


def _check_shape(name: str, shape: tuple[Size, ...]) -> None:
    check_name(name) if name != "1" else None
    for size in shape:
        if isinstance(size, str):
            check_name(size)
        elif not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise ValueError(
                f"A size is a name or an int of at least 1, got {size!r} in the shape of {name!r}."
            )


def _check_square(word: Expression, what: str) -> None:
    if word.ndim != 2 or word.shape[0] != word.shape[1]:
        raise ValueError(f"{what} is one of a square matrix, got shape {word.shape}.")
