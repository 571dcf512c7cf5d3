"""An own conjecture: average gradients before they are orthogonalized, not after.

Several workers see one gradient, each with noise of its own. Muon may orthogonalize the average of what they saw, or average what each
has orthogonalized (and orthogonalize that, so that the steps are of one size). Conjecture: the first points closer to the
factor of the gradient itself, at every level of noise. A rule of `specjax.experiments.verdicts` judges it at each.
"""

import jax
import jax.numpy as jnp

from specjax import sizes, spectral, sweep
from specjax.experiments.verdicts import difference_check

N, WORKERS = 12, 4
SMALLEST = 0.001  # a difference of alignments that would not matter to anybody


def measure(key, noise):
    """Alignment of both steps with the exact factor, 1 at best; `noise` is relative to the entries of the gradient."""
    true, others = jax.random.split(key)
    gradient = sizes.normal(true, (N, N))
    seen = gradient[None] + noise * sizes.normal(others, (WORKERS, N, N))
    factors = spectral.polar(jnp.stack([gradient, jnp.mean(seen, axis=0), *seen]))
    exact, before, each = factors[0], factors[1], factors[2:]
    after = spectral.polar(jnp.mean(each, axis=0))
    return {"before": jnp.sum(before * exact) / N, "after": jnp.sum(after * exact) / N}


data = sweep.run(measure, {"noise": sweep.values(0.1, 0.3, 1.0, 3.0)}, seeds=400, key=jax.random.key(0))
# Paired: both steps of a seed see the same gradient and the same noise.
difference, stderr = sweep.mean_and_stderr(data["before"] - data["after"])
for noise in data["noise"].values:
    check = difference_check(
        f"noise-{noise:g}".replace(".", "-"),
        "a conjecture of mine",
        "Averaging before orthogonalizing points closer to the exact factor.",
        difference=difference.sel(noise=noise),
        stderr=stderr.sel(noise=noise),
        resolution=SMALLEST,
    )
    print(f"noise {noise}: before - after = {check.measured:.4f}, {check.verdict}")
