"""Linear classification of separable data, and the gap to the largest spectral-norm margin.

No solver is needed: any weights a ≥ 0 of pairs (sample, wrong class) bound the largest margin at
‖W‖_op = 1 from above by ‖Σ a (e_y - e_c) hᵀ‖_* / Σ a, and the gradient's weights approach it.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from specjax import spectral

EVERY = 100
"""Steps between records."""


class Method(NamedTuple):
    """Steps of length rate · t^-power along the polar factor or the gradient, with momentum."""

    rate: float
    power: float
    momentum: float
    spectral: bool


def weights(
    w: Float[Array, "k d"], h: Float[Array, "n d"], labels: Int[Array, " n"]
) -> tuple[Array, Array, Array]:
    """-∇L over its largest wrong probability, that one's log, and scaled probability sums."""
    wrong = jax.nn.one_hot(labels, w.shape[0], dtype=w.dtype) == 0
    logs = jnp.where(wrong, jax.nn.log_softmax(h @ w.T), -jnp.inf)
    a = jnp.exp(logs - jnp.max(logs))
    # The sum of wrong probabilities replaces 1 - p, whose digits all cancel far out.
    pulls = jnp.where(wrong, -a, jnp.sum(a, axis=1, keepdims=True))
    return pulls.T @ h, jnp.max(logs), jnp.sum(a)


def descend(
    method: Method, h: Float[Array, "n d"], labels: Int[Array, " n"], classes: int, records: int
) -> Float[Array, "2 records"]:
    """The margin over ‖W‖_op and the bound from above, every `EVERY` steps."""

    def step(
        state: tuple[Array, Array, Array], t: Array
    ) -> tuple[tuple[Array, Array, Array], None]:
        w, average, scale = state
        gradient, log, _ = weights(w, h, labels)
        average = (
            method.momentum * jnp.exp(scale - log) * average + (1 - method.momentum) * gradient
        )
        direction = (
            spectral.polar(average) if method.spectral else average / jnp.linalg.norm(average)
        )
        return (w + method.rate * t**-method.power * direction, average, log), None

    def record(
        state: tuple[Array, Array, Array], ts: Array
    ) -> tuple[tuple[Array, Array, Array], Array]:
        state, _ = jax.lax.scan(step, state, ts)
        w = state[0]
        logits, wrong = h @ w.T, jax.nn.one_hot(labels, w.shape[0], dtype=w.dtype) == 0
        right = jnp.sum(jnp.where(wrong, 0, logits), axis=1, keepdims=True)
        margin = jnp.min(jnp.where(wrong, right - logits, jnp.inf)) / spectral.spectral_norm(w)
        gradient, _, total = weights(w, h, labels)
        return state, jnp.stack([margin, spectral.nuclear_norm(gradient) / total])

    zero = jnp.zeros((classes, h.shape[1]), h.dtype)
    ts = 1 + jnp.arange(float(records * EVERY)).reshape(records, EVERY)
    return jax.lax.scan(record, (zero, zero, jnp.zeros((), h.dtype)), ts)[1].T
