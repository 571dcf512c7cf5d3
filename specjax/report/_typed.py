"""Checks of the types of values in JSON against those of a dataclass."""

from collections.abc import Mapping
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

_NUMBERS: dict[object, tuple[type, ...]] = {float: (int, float), int: (int,)}


def require_types(kind: type, content: Any) -> None:
    """Raise TypeError, naming the first wrong key, unless `content` has only fields of a dataclass,
    of their types.
    """
    if not isinstance(content, Mapping):
        raise TypeError(f"a {kind.__name__} is a mapping, got {type(content).__name__}")
    hints = get_type_hints(kind)
    for name, value in content.items():
        if name not in hints:
            raise TypeError(f"a {kind.__name__} has no {name!r}")
        if not _is(value, hints[name]):
            expected = getattr(hints[name], "__name__", hints[name])
            raise TypeError(
                f"{name} of a {kind.__name__} is {expected}, got {type(value).__name__}"
            )


def _is(value: Any, hint: Any) -> bool:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, UnionType):
        return any(_is(value, each) for each in arguments)
    if origin is Literal:
        return value in arguments
    if origin is tuple:
        listed = isinstance(value, list | tuple)
        if not listed or arguments[-1] is Ellipsis:
            return listed and all(_is(each, arguments[0]) for each in value)
        return len(value) == len(arguments) and all(map(_is, value, arguments))
    if origin is Mapping:
        return isinstance(value, Mapping) and all(
            _is(each, arguments[1]) for each in value.values()
        )
    if hint in _NUMBERS:
        return isinstance(value, _NUMBERS[hint]) and not isinstance(value, bool)
    return isinstance(value, hint)
