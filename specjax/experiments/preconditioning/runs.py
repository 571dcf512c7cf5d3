"""The optimizers compared on problems of `specjax.models.conditioned`, and runs of Muon."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, ArrayLike, Float

from specjax import optim, spectral
from specjax.experiments.ledgers import ledger
from specjax.models import descent, factorization_spectra
from specjax.models.conditioned import Map, Problem
from specjax.optim import decay_on_plateau, random_geometric, scale_by_factor_gram
from specjax.theory.preconditioning import many_digits

LEDGER = ledger("preconditioning")


class Optimizer(NamedTuple):
    """A direction, its unit of step size, and a "constant", "plateau" or "random" schedule."""

    label: str
    direction: Callable[[], optax.GradientTransformation]
    unit: str = "length"
    schedule: str = "plateau"


_polar = partial(optim.orthogonalize, spectral.SVD())
OPTIMIZERS: dict[str, Optimizer] = {
    "muon": Optimizer("simplified Muon", _polar, schedule="random"),
    "muon-plateau": Optimizer("simplified Muon", _polar),
    "muon-momentum": Optimizer(
        "Muon with momentum 0.9", lambda: optax.chain(optim.momentum(0.9), _polar())
    ),
    "muon-newton-schulz": Optimizer("Muon with 5 Newton-Schulz steps", optim.orthogonalize),
    "gradient-descent": Optimizer("gradient descent", optax.identity, "curvature", "constant"),
    "sign": Optimizer("SignGD", optax.scale_by_sign),
    "adam": Optimizer("Adam", optax.scale_by_adam),
    "scaled": Optimizer("ScaledGD", scale_by_factor_gram, "none", "constant"),
}


def transformation(
    name: str,
    key: Array,
    rate: Array,
    problem: Problem,
    rho: float = 0.0,
    length: int = 0,
    plateau: tuple[ArrayLike, ArrayLike] = (0.5, 10),
) -> optax.GradientTransformation:
    """An optimizer with a step size in its unit; `plateau` is the factor and the patience of that
    schedule.

    `key`, `rho` and `length` are for random prefactors, which are uniform in [rate, 2 rate] and
    sampled for `length` steps.
    """
    _, direction, unit, kind = OPTIMIZERS[name]
    size = (
        rate
        * {
            "length": problem.length,
            "curvature": 1 / problem.curvature,
            "none": jnp.ones_like(rate),
        }[unit]
    )
    if kind == "random":
        schedule = random_geometric(key, size, 2 * size, rho, each_step=True)
        # All prefactors are sampled in one call before the loop: inside it they would dominate
        # compilation.
        rates = jax.vmap(schedule)(jnp.arange(length))
        steps = optax.scale_by_schedule(lambda count: rates[count])
    else:
        steps = optax.stateless(lambda updates, _: jax.tree.map(lambda u: size * u, updates))
    decay = [decay_on_plateau(*plateau)] if kind == "plateau" else []
    return optax.chain(direction(), steps, optax.scale(-1.0), *decay)


def muon(
    start: Array, rates: Array, gradient: Map, project: Map = lambda x: x
) -> Float[Array, "steps m n"]:
    """The iterates x_1, x_2, ... of simplified Muon with a rate for each step."""
    return descent.path(start, rates, lambda x: spectral.polar(gradient(x)), project)


def muon_of_many_digits(
    gradient: many_digits.Gradient,
    keys: Array,
    spectrum: Array,
    start: float,
    rates: Map,
    digits: int,
) -> tuple[np.ndarray, np.ndarray]:
    """`many_digits.beside_scalars` in a Haar basis and with rates made of each key."""
    d = spectrum.size
    drawn = jax.vmap(lambda key: (factorization_spectra.orthonormal(key, d, d), rates(key)))(keys)
    bases, steps = map(np.asarray, drawn)
    return many_digits.beside_scalars(gradient, bases, np.asarray(spectrum), start, steps, digits)


def prefactors(key: Array, rho: Array | float, length: int) -> tuple[Array, Array]:
    """Steps ρ^t times one prefactor from [1/2, 1], and times a new one in each step."""
    u = jax.random.uniform(key, (length,))
    decay = rho ** jnp.arange(length).astype(u.dtype)
    return (1 + u[0]) / 2 * decay, (1 + u) / 2 * decay
