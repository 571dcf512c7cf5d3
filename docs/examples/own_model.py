"""An own model: how many directions the hidden layer of a network has, as it widens.

The stable rank of the hidden activations decides whether a spectral step pays in the layer behind
them. Here it is measured for a two-layer network on a fixed batch, with an activation of positive
mean (softplus) and an odd one (tanh).
"""

import jax
import jax.numpy as jnp

from specjax import fits, sizes, spectral, sweep

D, BATCH = 32, 64
x = sizes.normal(jax.random.key(1), (BATCH, D))


def hidden(key, width, activation):
    """Activations of `width` units on the batch, shape (units, BATCH); those of padded units are
    zero.
    """
    w = sizes.normal(key, (width, D)) / jnp.sqrt(D)
    # A padded unit has no weights, and softplus(0) is not 0: without the mask it would count as a
    # unit.
    return jnp.where(sizes.mask(width)[:, None], activation(w @ x.T), 0)


def measure(key, width):
    """The stable ranks in one network."""
    return {
        "softplus": spectral.stable_rank(hidden(key, width, jax.nn.softplus)),
        "tanh": spectral.stable_rank(hidden(key, width, jnp.tanh)),
    }


data = sweep.run(
    measure,
    {"width": sweep.widths(8, 16, 32, 64, 128)},
    num_seeds=50,
    key=jax.random.key(0),
)
for name in ("softplus", "tanh"):
    mean, stderr = sweep.mean_and_stderr(data[name])
    fit = fits.fit_power_law(data[name], dim="width")
    print(
        name, *(f"{m:.2f}±{e:.2f}" for m, e in zip(mean.values, stderr.values, strict=True))
    )
    print(f"  between the two largest widths as width^{fit.local_exponents[-1]:.2f}")
