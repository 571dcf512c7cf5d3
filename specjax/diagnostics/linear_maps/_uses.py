"""The operations in which a parameter acts as a linear map: products with activations,
convolutions, ragged products and look-ups.
"""

from collections.abc import Sequence
from math import prod

import jax
import jax.numpy as jnp
from jaxtyping import Array

from specjax.diagnostics.linear_maps._linear_map import LinearMap
from specjax.diagnostics.linear_maps._terms import (
    AnyArray,
    Factor,
    Label,
    Made,
    Term,
    einsum,
    joined,
    named,
    new_labels,
    windowed,
)
from specjax.programs import Equation, shape_of


def product_maps(equation: Equation, made: Made, side: int, other: AnyArray) -> list[LinearMap]:
    """A product of a value made of parameters with activations: a map for each of its terms."""
    contracted, batch = equation.parameters["dimension_numbers"]
    shape = shape_of(equation.inputs[side])
    found = []
    for term in (term for term in made.terms if term.covers(shape)):
        labels = named(term)
        theirs = joined(labels, side, other.ndim, contracted, batch)
        summed = {labels[axis] for axis in contracted[side]}
        kept = {*labels, *theirs} - summed
        found.append(_linear(term, Factor(windowed(term, other, theirs), theirs), kept, shape))
    return found


def of_ragged_product(
    equation: Equation, inputs: Sequence[AnyArray], made: Made
) -> list[LinearMap]:
    """Rows in groups, each group with its own matrix: the matrices become batch axes, and the
    inputs of each are the rows of its group.
    """
    rows, _, sizes = inputs
    numbers = equation.parameters["ragged_dot_dimension_numbers"]
    contracted, batch = numbers.dot_dimension_numbers
    (ragged,), (group,) = numbers.lhs_ragged_dimensions, numbers.rhs_group_dimensions
    if jnp.ndim(sizes) != 1 or ragged in (*contracted[0], *batch[0]):
        return []
    ends = jnp.cumsum(sizes)[:, None]
    place = jnp.arange(rows.shape[ragged])[None, :]
    members = ((place >= ends - sizes[:, None]) & (place < ends)).astype(rows.dtype)
    found = []
    for term in (term for term in made.terms if term.covers(shape_of(equation.inputs[1]))):
        labels = named(term)
        theirs = joined(labels, 1, rows.ndim, contracted, batch)
        picked = term._replace(
            picks=(*term.picks, Factor(members, (labels[group], theirs[ragged])))
        )
        kept = {*labels, *theirs} - {labels[axis] for axis in contracted[1]}
        found.append(_linear(picked, Factor(rows, theirs), kept, shape_of(equation.inputs[1])))
    return found


def convolution_maps(equation: Equation, image: AnyArray, made: Made) -> list[LinearMap]:
    """The kernel as a matrix from (channels, window) to channels, applied to the patches of the
    image; one for each group.

    None for a depthwise kernel, which has a vector for each channel.
    """
    params, numbers = equation.parameters, equation.parameters["dimension_numbers"]
    groups = params["feature_group_count"]
    kernel = tuple(shape_of(equation.inputs[1])[axis] for axis in numbers.rhs_spec)
    outputs, fan_in = kernel[0] // groups, prod(kernel[1:])
    if params["batch_group_count"] > 1 or (groups > 1 and outputs == 1):
        return []
    lead = (groups,) if groups > 1 else ()
    patches = jax.lax.conv_general_dilated_patches(
        image.transpose(numbers.lhs_spec),
        kernel[2:],
        params["window_strides"],
        params["padding"],
        lhs_dilation=params["lhs_dilation"],
        rhs_dilation=params["rhs_dilation"],
        precision=jax.lax.Precision.HIGHEST,
    )
    # (examples, groups · inputs of each, positions), the channel of a patch before its window.
    columns = jnp.moveaxis(patches.reshape(len(patches), *lead, fan_in, -1), 0, -2)
    columns = columns.reshape(*lead, fan_in, -1)
    found = []
    for term in made.terms:
        if term.labels != term.own or term.factors or term.windows or term.picks:
            continue
        rows = columns
        for gain in (g.transpose(numbers.rhs_spec) for g in term.gains):
            if len(gain) == 1:
                rows = rows * jnp.broadcast_to(gain, (1, *kernel[1:])).reshape(fan_in, 1).astype(
                    rows.dtype
                )
        view = term._replace(gains=()).then(
            lambda w: w.transpose(numbers.rhs_spec).reshape(*lead, outputs, fan_in),
            (None,) * (len(lead) + 2),
            "convolution",
            numbers.rhs_spec,
            groups,
        )
        found.append(
            LinearMap(view.leaf, view.layers, "convolution", view.view, view.signature, rows)
        )
    return found


