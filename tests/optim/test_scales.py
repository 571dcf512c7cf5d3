"""Every transformation at every scale that its dtype holds, against NumPy in float64; and what must not change its numbers."""

import math
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from specjax import optim
from specjax.spectral import SVD
from tests.optim.registry import parameters
from tests.reference import optimizer_steps as numpy_steps
from tests.reference.spectra import matrix_with

pytestmark = [pytest.mark.usefixtures("optax_promotion"), pytest.mark.integration]

STEPS = {
    "orthogonalize": (lambda: optim.orthogonalize(SVD()), lambda g, w: numpy_steps.polar(g[-1]), 0),
    "orthogonalize-iterated": (optim.orthogonalize, lambda g, w: numpy_steps.newton_schulz(g[-1]), 0),
    "normalize_rows": (optim.normalize_rows, lambda g, w: numpy_steps.unit(g[-1], 1), 0),
    "normalize_columns": (optim.normalize_columns, lambda g, w: numpy_steps.unit(g[-1], 0), 0),
    "spectral_descent": (
        lambda: optim.spectral_descent(2.0),
        lambda g, w: -np.linalg.svd(g[-1], compute_uv=False).sum() / 2 * numpy_steps.polar(g[-1]),
        1,
    ),
    "momentum": (lambda: optim.momentum(0.9), lambda g, w: numpy_steps.average(g, 0.9), 1),
    "momentum-sgd": (lambda: optim.momentum(0.9, "sgd"), lambda g, w: numpy_steps.plain_sum(g, 0.9), 1),
    "momentum-corrected": (
        lambda: optim.momentum(0.9, bias_correction=True),
        lambda g, w: numpy_steps.average(g, 0.9) / (1 - 0.9 ** len(g)),
        1,
    ),
    "muon": (
        lambda: optim.muon(0.1, method=SVD(), scale="none", labels="matrix"),
        lambda g, w: -0.1 * numpy_steps.polar(numpy_steps.average(g, 0.95, nesterov=True)),
        0,
    ),
    "rank_switch": (
        lambda: optim.rank_switch(optim.orthogonalize(SVD()), optax.identity()),
        lambda g, w: numpy_steps.polar(g[-1]) if g[-1].any() else g[-1],
        0,
    ),
    "scale_by_factor_gram": (optim.scale_by_factor_gram, lambda g, w: numpy_steps.over_gram(g[-1], w), -1),
    "scale_by_factor_gram-damped": (
        lambda: optim.scale_by_factor_gram(0.5),
        lambda g, w: numpy_steps.over_gram(g[-1], w, 0.5),
        None,
    ),
    "schatten_direction-1": (lambda: optim.schatten_direction(1.0), lambda g, w: numpy_steps.schatten(g[-1], 1), 0),
    "schatten_direction-1.5": (
        lambda: optim.schatten_direction(1.5),
        lambda g, w: numpy_steps.schatten(g[-1], 1.5),
        0,
    ),
    "scale_by_neuron_moment": (
        lambda: optim.scale_by_neuron_moment(0.9),
        lambda g, w: numpy_steps.normuon(g, 0.9),
        1,
    ),
    "add_cautious_decay": (
        lambda: optim.add_cautious_decay(0.3),
        lambda g, w: g[-1] + 0.3 * np.where(np.sign(g[-1]) * np.sign(w) >= 0, w, 0),
        1,
    ),
    "hyperball": (lambda: optim.hyperball(0.1), lambda g, w: numpy_steps.hyperball(g[-1], w, 0.1), 1),
    "lift_to_floor": (lambda: optim.lift_to_floor(0.9), lambda g, w: numpy_steps.lifted(g[-1], w, 0.9), 1),
    "clip_singular_values-hard": (
        lambda: optim.clip_singular_values(2.0),
        lambda g, w: numpy_steps.clipped(g[-1], 2.0, "hard"),
        None,
    ),
    "clip_singular_values-soft": (
        lambda: optim.clip_singular_values(2.0, "soft"),
        lambda g, w: numpy_steps.clipped(g[-1], 2.0, "soft"),
        None,
    ),
    "clip_weights": (
        lambda: optim.clip_weights(2.0),
        lambda g, w: numpy_steps.clipped(w + g[-1], 2.0, "hard") - w,
        None,
    ),
    "mars_correction": (
        lambda: optim.mars_correction(0.3, 0.9),
        lambda g, w: g[-1] + 0.3 * 0.9 / (1 - 0.9) * (g[-1] - g[-2]),
        1,
    ),
    "decay_on_plateau": (lambda: optim.decay_on_plateau(0.5, 1), lambda g, w: g[-1] / 4, 1),
    "qk_clip": (lambda: optim.qk_clip(1.0, optim.Heads(())), lambda g, w: 0.5 * (w + g[-1]) - w, 1),
    "scale_by_shampoo": (
        lambda: optim.scale_by_shampoo(0.9),
        lambda g, w: numpy_steps.shampoo(g, 0.9),
        0,
    ),
    "scale_by_shampoo-of-order-2": (
        lambda: optim.scale_by_shampoo(0.9, order=2),
        lambda g, w: numpy_steps.shampoo(g, 0.9, order=2),
        -1,
    ),
    "scale_by_shampoo-damped": (
        lambda: optim.scale_by_shampoo(0.9, damping=0.5),
        lambda g, w: numpy_steps.shampoo(g, 0.9, damping=0.5),
        None,
    ),
    "scale_by_soap": (
        lambda: optim.scale_by_soap(0.9, 0.8, every=1, eps=0.0),
        lambda g, w: numpy_steps.soap(g, 0.9, 0.8, 0.0),
        0,
    ),
    "scale_by_soap-eps": (
        lambda: optim.scale_by_soap(0.9, 0.8, every=1, eps=0.1),
        lambda g, w: numpy_steps.soap(g, 0.9, 0.8, 0.1),
        None,
    ),
}
"""By name a transformation, its last update in NumPy of the gradients of all steps and the parameters, and the power of a common factor on
gradients and parameters with which the update grows, None where it is no power."""

