"""Shampoo: a gradient preconditioned from both sides (Gupta, Koren and Singer 2018, arXiv 1802.09568, Algorithm 1).

    L_t = Σ_s β^(t-s) G_s G_sᵀ / w_t,   R_t = Σ_s β^(t-s) G_sᵀ G_s / w_t,   w_t = Σ_s β^(t-s),   u_t = L_t^(-1/4) G_t R_t^(-1/4)

In its first step, and for β = 0 in every step, u is the polar factor of G.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, ArrayLike, Float, Int, PyTree

from specjax.optim.matrices import IN_OUT, DimensionNumbers, matrices_of
from specjax.optim.precision import in_float32
from specjax.spectral.products import product
from specjax.spectral.roots import inverse_root


class Sides(NamedTuple):
    """A matrix for each side of each matrix of a leaf."""

    left: Float[Array, "batch m m"]
    right: Float[Array, "batch n n"]


class ShampooState(NamedTuple):
    """The number of updates, the sum w of the weights, and for each leaf the sums before their division by w and the last inverse roots."""

    step: Int[Array, ""]
    weight: Float[Array, ""]
    sums: list[Sides]
    roots: list[Sides]


def scale_by_shampoo(
    decay: ArrayLike = 0.95,
    *,
    order: ArrayLike = 4,
    damping: ArrayLike = 0.0,
    every: int = 1,
    dimension_numbers: DimensionNumbers = IN_OUT,
) -> optax.GradientTransformationExtraArgs:
    """L^(-1/4) G R^(-1/4) for each matrix G, with L and R the averages of G Gᵀ and Gᵀ G over all steps (Shampoo).

    The gradient of s steps ago has the weight β^s. The inverse roots are those of `specjax.spectral.inverse_root`. The paper's sums are not
    averaged: with decay=1 its update is this one divided by √t.

    Args:
        decay: β in [0, 1]; 1 for the mean of all steps.
        order: Of the roots: 4, or 2 for L^(-1/2) G R^(-1/2) (Morwani et al. 2024).
        damping: Added to the eigenvalues of L and R that are not zero.
        every: In which steps the roots are computed: the first, and every so many after it. In between the last ones are used.
        dimension_numbers: As for `orthogonalize`.

    Returns:
        A transformation that keeps the sign, shapes and dtypes; its state is at least float32, 2 (in² + out²) numbers for each matrix.
        Eigenvalues below 64 roundings of the largest count as zero: singular values below 0.3 % of the largest in float32. Zero padding
        stays zero and changes nothing. A NaN or an infinity makes its own matrix NaN, from then on.

    Raises:
        ValueError: at once for a decay outside [0, 1], an order that is not positive or `every` below 1; at init and update for a leaf that
            is not a matrix.

    """
    if isinstance(decay, int | float) and not 0 <= decay <= 1:
        raise ValueError(f"scale_by_shampoo needs a decay in [0, 1], got {decay}.")
    if isinstance(order, int | float) and not order > 0:
        raise ValueError(f"scale_by_shampoo needs a positive order of its roots, got {order}.")
    if every < 1:
        raise ValueError(f"scale_by_shampoo computes its roots every 1 or more steps, got every={every}.")

    def init(params: PyTree) -> ShampooState:
        zeros = [
            Sides(*(jnp.zeros((stack.shape[0], n, n), stack.dtype) for n in stack.shape[1:]))
            for stack in matrices_of(params, dimension_numbers, "scale_by_shampoo").stacks()
        ]
        return ShampooState(jnp.zeros((), jnp.int32), jnp.zeros((), jnp.result_type(float)), zeros, zeros)

    def update(updates: PyTree, state: ShampooState, params: PyTree | None = None) -> tuple[PyTree, ShampooState]:
        del params
        matrices = matrices_of(updates, dimension_numbers, "scale_by_shampoo")
        stacks = matrices.stacks()
        beta = jnp.asarray(decay, state.weight.dtype)
        weight = beta * state.weight + 1
        sums = [
            jax.tree.map(lambda old, new: beta.astype(new.dtype) * old + new, old, squares(stack))
            for old, stack in zip(state.sums, stacks, strict=True)
        ]

        def compute() -> list[Sides]:
            return jax.tree.map(lambda h: inverse_root(h / weight.astype(h.dtype), order, damping), sums)

        roots = jax.lax.cond(state.step % every == 0, compute, lambda: state.roots)
        steps = [product(product(root.left, stack), root.right) for root, stack in zip(roots, stacks, strict=True)]
        return matrices.tree(steps), ShampooState(optax.safe_increment(state.step), weight, sums, roots)

    return in_float32(optax.GradientTransformation(init, update))


def squares(x: Float[Array, "batch m n"]) -> Sides:
    """x xᵀ and xᵀ x."""
    return Sides(product(x, x.mT), product(x.mT, x))
