"""Small measurements that the tests of the engine sweep. None of them is a model."""

import jax
import jax.numpy as jnp

from specjax import sizes


def overlap(key, d):
    """⟨x, y⟩ / d and the spectrum-free moments of a d x 3 Gaussian matrix."""
    # In one call of the generator, which is most of what this program compiles.
    drawn = sizes.normal(key, (d, 4))
    x, y = drawn[:, :3], drawn[:, 3]
    n = jnp.asarray(sizes.active(d), x.dtype)
    return {
        "overlap": y @ x[:, 0] / n,
        "gram": x.T @ x / n,
        "nested": {"norm": jnp.sqrt(jnp.sum(x**2))},
    }


def bits(key, d):
    """The sum modulo 2³² of the bit patterns of the active samples: equal only if each sample is
    equal bit for bit.
    """
    x = sizes.normal(key, (d, 2))
    patterns = jax.lax.bitcast_convert_type(x.astype(jnp.float32), jnp.uint32)
    active = sizes.mask(d)[:, None]
    return {"bits": jnp.sum(jnp.where(active, patterns, jnp.uint32(0)), dtype=jnp.uint32)}


def scaled_product(key, m, lr, n, power):
    """lrᵖ · Σ of an m x n Gaussian matrix: two widths with two values between and behind them."""
    return {"y": lr ** power.astype(lr.dtype) * jnp.sum(sizes.normal(key, (m, n)))}


def diverging(key, d, lr):
    """1/(lr - 2) times a positive draw: infinite at lr = 2, for the seeds whose draw exceeds
    1/2.
    """
    u = jax.random.uniform(key)
    return {"y": jnp.where(u > 0.5, 1 / (lr - 2), lr), "ok": jnp.asarray(sizes.active(d))}
