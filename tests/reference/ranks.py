"""Stable and nuclear ranks by NumPy's singular values, in float64."""

import numpy as np


def stable_rank(a):
    s = np.linalg.svd(np.asarray(a, np.float64), compute_uv=False)
    return np.sum(s**2) / s[0] ** 2


def nuclear_rank(g):
    s = np.linalg.svd(np.asarray(g, np.float64), compute_uv=False)
    return np.sum(s) ** 2 / np.sum(s**2)
