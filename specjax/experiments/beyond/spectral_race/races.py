"""Races of spectral steps and gradient descent, each at the best multiple of its guaranteed length,
from starts that gradient steps have worked on: of one linear map and of two blocks.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Key

from specjax import lab, linalg, sizes, spectral, sweep
from specjax.theory import spectral_race
from specjax.theory.spectral_race import GRADIENT_LENGTHS, SPECTRAL_LENGTHS

DECAYS = (2.0, 3.0)
"""Exponents a of the inputs' spectrum i^(-a)."""
METHODS = ("gradient", "spectral")
LINEAR = {"tall": 8, "noise": 8, "square": 1, "wide": 0.5, "five": 8}
"""Linear maps by rows over columns; `noise` has some in the error that gradient steps left, and
`five` takes Newton–Schulz steps in place of the factor.
"""
PARTS = (*LINEAR, "two blocks")
NOISE = 1e-3
"""Of `noise`, over the error before any step."""
FIVE_LENGTHS, BLOCK_LENGTHS = 2 ** (np.arange(-2, 17) / 2), 2 ** (np.arange(-6, 7) / 2)
"""Multiples of the guaranteed step, of which `five` and two blocks have the best."""
Step = Callable[[Any, Array], Any]
Steps = Mapping[str, tuple[Step, np.ndarray]]
"""Of each method, with multiples of its guaranteed length."""


def lift(g: Array) -> Array:
    """‖G‖_* polar(G) with all singular values at one, zeros too."""
    u, values, vt = linalg.svd(g)
    # Before the product: XLA of jax 0.10.1 moves a factor of it there itself, and fails to compile.
    return (jnp.sum(values) * u) @ vt


def lift_in_five_steps(g: Array) -> Array:
    """The same with the five Newton–Schulz steps of Muon, which leave small singular values."""
    factor = spectral.polar(g, method=spectral.NewtonSchulz(5))
    return jnp.sum(linalg.singular_values(g)) * factor


def compare(
    error: Callable[[Any], Array], b: Array, steps: Steps, start: Any, count: int
) -> dict[str, Array]:
    """The part of the loss that each method leaves, by steps, at its best length and at the
    guarantee's; K*, and that of the formula for the error at the start, or `count` + 1 where
    spectral steps are never ahead.
    """

    def loss(state: Any) -> Array:
        return jnp.sum(b[None] * error(state) ** 2)

    left: dict[str, Array] = {}
    for name, (step, lengths) in steps.items():

        def trained(c: Array, step: Step = step) -> Array:
            def one(state: Any, _: None) -> tuple[Any, Array]:
                state = step(state, c)
                return state, loss(state)

            return jax.lax.scan(one, start, length=count)[1] / loss(start)

        found = jax.vmap(trained)(jnp.asarray(lengths, jnp.float32))
        # Lengths that are too long overflow.
        left[name] = jnp.min(jnp.where(jnp.isfinite(found), found, jnp.inf), axis=0)
        left[f"{name} at 1"] = found[int(np.flatnonzero(lengths == 1)[0])]
    left["passing"] = spectral_race.passing(left["gradient"], left["spectral"])
    columns = jnp.linalg.norm(error(start), axis=0)
    left["formula"] = spectral_race.steps_to_pass(columns, b, count)
    return left | {name: jnp.minimum(left[name], count + 1) for name in ("passing", "formula")}


def linear(key: Array, a: Array, k: Array, part: str, d: int, count: int) -> dict[str, Array]:
    """A race on one linear map with a random error, in the eigenbasis of its inputs."""
    b = jnp.arange(1.0, d + 1) ** -a
    shape = (int(LINEAR[part] * d), d)
    start = sizes.normal(key, shape) * ((1 - b) ** k)[None]
    if part == "noise":
        start = start + NOISE * sizes.normal(sizes.stream(key, "noise"), shape)
    # A rotation of the outputs changes nothing: of many rows the triangular factor is enough.
    if LINEAR[part] > 1:
        start = linalg.qr(start)[1]
    five = part == "five"
    lifted, lengths = (lift_in_five_steps, FIVE_LENGTHS) if five else (lift, SPECTRAL_LENGTHS)
    steps: Steps = {
        "gradient": (lambda w, c: w - c * w * b[None], GRADIENT_LENGTHS),
        "spectral": (lambda w, c: w - c * lifted(w * b[None]) / jnp.sum(b), lengths),
    }
    ratio = spectral.nuclear_rank(start * b[None]) / jnp.sum(b)
    return compare(lambda w: w, b, steps, start, count) | {"nr over st": ratio}


def two_blocks(key: Array, a: Array, k: Array, d: int, count: int) -> dict[str, Array]:
    """The same race of W₂ W₁ toward a random target; both blocks step at once."""
    b = jnp.arange(1.0, d + 1) ** -a
    target, second, first = (
        sizes.normal(sizes.stream(key, name), (rows, d)) / d**0.5
        for name, rows in (("target", 2 * d), ("second", 2 * d), ("first", d))
    )

    def error(w: Any) -> Array:
        return w[1] @ w[0] - target

    def step(spectral_step: bool, w: Any, c: Array) -> Any:
        (lower, upper), g = w, error(w) * b[None]
        inner = (lower * b[None]) @ lower.T
        outside = linalg.eigvalsh(upper.T @ upper)[-1]
        of_lower, of_upper = upper.T @ g, g @ lower.T
        if spectral_step:
            of_lower = lift(of_lower) / (outside * jnp.sum(b))
            of_upper = lift(of_upper) / jnp.trace(inner)
        else:
            of_lower, of_upper = of_lower / outside, of_upper / linalg.eigvalsh(inner)[-1]
        return lower - c * of_lower, upper - c * of_upper

    # Half of the guaranteed length, since both blocks move at once.
    start = jax.lax.fori_loop(
        0, k.astype(jnp.int32), lambda _, w: step(False, w, jnp.float32(0.5)), (first, second)
    )
    steps = {name: (partial(step, name == "spectral"), BLOCK_LENGTHS) for name in METHODS}
    return compare(error, b, steps, start, count)


def run(config: Any, key: Key[Array, ""], part: str) -> xr.Dataset:
    """Races on linear maps of one kind, or on two blocks."""
    over = {"a": sweep.values(*DECAYS), "k": sweep.values(*map(float, config.warm))}
    race = (
        partial(linear, part=part, d=config.d)
        if part in LINEAR
        else partial(two_blocks, d=config.deep)
    )
    found = lab.seeded_sweep(key, part, partial(race, count=config.steps), config.seeds, **over)
    names = [f"{method}{end}" for method in METHODS for end in ("", " at 1")]
    return sweep.labelled(found, "step", outputs=names, step=list(range(1, config.steps + 1)))
