"""Means and variances of logits after one and several thresholded steps of Muon at finite d.

Beyond the paper. Each step has the gradient G = Σ p_i u_i v_iᵀ of the items i beyond a threshold,
and its W = (2/π) ∫₀^∞ (GGᵀ + t²)⁻¹ G dt is orthogonal; all hold to leading order in 1/d.

* Signals. g(t) = (1/d) tr t (GGᵀ + t²)⁻¹ solves (1/d) Σ_k q_k² / (1 + q_k²) = 1 - t g with q_k =
  p_k g. By the add-back of u_i v_iᵀ into the resolvent the logit x_i = u_iᵀ W v_i of an item has
  the mean s_i = (2/π) ∫ q_i g / (1 + q_i²) dt.
* Variances. Those of all logits u_jᵀ W v_i are κ/d. After one step κ = 1, for ‖W v_i‖ = ‖v_i‖.
  After several it is Σ_rs κ_rs, κ_rs that of W_r and W_s: from the product of two resolvents, with
  q_k = p_k g(t), zero up to the threshold, and for rare j, which are nearly all N,

      κ_rs = (2/π)² ∫∫ (w + q_i q_i' z) / ((1 + q_i²) (1 + q_i'²)) dt dt',
      w = g g' B/D,  z = g g' (1 - A)/D,  D = (1 - A)² - B²,
      A = (1/d) Σ_k q_k² q_k'² / ((1 + q_k²) (1 + q_k'²)),
      B = (1/d) Σ_k q_k q_k' / ((1 + q_k²) (1 + q_k'²)),

  by the add-back of u_k v_kᵀ into both. For r = s the integral is 1 for every q_i (tested).
* Spreads. An item's own logit is x_i = (2/π) ∫ (c + p_i ab)/(1 + p_i² ab + 2 p_i c) dt, where a =
  u_iᵀ R u_i and b = v_iᵀ R' v_i have the mean g and the variance 2z/d, and c = u_iᵀ Q v_i has 0 and
  w/d, with the blocks R, R' and Q of the resolvent without item i. To first order in the
  fluctuations, relative to ‖v_i‖, which scales the logits of competitors,

      d Var x_i = (2/π)² ∫∫ Σ_rs [(1 - q²) (1 - q'²) w + 4 q q' z] / ((1 + q²)² (1 + q'²)²) dt dt'
                  - 2 s_i τ_i + s_i²/2,

  τ_i = (2/π) ∫ Σ_s q g / (1 + q²)² dt. For small q this is Σ κ_rs + 3/2 s_i², a linear response;
  for a saturated signal it is far less, 1/2 at s_i = 1, where x_i is ‖u_i‖ ‖v_i‖.
"""

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.optimize import brentq
from scipy.special import expit

from specjax.arguments import checked

POINTS = 300
"""Points of a double integral over t, in the logarithm of g(0)/g(t)."""
_SIGNAL_POINTS = 3000

Numbers = Float[np.ndarray, " n"]
_Points = Float[np.ndarray, " points"]
_Table = Float[np.ndarray, "points points"]


@checked
def signal(d: int | float, p: Numbers, sizes: Numbers) -> Numbers:
    """s_i of one step for `sizes` items of each frequency p, to seven digits; factors of p cancel.

    Raises:
        ValueError: no more items than d.
    """
    if not sizes.sum() > d:
        raise ValueError(
            f"Muon's signal needs more items than dimensions, got d={d} and {sizes.sum():g} items."
        )
    log_g, weights = _resolvent(d, p, sizes, _SIGNAL_POINTS, 1e-12, 40.0)
    return _shares(p, log_g) @ weights / p


class Step(NamedTuple):
    """One step of Muon: threshold, g(t) with weights of (2/π) ∫ … dt, factors of w and z in κ."""

    after: float
    g: _Points
    weights: _Points
    ones: list[_Table]
    twos: list[_Table]


@checked
def muon_steps(
    d: int | float, p: Numbers, sizes: Numbers, items: Numbers, after: Sequence[float] = (0.0,)
) -> list[Step]:
    """Steps with these thresholds on `finite_capacity.nodes`; by default one step on all items."""
    masks = [items > bound for bound in after]
    grids = [_resolvent(d, p[mask], sizes[mask], POINTS, 1e-6, 15.0) for mask in masks]
    steps = [
        Step(bound, np.exp(log_g), weights, [], [])
        for bound, (log_g, weights) in zip(after, grids, strict=True)
    ]
    qs = [np.where(mask, p, 0.0)[:, None] * step.g for mask, step in zip(masks, steps, strict=True)]
    shares = [q / (1 + q**2) for q in qs]
    for (first, q, a), (second, r, b) in product(zip(steps, qs, shares, strict=True), repeat=2):
        fours = (a * q * sizes[:, None]).T @ (b * r) / d
        twos = (a * sizes[:, None]).T @ b / d
        factor = np.outer(first.g * first.weights, second.g * second.weights) / (
            (1 - fours) ** 2 - twos**2
        )
        first.ones.append(factor * twos)
        first.twos.append(factor * (1 - fours))
    return steps


