"""The formulas of the lemmas as printed, and the nearest wrong ones."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import xarray as xr

from specjax.experiments.outer_product.lemma_samples import ENTRIES, TARGET, Data
from specjax.theory import deep_linear as theory

Scalars = dict[str, tuple[Any, Any]]
Dims = Sequence[Any]
Formula = Callable[[Any, Any], Any]
IDENTITY = xr.DataArray(np.eye(2), dims=ENTRIES)

WISHART: dict[int, tuple[str, dict[str, Formula]]] = {
    1: ("k I", {"d for k": lambda d, k: d + 0 * k, "k + 1 for k": lambda d, k: k + 1 + 0 * d}),
    2: (
        "k (k + d + 1) I",
        {
            "d for d + 1": lambda d, k: k * (k + d),
            "d + 2 for d + 1": lambda d, k: k * (k + d + 2),
            "k - 1 for the first k": lambda d, k: (k - 1) * (k + d + 1),
        },
    ),
    3: (
        "(k³ + 3 (d + 1) k² + (d² + 3 d + 4) k) I",
        {
            "d for d + 1": lambda d, k: k**3 + 3 * d * k**2 + (d**2 + 3 * d + 4) * k,
            "2 (d + 1) k²": lambda d, k: k**3 + 2 * (d + 1) * k**2 + (d**2 + 3 * d + 4) * k,
            "2 d + 4": lambda d, k: k**3 + 3 * (d + 1) * k**2 + (d**2 + 2 * d + 4) * k,
        },
    ),
}
"""Lemmas 5 to 7: the power, its mean as printed, and wrong multiples of the identity."""


def form_of_squares(data: Data, trace: float = 1.0, more: int = 1) -> xr.DataArray:
    """(tr(M)² + (m + 1) ‖M‖²) I, or a wrong formula."""
    matrix, m = data["forms"]["matrix"].values, data["forms"].m
    return (trace * np.trace(matrix) ** 2 + (m + more) * np.sum(matrix**2)) * IDENTITY


def form_of_trace(data: Data, power: int = 2, times: float = 2.0) -> xr.DataArray:
    """m² tr(M)² + 2 m ‖M‖², or a wrong formula."""
    matrix, m = data["forms"]["matrix"].values, data["forms"].m
    return m**power * np.trace(matrix) ** 2 + times * m * np.sum(matrix**2)


CONDITIONAL: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "(31)": lambda a, b: np.sum((b @ b.T) ** 2) * square(a @ a.T) + outer(a @ TARGET @ b.T),
    "tr(BBᵀ)² for tr((BBᵀ)²)": lambda a, b: (
        np.trace(b @ b.T) ** 2 * square(a @ a.T) + outer(a @ TARGET @ b.T)
    ),
    "AᵀA for its square": lambda a, b: np.sum((b @ b.T) ** 2) * a @ a.T + outer(a @ TARGET @ b.T),
    "without the part of Φ": lambda a, b: np.sum((b @ b.T) ** 2) * square(a @ a.T),
    "without BᵀB in the part of Φ": lambda a, b: (
        np.sum((b @ b.T) ** 2) * square(a @ a.T) + outer(a @ TARGET)
    ),
}
"""Lemma 12 and wrong formulas, of A_iᵀ and B_i."""


def square(p: np.ndarray) -> np.ndarray:
    return p @ p


def outer(g: np.ndarray) -> np.ndarray:
    return g @ g.T


def scalars(dims: Dims) -> Scalars:
    """r_i and v_i of every B_i, s_i and u_i of every A_i, of the library."""
    # It has s_i from i = 1 on; a size before d_0, on which none depends, gives i = 0.
    return named(theory.backward_moments(dims), theory.forward_moments((1, *dims)))


def wrong_scalars(dims: Dims, wrong: dict[str, int]) -> Scalars:
    """The scalars by recursions with other constants."""
    s, u = recursion((*dims[::-1], 1), **wrong)
    return named(recursion(dims, **wrong), (s[::-1], u[::-1]))


def recursion(
    dims: Dims, trace: int = 1, more: int = 1, times: int = 2
) -> tuple[list[Any], list[Any]]:
    """Equations 21 and 22 with other constants."""
    r, v = [1.0], [1.0 * dims[0] ** 2]
    for inner, outer in pairwise(dims[:-1]):
        norm = inner * r[-1]
        r.append(trace * v[-1] + (outer + more) * norm)
        v.append(outer**2 * v[-1] + times * outer * norm)
    return r, v


def named(backward: tuple[list, list], forward: tuple[list, list]) -> Scalars:
    return {f"B_{i}": pair for i, pair in enumerate(zip(*backward, strict=True), 1)} | {
        f"A_{i}": pair for i, pair in enumerate(zip(*forward, strict=True))
    }


KINK: dict[str, Callable[..., np.ndarray]] = {
    "(49)": (
        lambda u, v, ratio, theta: (u * ratio * np.sin(theta) + v * (np.pi - theta)) / (2 * np.pi)
    ),
    "cos θ for sin θ": (
        lambda u, v, ratio, theta: (u * ratio * np.cos(theta) + v * (np.pi - theta)) / (2 * np.pi)
    ),
    "θ for π - θ": lambda u, v, ratio, theta: (u * ratio * np.sin(theta) + v * theta) / (2 * np.pi),
    "‖v‖ for ‖v‖/‖u‖": (
        lambda u, v, ratio, theta: (
            (u * ratio * np.sqrt(u @ u) * np.sin(theta) + v * (np.pi - theta)) / (2 * np.pi)
        )
    ),
    "without the part along u": lambda u, v, ratio, theta: v * (np.pi - theta) / (2 * np.pi),
    "u/2": lambda u, v, ratio, theta: u / 2,
    "v": lambda u, v, ratio, theta: v,
}
"""Lemma 25 and wrong formulas, of the two vectors, ‖v‖/‖u‖ and the angle."""


def pairings(
    data: Data, power: int = 2, straight: float = 1.0, across: float = 1.0
) -> xr.DataArray:
    """d₂² δ_ak δ_cl + d₂ δ_ac δ_kl + d₂ δ_al δ_ck of Lemma 26, or a wrong formula."""
    products = data["products"]
    a, k, c, e = np.array([[*map(int, pattern)] for pattern in products.indices.values]).T
    of_squares, of_straight, of_across = (
        xr.DataArray(1.0 * same, {"indices": products.indices})
        for same in ((a == k) & (c == e), (a == c) & (k == e), (a == e) & (c == k))
    )
    pairs = straight * of_straight + across * of_across
    return products.d2**power * of_squares + products.d2 * pairs
