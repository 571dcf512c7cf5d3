"""Every transformation, and the trees it must work on."""

import jax
import jax.numpy as jnp
import optax

from specjax import optim
from specjax.spectral import NewtonSchulz

ITERATION = NewtonSchulz(2)
"""Two steps: these tests are about trees and wrappers, and compile once for each step."""

TRANSFORMS = {
    "orthogonalize": lambda: optim.orthogonalize(ITERATION),
    "orthogonalize-scaled": lambda: optim.orthogonalize(
        ITERATION, "point_two_sqrt_max", dimension_numbers=optim.OUT_IN
    ),
    "normalize_rows": optim.normalize_rows,
    "normalize_columns": optim.normalize_columns,
    "spectral_descent": lambda: optim.spectral_descent(2.0, ITERATION),
    "spectral_descent-schedule": lambda: optim.spectral_descent(optax.constant_schedule(2.0), ITERATION),
    "momentum-sgd": lambda: optim.momentum(0.9, "sgd"),
    "momentum-sgd-nesterov": lambda: optim.momentum(0.9, "sgd", nesterov=True),
    "momentum-ema": lambda: optim.momentum(0.9),
    "momentum-ema-corrected": lambda: optim.momentum(0.9, bias_correction=True),
    "momentum-ema-nesterov": lambda: optim.momentum(0.9, nesterov=True),
    "momentum-ema-nesterov-corrected": lambda: optim.momentum(0.9, nesterov=True, bias_correction=True),
    "muon": lambda: optim.muon(0.1, method=ITERATION, weight_decay=0.01),
    "muon-schedule": lambda: optim.muon(optax.linear_schedule(0.1, 0.0, 10), method=ITERATION, bias_correction=True),
    "rank_switch": lambda: optim.rank_switch(optim.orthogonalize(ITERATION), optax.identity(), ITERATION),
    "scale_by_factor_gram": lambda: optim.scale_by_factor_gram(0.5),
    "decay_on_plateau": lambda: optim.decay_on_plateau(0.5, 1),
}
"""Factories by name. All but the momenta, muon and the decay refuse leaves that are not matrices."""

EXTRA = {"stable_ranks": {"first": 0.0, "nested": 9.0, "stack": 0.0, "row": 9.0}, "value": 1.0, "unknown": None}
"""Arguments of every update: what `rank_switch` needs (no leaf near its threshold), a loss that never falls, which makes
`decay_on_plateau` halve the second update, and one that all must ignore."""


def tree(seed=0, dtype=jnp.float32):
    """Matrices of two shapes, a stack, and a None: keys 0 and 1 share a shape."""
    keys = jax.random.split(jax.random.key(seed), 4)
    return {
        "first": jax.random.normal(keys[0], (4, 6), dtype),
        "nested": {"same": jax.random.normal(keys[1], (4, 6), dtype), "hole": None},
        "stack": [jax.random.normal(keys[2], (2, 5, 3), dtype)],
        "row": jax.random.normal(keys[3], (1, 6), dtype),
    }


def mixed_tree(seed=0):
    """The same in float32 and bfloat16, a dtype to each leaf and both among the leaves of one shape."""
    leaves = tree(seed)
    half = ("nested", "row")
    return {
        name: jax.tree.map(lambda x: x.astype(jnp.bfloat16), x) if name in half else x for name, x in leaves.items()
    }


def steps(transform, params, gradients, extra=EXTRA):
    """The updates and the state after all gradients, compiled."""
    # MultiSteps is not a GradientTransformation, but has its two functions and takes extra arguments.
    transform = transform if isinstance(transform, optax.MultiSteps) else optax.with_extra_args_support(transform)

    @jax.jit
    def run(params, gradients):
        state = transform.init(params)
        for gradient in gradients:
            updates, state = transform.update(gradient, state, params, **extra)
        return updates, state

    return run(params, gradients)
