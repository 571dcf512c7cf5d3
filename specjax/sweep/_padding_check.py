"""Check that a measurement does not depend on padding: measure one seed padded and unpadded.

Padded and unpadded programs add in another order, so their numbers differ by rounding. The effect
of rounding differs from measurement to measurement: the last digit of a mean, all digits of a small
difference, anything after a long training. So a difference of more than half of the digits is
compared with the effect of moving the last bits of every operation of the unpadded program on the
same entry (`specjax.sweep._rounding`), at a few seeds.
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specjax.compilation_cache import persistent
from specjax.programs import Program, UnreadableProgramError, UnreadableProgramWarning, are_alike
from specjax.sweep._devices import agreed
from specjax.sweep._dispatch import Calls
from specjax.sweep._grid import Grid
from specjax.sweep._measurement import Measurement, compile_program, seed_ids, trace
from specjax.sweep._rounding import moved

Outputs = Mapping[str, np.ndarray]
"""Arrays of shape (*dimensions, seeds, ...), with one entry along dimensions with widths."""

SEEDS = 4
"""Seeds that must all differ before a sweep is refused, if the first calls have as many."""
IMPURE = (
    "measure is not the same function when it is called again with the same arguments, as with"
    " numpy.random or a counter in it; sample with jax.random from its key, and pass what changes"
    " as an argument."
)
_STREAMS = 8  # ways of moving the last bits
# A difference is beyond rounding if it is this many times the largest that moving the last bits
# makes. Each bit is moved by eight units; rounding moves it by a half.
_FACTOR = 8.0


def unpadded(measurement: Measurement, bucket: Grid) -> jax.stages.Lowered:
    """The program of one seed at the narrowest point of a bucket, without padding."""
    alone = _narrowest(bucket)
    return trace(measurement.program(alone), measurement.key_data, 1, alone).lower()


def checked(
    calls: Calls, measurement: Measurement, bucket: Grid, first: int, compiled: jax.stages.Compiled
) -> Calls:
    """`calls` of a bucket, the first of which is compared with the `compiled` program of
    `unpadded`.

    Args:
        calls: The calls of the bucket's program.
        measurement: The measurement.
        bucket: The bucket.
        first: The first seed of the calls, which `compiled` measures.
        compiled: The program of `unpadded`.

    Raises:
        ValueError: they differ beyond rounding.
    """
    alone = _narrowest(bucket)
    exact = _outputs(compiled, measurement, alone, seed_ids(first, first + 1))
    narrow, axis = tuple(slice(n) for n in alone.shape), len(alone.shape)

    def compared() -> Calls:
        seen = [next(calls)]
        names = differing({name: a[(*narrow, slice(1))] for name, a in seen[0][2].items()}, exact)
        refusal = None
        # Every process goes on if the first does, and refuses if it does.
        if agreed(bool(names)):
            # One seed is too few: rounding alone may change a count.
            while seen[-1][1] - first < SEEDS and (more := next(calls, None)) is not None:
                seen.append(more)
            ids = np.concatenate([seed_ids(start, stop) for start, stop, *_ in seen])[:SEEDS]
            whole = {
                name: np.concatenate([call[2][name] for call in seen], axis) for name in seen[0][2]
            }
            padded = {name: a[(*narrow, slice(len(ids)))] for name, a in whole.items()}
            refusal = agreed(_judge(measurement, padded, names, bucket, alone, ids))
        if refusal is not None:
            raise ValueError(refusal)
        yield from seen
        yield from calls

    return compared()


def differing(padded: Outputs, unpadded: Outputs) -> list[str]:
    """The outputs of which an entry differs by more than half of the digits of its dtype."""
    return [
        name
        for name in padded
        if (_gap(padded[name], unpadded[name]) > _slack(unpadded[name])).any()
    ]


def beyond_rounding(padded: np.ndarray, moved: np.ndarray, seed_axis: int) -> np.ndarray:
    """Where two arrays of results differ beyond rounding at every seed.

    Args:
        padded: The results with padding.
        moved: Those without padding, with a leading axis of ways to move the last bits; the first
            moves none.
        seed_axis: The axis of `padded` along which the seeds are; the result lacks it.
    """
    unpadded = moved[0]
    noise = np.max([_gap(other, unpadded) for other in moved[1:]], axis=0)
    return (_gap(padded, unpadded) > np.maximum(_slack(unpadded), _FACTOR * noise)).all(
        axis=seed_axis
    )


def _narrowest(bucket: Grid) -> Grid:
    return bucket.select({dim.name: (0,) for dim in bucket.wide})


def _outputs(
    compiled: jax.stages.Compiled,
    measurement: Measurement,
    grid: Grid,
    seeds: np.ndarray,
    leading: int = 0,
) -> dict[str, np.ndarray]:
    """The outputs of `grid`'s program at `seeds`, on one device, behind `leading` axes."""
    outputs = compiled(measurement.key_data, seeds, grid.coordinates)
    return {name: grid.whole(np.asarray(a), leading) for name, a in outputs.items()}


