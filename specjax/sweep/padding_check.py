"""Whether a measurement depends on padding, found by measuring one seed both ways: padded, and with its widths as Python ints.

Padded and unpadded programs add in another order, so their numbers differ by rounding, and what rounding does differs from measurement to
measurement: it is the last digit of a mean, all digits of a small difference, and anything after a long training. So a difference that
is more than half of the digits is compared with what moving the last bits of every operation of the unpadded program does to the same
entry (`specjax.sweep.rounding`), at a few seeds.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specjax.sweep.axes import Over, length, members, volumes, widths_of
from specjax.sweep.compilation_cache import persistent
from specjax.sweep.plan import Bucket, padded_volume
from specjax.sweep.program import Measure, build, compile_program, coordinates, trace_program
from specjax.sweep.rounding import moved

Outputs = Mapping[str, np.ndarray]
"""Arrays of shape (*over, seeds, ...), with one entry along each dimension that has widths."""

SEEDS = 4
"""How many seeds a difference must be seen at before it is refused, where the first call has as many."""
_STREAMS = 8  # ways of moving the last bits
# A difference is beyond rounding if it is this many times the largest that moving the last bits makes, each bit moved by eight units
# where rounding moves it by a half.
_FACTOR = 8.0


def padding(bucket: Bucket, over: Over) -> float:
    """How many times the volume of the narrowest point of `bucket` is that of its program; 1 where it pads nothing."""
    return max(
        (padded_volume(dim, places, over) / volumes(dim, over[dim])[places[0]] for dim, places in bucket.items()),
        default=1.0,
    )


def narrowest(bucket: Bucket) -> Bucket:
    """The point of `bucket` whose volumes are smallest, as a bucket of its own: its widths are Python ints."""
    return {dim: places[:1] for dim, places in bucket.items()}


class Unpadded:
    """The measurement at the narrowest point of a bucket, without padding, on one device.

    Args:
        measure: The measurement.
        bucket: The bucket that is padded.
        over: The axes of the sweep.
        key: The key of the sweep.
        couple: As for `specjax.sweep.run`.
    """

    def __init__(self, measure: Measure, bucket: Bucket, over: Over, key: jax.Array, couple: bool) -> None:
        self._bucket, self._over = narrowest(bucket), over
        self._key_data = np.asarray(jax.random.key_data(key))
        self._program = build(measure, self._bucket, over, str(jax.random.key_impl(key)), couple=couple)

    def outputs(self, seeds: np.ndarray) -> dict[str, np.ndarray]:
        """What it gives at `seeds`."""
        return self._run(self._program, seeds, 0)

    def moved(self, seeds: np.ndarray) -> dict[str, np.ndarray]:
        """The same with a leading axis of ways to move the last bits, of which the first moves none."""
        streams = jnp.arange(1 + _STREAMS, dtype=jnp.uint32)

        def program(*arguments: Any) -> dict[str, jax.Array]:
            return jax.lax.map(lambda stream: moved(self._program, stream, *arguments), streams)

        return self._run(program, seeds, 1)

    def _run(self, program: Any, seeds: np.ndarray, leading: int) -> dict[str, np.ndarray]:
        traced = coordinates(self._bucket, self._over)
        with persistent(jax.local_devices()[0].platform):
            lowered = trace_program(program, self._key_data, len(seeds), traced).lower()
            compiled = compile_program(lowered, seconds=None)
        extents = [1 if dim in self._bucket else length(axis) for dim, axis in self._over.items()]
        axes = leading + len(extents) - len(self._bucket)  # in front of the seeds
        found = {name: np.asarray(a) for name, a in compiled(self._key_data, seeds, traced).items()}
        return {name: a.reshape(*a.shape[:leading], *extents, *a.shape[axes:]) for name, a in found.items()}


def differing(padded: Outputs, unpadded: Outputs) -> list[str]:
    """The outputs of which an entry differs by more than half of the digits of its dtype."""
    return [name for name in padded if (_gap(padded[name], unpadded[name]) > _slack(unpadded[name])).any()]


def beyond_rounding(padded: np.ndarray, moved: np.ndarray, seed_axis: int) -> np.ndarray:
    """Where two arrays of results differ beyond rounding at every seed.

    Args:
        padded: The results with padding.
        moved: Those without, with a leading axis of ways to move the last bits, the first of which moves none.
        seed_axis: The axis of `padded` along which the seeds are, which the result has no more.
    """
    unpadded = moved[0]
    noise = np.max([_gap(other, unpadded) for other in moved[1:]], axis=0)
    return (_gap(padded, unpadded) > np.maximum(_slack(unpadded), _FACTOR * noise)).all(axis=seed_axis)


def refusal(
    padded: Outputs, unpadded: Unpadded, seeds: np.ndarray, names: Sequence[str], bucket: Bucket, over: Over
) -> str | None:
    """What to say of the outputs `names` that differ beyond rounding; None if none does."""
    moved = unpadded.moved(seeds)
    axis = len(over)
    told = []
    for name in names:
        beyond = beyond_rounding(padded[name], moved[name], axis)
        if beyond.any():
            place = [int(i) for i in np.unravel_index(np.argmax(beyond), beyond.shape)]
            at = (*place[:axis], 0, *place[axis:])
            told.append(
                f"{name!r} at {_point(bucket, over, place)} is {moved[name][0][at]:.6g} by itself and {padded[name][at]:.6g} padded"
            )
    if not told:
        return None
    to = ", ".join(
        f"{name}={max(axis.points[i] for i in places)}"
        for dim, places in bucket.items()
        for name, axis in widths_of(dim, over[dim]).items()
    )
    return (
        f"Padding to {to} changes what measure returns for seed {seeds[0]}: {'; '.join(told)}; what usually does it is x.shape or jnp.mean "
        "over a padded axis, for which there is sizes.active, or optim.muon without sizes=, so mend it, or take plan='exact', "
        "which pads nothing (check_padding=False runs it unchecked)."
    )


def _point(bucket: Bucket, over: Over, place: Sequence[int]) -> str:
    """The narrowest point of `bucket`, and that of the other dimensions at `place`, as in "d=16, lr=0.1"."""
    return ", ".join(
        f"{name}={axis.points[bucket[dim][0] if dim in bucket else place[i]]}"
        for i, dim in enumerate(over)
        for name, axis in members(dim, over[dim]).items()
    )


def _gap(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The distance of each entry: 0 where both are NaN or the same infinity, infinite where only one is finite."""
    wide = np.complex128 if np.iscomplexobj(one) else np.float64
    one, other = one.astype(wide), other.astype(wide)
    with np.errstate(invalid="ignore", over="ignore"):
        gap = np.abs(one - other)
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    return np.where(same, 0.0, np.where(np.isnan(gap), np.inf, gap))


def _slack(exact: np.ndarray) -> np.ndarray:
    """Half of the digits of each entry, 0 for integers and booleans."""
    if not np.issubdtype(exact.dtype, np.inexact):
        return np.zeros(exact.shape)
    return float(np.sqrt(np.finfo(exact.dtype).eps)) * np.nan_to_num(np.abs(exact.astype(np.complex128)), posinf=0.0)
