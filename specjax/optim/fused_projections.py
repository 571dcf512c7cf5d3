"""Leaves whose outputs hold several matrices, side by side or in turns."""

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Num


class Interleaved(NamedTuple):
    """Matrices that take turns in the outputs: each of `times` blocks holds `widths` columns of the
    matrices in order.

    Queries, keys and values that are stored head by head, [q₀ k₀ v₀ q₁ k₁ v₁ …], are
    Interleaved((head, head, head), heads), and those of grouped queries Interleaved((queries ·
    head, head, head), groups). With times=1 they lie side by side.
    """

    widths: tuple[int, ...]
    times: int

    @property
    def totals(self) -> tuple[int, ...]:
        """The outputs of each matrix."""
        return tuple(self.times * width for width in self.widths)

    @property
    def columns(self) -> list[tuple[int, int]]:
        """The columns [start, stop) of each matrix in a block."""
        ends = list(accumulate(self.widths, initial=0))
        return list(pairwise(ends))

    def apart(
        self, matrices: Num[Array, "*batch fan_in fan_out"]
    ) -> list[Num[Array, "*batch fan_in _"]]:
        """Each matrix on its own."""
        blocks = matrices.reshape(*matrices.shape[:-1], self.times, -1)
        return [blocks[..., a:b].reshape(*matrices.shape[:-1], -1) for a, b in self.columns]

    def together(
        self, parts: Sequence[Num[Array, "*batch fan_in _"]]
    ) -> Num[Array, "*batch fan_in fan_out"]:
        """The inverse of `apart`."""
        blocks = [part.reshape(*part.shape[:-1], self.times, -1) for part in parts]
        return jnp.concatenate(blocks, axis=-1).reshape(*parts[0].shape[:-1], -1)


Splits = Mapping[str, Sequence[int] | Interleaved]
"""The widths of the matrices in a leaf's outputs, as in `{"qkv": (512, 64, 64)}`, or an
`Interleaved`. A key is the name of the leaf or of its layer, or the end of such a name: `qkv` also
names `blocks.0.qkv.kernel`.
"""


def by_leaf(splits: Splits, names: Sequence[str]) -> dict[int, Interleaved]:
    """The split of each leaf that `splits` names, by the leaf's index. Raises ValueError for a name
    that no leaf has.
    """
    found: dict[int, Interleaved] = {}
    for key, split in splits.items():
        layers = [name.rpartition(".")[0] for name in names]
        places = ending_in(key, names) or ending_in(key, layers)
        if not places:
            raise ValueError(
                f"splits name the leaf {key!r}, but no matrix has this name; the matrices"
                f" are {', '.join(names)}."
            )
        found.update(
            dict.fromkeys(
                places, split if isinstance(split, Interleaved) else Interleaved(tuple(split), 1)
            )
        )
    return found


def ending_in(key: str, names: Sequence[str]) -> list[int]:
    """The places of the names that equal the key or end in it after a dot."""
    return [i for i, name in enumerate(names) if name == key or name.endswith(f".{key}")]


def checked(split: Interleaved, outputs: int, name: str) -> Interleaved:
    """The split of a leaf. Raises ValueError unless it adds up to the leaf's outputs."""
    if sum(split.totals) != outputs or min(split.widths, default=0) < 1 or split.times < 1:
        what = split.widths if split.times == 1 else split
        raise ValueError(
            f"The splits of the leaf {name} must be widths that add up to its {outputs} outputs,"
            f" got {what}."
        )
    return split
