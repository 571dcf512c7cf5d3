"""Spiked second moments and their spectra: what the gradient's nuclear rank does before, in and after the window, for one draw.

`measure_drawn` draws both models with Gaussian teachers and takes singular values. `measure_spectra` has an orthogonal teacher, for
which rank and gap are closed forms in the eigenvalues. The experiment is `random_features`.
"""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from specjax import sizes, spectral
from specjax.models import random_features as model
from specjax.models import spiked
from specjax.sizes import AnySize
from specjax.theory import gradient_rank as theory

BULK = (0.1, 1.5)
"""Of the drawn models: wide, so that two of its directions are far from alike."""
MULTI, MULTI_LOW, WEAK = 0.9, 0.75, 0.6
"""Powers u and ℓ of the larger and the smaller one of two spikes, and that of a single one that is smaller than its u = 1 allows."""
OFFSET = 1.0
"""c of η = 1/(c + ‖B‖_op) with one spike of d (Lemma 3.5 and Theorem 3.9)."""
THETA = 20.0
"""ηt at which the rank is compared with its late law."""
ACCURACY = 1e-3
"""Relative and absolute gap to which the steps of gradient descent are counted."""
TIMES = np.geomspace(0.5, 60, 160)
"""t/λ_1 at which the gap is followed."""


def measure_drawn(key: Key[Array, ""], d: int) -> dict[str, Array]:
    """Models I and II with one spike of d, with two, and with a weak one, and the same Gaussian teacher of variance 1/d.

    Nuclear ranks by model ("i", "ii") and time, and what the statements put beside them.
    """
    teacher, rank, size = model.weights(sizes.stream(key, "teacher"), d, d), d // 2, float(d)
    # A spike of 0 is none. What is alike is one program, since decompositions and generators take long to compile.
    spikes = jnp.asarray([[size, 0.0], [size**MULTI, size**MULTI_LOW], [size**WEAK, 0.0]])
    b, b_bar = jax.vmap(lambda one, s: spiked.teacher_student(one, d, s, s, rank, BULK))(
        jax.random.split(sizes.stream(key, "spikes"), 3), spikes
    )
    paths = jax.vmap(lambda one: model.trajectory(one, one, teacher))(b)
    paths = paths._replace(rate=1 / (jnp.asarray([OFFSET, 0.0, 0.0]) + paths.eigenvalues[:, -1]))
    left, _, right = jnp.linalg.svd(b_bar[:2])

    def gradients(initial: Array, points: Sequence[tuple[int, float | int]]) -> list[Array]:
        kinds, steps = np.asarray([kind for kind, _ in points]), jnp.asarray([round(t) for _, t in points])
        chosen = jax.tree.map(lambda leaf: leaf[kinds], paths)._replace(initial=initial @ paths.vectors[kinds])
        return list(jax.vmap(model.rotated_gradient_at)(chosen, steps))

    burnt, window = 2 * size ** (MULTI - MULTI_LOW) * math.log(d), size**MULTI
    times = {"start": (0, 0), "first": (0, 1), "strong": (0, d), "late": (0, size * math.log(d)), "dead": (0, d**2)}
    times |= {"burnt": (1, burnt), "window": (1, window), "weak": (2, d)}
    kinds, points = np.asarray([kind for kind, _ in times.values()]), tuple(times.values())
    drawn = gradients(-teacher @ b[kinds], points) + gradients(-teacher @ b_bar[kinds], points)
    found = dict(zip((f"{m}_{time}" for m in ("i", "ii") for time in times), drawn, strict=True))
    places, columns = jnp.arange(d), teacher @ left

    def along(kind: int, kept: Array) -> Array:
        return jnp.where(kept, columns[kind], 0) @ left[kind].T

    # Blind to the left spike direction; two rows along singular vectors at the ends of the bulk; blind to all of the bulk but for one.
    blind, two = along(0, places > 0), jnp.zeros_like(teacher).at[:2].set(left[0][:, np.asarray([1, rank - 2])].T)
    coherent = along(1, (places == 2) | (places > rank + 1))
    others = gradients(-jnp.stack([blind, two, coherent]) @ b_bar[np.asarray([0, 0, 1])], ((0, 0), (0, 1), (1, window)))
    found |= dict(zip(("ii_blind", "ii_two", "ii_coherent"), others, strict=True))
    matrices = found | {
        "teacher": teacher,
        "coherent": coherent,
        "bulk_one": jnp.where(places < rank, columns[0], 0),
        "bulk_two": jnp.where((places > 1) & (places < rank - 2), columns[1], 0),
    }
    nuclear = dict(zip(matrices, spectral.nuclear_norm(jnp.stack(list(matrices.values()))), strict=True))
    frobenius = {name: jnp.linalg.norm(matrix) for name, matrix in matrices.items()}
    ranks = {name: (nuclear[name] / frobenius[name]) ** 2 for name in matrices}
    values = paths.eigenvalues[0]
    factors = theory.gradient_factors(values, paths.rate[0], 1)
    printed, error = nuclear["bulk_one"] / frobenius["teacher"], size ** (MULTI - MULTI_LOW)
    lower, upper = nuclear["bulk_two"] - 2 * error, frobenius["teacher"] + np.sqrt(2) * error
    inside = [(lower / nuclear[name], frobenius[name] / upper) for name in ("ii_burnt", "ii_window")]
    return {
        **{name: ranks[name] for name in found},
        "condition": jnp.max(factors) / jnp.min(factors),
        "condition_of_b": values[-1] / values[0],
        "printed": ranks["ii_first"] / printed,
        "printed_two": ranks["ii_two"] / np.sqrt(2),
        "square": printed**2 / ranks["ii_first"],
        "square_at_start": printed**2 / ranks["ii_start"],
        "sine": jnp.sqrt(jnp.maximum(1 - (right[0, 0] @ paths.vectors[0, :, -1]) ** 2, 0)),
        "norms": jnp.max(jnp.asarray(inside)),
        "norms_at_start": jnp.linalg.norm(teacher @ b_bar[1]) / upper,
        "incoherent": ranks["teacher"] / ranks["ii_window"],
        "coherent": ranks["coherent"] / ranks["ii_coherent"],
    }