def lookup_maps(
    equation: Equation, table: AnyArray, indices: AnyArray, made: Made
) -> list[LinearMap]:
    """Rows of a matrix picked by indices: the map Wᵀ on one-hot columns, of which only the counts
    matter.
    """
    axes, sizes = (
        equation.parameters["dimension_numbers"].start_index_map,
        equation.parameters["slice_sizes"],
    )
    if jnp.ndim(table) != 2 or tuple(sizes) != (1, table.shape[1]) or 0 not in axes:
        return []
    rows = indices[..., axes.index(0)].ravel()
    counts = jnp.zeros(table.shape[0], jnp.float32).at[rows].add(1.0, mode="drop")
    views = [
        term.then(lambda w: w.T, (None, None), "lookup") for term in made.terms if term.is_plain
    ]
    return [
        LinearMap(view.leaf, view.layers, "lookup", view.view, view.signature, counts)
        for view in views
    ]


def picked(equation: Equation, table: AnyArray, indices: AnyArray, made: Made) -> Made:
    """Matrices that data picked from a stack along one axis, such as an expert for each token;
    other picks have no terms.
    """
    numbers, sizes = equation.parameters["dimension_numbers"], equation.parameters["slice_sizes"]
    chosen = [
        axis for axis, (size, n) in enumerate(zip(sizes, table.shape, strict=True)) if size != n
    ]
    if table.ndim < 3 or len(chosen) != 1 or sizes[chosen[0]] != 1 or numbers.operand_batching_dims:
        return Made()
    (axis,), collapsed = chosen, numbers.collapsed_slice_dims
    rows = indices[..., numbers.start_index_map.index(axis)]
    one_hot = jax.nn.one_hot(rows, table.shape[axis], dtype=jnp.float32)
    terms = []
    for term in (term for term in made.terms if term.is_plain):
        places = new_labels(rows.ndim)
        inside = iter(
            None if i == axis else label for i, label in enumerate(term.own) if i not in collapsed
        )
        batch = iter(places)
        rank = len(numbers.offset_dims) + rows.ndim
        labels = tuple(
            next(inside) if i in numbers.offset_dims else next(batch) for i in range(rank)
        )
        terms.append(
            term._replace(labels=labels, picks=(Factor(one_hot, (*places, term.own[axis])),))
        )
    return Made(tuple(terms))


def _linear(term: Term, activations: Factor, kept: set[Label], shape: Sequence[int]) -> LinearMap:
    """The map of a term of a value in a product with activations: `kept` are the labels that the
    product does not sum over.

    The factors between the activations and Z, along axes that are summed over, go into the inputs
    of Z. Axes that count matrices are batch axes of the map, also where the product sums over them,
    as over experts, or keeps them in its outputs.
    """
    near, far = [activations, *term.picks], list(term.factors)
    while True:
        reached = {label for factor in near for label in factor.labels} - kept
        touched = [bool(reached & set(factor.labels)) for factor in far]
        if not any(touched):
            break
        near += [factor for factor, now in zip(far, touched, strict=True) if now]
        far = [factor for factor, now in zip(far, touched, strict=True) if not now]
    reached = {label for factor in near for label in factor.labels}
    counted = {label for factor in term.picks for label in factor.labels} | kept | term.counts
    repeated = [label for label in term.own if label not in reached and label in term.counts]
    maps = [label for label in term.own if label in reached and label in counted]
    ins = [label for label in term.own if label in reached and label not in counted]
    outs = [label for label in term.own if label not in reached and label not in term.counts]
    for gain in term.gains:
        varying = [label for label, size in zip(term.own, gain.shape, strict=True) if size > 1]
        if set(varying) <= {*maps, *ins}:
            near.append(Factor(gain.reshape([n for n in gain.shape if n > 1]), tuple(varying)))
    columns = tuple(
        label for label in dict.fromkeys(n for f in near for n in f.labels) if label in kept
    )
    columns = tuple(label for label in columns if label not in term.own)
    order = [term.own.index(label) for label in (*repeated, *maps, *outs, *ins)]
    lead = len(repeated) + len(maps)

    def matrices(z: Array) -> Array:
        shape = [z.shape[axis] for axis in order]
        middle = lead + len(outs)
        return z.transpose(order).reshape(
            *shape[:lead], prod(shape[lead:middle]), prod(shape[middle:])
        )

    inputs = einsum(near, (*maps, *ins, *columns))
    sizes = inputs.shape[: len(maps)], inputs.shape[len(maps) : len(maps) + len(ins)]
    inputs = inputs.reshape(*sizes[0], prod(sizes[1]), -1)
    extents = [
        (label, n)
        for factor in term.factors
        for label, n in zip(factor.labels, factor.array.shape, strict=True)
    ]
    extent = dict([*extents, *zip(named(term), shape, strict=True)])
    inputs = jnp.broadcast_to(inputs, (*(extent[label] for label in repeated), *inputs.shape))
    place = tuple(tuple(map(term.own.index, labels)) for labels in (repeated, maps, outs, ins))
    view = term.view
    return LinearMap(
        term.leaf,
        term.layers,
        "linear",
        lambda leaf: matrices(view(leaf)),
        (*term.signature, "product", place),
        inputs,
    )
