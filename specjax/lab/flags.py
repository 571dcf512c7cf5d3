"""Command-line flags of a configuration: one for each dataclass field, with its type and help.

A value is parsed by the field's annotation, and checked by the configuration's `__post_init__`, as
in Python.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

ConfigT = TypeVar("ConfigT")


@dataclasses.dataclass(frozen=True)
class Flag:
    """A flag: its field, the form of its values, the default as typed, and its help."""

    field: str
    metavar: str
    default: str
    help: str

    @property
    def option(self) -> str:
        """The flag as typed: `--field-name`."""
        return "--" + self.field.replace("_", "-")


def flags(config: Any) -> list[Flag]:
    """The flags of a configuration, in the order of its fields, with its values as defaults."""
    hints = get_type_hints(type(config))
    return [
        Flag(
            field=field.name,
            metavar=_metavar(hints[field.name]),
            default=written(getattr(config, field.name)),
            help=field.metadata.get("help", ""),
        )
        for field in dataclasses.fields(config)
        if field.init
    ]


def override(config: ConfigT, texts: Mapping[str, str]) -> ConfigT:
    """The configuration with fields replaced by values parsed from text.

    Raises ValueError for a text that is not of the field's type, or if `__post_init__` does.
    """
    hints = get_type_hints(type(config))
    values = {
        name: _read("--" + name.replace("_", "-"), hints[name], text)
        for name, text in texts.items()
    }
    return dataclasses.replace(config, **values)  # type: ignore[type-var]


def _read(option: str, hint: Any, text: str) -> Any:
    if get_origin(hint) is tuple:
        item, what = get_args(hint)[0], "comma-separated " + _KINDS[get_args(hint)[0]].plural
        try:
            return tuple(_KINDS[item].read(part) for part in text.split(","))
        except ValueError:
            raise ValueError(
                f"{option} takes {what}, as in {option} {_metavar(hint)}, not {text!r}."
            ) from None
    try:
        return _KINDS[hint].read(text)
    except ValueError:
        raise ValueError(f"{option} takes {_KINDS[hint].singular}, not {text!r}.") from None


def _metavar(hint: Any) -> str:
    if get_origin(hint) is tuple and get_args(hint)[1:] == (...,) and get_args(hint)[0] in _KINDS:
        metavar = _KINDS[get_args(hint)[0]].metavar
        return f"{metavar},{metavar},..."
    if hint in _KINDS:
        return _KINDS[hint].metavar
    raise TypeError(
        "A configuration field is an int, float, bool, str or a tuple of such items, ..., not"
        f" {hint}."
    )


def written(value: Any) -> str:
    """A value of a field as typed on the command line."""
    if isinstance(value, tuple):
        return ",".join(written(item) for item in value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def _truth(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(text)
    return text == "true"


@dataclasses.dataclass(frozen=True)
class _Kind:
    read: Callable[[str], Any]
    metavar: str
    singular: str
    plural: str


_KINDS = {
    int: _Kind(int, "INT", "an integer", "integers"),
    float: _Kind(_finite, "FLOAT", "a finite number", "finite numbers"),
    bool: _Kind(_truth, "true|false", "true or false", "true or false values"),
    str: _Kind(str, "TEXT", "a text", "texts"),
}
