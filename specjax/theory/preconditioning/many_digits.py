"""Muon in decimal arithmetic of any number of digits, for small matrices, to separate rounding.

Arrays hold `decimal.Decimal`; their first dimension is the seed. Where a float64 run departs from
one with a hundred digits, rounding is the cause.
"""

from collections.abc import Callable
from decimal import Decimal, getcontext, localcontext

import numpy as np

from specjax.arguments import checked

decimals = np.vectorize(Decimal, otypes=[object])
"""Convert floats to decimals of the same value."""

Gradient = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""The gradient, from M or S and the iterate."""


@checked
def factorization(m: np.ndarray, x: np.ndarray) -> np.ndarray:
    """(X Xᵀ - M) X."""
    return (x @ x.swapaxes(-1, -2) - m) @ x


@checked
def in_context(s: np.ndarray, q: np.ndarray) -> np.ndarray:
    """S (S Q - I) S."""
    return s @ (s @ q @ s - s)


@checked
def beside_scalars(
    gradient: Gradient,
    basis: np.ndarray,
    spectrum: np.ndarray,
    start: float,
    rates: np.ndarray,
    digits: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Distances of Muon from X_0 = start · I to its scalar sequences and to M, by seed and step.

    Returns ‖Uᵀ X_t U - diag(x_t)‖_F and ‖X_t X_tᵀ - M‖_F as floats. M or S is U diag(spectrum) Uᵀ
    with U the polar factor of `basis` (seeds, d, d), rates are (seeds, steps), and every operation
    is rounded to `digits` digits.
    """
    with localcontext(prec=digits):
        u = polar(decimals(basis))
        ut, lam, identity = u.swapaxes(-1, -2), decimals(spectrum), decimals(np.eye(len(spectrum)))
        m, x = (u * lam) @ ut, np.broadcast_to(Decimal(start) * identity, u.shape)
        scalars, distances, errors = np.broadcast_to(Decimal(start) * identity, u.shape), [], []
        for rate in decimals(rates).T[:, :, None, None]:
            x = x - rate * polar(gradient(m, x))
            # Gradients of diagonal matrices, 0 off the diagonal.
            scalars = scalars - rate * np.sign(gradient(lam * identity, scalars))
            distances.append(_norm(ut @ x @ u - scalars)[:, 0, 0])
            errors.append(_norm(x @ x.swapaxes(-1, -2) - m)[:, 0, 0])
        return np.stack(distances, axis=1).astype(float), np.stack(errors, axis=1).astype(float)


@checked
def polar(x: np.ndarray) -> np.ndarray:
    """Polar factors of matrices (seeds, d, d), by Newton's globally convergent scaled iteration.

    For a singular matrix it is the factor of an invertible one equal to it in every digit: a square
    matrix of orthonormal columns, as from a singular value decomposition.
    """
    settled, change = Decimal(10) ** (-getcontext().prec * 2 // 3), Decimal(1)
    while change > settled:
        y = _inverse(x).swapaxes(-1, -2)
        scale = (_norm(y) / np.maximum(_norm(x), _nothing())) ** Decimal("0.5")
        x, before = (scale * x + y / scale) / 2, x
        change = _norm(x - before).max()
    return x


def _norm(x: np.ndarray) -> np.ndarray:
    return np.sqrt((x * x).sum((-2, -1), keepdims=True))


def _nothing() -> np.ndarray:
    """A number far below the last digit of everything here."""
    return np.array(Decimal(10) ** (-4 * getcontext().prec), dtype=object)


def _inverse(x: np.ndarray) -> np.ndarray:
    """Invert by Gauss–Jordan elimination with the largest pivots; a pivot of 0 becomes `_nothing`.

    Where steps are shorter than the last digit, a gradient is only rounding, and its rows can be
    equal.
    """
    seeds, n, _ = x.shape
    rows, each = (
        np.concatenate([x, decimals(np.broadcast_to(np.eye(n), x.shape))], axis=-1),
        np.arange(seeds),
    )
    for column in range(n):
        pivot = column + np.argmax(np.abs(rows[:, column:, column]), axis=1)
        rows[each, pivot], rows[each, column] = rows[each, column], rows[each, pivot]
        pivots = rows[:, column, column, None]
        rows[:, column] = rows[:, column] / np.where(pivots == 0, _nothing(), pivots)
        factors = rows[:, :, column].copy()
        factors[:, column] = Decimal(0)
        rows = rows - factors[:, :, None] * rows[:, None, column]
    return rows[:, :, n:]
