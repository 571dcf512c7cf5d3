"""The two-layer ReLU network as one would write it in NumPy: the peer of
`specjax.models.relu_network` in the benchmarks.

Loss ½ E_x ‖W_2 σ(W_1 x) - Φ x‖², x ~ N(0, I). Arrays are in the dtype of the weights; leading axes
are batch axes.
"""

import numpy as np

Gradient = tuple[np.ndarray, np.ndarray]


def gradient(w1: np.ndarray, w2: np.ndarray, phi: np.ndarray) -> Gradient:
    """(G_1, G_2) of the population loss, by the arc-cosine kernels."""
    norms = np.sqrt(np.sum(w1**2, axis=-1))
    unit = w1 / norms[..., None]
    cosine = np.clip(unit @ unit.mT, -1, 1)
    own = np.arange(w1.shape[-2])
    cosine[..., own, own] = 1
    theta = np.arccos(cosine)
    sine, rest = np.sin(theta), np.pi - theta
    outer = w2.mT @ w2
    own_row = ((outer * sine) @ norms[..., None]) / norms[..., None] * w1
    g1 = (own_row + (outer * rest) @ w1) / (2 * np.pi) - w2.mT @ phi / 2
    gram = norms[..., :, None] * norms[..., None, :] * (sine + rest * cosine) / (2 * np.pi)
    return g1, w2 @ gram - phi @ w1.mT / 2


def sampled_gradient(w1: np.ndarray, w2: np.ndarray, phi: np.ndarray, x: np.ndarray) -> Gradient:
    """(G_1, G_2) of the loss on a batch of inputs x, backpropagated by hand."""
    before = x @ w1.T
    hidden = np.maximum(before, 0)
    residual = (hidden @ w2.T - x @ phi.T) / x.shape[0]
    return (residual @ w2 * (before > 0)).T @ x, residual.T @ hidden


def statistics(p1: np.ndarray, p2: np.ndarray, phi: np.ndarray) -> dict[str, np.ndarray]:
    """The four rows of the paper's Table C.7 from P_i = G_i G_iᵀ."""
    d1, off = p1.shape[-1], (phi @ phi.T) * (1 - np.eye(len(phi), dtype=phi.dtype))
    trace_1, trace_2 = (np.trace(p, axis1=-2, axis2=-1) for p in (p1, p2))
    return {
        "g2_diagonal": trace_2 / p2.shape[-1],
        "g2_coefficient": np.sum(p2 * off, axis=(-2, -1)) / np.sum(off**2),
        "g1_diagonal": trace_1 / d1,
        "g1_off_diagonal": (np.sum(p1, axis=(-2, -1)) - trace_1) / (d1 * (d1 - 1)),
    }
