"""Checks of the preconditioning paper's assumptions, for values known before compilation."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import ArrayLike

from specjax.arguments import checked
from specjax.programs import is_traced

Numbers = ArrayLike | Sequence[float | int]


@checked
def check_condition_number(kappa: Numbers) -> None:
    """Raise ValueError for a condition number below 1 or not finite; a traced one passes."""
    if is_traced(kappa):
        return
    values = np.asarray(kappa, float)
    if not (np.isfinite(values).all() and (values >= 1).all()):
        raise ValueError(
            "A condition number is the largest eigenvalue over the smallest, at least 1, got"
            f" {values.tolist()}; exchange the two if you have its inverse."
        )


@checked
def check_spectrum(spectrum: Numbers) -> None:
    """Raise ValueError unless concrete eigenvalues are positive, finite and descending."""
    if is_traced(spectrum):
        return
    values = np.asarray(spectrum, float)
    if (
        values.ndim != 1
        or not values.size
        or not (np.isfinite(values).all() and (values > 0).all())
    ):
        raise ValueError(
            f"A spectrum needs positive finite eigenvalues on one axis, got {values.tolist()};"
            " leave out the zeros, the rank is its length."
        )
    if np.any(np.diff(values) > 0):
        raise ValueError(
            f"A spectrum needs its eigenvalues in descending order, got {values.tolist()}; sort it"
            " with [::-1]."
        )


@checked
def check_ranks(d: int, k: int, r: int) -> None:
    """Raise ValueError unless 1 <= r <= d and r <= k, the columns of a factor X ∈ R^{d×k}."""
    if not 1 <= r <= d:
        raise ValueError(f"A target of shape ({d}, {d}) has a rank from 1 to {d}, got r={r}.")
    if k < r:
        raise ValueError(
            f"A factor with k={k} columns cannot reach a target of rank r={r}; take k of at least"
            f" {r} columns."
        )


@checked
def check_decay(rho: Numbers, least: float = 0.5) -> None:
    """Raise ValueError for a decay outside [least, 1): with a smaller one the steps end too early.

    `least` is 1/2 for a constant prefactor (Lemma 2) and 2/3 for prefactors in [C_0, 2 C_0] (Lemma
    11), see `scalar.least_decay`.
    """
    if is_traced(rho):
        return
    values = np.asarray(rho, float)
    # 2/3 is inexact, so allow 1e-12.
    if not ((values >= least * (1 - 1e-12)) & (values < 1)).all():
        raise ValueError(
            f"The decay rho must be in [{least:.4g}, 1) for the theorem to hold, got"
            f" {values.tolist()}; a smaller one stops short of the target."
        )


@checked
def check_non_increasing(rates: Numbers) -> None:
    """Raise ValueError unless the rates are positive, on one axis and never increase (Lemma 15)."""
    if is_traced(rates):
        return
    values = np.asarray(rates, float)
    if (
        values.ndim != 1
        or not values.size
        or not (np.isfinite(values).all() and (values > 0).all())
    ):
        raise ValueError(
            "A schedule needs positive finite learning rates on one axis, got"
            f" {values.tolist()[:8]}."
        )
    if rises := np.flatnonzero(np.diff(values) > 0).tolist():
        raise ValueError(
            "The lower bounds for SignGD need learning rates that never increase, but step"
            f" {rises[0] + 1} has a larger one than step {rises[0]} ({values[rises[0] + 1]:g} >"
            f" {values[rises[0]]:g}); take np.minimum.accumulate of them."
        )
