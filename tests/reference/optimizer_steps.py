"""The steps of specjax.optim in NumPy, in float64, one matrix (in, out) at a time, each written
from its paper.

A function takes the gradients of all steps and the parameters, which stay as they are, and returns
the last update. `CUT` is the share of the largest eigenvalue below which an eigenvalue counts as
zero in float32.
"""

import numpy as np

CUT = 64 * 2.0**-23


def mapped(x, function):
    """U f(s) Vᵀ, without the singular values that are zero to rounding."""
    u, s, vt = np.linalg.svd(x, full_matrices=False)
    return u * np.where(s > CUT * s.max(), function(s), 0) @ vt


def polar(x):
    return mapped(x, np.ones_like)


def newton_schulz(x):
    """Five steps of Keller Jordan's polynomial."""
    x = unit(x)
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x


def average(gradients, beta, nesterov=False):
    m = 0 * gradients[0]
    for g in gradients:
        m = beta * m + (1 - beta) * g
    return (1 - beta) * gradients[-1] + beta * m if nesterov else m


def plain_sum(gradients, beta):
    m = 0 * gradients[0]
    for g in gradients:
        m = beta * m + g
    return m


def unit(x, axis=None):
    norm = np.linalg.norm(x, axis=axis, keepdims=True)
    return np.divide(x, norm, out=0 * x, where=norm > 0)


def schatten(x, p):
    if not x.any():
        return x
    s = np.linalg.svd(x, compute_uv=False)
    if p == 1:
        first = s > s.max() * (1 - 1e-6)
        return mapped(x, lambda s: s > s.max() * (1 - 1e-6)) / first.sum()
    q = p / (p - 1)
    return mapped(x / s.max(), lambda s: s ** (q - 1)) / np.sum((s / s.max()) ** q) ** (1 / p)


def normuon(gradients, beta, axis=0):
    v = 0.0
    for g in gradients:
        v = beta * v + (1 - beta) * np.mean(g**2, axis=axis, keepdims=True)
    step = np.divide(g, np.sqrt(v), out=0 * g, where=v > 0)
    return np.linalg.norm(g) * unit(step)


def lifted(u, w, floor):
    norm, least = (np.linalg.norm(x, axis=0, keepdims=True) for x in (u, w))
    factor = np.divide(floor * least, norm, out=np.ones_like(norm), where=norm > 0)
    return np.maximum(1, factor) * u


def hyperball(u, w, rate):
    radius = np.linalg.norm(w)
    return radius * unit(w - rate * radius * unit(u)) - w


def over_gram(g, w, damping=0.0):
    """G (WᵀW + damping · I)⁻¹; None where that has no inverse, or one that float32 does not
    know.
    """
    gram = w.T @ w + damping * np.eye(w.shape[1])
    return None if np.linalg.cond(gram) > 1e5 else g @ np.linalg.inv(gram)


def root(h, order, damping):
    values, vectors = np.linalg.eigh(h)
    kept = values > CUT * values.max()
    return (
        vectors
        * np.where(kept, (np.where(kept, values, 1) + damping) ** (-1 / order), 0)
        @ vectors.T
    )


def shampoo(gradients, beta, order=4, damping=0.0):
    left, right, weight = 0.0, 0.0, 0.0
    for g in gradients:
        left, right, weight = beta * left + g @ g.T, beta * right + g.T @ g, beta * weight + 1
    return root(left / weight, order, damping) @ g @ root(right / weight, order, damping)


def soap(gradients, b1, b2, eps):
    """With bases renewed in every step; `second` is V for basis vectors, isotropic in a null
    space.
    """
    first, second = 0 * gradients[0], 0 * gradients[0]
    sides = [(1 - b2) * h for h in grams(gradients[0])]
    bases = [eigenbasis(h) for h in sides]
    step = 0 * gradients[0]
    for t, g in enumerate(gradients[1:], 1):
        (left, no_left), (right, no_right) = bases
        first = b1 * first + (1 - b1) * g
        second = (
            b2 * second
            + (1 - b2) * isotropic(isotropic((left.T @ g @ right) ** 2, no_left).T, no_right).T
        )
        kept = np.sqrt(second) > CUT * np.sqrt(second).max()
        denominator = np.where(kept, np.sqrt(second / (1 - b2**t)) + eps, np.inf)
        step = left @ (left.T @ first @ right / (1 - b1**t) / denominator) @ right.T
        sides = [b2 * old + (1 - b2) * new for old, new in zip(sides, grams(g), strict=True)]
        shares, renewed = zip(*map(next_basis, sides, bases), strict=True)
        second, bases = shares[0].T @ second @ shares[1], renewed
    return step


def grams(g):
    return g @ g.T, g.T @ g


def eigenbasis(h):
    values, vectors = np.linalg.eigh(h)
    return vectors[:, ::-1], values[::-1] <= CUT * values.max()


def isotropic(squares, null):
    """The mean over the rows of a null space in the place of each."""
    if null.any():
        squares = squares.copy()
        squares[null] = squares[null].mean(axis=0)
    return squares


def next_basis(h, basis):
    """The shares of old vectors in new ones, and the new basis."""
    vectors, null = basis
    if null.any():
        found = eigenbasis(h)
        return (vectors.T @ found[0]) ** 2, found
    order = np.argsort(-np.diag(vectors.T @ h @ vectors), kind="stable")
    q, r = np.linalg.qr((h @ vectors)[:, order])
    sizes = np.abs(np.diag(r))
    return np.eye(len(h))[:, order], (q, sizes <= CUT * sizes.max())


def clipped(x, limit, kind):
    return mapped(
        x,
        {"hard": lambda s: np.minimum(s, limit), "soft": lambda s: s / np.hypot(1, s / limit)}[
            kind
        ],
    )
