"""Classifies a parameter by its uses: one or more matrices, a table that is looked up, a gain or a
bias, with the reason in words.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import prod
from typing import Literal, NamedTuple

from optax.contrib import MuonDimensionNumbers

from specjax.diagnostics._layout.axis_pieces import Axis, Entries, How
from specjax.diagnostics._layout.uses import ANOTHER_PARAMETER, Use, Uses
from specjax.optim.fused_projections import Interleaved

Kind = Literal["linear", "convolution", "lookup", "gain", "bias", "other"]
Label = Literal["matrix", "other"]
Role = Literal["batch", "in", "out"]

MATRIX: Label = "matrix"
OTHER: Label = "other"

_HOW: dict[How, str] = {
    "scan": "counts the layers of a scan",
    "index": "counts matrices that are taken one by one",
    "batch": "counts matrices (a batch axis of the product)",
    "gather": "counts matrices, of which data picks",
    "ragged": "counts the experts of a ragged product",
    "sum": "is summed over first",
}


class LayoutRow(NamedTuple):
    """The role of one parameter.

    `dimension_numbers` is None for a leaf that is not a matrix; axes that it does not name count
    matrices. `splits` are the widths of the matrices that lie side by side in the outputs, or take
    turns in them, None for one. `heads` of attention lie in the outputs, or in the inputs of a
    matrix that joins heads; they do not cut the matrix. A `readout` is a last matrix of the loss:
    no other follows it. Where the program bears a second reading, `other_reading` has its
    dimension numbers.
    """

    name: str
    shape: tuple[int, ...]
    kind: Kind
    label: Label
    dimension_numbers: MuonDimensionNumbers | None
    splits: tuple[int, ...] | Interleaved | None
    heads: int | None
    readout: bool
    reason: str
    other_reading: MuonDimensionNumbers | None = None

    @property
    def group(self) -> str:
        """What trains it: "matrix" Muon; "embedding" (a lookup), "readout" and "other" AdamW."""
        if self.label == MATRIX:
            return MATRIX
        return "embedding" if self.kind == "lookup" else "readout" if self.readout else OTHER

    @property
    def axes(self) -> tuple[str, ...]:
        """The role of each axis, "in", "out" or "batch"; empty for a leaf that is not a matrix."""
        if self.dimension_numbers is None:
            return ()
        roles = ["batch"] * len(self.shape)
        for role, axes in zip(("in", "out"), self.dimension_numbers, strict=True):
            for axis in (axes,) if isinstance(axes, int) else axes:
                roles[axis] = role
        return tuple(roles)

    @property
    def matrices(self) -> tuple[tuple[int, int, int], ...]:
        """The matrices it holds, as (count, inputs, outputs), with an entry for each matrix of
        `splits`.
        """
        if self.dimension_numbers is None:
            return ()
        count, fan_in, fan_out = (
            prod(n for n, found in zip(self.shape, self.axes, strict=True) if found == role)
            for role in ("batch", "in", "out")
        )
        widths = self.splits.totals if isinstance(self.splits, Interleaved) else self.splits
        return tuple((count, fan_in, width) for width in widths or (fan_out,))


def row(
    name: str, leaf: int, shape: tuple[int, ...], uses: Uses, *, real: bool
) -> LayoutRow | None:
    """The row of one parameter; None if it is unused. A leaf that is not `real` is not a matrix."""
    found = uses.of(leaf)
    if not found:
        return None
    if all(("leaf", leaf) in use.term.frozen for _, use in found):
        return _other(name, shape, "other", "frozen: no gradient reaches it")
    first: dict[str, Use] = {use.kind: use for _, use in reversed(found)}
    products = [(number, use) for number, use in found if use.kind in ("linear", "convolution")]
    if "lookup" in first:
        also = ", and it multiplies activations, as a tied readout does" if products else ""
        return _other(name, shape, "lookup", f"its entries are looked up by index{also}")
    if products:
        return _classify_products(name, shape, products, uses, real=real)
    kind, reason = _without_product(first)
    return _other(name, shape, kind, reason)


def _other(name: str, shape: tuple[int, ...], kind: Kind, reason: str) -> LayoutRow:
    return LayoutRow(name, shape, kind, OTHER, None, None, None, False, reason)


def _without_product(first: dict[str, Use]) -> tuple[Kind, str]:
    verbs: tuple[tuple[Kind, str], ...] = (("gain", "scales"), ("bias", "is added to"))
    for kind, verb in verbs:
        if kind in first:
            among_parameters = first[kind].detail == ANOTHER_PARAMETER
            return kind, f"{verb} {'another parameter' if among_parameters else 'activations'}"
    if "elementwise" in first:
        return "other", f"meets activations entry by entry ({first['elementwise'].detail})"
    if "joined" in first:
        return "other", f"stands beside activations ({first['joined'].detail})"
    if "lost" in first:
        return "other", f"not followed through {first['lost'].detail}"
    return "other", "meets no activation, only itself, as in a penalty"


def _classify_products(
    name: str,
    shape: tuple[int, ...],
    products: Sequence[tuple[int, Use]],
    uses: Uses,
    *,
    real: bool,
) -> LayoutRow:
    use = products[0][1]
    kind: Kind = "convolution" if use.kind == "convolution" else "linear"
    roles = _roles(shape, use)
    if roles is None:
        return _other(
            name,
            shape,
            kind,
            "one axis holds inputs and outputs of its product; store it with an axis for each",
        )
    counted = {
        axis
        for n, axis in uses.counted
        if n in {m for m, _ in products} and roles.get(axis) == "out"
    }
    # Experts that a product sums over count matrices if an earlier product had a matrix for each.
    counted |= {
        axis for axis, role in roles.items() if role == "in" and _from_batch(axis, products, uses)
    }
    as_one = {axis for axis in _weighted(roles, products, uses) if axis not in counted}
    counted |= as_one
    ranges = _ranges(shape, roles, products, uses)
    singles = {axis for axis, cuts in ranges.items() if len(cuts) == shape[axis]}
    one_matrix = dict(roles)
    for axis in counted | singles:
        if any(role == roles[axis] for other, role in roles.items() if other != axis):
            roles[axis] = "batch"
            if axis not in as_one:
                one_matrix[axis] = "batch"
    inputs, outputs = _axes(roles, "in"), _axes(roles, "out")
    if not inputs or not outputs:
        if kind == "convolution":
            return _other(name, shape, kind, "a filter for each channel (depthwise)")
        vector = "a vector: its product with activations has no output axis"
        return _other(name, shape, kind, vector if inputs else "scales activations")
    if not real:
        return _other(
            name,
            shape,
            kind,
            "multiplies activations, but is not real: no optimizer here takes it for a matrix",
        )
    splits = _splits(shape, outputs, use, ranges) or _in_turns(
        shape, outputs, products, uses, ranges
    )
    unclear = splits is None and any(
        _is_cut_unclearly(n, axis, uses) for n, _ in products for axis in outputs
    )
    heads = next((uses.heads[n] for n, _ in products if uses.heads.get(n, 1) > 1), None)
    fed = {m for n, _ in products for axis in inputs for m, _ in uses.origins.get((n, axis), ())}
    joins = [uses.heads[m] for m in sorted(fed) if uses.heads.get(m, 1) > 1]
    readout = not any(uses.consumed >> n & 1 for n, _ in products)
    heads = None if splits else heads
    reason = _reason(use, roles, singles, as_one, splits, unclear, heads, joins, readout=readout)
    numbers = _numbers(roles)
    other: MuonDimensionNumbers | None = _numbers(one_matrix)
    heads = heads or (joins[0] if joins else None)
    other = None if other == numbers else other
    return LayoutRow(
        name, shape, kind, MATRIX, numbers, splits, heads, readout, reason, other_reading=other
    )


def _numbers(roles: dict[int, Role]) -> MuonDimensionNumbers:
    return MuonDimensionNumbers(_one(_axes(roles, "in")), _one(_axes(roles, "out")))


def _axes(roles: dict[int, Role], role: Role) -> list[int]:
    return [axis for axis, found in roles.items() if found == role]


def _weighted(roles: dict[int, Role], products: Sequence[tuple[int, Use]], uses: Uses) -> set[int]:
    """The axes that count experts whose outputs data weights one by one, and not the heads of
    attention.
    """

    def is_expert(number: int, axis: int) -> bool:
        in_heads = uses.heads.get(number, 1) > 1 or number in uses.in_pairs
        return (number, axis) in uses.weighted and not in_heads

    found = set()
    for number, _ in products:
        for axis, role in roles.items():
            ends = {(number, axis)} if role == "out" else uses.origins.get((number, axis), set())
            if role in ("in", "out") and any(is_expert(*end) for end in ends):
                found.add(axis)
    return found


def _roles(shape: tuple[int, ...], use: Use) -> dict[int, Role] | None:
    """The role of each axis in a product; None if an axis has several roles."""
    found: dict[int, Role] = {}
    in_groups = {piece.axis for piece in use.batch} if use.kind == "convolution" else set()
    ends: tuple[tuple[Role, Axis], ...] = (
        ("in", use.inputs),
        ("out", use.outputs),
        ("batch", use.batch),
    )
    for role, pieces in ends:
        for piece in pieces:
            if role == "batch" and piece.axis in in_groups and found.get(piece.axis) == "out":
                continue
            if found.setdefault(piece.axis, role) != role and shape[piece.axis] > 1:
                return None
    return {axis: found.get(axis, "batch") for axis in range(len(shape))}


def _from_batch(axis: int, products: Sequence[tuple[int, Use]], uses: Uses) -> bool:
    """Whether an input axis comes from an axis that counts matrices in an earlier product."""
    origins = {origin for number, _ in products for origin in uses.origins.get((number, axis), ())}
    return any(
        origin in uses.counted or origin[1] in {p.axis for p in uses.found[origin[0]].batch}
        for origin in origins
    )


def _ranges(
    shape: tuple[int, ...], roles: dict[int, Role], products: Sequence[tuple[int, Use]], uses: Uses
) -> dict[int, list[tuple[int, int]]]:
    """The ranges into which each output axis is cut, if there are at least two and they cover the
    axis.
    """
    ranges: dict[int, list[tuple[int, int]]] = {}
    for axis in (axis for axis, role in roles.items() if role == "out"):
        seen = {use.range_of(axis) for _, use in products}
        for number, _ in products:
            seen |= _cuts(number, axis, uses)
        cuts = {found.interval for found in seen if found is not None} - {None}
        ends = sorted({0, shape[axis], *(end for r in cuts if r for end in r)})
        parts = list(pairwise(ends))
        if len(parts) > 1 and set(parts) <= cuts:
            ranges[axis] = parts
    return ranges


def _cuts(number: int, axis: int, uses: Uses) -> set[Entries | None]:
    """The entries into which the outputs of a use are cut for good."""
    return {r for r in uses.cuts.get((number, axis), ()) if (number, axis, r) not in uses.rejoined}


def _is_cut_unclearly(number: int, axis: int, uses: Uses) -> bool:
    """Whether a cut took entries that are not neighbours."""
    return any(r is None or (r.times > 1 and r.width > 1) for r in _cuts(number, axis, uses))


def _splits(
    shape: tuple[int, ...],
    outputs: Sequence[int],
    use: Use,
    ranges: dict[int, list[tuple[int, int]]],
) -> tuple[int, ...] | None:
    """The widths of the matrices side by side."""
    groups = [piece for piece in use.batch if use.kind == "convolution" and piece.axis in outputs]
    if groups:
        return (shape[outputs[0]] // groups[0].size,) * groups[0].size
    first, *rest = outputs
    inner = prod(shape[axis] for axis in rest)
    if first not in ranges:
        return None
    widths = tuple((b - a) * inner for a, b in ranges[first])
    return widths if min(widths) > 1 else None


def _in_turns(
    shape: tuple[int, ...],
    outputs: Sequence[int],
    products: Sequence[tuple[int, Use]],
    uses: Uses,
    ranges: dict[int, list[tuple[int, int]]],
) -> Interleaved | None:
    """The matrices that take turns, as parts of each block of one output axis, or of an axis that
    follows another one.
    """
    cut_behind = [place for place, axis in enumerate(outputs) if place and axis in ranges]
    if cut_behind:
        place = cut_behind[0]
        inner = prod(shape[axis] for axis in outputs[place + 1 :])
        widths = tuple((b - a) * inner for a, b in ranges[outputs[place]])
        return (
            Interleaved(widths, prod(shape[axis] for axis in outputs[:place]))
            if min(widths) > 1
            else None
        )
    if len(outputs) > 1:
        return None
    seen = {cut for number, _ in products for cut in _cuts(number, outputs[0], uses)} - {None}
    blocks = sorted(cut for cut in seen if cut is not None and cut.times > 1)
    for period in sorted({cut.period for cut in blocks}):
        widths = tuple(cut.width for cut in blocks if cut.period == period)
        starts = [cut.start for cut in blocks if cut.period == period]
        if (
            starts == list(accumulate((0, *widths[:-1])))
            and sum(widths) == period
            and min(widths) > 1
        ):
            return Interleaved(widths, shape[outputs[0]] // period)
    return None


def _reason(
    use: Use,
    roles: dict[int, Role],
    singles: set[int],
    as_one: set[int],
    splits: tuple[int, ...] | Interleaved | None,
    unclear: bool,
    heads: int | None,
    joins: Sequence[int],
    *,
    readout: bool,
) -> str:
    words = [
        "the kernel of a convolution" if use.kind == "convolution" else "multiplies activations"
    ]
    if use.detail:
        words = [f"{words[0]} together with {use.detail}"]
    hows = {gone.axis: gone.how for gone in sorted(use.left)}
    for axis, role in roles.items():
        if role == "batch":
            if axis in as_one:
                words.append(f"axis {axis} counts experts, or gated heads of one matrix")
                continue
            how: How = "index" if axis in singles else hows.get(axis, "batch")
            words.append(f"axis {axis} {_HOW[how]}")
    if isinstance(splits, Interleaved):
        words.append(f"{len(splits.widths)} matrices in turns in its outputs")
    elif splits:
        words.append(f"{len(splits)} matrices side by side in its outputs")
    if unclear:
        words.append(
            "its outputs may hold several matrices, whose places are not known: store them apart to"
            " step them apart"
        )
    if heads:
        words.append(f"{heads} heads in its outputs")
    elif joins:
        words.append(f"joins {joins[0]} heads")
    if readout:
        words.append("no other matrix follows")
    return "; ".join(words)


def _one(axes: Sequence[int]) -> int | tuple[int, ...]:
    return axes[0] if len(axes) == 1 else tuple(axes)
