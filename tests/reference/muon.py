"""Keller Jordan's Muon in numpy, one matrix in his layout (out, in), from the description of its
steps.
"""

import numpy as np

COEFFICIENTS = (3.4445, -4.7750, 2.0315)


def newton_schulz(g, steps=5):
    a, b, c = COEFFICIENTS
    x = g / np.linalg.norm(g)
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if tall else x


def run(weight, gradients, learning_rate, weight_decay=0.0, beta=0.95):
    """The weights after each gradient; beta is one number, or one for each gradient."""
    buffer = np.zeros_like(weight)
    history = []
    for g, decay in zip(gradients, np.broadcast_to(beta, len(gradients)), strict=True):
        buffer = buffer + (1 - decay) * (g - buffer)
        ahead = g + decay * (buffer - g)
        factor = max(1, weight.shape[0] / weight.shape[1]) ** 0.5
        weight = weight * (
            1 - learning_rate * weight_decay
        ) - learning_rate * factor * newton_schulz(ahead)
        history.append(weight)
    return history
