"""Sizes that can be vmapped, and random samples that padding cannot change.

A size is a Python int or a `Size`: a static padded extent together with a traced number of active
entries. Samples are row-keyed: the value at index (r, c) is a function of the key and of (r, c)
alone, and zero outside the active block. Hence

* padding never changes a sample (bitwise), and
* for one key, the width-w sample is the leading block of the width-2w sample, which couples widths
  and tightens exponent fits.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Number

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key, Shaped

from specjax.programs import is_traced

_MAX_SIZE = 2**31 - 1

_Sampler = Callable[[Array, tuple[int, ...]], Array]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Size:
    """An extent of `padded` entries, the first `active` of which count.

    `padded` is static and fixes shapes; `active` may be traced, so one compiled program serves
    every width up to `padded`.

    Raises:
        ValueError: `padded` is not a positive int; or `active` is a number other than an int from 1
            to `padded`, an array of floats, or an untraced JAX array above `padded`. A bool passes,
            as in a mask of leaves, but is not a count.

    Examples:
        >>> from specjax import sizes
        >>> width = sizes.Size(padded=8, active=5)
        >>> int(sizes.mask(width).sum())
        5
    """

    padded: int = field(metadata={"static": True})
    active: int | Int[Array, ""]

    def __post_init__(self) -> None:
        _check_extent(self.padded)
        if isinstance(self.active, jax.Array) and jnp.issubdtype(self.active.dtype, jnp.inexact):
            raise ValueError(
                f"Size needs an int active, got an array of dtype {self.active.dtype}; sweep it"
                " with widths."
            )
        # Under a transformation `active` is a tracer, a tangent without a dtype of its own, or a
        # placeholder while the tree is rebuilt: None, a stand-in for a leaf's shape, or the bool of
        # a mask of leaves.
        known = isinstance(self.active, Number | np.generic | np.ndarray)
        numbers = np.asarray(self.active if known else 1)
        placeholder = numbers.dtype == jax.dtypes.float0 or numbers.dtype.kind == "b"
        refused = not placeholder and not (
            numbers.dtype.kind in "iu" and ((numbers > 0) & (numbers <= self.padded)).all()
        )
        # A JAX array may be zero, as in a tree of zeros of the same structure.
        if refused or (
            _is_concrete_integer(self.active) and (np.asarray(self.active) > self.padded).any()
        ):
            raise ValueError(
                f"Size needs an int active with 0 < active <= padded, got active={self.active} and"
                f" padded={self.padded}."
            )


AnySize = int | Size


def padded(size: AnySize) -> int:
    """The static extent of `size`, which shapes arrays.

    Examples:
        >>> from specjax import sizes
        >>> sizes.padded(sizes.Size(8, 5)), sizes.padded(5)
        (8, 5)
    """
    return size.padded if isinstance(size, Size) else size


def active(size: AnySize) -> int | Int[Array, ""]:
    """The number of active entries of `size`, which enters formulas and shape-dependent scales.

    Examples:
        >>> from specjax import sizes
        >>> sizes.active(sizes.Size(8, 5)), sizes.active(5)
        (5, 5)
    """
    return size.active if isinstance(size, Size) else size


def times(size: AnySize, factor: int) -> AnySize:
    """`factor` times a size, padded and active extent alike, such as n = 4d.

    Raises:
        ValueError: `factor` is not a positive int.

    Examples:
        >>> from specjax import sizes
        >>> sizes.times(sizes.Size(8, 5), 4)
        Size(padded=32, active=20)
    """
    if not _is_int(factor) or factor < 1:
        raise ValueError(f"times needs a positive int factor, got {factor!r}.")
    return (
        Size(factor * size.padded, factor * size.active)
        if isinstance(size, Size)
        else factor * size
    )


def mask(size: AnySize) -> Bool[Array, " padded"]:
    """True on the active entries of `size`, shape `(padded,)`.

    Raises:
        ValueError: the size is not a positive int.

    Examples:
        >>> from specjax import sizes
        >>> sizes.mask(sizes.Size(4, 3)).tolist()
        [True, True, True, False]
    """
    _check_extent(padded(size))
    return jnp.arange(padded(size)) < active(size)


def block_mask(sizes: Sequence[AnySize]) -> Bool[Array, "..."]:
    """True on the active block, shape `(padded(s) for s in sizes)`.

    Examples:
        >>> from specjax import sizes
        >>> sizes.block_mask((sizes.Size(2, 1), 2)).tolist()
        [[True, True], [False, False]]
    """
    block = jnp.ones((), bool)
    for size in sizes:
        block = block[..., None] & mask(size).reshape((1,) * block.ndim + (-1,))
    return block


def stream(key: Key[Array, ""], name: str) -> Key[Array, ""]:
    """The key of one use of randomness, such as "weights" or "targets", from the root key of a run.

    It depends on the key and the name alone, and differs from every key that `split` or `fold_in`
    with a number makes of the same key: these fold in one 32-bit number, and `split(key, n)[i]` is
    the fold of i, so that seeds made by counting can collide. Here two numbers are folded in, from
    the SHA-256 hash of the name.

    Raises:
        ValueError: an empty name.

    Examples:
        >>> from specjax import sizes
        >>> key = jax.random.key(0)
        >>> weights, targets = sizes.stream(key, "weights"), sizes.stream(key, "targets")
        >>> bool(weights == targets)
        False
    """
    for word in _words(name):
        key = jax.random.fold_in(key, word)
    return key


def streams(key: Key[Array, ""], names: Sequence[str]) -> Key[Array, " names"]:
    """`stream(key, name)` for each name, in two folds, since each fold is a loop to compile.

    Raises:
        ValueError: an empty name.

    Examples:
        >>> from specjax import sizes
        >>> weights, targets = sizes.streams(jax.random.key(0), ("weights", "targets"))
        >>> bool(targets == sizes.stream(jax.random.key(0), "targets"))
        True
    """
    first, second = np.array([_words(name) for name in names], np.uint32).T
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, first)
    return jax.vmap(jax.random.fold_in)(keys, second)


def _words(name: str) -> tuple[int, int]:
    if not name:
        raise ValueError("A stream of randomness needs a name, such as 'weights'.")
    digest = hashlib.sha256(name.encode()).digest()
    return int.from_bytes(digest[:4], "big"), int.from_bytes(digest[4:8], "big")


def normal(key: Key[Array, ""], sizes: Sequence[AnySize]) -> Shaped[Array, "..."]:
    """Independent N(0, 1) samples, one axis per size, zero outside the active block.

    The dtype is JAX's default float.

    Raises:
        ValueError: the key is not a threefry key, `sizes` is empty, or a size is not a positive
            int.

    Examples:
        >>> from specjax import sizes
        >>> x = sizes.normal(jax.random.key(0), (sizes.Size(4, 3), 2))
        >>> bool((x[:3] == sizes.normal(jax.random.key(0), (3, 2))).all()), x[3].tolist()
        (True, [0.0, 0.0])
    """
    return _row_keyed(
        key, sizes, lambda k, shape: jax.random.normal(k, shape, dtype=jnp.result_type(float))
    )


def normals(
    keys: Key[Array, " matrices"], rows: Sequence[AnySize], columns: AnySize
) -> list[Shaped[Array, "_ _"]]:
    """`normal(key, (n, columns))` for each key and number of rows n, bit for bit, in one call
    of the generator, which takes longer to compile than most layers of a model.

    Raises:
        ValueError: as `normal`.

    Examples:
        >>> from specjax import sizes
        >>> keys = jax.random.split(jax.random.key(0), 2)
        >>> first, second = sizes.normals(keys, (3, 2), 5)
        >>> bool((second == sizes.normal(keys[1], (2, 5))).all())
        True
    """
    for n in rows:
        _check(keys, (n, columns))
    counts = [padded(n) for n in rows]
    row_keys = jax.vmap(jax.random.fold_in)(
        keys[np.repeat(np.arange(len(counts)), counts)],
        jnp.asarray(np.concatenate([np.arange(n) for n in counts])),
    )
    entries = jax.vmap(
        lambda key: jax.random.normal(key, (padded(columns),), jnp.result_type(float))
    )(row_keys)
    matrices = jnp.split(entries, np.cumsum(counts)[:-1])
    return [
        jnp.where(block_mask((n, columns)), matrix, 0)
        if isinstance(n, Size) or isinstance(columns, Size)
        else matrix
        for n, matrix in zip(rows, matrices, strict=True)
    ]


def uniform(key: Key[Array, ""], sizes: Sequence[AnySize]) -> Shaped[Array, "..."]:
    """Independent samples from [0, 1), zero outside the active block; otherwise as `normal`.

    Examples:
        >>> from specjax import sizes
        >>> x = sizes.uniform(jax.random.key(0), (100, 2))
        >>> bool(x.min() >= 0 and x.max() < 1)
        True
    """
    return _row_keyed(
        key, sizes, lambda k, shape: jax.random.uniform(k, shape, dtype=jnp.result_type(float))
    )


def rademacher(key: Key[Array, ""], sizes: Sequence[AnySize]) -> Shaped[Array, "..."]:
    """Independent signs ±1, each of probability 1/2, zero outside the block; otherwise as
    `normal`.

    Examples:
        >>> from specjax import sizes
        >>> abs(sizes.rademacher(jax.random.key(0), (3,))).tolist()
        [1.0, 1.0, 1.0]
    """
    return _row_keyed(
        key, sizes, lambda k, shape: jax.random.rademacher(k, shape, dtype=jnp.result_type(float))
    )


def _row_keyed(key: Array, sizes: Sequence[AnySize], sample: _Sampler) -> Array:
    _check(key, sizes)
    rows = sample
    for size in reversed([padded(size) for size in sizes[:-1]]):
        rows = _fold_axis(rows, size)
    values = rows(key, (padded(sizes[-1]),))
    if any(isinstance(size, Size) for size in sizes):
        values = jnp.where(block_mask(sizes), values, 0)
    return values


def _fold_axis(sample: _Sampler, extent: int) -> _Sampler:
    """Give each index of a new leading axis its own key, so that rows do not see the extent."""

    def folded(key: Array, shape: tuple[int, ...]) -> Array:
        return jax.vmap(lambda index: sample(jax.random.fold_in(key, index), shape))(
            jnp.arange(extent)
        )

    return folded


def require_threefry(key: Key[Array, "..."]) -> None:
    """Raise ValueError for keys of another generator, whose samples change under `jax.vmap`.

    Examples:
        >>> from specjax import sizes
        >>> sizes.require_threefry(jax.random.key(0, impl="rbg"))
        Traceback (most recent call last):
            ...
        ValueError: Samples that do not depend on what is beside them need a threefry key, ...
    """
    if (generator := str(jax.random.key_impl(key))) != "threefry2x32":
        raise ValueError(
            "Samples that do not depend on what is beside them need a threefry key, got"
            f" {generator}; make one with jax.random.key(seed, impl='threefry2x32')."
        )


def _check(key: Array, sizes: Sequence[AnySize]) -> None:
    if not jnp.issubdtype(jnp.asarray(key).dtype, jax.dtypes.prng_key):
        raise ValueError(
            "A sample needs a typed key, got a raw array; make one with jax.random.key(seed)."
        )
    require_threefry(key)
    if not jax.config.jax_threefry_partitionable:
        raise ValueError(
            "Row-keyed samples need jax_threefry_partitionable=True (JAX's default); it is switched"
            " off here."
        )
    if not sizes:
        raise ValueError("A sample needs at least one size, got none; pass e.g. (rows, cols).")
    for size in sizes:
        _check_extent(padded(size))


def _check_extent(extent: object) -> None:
    if not _is_int(extent):
        raise ValueError(f"Every size must be an int, got {extent!r}.")
    if extent < 1:  # type: ignore[operator]
        raise ValueError(f"Every size must be at least 1, got {extent}.")
    if extent > _MAX_SIZE:  # type: ignore[operator]
        raise ValueError(f"Every size must be below 2**31, the range of int32, got {extent}.")


def _is_concrete_integer(value: object) -> bool:
    concrete = isinstance(value, jax.Array) and not is_traced(value)
    return concrete and jnp.issubdtype(value.dtype, jnp.integer)  # type: ignore[attr-defined]


def _is_int(number: object) -> bool:
    return isinstance(number, Integral) and not isinstance(number, bool)