def _in_ways(measurement: Measurement, grid: Grid, seeds: np.ndarray) -> dict[str, np.ndarray]:
    """The outputs of `grid` at `seeds` for each way to move the last bits; the first moves none."""
    program, streams = measurement.program(grid), jnp.arange(1 + _STREAMS, dtype=jnp.uint32)

    def in_ways(*arguments: Any) -> Any:
        return jax.lax.map(lambda stream: moved(program, stream, *arguments), streams)

    with persistent(jax.local_devices()[0].platform):
        compiled = compile_program(
            trace(in_ways, measurement.key_data, len(seeds), grid).lower(), is_kept=False
        )
    return _outputs(compiled, measurement, grid, seeds, leading=1)


def _judge(
    measurement: Measurement,
    padded: Outputs,
    names: Sequence[str],
    bucket: Grid,
    alone: Grid,
    seeds: np.ndarray,
) -> str | None:
    """The refusal of the outputs `names` that differ; None if rounding explains it or may."""
    try:
        in_ways = _in_ways(measurement, alone, seeds) if names else {}
    except UnreadableProgramError as error:
        warnings.warn(
            f"{error} So it is unknown whether rounding alone explains that padding changes"
            f" {', '.join(map(repr, names))}; plan='exact' pads nothing.",
            UnreadableProgramWarning,
            stacklevel=2,
        )
        return None
    refusal = _refusal(padded, in_ways, names, bucket, alone, int(seeds[0]))
    return refusal if refusal is None or is_pure(measurement, alone) else IMPURE


def is_pure(measurement: Measurement, point: Grid) -> bool:
    """Whether another trace of `measure` at a point has the same operations and numbers.

    True if these cannot be read. With numpy.random or a counter in it each program has another
    number, the same for all its seeds, which looks like padding.
    """
    try:
        programs = (
            Program.from_traced(each.traced_at_point(point))
            for each in (measurement, measurement.anew())
        )
        return are_alike(*programs)
    except UnreadableProgramError:
        return True


def _refusal(
    padded: Outputs, moved: Outputs, names: Sequence[str], bucket: Grid, alone: Grid, seed: int
) -> str | None:
    """The refusal of the outputs `names` that differ beyond rounding; None if none does."""
    axis = len(alone.shape)
    differences = []
    for name in names:
        beyond = beyond_rounding(padded[name], moved[name], axis)
        if beyond.any():
            place = [int(i) for i in np.unravel_index(np.argmax(beyond), beyond.shape)]
            at = (*place[:axis], 0, *place[axis:])
            differences.append(
                f"{name!r} at {alone.described(place[:axis])} is {moved[name][0][at]:.6g} by itself"
                f" and {padded[name][at]:.6g} padded"
            )
    if not differences:
        return None
    to = ", ".join(
        f"{name}={max(points)}" for dim in bucket.wide for name, points in dim.widths.items()
    )
    return (
        f"Padding to {to} changes what measure returns for seed {seed}: {'; '.join(differences)};"
        " the usual causes are x.shape or jnp.mean over a padded axis (use sizes.active), a"
        " division by padded zeros (use sizes.mask), and optim.muon without sizes=; correct it, or"
        " take plan='exact', which pads nothing (check_padding=False runs it unchecked)."
    )


def _gap(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The distance of each entry: 0 if both are NaN or the same infinity; inf if one is finite."""
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
    return float(np.sqrt(np.finfo(exact.dtype).eps)) * np.nan_to_num(
        np.abs(exact.astype(np.complex128)), posinf=0.0
    )
