"""Gradients of the models in float64 numpy, from the definitions."""

import numpy as np


def factorization(u, target):
    """(U Uᵀ - M) U."""
    return (u @ u.T - target) @ u


def linear(weights, target):
    """Every layer's A_iᵀ (W_L ⋯ W_1 - Φ) B_iᵀ, each product written out."""
    residual = product(weights, target.shape[1]) - target
    return [
        product(weights[i + 1 :], w.shape[0]).T
        @ residual
        @ product(weights[:i], weights[0].shape[1]).T
        for i, w in enumerate(weights)
    ]


def product(weights, size):
    """W_j ⋯ W_i, and the identity of `size` for none."""
    result = np.eye(size)
    for w in weights:
        result = w @ result
    return result