@checked
def logits(
    steps: Sequence[Step], q: Numbers, at: Numbers
) -> tuple[Float[np.ndarray, "steps n"], Float[np.ndarray, "steps steps n"]]:
    """Signals of items `at` of frequencies q at each step, and κ at each pair of steps."""
    own = _own(steps, q, at)
    kept = [1 / (1 + x**2) for x in own]
    shares = [x * y for x, y in zip(own, kept, strict=True)]
    return _integrals(steps, shares), _overlaps(steps, kept, 1.0, shares)


@checked
def spreads(steps: Sequence[Step], q: Numbers, at: Numbers) -> Float[np.ndarray, "steps n"]:
    """d times the variances of u_iᵀ W v_i/‖v_i‖ for items `at` of frequencies q, by step."""
    own = _own(steps, q, at)
    responses = [x / (1 + x**2) ** 2 for x in own]
    pairs = _overlaps(steps, [(1 - x**2) / (1 + x**2) ** 2 for x in own], 4.0, responses)
    signals, taus = (
        np.cumsum(_integrals(steps, of), axis=0)
        for of in ([x / (1 + x**2) for x in own], responses)
    )
    both = np.stack([pairs[:t, :t].sum((0, 1)) for t in range(1, len(steps) + 1)])
    return both - 2 * signals * taus + signals**2 / 2


def _resolvent(
    d: int | float, p: Numbers, sizes: Numbers, points: int, least: float, beyond: float
) -> tuple[_Points, _Points]:
    """log g(t) at points of t from 0, with their weights in (2/π) ∫ … dt.

    `least` is the first step of log g, and the last point is `beyond` below that where g is 1 / the
    largest p.
    """
    logs = np.log(p)
    largest = brentq(
        lambda log_g: float(sizes @ _shares(p, log_g)[:, 0]) / d - 1, -10, 30 - logs.min()
    )
    # With g = g(0) e^-s, t is a function of s, and both ends of ∫ … (dt/ds) ds fall off
    # exponentially in log s: a sum converges fast.
    s = np.geomspace(least, largest + logs.max() + beyond, points)
    each = _shares(p, largest - s)
    # dt/ds, from t g = 1 - (1/d) Σ_k p_k² g² / (1 + p_k² g²).
    slope = (1 - sizes @ each / d + 2 * sizes @ (each * (1 - each)) / d) * np.exp(s - largest)
    return largest - s, 2 / np.pi * np.log(s[1] / s[0]) * slope * s


def _shares(p: Numbers, log_g: float | np.ndarray) -> Float[np.ndarray, "n points"]:
    """p² g² / (1 + p² g²) without overflow of g²."""
    return expit(2 * (np.log(p)[:, None] + log_g))


def _own(steps: Sequence[Step], q: Numbers, at: Numbers) -> list[Float[np.ndarray, "n points"]]:
    return [np.where(at > step.after, q, 0.0)[:, None] * step.g for step in steps]


def _integrals(
    steps: Sequence[Step], values: Sequence[Float[np.ndarray, "n points"]]
) -> Float[np.ndarray, "steps n"]:
    """(2/π) ∫ values g dt at each step."""
    return np.stack(
        [value @ (step.g * step.weights) for value, step in zip(values, steps, strict=True)]
    )


def _overlaps(
    steps: Sequence[Step],
    first: Sequence[Float[np.ndarray, "n points"]],
    factor: float,
    second: Sequence[Float[np.ndarray, "n points"]],
) -> Float[np.ndarray, "steps steps n"]:
    """(2/π)² ∫∫ (first first' w + factor second second' z) dt dt' at each pair of steps."""
    return np.array(
        [
            [
                np.sum((first[r] @ one) * first[s] + factor * (second[r] @ two) * second[s], axis=1)
                for s, (one, two) in enumerate(zip(steps[r].ones, steps[r].twos, strict=True))
            ]
            for r in range(len(steps))
        ]
    )
