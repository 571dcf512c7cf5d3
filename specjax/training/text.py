"""Texts as bytes: a training and a validation part, random batches, and a baseline of the loss.

Without a file the text is Python's own help: 0.46 MB of English prose and examples. It is that of
Python 3.11.7, whichever runs, so that losses are comparable; a copy is kept in `help/`, under the
licence of Python that lies beside it.
"""

import gzip
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key, Shaped, UInt8

from specjax.arguments import checked

VOCABULARY = 256
_HELP = Path(__file__).parent / "help" / "python-3.11.7.txt.gz"


class Text(NamedTuple):
    """The bytes of a text; the validation part is its end."""

    train: UInt8[np.ndarray, " n"]
    validation: UInt8[np.ndarray, " m"]


@checked
def load(path: str | PathLike[str] | None = None, *, held_out: float = 0.1) -> Text:
    """The bytes of a file, or of Python's help; the last share `held_out` is for validation.

    Raises:
        ValueError: if the file cannot be read or is empty, or `held_out` is not inside (0, 1).

    """
    if not 0 < held_out < 1:
        raise ValueError(f"held_out must lie between 0 and 1, got {held_out}.")
    contents = gzip.decompress(_HELP.read_bytes()) if path is None else _contents(Path(path))
    data = np.frombuffer(contents, np.uint8)
    cut = round(len(data) * (1 - held_out))
    if not 0 < cut < len(data):
        raise ValueError(
            f"{_named(path)} has {len(data)} bytes, too few for a training and a validation part."
        )
    return Text(data[:cut], data[cut:])


@checked
def sample_batch(
    data: Shaped[Array, " n"], key: Key[Array, ""], count: int, length: int
) -> Int[Array, "count _"]:
    """Stretches of length + 1 bytes from random places in the data, with replacement.

    Raises:
        ValueError: if the data are shorter than one stretch.

    """
    _check_length(len(data), length)
    starts = jax.random.randint(key, (count,), 0, len(data) - length)
    return data[starts[:, None] + jnp.arange(length + 1)[None]].astype(jnp.int32)


@checked
def stretches(data: UInt8[np.ndarray, " n"], count: int, length: int) -> Int[np.ndarray, "count _"]:
    """`count` stretches at equal distances, always the same, for validation. Raises as
    `sample_batch`.
    """
    _check_length(len(data), length)
    starts = np.linspace(0, len(data) - length - 1, count).astype(int)
    return data[starts[:, None] + np.arange(length + 1)].astype(np.int32)


@checked
def unigram_entropy(data: UInt8[np.ndarray, " n"]) -> float:
    """-Σ f log f over the frequencies of bytes, in nats: the least loss of a model without
    context.
    """
    if data.dtype != np.uint8:
        raise ValueError(f"The data of a text are bytes, got {data.dtype}; take load(path).")
    frequencies = np.bincount(data, minlength=VOCABULARY) / len(data)
    seen = frequencies[frequencies > 0]
    return float(-np.sum(seen * np.log(seen)))


def _contents(path: Path) -> bytes:
    try:
        contents = path.read_bytes()
    except OSError as error:
        raise ValueError(
            f"The text {path} cannot be read ({error.strerror}); give the path of a text file."
        ) from error
    if not contents:
        raise ValueError(f"The text {path} is empty; give a file with some text in it.")
    return contents


def _named(path: str | PathLike[str] | None) -> str:
    return "Python's help" if path is None else f"The text {path}"


def _check_length(available: int, length: int) -> None:
    if length < 1 or available < length + 1:
        raise ValueError(
            f"Stretches of {length} bytes and the next one cannot be cut from {available} bytes;"
            " give a longer text or a shorter context."
        )
