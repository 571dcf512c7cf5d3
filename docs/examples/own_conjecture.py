"""An own conjecture: average gradients before they are orthogonalized, not after.

Several workers see one gradient, each with noise of its own. Muon may orthogonalize the average of
what they saw, or average what each has orthogonalized (and orthogonalize that, so that the steps
are of one size). Conjecture: the first points closer to the factor of the gradient itself, at every
level of noise. What must break it stands beside it: the two exchanged.
"""

import jax
import jax.numpy as jnp

from specjax import lab, sizes, spectral, sweep

N, WORKERS = 12, 4
SMALLEST = 0.001  # a lead in alignment that would not matter to anybody


def measure(key, noise):
    """Alignment of both steps with the exact factor, 1 at best; `noise` is relative to the entries
    of the gradient.
    """
    true, others = jax.random.split(key)
    gradient = sizes.normal(true, (N, N))
    seen = gradient[None] + noise * sizes.normal(others, (WORKERS, N, N))
    factors = spectral.polar(jnp.stack([gradient, jnp.mean(seen, axis=0), *seen]))
    exact, before, each = factors[0], factors[1], factors[2:]
    after = spectral.polar(jnp.mean(each, axis=0))
    return {"before": jnp.sum(before * exact) / N, "after": jnp.sum(after * exact) / N}


data = sweep.run(
    measure,
    {"noise": sweep.values(0.1, 0.3, 1.0, 3.0)},
    num_seeds=400,
    key=jax.random.key(0),
)


def exchanged(config, data):
    return data.assign(before=data["after"], after=data["before"])


@lab.statement(
    "own-conjecture",
    "Averaging before orthogonalizing points closer to the exact factor.",
    controls={"exchanged": exchanged},
)
def averaging_first(config, data):
    # Paired: both steps of a seed see the same gradient and the same noise.
    return lab.ahead(data["before"], data["after"], least=SMALLEST)


for noise in data["noise"].values:
    judged = averaging_first.judge(None, data.sel(noise=noise))
    print(
        f"noise {noise}: before - after = {judged.finding.deciding.estimate:.4f}, {judged.verdict}"
    )
