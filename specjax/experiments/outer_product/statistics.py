"""Quantities of one sample in the experiments on E[G Gᵀ]."""

from collections.abc import Callable, Mapping
from functools import cache
from itertools import pairwise
from types import MappingProxyType

import jax
import numpy as np
import xarray as xr
from jaxtyping import Array, Float, Key

from specjax import lab, moments, sizes, spectral
from specjax.models import relu_network
from specjax.sizes import AnySize
from specjax.theory import relu_network as theory
from specjax.theory import relu_one_input

QUANTITIES = {
    "g2_diagonal": "G₂ diagonal",
    "g2_coefficient": "G₂ off-diagonal ĉ",
    "g1_diagonal": "G₁ diagonal",
    "g1_off_diagonal": "G₁ off-diagonal",
}
"""The four rows of the paper's Table C.7, as plotted in its Figure 2."""


ROWS = list(QUANTITIES)


def gram(g: Float[Array, "m n"]) -> Float[Array, "m m"]:
    """G Gᵀ."""
    return g @ g.T


def extrapolate(samples: xr.DataArray, dim: str) -> xr.DataArray:
    """The two largest sizes combined so that a term in 1/size cancels, by pairs of seeds."""
    low, high = samples[dim].values[-2:].astype(float)
    smaller, larger = (samples.isel({dim: place}, drop=True) for place in (-2, -1))
    return (high * larger - low * smaller) / (high - low)


def neighbours(samples: xr.DataArray, dim: str) -> tuple[xr.DataArray, xr.DataArray]:
    """Values at every size but the last, and those at the next size."""
    labels = {dim: [f"{low} to {high}" for low, high in pairwise(samples[dim].values)]}
    first, second = (
        samples.isel({dim: part}).assign_coords(labels)
        for part in (slice(None, -1), slice(1, None))
    )
    return first, second.rename(f"{samples.name} at the next {dim}")


def relu_statistics(
    gradient: relu_network.Params, target: Float[Array, "d2 d0"], d1: AnySize, d2: AnySize
) -> dict[str, Float[Array, ""]]:
    """The four rows of the paper's Table C.7, from the gradients alone."""
    return rows_of(relu_network.OuterProducts(*map(gram, gradient)), target, d1, d2)


def rows_of(
    products: relu_network.OuterProducts, target: Float[Array, "d2 d0"], d1: AnySize, d2: AnySize
) -> dict[str, Float[Array, ""]]:
    """The same four numbers from G Gᵀ of both layers, or a mean of it; they are linear in it."""
    return {
        "g2_diagonal": spectral.dominance.diagonal_mean(products.p2, d2),
        "g2_coefficient": spectral.dominance.off_diagonal_coefficient(products.p2, gram(target)),
        "g1_diagonal": spectral.dominance.diagonal_mean(products.p1, d1),
        "g1_off_diagonal": spectral.dominance.off_diagonal_mean(products.p1, d1),
    }


