"""Spiked second moments and their spectra: what the gradient's nuclear rank does before, in and after the window, for one draw.

`measure_drawn` draws both models with Gaussian teachers and takes singular values; `measure_spectra` has an orthogonal teacher, for
which the rank is a closed form in the eigenvalues. The experiment is `random_features`.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from specjax import sizes, spectral
from specjax.models import random_features as model
from specjax.models import spiked
from specjax.sizes import AnySize
from specjax.theory import gradient_rank as theory

MULTI, MULTI_LOW = 0.9, 0.75
"""Powers u and ℓ of the largest and the smallest of two spikes (Assumptions F and H)."""
OFFSET = 1.0
"""c of η = 1/(c + ‖B‖_op) (Lemma 3.5 and Theorem 3.9)."""
LINEAR = 0.5
"""The window of linear rank is nr >= k/2; the longer one nr >= k/log k."""
THETA = 20.0
"""ηt at which the rank is compared with its late law."""
ACCURACY = 1e-3
"""Relative and absolute gap to which the steps of gradient descent are counted."""
TIMES = np.geomspace(0.02, 60, 200)
"""t/λ_1 at which the rank is followed along the window."""


def measure_drawn(key: Array, d: int) -> dict[str, dict[str, Array]]:
    """One spiked and one multi-spiked draw of models I and II, with the same Gaussian teacher of variance 1/d."""
    *keys, key_teacher = jax.random.split(key, 3)
    teacher = model.weights(key_teacher, d, d)
    # A spike of 0 is none. Both are drawn by one generator, which takes long to compile.
    spikes = jnp.asarray([[float(d), 0.0], [float(d) ** MULTI, float(d) ** MULTI_LOW]])
    single, several = (
        spiked.Moments(b, b_bar)
        for b, b_bar in zip(
            *jax.vmap(lambda one, s: spiked.teacher_student(one, d, s, s, d // 2))(jnp.stack(keys), spikes), strict=True
        )
    )
    first, second = (model.trajectory(single.b, cross, teacher, offset=OFFSET) for cross in (single.b, single.b_bar))
    later, later_second = (model.trajectory(several.b, cross, teacher) for cross in (several.b, several.b_bar))
    start, end = _steps(2 * d ** (MULTI - MULTI_LOW) * np.log(d)), _steps(d**MULTI)
    steps = {"step_0": 0, "start": start, "end": end}
    points = {
        "realizable": (first, {"step_0": 0, "step_1": 1}),
        "teacher": (second, {"step_0": 0, "step_1": 1}),
        "multi": (later, steps),
        "multi_teacher": (later_second, steps),
    }
    # One decomposition of all gradients compiles faster than one for each.
    gradients = [model.rotated_gradient_at(path, t) for path, times in points.values() for t in times.values()]
    found = iter(spectral.nuclear_rank(jnp.stack(gradients)))
    ranks = {name: {time: next(found) for time in times} for name, (_, times) in points.items()}
    return {**ranks, "bounds": _bounds(teacher, single, first, ranks)}


def _steps(t: float) -> int:
    return max(round(float(t)), 1)


def _bounds(
    teacher: Array, single: spiked.Moments, path: model.Trajectory, ranks: dict[str, dict[str, Array]]
) -> dict[str, Array]:
    """Both sides of the inequalities of Sections 3.1.2, 3.1.3 and 3.2.3."""
    values, top = path.eigenvalues, path.vectors[:, -1]
    largest = spectral.spectral_norm(teacher)
    kept = jnp.linalg.norm(teacher @ top)
    initial = largest * jnp.sum(values) / (kept * values[-1] - largest * jnp.linalg.norm(values[:-1]))
    factors = theory.gradient_factors(values, path.rate, 1)
    condition = jnp.max(factors) / jnp.min(factors)
    left, _, right = jnp.linalg.svd(single.b_bar)
    nuclear = spectral.nuclear_norm((teacher @ left)[:, : teacher.shape[0] // 2])
    return {
        # Where the denominator is not positive the inequality says nothing.
        "initial_margin": jnp.where(initial > 0, initial - jnp.sqrt(ranks["realizable"]["step_0"]), 1.0),
        "condition": condition,
        "first_margin": ranks["realizable"]["step_1"] - spectral.nuclear_rank(teacher) / condition**2,
        "printed_bound": nuclear / jnp.linalg.norm(teacher),
        "corrected_bound": (nuclear / jnp.linalg.norm(teacher)) ** 2,
        "sine": jnp.sqrt(jnp.maximum(1 - (right[0] @ top) ** 2, 0)),
    }


def measure_spectra(key: Array, d: AnySize) -> dict[str, Array]:
    """Windows for one spike of d above a uniform bulk, and the counter-example to Theorem 3.6: one spike of √d, with u = 1.

    Padded eigenvalues are zero, and add nothing to any sum.
    """
    low, high = spiked.BULK
    place, count = jnp.arange(sizes.padded(d)), jnp.asarray(sizes.active(d), jnp.result_type(float))
    bulk = jnp.where(sizes.mask(d), low + (high - low) * sizes.uniform(key, (d,)), 0)
    spectrum, weak = (jnp.where(place == 0, spike, bulk) for spike in (count, jnp.sqrt(count)))
    rate = 1 / jnp.max(spectrum)
    steps = jnp.maximum(jnp.round(jnp.asarray(TIMES) * count), 1).astype(jnp.int32)
    ranks, gaps = jax.lax.map(
        lambda t: (
            theory.orthogonal_teacher_nuclear_rank(spectrum, rate, t),
            theory.expected_gap(spectrum, rate, t),
        ),
        steps,
    )
    theta_steps, whole = jnp.round(THETA * count).astype(jnp.int32), count.astype(jnp.int32)
    return {
        "ranks": ranks,
        "relative_cost": last_time(steps, gaps, ACCURACY * theory.expected_gap(spectrum, rate, 0)),
        "absolute_cost": last_time(steps, gaps, jnp.asarray(ACCURACY)),
        "linear_window": last_time(steps, ranks, LINEAR * count),
        "late_window": last_time(steps, ranks, count / jnp.log(count)),
        "late_ratio": theory.orthogonal_teacher_nuclear_rank(spectrum, rate, theta_steps)
        / theory.late_nuclear_rank_uniform(count, low, high, THETA),
        "at_d": theory.orthogonal_teacher_nuclear_rank(spectrum, rate, whole),
        "weak_at_d": theory.orthogonal_teacher_nuclear_rank(weak, 1 / jnp.max(weak), whole),
    }


def last_time(steps: Array, values: Array, level: Array) -> Array:
    """The last t at which a value is at least `level`, on the logarithmic line between the grid's points."""
    last = jnp.max(jnp.where(values >= level, jnp.arange(values.shape[0]), 0))
    following = jnp.minimum(last + 1, values.shape[0] - 1)
    x, y = jnp.log(steps.astype(values.dtype)), jnp.log(values / level)
    share = jnp.where(y[last] > y[following], y[last] / (y[last] - y[following]), 0)
    return jnp.exp(x[last] + share * (x[following] - x[last]))
