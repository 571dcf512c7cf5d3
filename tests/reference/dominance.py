"""Diagonal dominance by loops over entries."""

import numpy as np


def entries(p):
    """The diagonal entries and, with their positions, the off-diagonal ones."""
    m = len(p)
    return [p[a][a] for a in range(m)], {
        (a, c): p[a][c] for a in range(m) for c in range(m) if a != c
    }


def measures(p):
    """Name to value for one matrix; each is written from its definition."""
    diagonal, off = entries(p)
    return {
        "diagonal_mean": np.mean(diagonal),
        "off_diagonal_mean": np.mean(list(off.values())) if off else 0.0,
        "dominance_ratio": (
            (np.mean(np.abs(list(off.values()))) if off else 0.0) / np.mean(diagonal)
        ),
        "off_diagonal_energy": (
            sum(v**2 for v in off.values())
            / (sum(v**2 for v in off.values()) + np.sum(np.square(diagonal)))
        ),
    }


def row_dominance(p):
    """Σ_c |P_ac| / P_aa row by row."""
    diagonal, off = entries(p)
    return [sum(abs(v) for (r, _), v in off.items() if r == a) / diagonal[a] for a in range(len(p))]
