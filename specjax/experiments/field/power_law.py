"""Regression on random features of power-law inputs, with preconditioned descent solved exactly.

Inputs x have independent coordinates of variance i^-s; the student learns W on the N features F x,
F Gaussian, for a target W̄ x whose coefficients are isotropic, from unlimited data. Its loss E‖W F
x - W̄ x‖²/2 is a quadratic in W with the Hessian H = F Λ Fᵀ on every output, Λ = diag(i^-s). Along
the eigenvectors of H a descent preconditioned by a function of H is known after every number of
steps.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import xarray as xr
from jaxtyping import Array, Float, Key

from specjax import fits, lab, sizes, sweep
from specjax.experiments.field.controls import exchange
from specjax.linalg import eigh
from specjax.sizes import AnySize
from specjax.sweep.axes import Axis, Over

DESCENT, ROOT, NATURAL, DAMPED = "gradient descent", "H^-1/2", "natural gradient", "damped"
DAMPING = 0.03
"""Damping of the natural gradient, over the largest curvature."""
FACTORS: dict[str, Callable[[Array], Array]] = {
    DESCENT: lambda curvatures: 1 - curvatures,
    ROOT: lambda curvatures: 1 - jnp.sqrt(curvatures),
    NATURAL: jnp.zeros_like,
    DAMPED: lambda curvatures: DAMPING / (curvatures + DAMPING),
}
"""Error factor of a step along an eigenvector of H, by relative curvature. Steps of gradient
descent and of H^-1/2 have the length 1 over the largest eigenvalue that they see; the natural
gradient, H^-1, arrives in one step.
"""
PRINTED = {NATURAL: 0.31, DESCENT: 0.12}
"""The paper's exponents at s = 1."""
INPUTS = 1024
"""The number of inputs, unless swept."""


class Config(lab.Config):
    """Sizes and seeds of the experiments that solve the descent."""

    seed: int = lab.config.root_seed(
        3, help="root of all randomness; bounds were set, and statements added, on other samples"
    )
    widths: tuple[int, ...] = lab.config.sizes(
        16, 32, 64, 128, 256, least=8, points=5, help="features"
    )
    seeds: int = lab.config.seeds(32, help="samples of the features")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.widths[-1] > INPUTS // 2:
            raise ValueError(
                f"widths must be at most {INPUTS // 2}, half of the inputs, got {self.widths[-1]}."
            )


class Student(NamedTuple):
    """Eigenvalues of H over the largest, the loss along each at W = 0, and the irreducible loss.

    Losses are means over isotropic targets, with sum 1.
    """

    curvatures: Float[Array, " n"]
    learnable: Float[Array, " n"]
    floor: Float[Array, ""]


def variances(s: Array | float, inputs: Array | float | int, most: int) -> Float[Array, " most"]:
    """i^-s for the first `inputs` of `most` inputs and 0 for the others, over their sum."""
    place = jnp.arange(1.0, most + 1.0)
    powers = jnp.where(place <= inputs, place**-s, 0.0)
    return powers / jnp.sum(powers)


def student(key: Key[Array, ""], n: AnySize, variances: Float[Array, " inputs"]) -> Student:
    """Sample `n` features, nested in `n` for one key, with padding first.

    Padded features have nothing to learn.
    """
    features = sizes.normal(key, (n, variances.size))
    weighted = features * variances[None]
    values, vectors = eigh(weighted @ features.T)
    there = sizes.mask(n)[::-1]
    learnable = jnp.where(
        there, jnp.sum((vectors.T @ weighted) ** 2, axis=1) / jnp.where(there, values, 1.0), 0.0
    )
    return Student(values / values[-1], learnable, jnp.sum(variances) - jnp.sum(learnable))


def left(student: Student, steps: Array | float | int) -> Float[Array, " optimizer"]:
    """The loss after a number of steps, by all of `FACTORS`."""
    # The largest curvature is 1 up to rounding, and a power of a negative number is not a number.
    curvatures = jnp.clip(student.curvatures, 0, 1)
    factors = jnp.stack([factor(curvatures) for factor in FACTORS.values()])
    return student.floor + factors ** (2 * steps) @ student.learnable


def losses(
    key: Key[Array, ""],
    n: AnySize,
    s: Array,
    steps: Sequence[Array | float | int],
    inputs: Array | float | int = INPUTS,
    most: int = INPUTS,
) -> Float[Array, "optimizer steps"]:
    """Losses for one sample of `n` features after each of these numbers of steps."""
    drawn = student(key, n, variances(s, inputs, most))
    return jnp.stack([left(drawn, number) for number in steps], axis=1)


def run_sweep(
    measure: Callable[..., dict[str, Array]],
    config: Config,
    key: Key[Array, ""],
    steps: Sequence[int],
    **axes: Axis,
) -> xr.Dataset:
    """Sweep a measurement over widths and more axes, in float64, with named optimizers."""
    over: Over = {"width": sweep.widths(*config.widths), **axes}
    with jax.enable_x64(True):
        found = lab.seeded_sweep(key, "features", measure, config.seeds, **over)
    return sweep.labelled(found, "optimizer", "steps", optimizer=list(FACTORS), steps=list(steps))


def exponent(loss: xr.DataArray, part: slice = slice(None)) -> xr.DataArray:
    """α by seed: minus the slope of the log loss over the log number of features."""
    return (-fits.log_slopes(xr.ufuncs.log(loss.isel(width=part)), "width")).rename("exponent α")


def lead(exponents: xr.DataArray, optimizer: str = NATURAL) -> xr.DataArray:
    """The exponent of one optimizer less that of gradient descent."""
    of, than = (exponents.sel(optimizer=name, drop=True) for name in (optimizer, DESCENT))
    return (of - than).rename("lead in the exponent")


def exchange_with_descent(optimizer: str) -> dict[str, Callable[[Any, Any], Any]]:
    """A control that exchanges this optimizer and gradient descent."""
    return exchange("optimizer", DESCENT, optimizer)


def half_of_the_lead(quantity: str, optimizer: str) -> dict[str, Callable[[Any, Any], Any]]:
    """A control with the log losses of one optimizer half of the way to gradient descent's, so that
    half of its lead in the exponent is left.
    """

    def moved(data: xr.Dataset) -> xr.DataArray:
        logs = xr.ufuncs.log(data[quantity])
        return xr.ufuncs.exp(lab.controls.toward(logs, "optimizer", {optimizer: DESCENT}))

    return {"half of the lead": lab.controls.replacing(quantity, moved)}
