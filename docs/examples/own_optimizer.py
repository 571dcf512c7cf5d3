"""An own optimizer: a softer Muon in an optax chain, swept over its softness and the learning rate.

Muon sends every singular value of a gradient to 1, also those that are noise. This one sends s to s
/ √(s² + λ²), with λ a fraction of the root mean square of the singular values: 1 for the large
ones, small for the small ones.
"""

import jax
import jax.numpy as jnp
import optax

from specjax import optim, sizes, spectral, sweep
from specjax.models import matrix_factorization
from specjax.models.targets import low_rank_target

D, STEPS, NOISE = 12, 60, 2.0
target = low_rank_target(jax.random.key(1), D, rank=3)


def soften(softness):
    """A transformation like `optim.orthogonalize`; every leaf must be a matrix."""

    def direction(g):
        scale = softness * jnp.linalg.norm(g) / jnp.sqrt(min(g.shape))
        return spectral.stabilized_sign(g, scale)

    return optax.stateless(lambda updates, _: jax.tree.map(direction, updates))


def measure(key, softness, rate):
    """The loss after training with noisy gradients; `softness` and `rate` are traced, so all of
    them share one program.
    """
    start, noise = jax.random.split(key)
    optimizer = optax.chain(
        optim.momentum(0.9), soften(softness), optax.scale_by_learning_rate(rate)
    )
    u = matrix_factorization.init(start, D, D) / jnp.sqrt(D)

    def step(carry, step_key):
        u, state = carry
        noise = NOISE * sizes.normal(step_key, u.shape)
        gradient = matrix_factorization.gradient(u, target) + noise
        updates, state = optimizer.update(gradient, state, u)
        return (optax.apply_updates(u, updates), state), None

    (u, _), _ = jax.lax.scan(step, (u, optimizer.init(u)), jax.random.split(noise, STEPS))
    return {"loss": matrix_factorization.loss(u, target)}


over = {"softness": sweep.values(0.01, 0.3, 1.0), "rate": sweep.values(0.03, 0.1, 0.3)}
data = sweep.run(measure, over, num_seeds=10, key=jax.random.key(0))
mean, stderr = sweep.mean_and_stderr(data["loss"])
print("loss at rates", *data["rate"].values)
for softness, means, errors in zip(
    data["softness"].values, mean.values, stderr.values, strict=True
):
    print(
        "softness",
        softness,
        *(f"{m:.1f}±{e:.1f}" for m, e in zip(means, errors, strict=True)),
    )