def measure_spectra(key: Key[Array, ""], d: AnySize) -> dict[str, Array]:
    """One spike of d above a uniform bulk, η = 1/d: steps to both accuracies, and the rank late, all over d.

    Padded eigenvalues are zero, and add nothing to any sum.
    """
    low, high = spiked.BULK
    count = jnp.asarray(sizes.active(d), jnp.result_type(float))
    bulk = jnp.where(sizes.mask(d), low + (high - low) * sizes.uniform(key, (d,)), 0)
    spectrum = jnp.where(jnp.arange(sizes.padded(d)) == 0, count, bulk)
    steps = jnp.round(jnp.asarray(TIMES) * count).astype(jnp.int32)
    gaps = jax.lax.map(lambda t: theory.expected_gap(spectrum, 1 / count, t), steps)
    late = jnp.round(THETA * count).astype(jnp.int32)
    return {
        "relative": last_time(steps, gaps, ACCURACY * theory.expected_gap(spectrum, 1 / count, 0)) / count,
        "absolute": last_time(steps, gaps, jnp.asarray(ACCURACY)) / count,
        "late": theory.orthogonal_teacher_nuclear_rank(spectrum, 1 / count, late) / count,
    }


def last_time(steps: Array, values: Array, level: Array) -> Array:
    """The last t at which a value is at least `level`, on the logarithmic line between the grid's points."""
    last = jnp.max(jnp.where(values >= level, jnp.arange(values.shape[0]), 0))
    following = jnp.minimum(last + 1, values.shape[0] - 1)
    x, y = jnp.log(steps.astype(values.dtype)), jnp.log(values / level)
    share = jnp.where(y[last] > y[following], y[last] / (y[last] - y[following]), 0)
    return jnp.exp(x[last] + share * (x[following] - x[last]))
