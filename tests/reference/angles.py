"""Averages over the angle of two Gaussian vectors, by scipy's adaptive quadrature."""

from itertools import pairwise

import numpy as np
from scipy.integrate import quad


def angle_mean(q, d):
    """E q(θ) with density ∝ sin^(d-2) θ, d >= 2; at d = 1 the angle is 0 or π."""
    if d == 1:
        return (q(0.0) + q(np.pi)) / 2
    edges = np.pi / 2 + np.array([-1, -0.5, 0, 0.5, 1]) * min(np.pi / 2, 12 / np.sqrt(d))

    def integrate(f):
        parts = pairwise(edges)
        return sum(quad(f, a, b, epsabs=0, epsrel=1e-13, limit=200)[0] for a, b in parts)

    return integrate(lambda t: q(t) * np.sin(t) ** (d - 2)) / integrate(
        lambda t: np.sin(t) ** (d - 2)
    )
