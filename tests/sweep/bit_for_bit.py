"""Compares the samples of sweeps with those of each seed and width alone, by NumPy and bit for bit;
says how many were compared.
"""

import jax
import numpy as np
from measures import bits

from specjax import sizes
from specjax.sweep import run, widths

KEY = jax.random.key(7)
WIDTHS, SEEDS = (3, 8, 5), range(5)

expected = {
    (width, seed): (
        np.asarray(sizes.normal(jax.random.fold_in(KEY, seed), (width, 2)))
        .view(np.uint32)
        .sum(dtype=np.uint32)
    )
    for width in WIDTHS
    for seed in SEEDS
}
assert len(set(expected.values())) == len(expected)
compared = 0
for plan in ("exact", "padded"):
    for chunk in (2, 5):
        data = run(
            bits, {"d": widths(*WIDTHS)}, num_seeds=len(SEEDS), key=KEY, plan=plan, chunk=chunk
        )
        for (width, seed), of_draws in expected.items():
            assert data["bits"].sel(d=width, seed=seed) == of_draws, (plan, chunk, width, seed)
            compared += 1
print(compared)
