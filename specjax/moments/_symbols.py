"""The symbols of expressions: one name for one symbol, and a symbol in words."""

from specjax.moments._graph import Gaussian, Orthogonal, Symbol


def add_symbol(found: dict[str, Symbol], symbol: Symbol) -> None:
    """Adds a symbol and the constants in its covariance to `found`.

    Raises:
        ValueError: another symbol has the name.
    """
    if (other := found.setdefault(symbol.name, symbol)) is not symbol and other != symbol:
        raise ValueError(
            f"Two different symbols have the name {symbol.name!r}: {describe(other)} and"
            f" {describe(symbol)}."
        )
    if isinstance(symbol, Gaussian):
        for constant in symbol.covariance:
            if constant is not None:
                add_symbol(found, constant)


def describe(symbol: Symbol) -> str:
    """A symbol in words, for messages."""
    if isinstance(symbol, Gaussian):
        return f"Gaussian of shape {symbol.shape}, variance {symbol.variance}"
    kind = (
        "orthogonal"
        if isinstance(symbol, Orthogonal)
        else "symmetric constant"
        if symbol.symmetric
        else "constant"
    )
    return f"{kind} of shape {symbol.shape}"
