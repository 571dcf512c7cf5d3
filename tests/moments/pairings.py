"""Expectations by enumeration of all pairings, without graphs: the oracle of the engine.

At given sizes a word is a list of nodes, each a name with the labels of its axes. By Isserlis'
theorem every pair of equal Gaussian symbols is replaced by one identity (or covariance) matrix for
each axis, and the rest is one `einsum`.
"""

from collections import Counter
from itertools import product

import numpy as np


def pairings(items):
    """All ways to pair the items."""
    if not items:
        yield []
        return
    first, *rest = items
    for place, partner in enumerate(rest):
        for others in pairings(rest[:place] + rest[place + 1 :]):
            yield [(first, partner), *others]


def expectation(nodes, out, shapes, sizes, constants, covariances=()):
    """E of Σ over all labels but `out` of the product of the nodes; an array of the shape of `out`.

    `shapes` has the names of sizes of each symbol, `constants` the arrays of those that are not
    random, `covariances` the pairs of a symbol and an axis along which it has the covariance that
    is the constant named there.
    """
    extent = {
        label: sizes[size]
        for name, labels in nodes
        for label, size in zip(labels, shapes[name], strict=True)
    }
    fixed = [(constants[name], labels) for name, labels in nodes if name in constants]
    random = sorted({name for name, _ in nodes if name not in constants})
    places = [[labels for name, labels in nodes if name == symbol] for symbol in random]
    total = np.zeros([extent[label] for label in out])
    if any(len(found) % 2 for found in places):
        return total
    for chosen in product(*(list(pairings(list(range(len(found))))) for found in places)):
        operands = [operand for pair in fixed for operand in pair]
        for symbol, found, pairs in zip(random, places, chosen, strict=True):
            for a, b in pairs:
                for axis, ends in enumerate(zip(found[a], found[b], strict=True)):
                    factor = dict(covariances).get((symbol, axis))
                    operands += [
                        np.eye(extent[ends[0]]) if factor is None else constants[factor],
                        list(ends),
                    ]
        operands = [
            list(operand) if isinstance(operand, tuple) else operand for operand in operands
        ]
        total += np.einsum(*operands, list(out), optimize="greedy") if operands else 1.0
    return total


def trace_polynomial(word):
    """E tr of a product of Gaussian matrices (name, rows, columns, turned) as a polynomial: how
    many pairings have which loops.

    A pairing makes one index of the rows and one of the columns of its two factors, and what is
    left counts its size.
    """
    length = len(word)
    ends = [
        (i, (i + 1) % length)[::-1] if turned else (i, (i + 1) % length)
        for i, (*_, turned) in enumerate(word)
    ]
    sizes = [columns if turned else rows for _, rows, columns, turned in word]
    places = [
        [i for i, factor in enumerate(word) if factor[0] == name]
        for name in sorted({factor[0] for factor in word})
    ]
    total = Counter()
    for chosen in product(*(list(pairings(found)) for found in places)):
        root = list(range(length))
        for a, b in (pair for pairs in chosen for pair in pairs):
            for x, y in zip(ends[a], ends[b], strict=True):
                kept, gone = root[x], root[y]
                root = [kept if r == gone else r for r in root]
        total[tuple(sorted(Counter(sizes[r] for r in set(root)).items()))] += 1
    return total