def autodiff_deviations(
    key: Key[Array, ""],
    target: Float[Array, "d2 d0"],
    samples: int,
    d0: AnySize,
    d1: AnySize,
    d2: AnySize,
) -> dict[str, dict[str, Float[Array, ""]]]:
    """Deviations of the four numbers by autodiff, on an even number of inputs, from the exact ones.

    "batch" is Ĝ Ĝᵀ less G Gᵀ, for the gradient Ĝ of the batch; "halves" the product of the
    gradients of two half batches less G Gᵀ; and "noise" is D Dᵀ, for half the difference D of the
    gradients of two half batches.
    """
    params = relu_network.init(sizes.stream(key, "weights"), d0, d1, d2)
    x = sizes.normal(sizes.stream(key, "inputs"), (samples, d0)).reshape(2, samples // 2, -1)
    halves = jax.vmap(lambda half: jax.grad(relu_network.sampled_loss)(params, target, half))(x)
    mean = jax.tree.map(lambda g: (g[0] + g[1]) / 2, halves)
    difference = jax.tree.map(lambda g: (g[0] - g[1]) / 2, halves)
    gradients = mean, difference, relu_network.gradient(params, target)
    batch, noise, exact = (relu_statistics(gradient, target, d1, d2) for gradient in gradients)
    # The symmetric part of G_a G_bᵀ is M Mᵀ - D Dᵀ for M, D = (G_a ± G_b)/2, and all four numbers
    # are linear in G Gᵀ.
    return {
        "batch": {q: batch[q] - exact[q] for q in ROWS},
        "halves": {q: batch[q] - noise[q] - exact[q] for q in ROWS},
        "noise": noise,
    }


class InHalves(lab.Config):
    """A configuration of gradients by autodiff from two half batches."""

    samples: int = lab.config.integer(
        200,
        least=2,
        most=lab.config.MOST_COUNT,
        help="inputs x per initialization of autodiff, even",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.samples % 2:
            raise ValueError(f"samples must be even, for two half batches, got {self.samples}.")


def closed_forms(d0: int, d1: int, d2: int, norm_squared: float) -> xr.DataArray:
    """E[G Gᵀ] by Theorem 3 for a target of given ‖Φ‖_F², with d₀ d₂/4π off the diagonal of G₁."""
    return stack_rows(*_expectations(d0, d1, d2, norm_squared))


@cache
def at_one_input() -> Mapping[str, moments.Expression]:
    """The four numbers at one input by `moments`, in d0, d1, d2, pi and norm_squared."""
    parts = [
        form().parts(along=())
        for form in (relu_one_input.outer_product_2, relu_one_input.diagonal_1)
    ]
    (on_identity, on_target), (noise, signal) = (
        [next(iter(p.terms.values())) for p in each] for each in parts
    )
    norm_squared = moments.symbol("norm_squared")
    forms = (
        on_identity + on_target * norm_squared / moments.symbol("d2"),
        on_target,
        noise + signal * norm_squared,
        relu_one_input.off_diagonal_1().value,
    )
    return {row: form * moments.ones() for row, form in zip(ROWS, forms, strict=True)}


def batch_bias(
    d0: int,
    d1: int,
    d2: int,
    norm_squared: float,
    samples: int,
    instead: Mapping[str, moments.Expression] = MappingProxyType({}),
) -> xr.DataArray:
    """The addition of a batch of given size to the closed forms: the covariance of its gradient.

    `instead` replaces forms of rows at one input.
    """
    sizes_and_scales = {"d0": d0, "d1": d1, "d2": d2, "norm_squared": norm_squared, "pi": np.pi}
    forms = {**at_one_input(), **instead}
    one_input = stack_rows(
        *(float(form.value.evaluate(sizes_and_scales)) for form in forms.values())
    )
    return (one_input - closed_forms(d0, d1, d2, norm_squared)) / samples


def stack_rows(*values: float | int) -> xr.DataArray:
    """Four numbers with the dimension "row"."""
    return xr.DataArray(list(values), {"row": ROWS}, "row")


THEOREM = ROWS[:3]
"""The rows in which Theorem 3 is exact as printed."""
PARTS: dict[str, Callable[[int, int, int, float], xr.DataArray]] = {
    "G₂ without Φ": lambda d0, d1, d2, norm_squared: stack_rows(
        d1 / 4 * norm_squared / d2, 0, 0, 0
    ),
    "G₂ without the norms of single units": lambda d0, d1, d2, _: stack_rows(
        d1 * d0 * (d0 + 2) / 4, 0, 0, 0
    ),
    "one hidden unit less in ĉ": lambda d0, d1, d2, _: stack_rows(0, 1 / 4, 0, 0),
    "G₁ without Φ": lambda d0, d1, d2, norm_squared: stack_rows(0, 0, norm_squared / 4, 0),
    "G₁ without d₀ d₂²/4": lambda d0, d1, d2, _: stack_rows(0, 0, d0 * d2**2 / 4, 0),
    "G₁ without d₀ d₂/2": lambda d0, d1, d2, _: stack_rows(0, 0, d0 * d2 / 2, 0),
    "G₁ with d₁ κ₁ for (d₁ - 1) κ₁": lambda d0, d1, d2, _: stack_rows(
        0, 0, -d0 * d2 * float(theory.kappa_1(d0)), 0
    ),
}
"""Terms that rivals of Theorem 3 omit from the closed forms, by the rival's name."""


@cache
def _expectations(d0: int, d1: int, d2: int, norm_squared: float) -> tuple[float, ...]:
    """The four numbers of the exact gradient, by one program; of operations one by one, more than
    fifty would compile.
    """

    @jax.jit
    def numbers(target: Float[Array, "d2 d0"]) -> tuple[Array, ...]:
        output = theory.expected_outer_product_2(target, d1)
        return (
            spectral.dominance.diagonal_mean(output),
            spectral.dominance.off_diagonal_coefficient(output, gram(target)),
            theory.diagonal_1(d0, d1, d2, norm_squared),
            theory.off_diagonal_1(d0, d2),
        )

    with jax.enable_x64(True):
        # Any target of that norm; two outputs suffice, since the numbers depend on nothing else.
        found = numbers(np.full((2, d0), np.sqrt(norm_squared / (d0 * d2))))
    return tuple(map(float, found))
