"""Models whose training at every width is known."""

import jax
import jax.numpy as jnp
import numpy as np

CURVATURES = np.array([1.0, 0.6, 0.3, 0.1])


def sums(key, width):
    """Parameters whose columns' sums are what the loss is of, and start at 0."""
    w = jax.random.normal(key, (width, 4))
    return {"w": w - jnp.mean(w, axis=0, keepdims=True)}


def quadratic(model, batch):
    """Σ_k c_k (Σ_j w_jk - 1)² / 2: a step of gradient descent multiplies the k-th residual by 1 -
    rate · width · c_k.
    """
    return jnp.sum(batch * (jnp.sum(model["w"], axis=0) - 1) ** 2) / 2


def closed_form(rate, width, steps):
    """The loss of `quadratic` after gradient descent."""
    return np.sum(CURVATURES * (1 - rate * width * CURVATURES) ** (2 * steps)) / 2