SLOW = ("schatten", "clip", "scale_by_shampoo", "scale_by_soap")
each = pytest.mark.parametrize("name", parameters({name: name for name in STEPS}))
EXTRA = {"stable_ranks": 0.0, "value": 1.0, "max_logits": 4.0}
COUNT = 3  # gradients


def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape)


@cache
def trees():
    """The gradients of all steps, and last the parameters: a tree of matrices of all shapes each, in float64."""
    return [
        {
            "entry": normal(i, 1, 1),
            "row": normal(10 + i, 1, 3),
            "column": normal(20 + i, 4, 1),
            "wide": normal(30 + i, 3, 5),
            "tall": normal(40 + i, 6, 4),
            "square": normal(50 + i, 4, 4),
            "stack": normal(60 + i, 2, 5, 3),
            "zero row": normal(70 + i, 5, 2) * np.array([1, 1, 0, 1, 1])[:, None],
            "rank one": np.outer(normal(80 + i, 4), normal(90 + i, 2)),
            "repeated": matrix_with([2.0, 2.0, 2.0], (3, 3), 7),
            "zero": np.zeros((2, 2)),
            "not finite": np.full((2, 2), 1.0 if i == COUNT else np.nan),
        }
        for i in range(COUNT + 1)
    ]


@cache
def compiled(name, dtype):
    """The last of all updates, as one function of the gradients and parameters. A dtype has a function of its own, as has its scope."""
    del dtype
    transform = optax.with_extra_args_support(STEPS[name][0]())

    @jax.jit
    def run(gradients, params):
        state = transform.init(params)
        for gradient in gradients:
            update, state = transform.update(gradient, state, params, **EXTRA)
        return update

    return run


def at_scale(factor, dtype):
    *gradients, params = [jax.tree.map(lambda x: jnp.asarray(x * factor, dtype), tree) for tree in trees()]
    return gradients, params


def expected(name, gradients, params):
    """The updates in NumPy of the numbers as they are in their dtype; None for a leaf of which the update is not determined."""
    *wide, w = [jax.tree.map(lambda x: np.asarray(x, np.float64), tree) for tree in (*gradients, params)]
    return {key: of_leaf(name, [g[key] for g in wide], w[key]) for key in w if key not in UNDETERMINED.get(name, ()) + ("not finite",)}


def of_leaf(name, gradients, w):
    if w.ndim == 2:
        return STEPS[name][1](gradients, w)
    return np.stack([of_leaf(name, [g[i] for g in gradients], w[i]) for i in range(len(w))])


def relative_error(name, found, right, params):
    """The largest error of a leaf beside its largest entry, or that of the parameters of which the update is a difference."""
    size = np.abs(right).max()
    if name in DIFFERENCES:
        size = max(size, np.abs(np.asarray(params, np.float64)).max())
    return np.abs(np.asarray(found, np.float64) - right).max() / size if size else np.abs(found).max()


UNDETERMINED = {"scale_by_soap": ("repeated",), "scale_by_soap-eps": ("repeated",)}
"""Leaves of which an update is not determined: repeated eigenvalues have no basis of their own, and SOAP depends on it."""

DIFFERENCES = ("clip_weights", "hyperball", "qk_clip")
"""Their updates are differences of parameters, with the rounding of these."""


def largest_error(name, factor, dtype):
    gradients, params = at_scale(factor, dtype)
    found = jax.tree.map(np.asarray, compiled(name, dtype)(gradients, params))
    assert name in KEEPING or np.isnan(found["not finite"].astype(float)).all()
    right = {key: x for key, x in expected(name, gradients, params).items() if x is not None}
    return {key: relative_error(name, found[key], x, params[key]) for key, x in right.items()}
