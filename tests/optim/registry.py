"""Every transformation, and the trees it must work on."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from specjax import optim
from specjax.spectral import NewtonSchulz

ITERATION = NewtonSchulz(2)
"""Two steps: these tests are about trees and wrappers, and compile once for each step."""


def blocks(tree):
    """As many blocks of columns as divide them, three if possible."""
    return jax.tree.map(
        lambda x: optim.Blocks(1, next(k for k in (3, 2, 5, 1) if (1, *x.shape)[-1] % k == 0)), tree
    )


TRANSFORMS = {
    "orthogonalize": lambda: optim.orthogonalize(ITERATION),
    "orthogonalize-scaled": lambda: optim.orthogonalize(
        ITERATION, "point_two_sqrt_max", dimension_numbers=optim.OUT_IN
    ),
    "normalize_rows": optim.normalize_rows,
    "normalize_columns": optim.normalize_columns,
    "spectral_descent": lambda: optim.spectral_descent(2.0, ITERATION),
    "spectral_descent-schedule": lambda: optim.spectral_descent(
        optax.constant_schedule(2.0), ITERATION
    ),
    "momentum-sgd": lambda: optim.momentum(0.9, "sgd"),
    "momentum-sgd-nesterov": lambda: optim.momentum(0.9, "sgd", nesterov=True),
    "momentum-ema": lambda: optim.momentum(0.9),
    "momentum-ema-corrected": lambda: optim.momentum(0.9, bias_correction=True),
    "momentum-ema-nesterov": lambda: optim.momentum(0.9, nesterov=True),
    "momentum-ema-nesterov-corrected": lambda: optim.momentum(
        0.9, nesterov=True, bias_correction=True
    ),
    "momentum-int8": lambda: optim.momentum(0.9, mu_dtype="int8"),
    "muon": lambda: optim.jordan_muon(0.1, method=ITERATION, weight_decay=0.01),
    "muon-schedule": lambda: optim.jordan_muon(
        optax.linear_schedule(0.1, 0.0, 10), method=ITERATION, bias_correction=True
    ),
    "muon-normuon": lambda: optim.normuon(0.1, method=ITERATION, weight_decay=0.01),
    "muon-adamuon": lambda: optim.adamuon(0.1, method=ITERATION, weight_decay=0.01),
    "muon-clip": lambda: optim.muon_clip(0.1, HEADS, 1.0, method=ITERATION, weight_decay=0.01),
    "muon-nanochat": lambda: optim.nanochat(0.1, 0.01, method=ITERATION),
    "muon-modded": lambda: optim.modded_nanogpt(0.1, 0.01, method=ITERATION),
    "muon-mars": lambda: optim.mars_m(0.1, method=ITERATION, weight_decay=0.01),
    "muon-logged": lambda: optim.muon(0.1, method=ITERATION, log_every=2),
    "soap_muon": lambda: optim.soap_muon(0.1, method=ITERATION),
    "log_updates": lambda: optim.log_updates(optim.orthogonalize(ITERATION), 2),
    "orthogonalize_blocks": lambda: optim.orthogonalize_blocks(
        blocks, ITERATION, "sqrt_out_over_in"
    ),
    "alternate": lambda: optim.alternate(
        2, optim.orthogonalize(ITERATION), optim.orthogonalize_blocks(blocks, ITERATION)
    ),
    "rank_switch": lambda: optim.rank_switch(
        optim.orthogonalize(ITERATION), optax.identity(), ITERATION
    ),
    "scale_by_factor_gram": lambda: optim.scale_by_factor_gram(0.5),
    "decay_on_plateau": lambda: optim.decay_on_plateau(0.5, 1),
    "schatten_direction": lambda: optim.schatten_direction(1.5, "sqrt_out_over_in"),
    "scale_by_neuron_moment": lambda: optim.scale_by_neuron_moment(
        0.9, "longer", dimension_numbers=optim.OUT_IN
    ),
    "add_cautious_decay": lambda: optim.add_cautious_decay(optax.linear_schedule(0.1, 0.0, 10)),
    "hyperball": lambda: optim.hyperball(optax.linear_schedule(0.1, 0.0, 10)),
    "lift_to_floor": lambda: optim.lift_to_floor(2.0),
    "clip_singular_values": lambda: optim.clip_singular_values(2.0, "soft", "sqrt_out_over_in"),
    "clip_weights": lambda: optim.clip_weights(2.0),
    "mars_correction": lambda: optim.mars_correction(0.5, 0.9),
    "qk_clip": lambda: optim.qk_clip(1.0, HEADS),
    "scale_by_dion": lambda: optim.scale_by_dion(2, 0.9, key=jax.random.key(0)),
    "scale_by_shampoo": lambda: optim.scale_by_shampoo(0.9, every=2),
    "scale_by_soap": lambda: optim.scale_by_soap(0.9, 0.8, every=1),
}
"""Factories by name."""

DECOMPOSING = ("schatten", "clip", "scale_by_shampoo", "scale_by_soap", "soap_muon")
"""How the names of those begin whose decompositions take seconds to compile, for every test anew:
these tests are slow ones.
"""


def parameters(table, slow=DECOMPOSING):
    """A table by name as parameters of a test, a tuple for several; those whose names begin so are
    slow.
    """
    return [
        pytest.param(
            *(entry if isinstance(entry, tuple) else (entry,)),
            id=name,
            marks=[pytest.mark.slow] if name.startswith(slow) else [],
        )
        for name, entry in table.items()
    ]


ANY_LEAF = ("momentum", "muon", "soap_muon", "decay", "add_cautious", "mars", "qk_clip")
"""How the names of those begin that do not refuse leaves which are no matrices."""

HEADS = {
    "first": optim.Heads((1,)),
    "nested": None,
    "stack": [optim.Heads((0, 2), 1.0)],
    "row": None,
}
"""The queries' and keys' heads in the trees of this module, two layers of them in the stack."""

EXTRA = {
    "stable_ranks": {"first": 0.0, "nested": 9.0, "stack": 0.0, "row": 9.0},
    "value": 1.0,
    "max_logits": {
        "first": jnp.arange(6.0),
        "nested": None,
        "stack": [jnp.arange(6.0).reshape(2, 3)],
        "row": None,
    },
    "unknown": None,
}
"""Arguments of every update: what `rank_switch` needs (no leaf near its threshold), a loss that
never falls, which makes `decay_on_plateau` halve the second update, the logits of `qk_clip`, on
both sides of its threshold, and one that all must ignore.
"""


def tree(seed=0, dtype=jnp.float32):
    """Matrices of two shapes, a stack, and a None: keys 0 and 1 share a shape."""
    rng = np.random.default_rng(seed)

    def normal(*shape):
        return jnp.asarray(rng.standard_normal(shape), dtype)

    return {
        "first": normal(4, 6),
        "nested": {"same": normal(4, 6), "hole": None},
        "stack": [normal(2, 5, 3)],
        "row": normal(1, 6),
    }


def mixed_tree(seed=0):
    """The same in float32 and bfloat16, a dtype to each leaf and both among the leaves of one
    shape.
    """
    leaves = tree(seed)
    half = ("nested", "row")
    return {
        name: jax.tree.map(lambda x: x.astype(jnp.bfloat16), x) if name in half else x
        for name, x in leaves.items()
    }


def steps(transform, params, gradients, extra=EXTRA):
    """The updates and the state after all gradients, compiled."""
    # MultiSteps is not a GradientTransformation, but has its two functions and takes extra
    # arguments.
    transform = (
        transform
        if isinstance(transform, optax.MultiSteps)
        else optax.with_extra_args_support(transform)
    )

    @jax.jit
    def run(params, gradients):
        def step(state, gradient):
            updates, state = transform.update(gradient, state, params, **extra)
            return state, updates

        state, updates = jax.lax.scan(step, transform.init(params), gradients)
        return jax.tree.map(lambda update: update[-1], updates), state

    return run(params, jax.tree.map(lambda *leaves: jnp.stack(leaves), *gradients))
