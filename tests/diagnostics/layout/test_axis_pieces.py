"""The pieces of an axis against NumPy: an array of the numbers of its entries goes through the same
operations.
"""

import itertools

import numpy as np
import pytest

from specjax.diagnostics._layout import axis_pieces

SOURCE = ("leaf", 0)


def entries(term, shape):
    """The entries of a source (n, m) that a term says it has, in its own order."""
    numbers = np.zeros([axis_pieces.extent(axis) for axis in term.axes], int)
    for index in itertools.product(*(range(n) for n in numbers.shape)):
        place = [term.start(SOURCE, axis) for axis in range(len(shape))]
        for position, axis in zip(index, term.axes, strict=True):
            for piece in reversed(axis):
                position, digit = divmod(position, piece.size)
                place[piece.axis] += digit * piece.stride
        numbers[index] = np.ravel_multi_index(place, shape)
    return numbers


MOVES = {
    "transpose": lambda t, x: (axis_pieces.transposed(t, (1, 0)), x.T),
    "heads": lambda t, x: (axis_pieces.reshaped(t, (4, 2, 3, 2)), x.reshape(4, 2, 3, 2)),
    "flat": lambda t, x: (axis_pieces.reshaped(t, (48,)), x.reshape(48)),
    "columns": lambda t, x: (axis_pieces.cut(t, 1, 3, 5), x[:, 3:8]),
    "every-third": lambda t, x: (axis_pieces.cut(t, 1, 2, 3, 3), x[:, 2::3][:, :3]),
    "reshape-cut": lambda t, x: (
        axis_pieces.cut(axis_pieces.reshaped(t, (4, 3, 4)), 1, 1, 2),
        x.reshape(4, 3, 4)[:, 1:3],
    ),
    "cut-across-pieces": lambda t, x: (
        axis_pieces.cut(
            axis_pieces.reshaped(
                axis_pieces.transposed(axis_pieces.reshaped(t, (4, 3, 4)), (1, 0, 2)), (3, 16)
            ),
            1,
            4,
            8,
        ),
        x.reshape(4, 3, 4).transpose(1, 0, 2).reshape(3, 16)[:, 4:12],
    ),
    "cut-within-a-piece": lambda t, x: (
        axis_pieces.cut(
            axis_pieces.reshaped(
                axis_pieces.transposed(axis_pieces.reshaped(t, (4, 3, 4)), (1, 0, 2)), (3, 16)
            ),
            1,
            5,
            2,
        ),
        x.reshape(4, 3, 4).transpose(1, 0, 2).reshape(3, 16)[:, 5:7],
    ),
    "cut-twice": lambda t, x: (
        axis_pieces.cut(axis_pieces.cut(t, 1, 2, 8), 1, 3, 4),
        x[:, 2:10][:, 3:7],
    ),
    "split-and-merged-again": lambda t, x: (
        axis_pieces.reshaped(axis_pieces.reshaped(t, (2, 2, 6, 2)), (4, 12)),
        x.reshape(2, 2, 6, 2).reshape(4, 12),
    ),
}


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
def test_pieces_are_the_entries_that_numpy_moves(move):
    x = np.arange(48).reshape(4, 12)
    term, expected = move(axis_pieces.whole(SOURCE, (4, 12)), x)
    np.testing.assert_array_equal(entries(term, (4, 12)), expected)


def test_ranges_are_those_of_neighbours():
    term = axis_pieces.whole(SOURCE, (4, 12))
    assert axis_pieces.entries(term, SOURCE, 1).interval == (0, 12)
    assert axis_pieces.entries(axis_pieces.cut(term, 1, 3, 5), SOURCE, 1).interval == (3, 8)
    stacked = axis_pieces.reshaped(term, (4, 3, 4))
    assert axis_pieces.entries(axis_pieces.cut(stacked, 1, 1, 1), SOURCE, 1).interval == (4, 8)
    # The same part of every head: entries that are no neighbours.
    assert axis_pieces.entries(axis_pieces.cut(stacked, 2, 0, 2), SOURCE, 1) == (0, 2, 3, 4)
    assert axis_pieces.entries(axis_pieces.cut(term, 1, 0, 6, 2), SOURCE, 1) == (0, 1, 6, 2)


def test_what_cannot_be_cut_is_not_guessed():
    blurred = axis_pieces.fitted(axis_pieces.whole(SOURCE, (4, 12)), (4, 18))
    assert axis_pieces.entries(blurred, SOURCE, 1) is None
    assert axis_pieces.reshaped(blurred, (4, 3, 6)) is None
    two = axis_pieces.reshaped(
        axis_pieces.transposed(axis_pieces.whole(SOURCE, (4, 12)), (1, 0)), (48,)
    )
    assert axis_pieces.cut(two, 0, 2, 7) is None
