"""Shampoo: a gradient preconditioned from both sides (Gupta, Koren and Singer 2018, arXiv
1802.09568, Algorithm 1).

    L_t = Σ_s β^(t-s) G_s G_sᵀ / w_t,   R_t = Σ_s β^(t-s) G_sᵀ G_s / w_t,   w_t = Σ_s β^(t-s),
    u_t = L_t^(-1/4) G_t R_t^(-1/4)

In its first step, and for β = 0 in every step, u is the polar factor of G.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, ArrayLike, Float, Int, PyTree

from specjax.arguments import check_count, check_number, checked
from specjax.optim._float32_wrapper import in_float32
from specjax.optim._gram_sums import GramSums, added, no_sums
from specjax.optim._hyperparameters import Number, takes_schedules
from specjax.optim.matrices import IN_OUT, DimensionNumbers, matrices_of
from specjax.spectral import spectral_map
from specjax.spectral.float_range import scaled
from specjax.spectral.products import product


class Roots(NamedTuple):
    """The inverse roots of both sides of each matrix, of sums in units of `unit`²."""

    left: Float[Array, "batch m m"]
    right: Float[Array, "batch n n"]
    unit: Float[Array, "batch 1 1"]


class ShampooState(NamedTuple):
    """The number of updates, the sum w of the weights, and for each leaf the sums before their
    division by w and the last inverse roots.
    """

    step: Int[Array, ""]
    weight: Float[Array, ""]
    sums: list[GramSums]
    roots: list[Roots]


@takes_schedules
@checked
def scale_by_shampoo(
    beta: Number = 0.95,
    *,
    order: Number = 4,
    damping: Number = 0.0,
    every: int = 1,
    dimension_numbers: DimensionNumbers = IN_OUT,
) -> optax.GradientTransformationExtraArgs:
    """L^(-1/4) G R^(-1/4) for each matrix G, with L and R the averages of G Gᵀ and Gᵀ G over all
    steps (Shampoo).

    The gradient of s steps ago has the weight β^s. The inverse roots are those of
    `specjax.spectral.inverse_root`. The paper's sums are not averaged: with beta=1 its update is
    this one divided by √t.

    Args:
        beta: β in [0, 1]; 1 for the mean of all steps.
        order: The order of the roots: 4, or 2 for L^(-1/2) G R^(-1/2) (Morwani et al. 2024).
        damping: Added to the eigenvalues of L and R that are not zero.
        every: Steps from one computation of the roots to the next, from the first step on.
        dimension_numbers: As for `orthogonalize`.

    Returns:
        A transformation that keeps the sign, shapes and dtypes; its state is at least float32, 2
        (in² + out²) numbers for each matrix. Eigenvalues below 64 roundings of the largest count as
        zero: singular values below 0.3 % of the largest in float32. Zero padding stays zero and
            does not change the result. A NaN or an infinity makes its own matrix NaN, from then on.

    Raises:
        ValueError: at once for a beta outside [0, 1], an order that is not positive or `every`
            below 1; at init and update for a leaf that is not a matrix.

    Examples:
        >>> import jax.numpy as jnp
        >>> from specjax import optim
        >>> transform = optim.scale_by_shampoo()
        >>> gradient = jnp.diag(jnp.array([3.0, 4.0]))
        >>> step, state = transform.update(gradient, transform.init(gradient))
        >>> bool(jnp.allclose(step, jnp.eye(2), atol=1e-5))  # the polar factor, in the first step
        True

    """
    check_number(beta, "beta", "[0, 1]", "scale_by_shampoo")
    check_number(order, "order", "(0, inf)", "scale_by_shampoo")
    check_number(damping, "damping", "[0, inf)", "scale_by_shampoo")
    check_count(every, "every", 1, "scale_by_shampoo")

    def init(params: PyTree) -> ShampooState:
        stacks = matrices_of(params, dimension_numbers, "scale_by_shampoo").stacks()
        sums, roots = (
            [no_sums(stack) for stack in stacks],
            [Roots(*no_sums(stack)) for stack in stacks],
        )
        return ShampooState(
            jnp.zeros((), jnp.int32), jnp.zeros((), jnp.result_type(float)), sums, roots
        )

    def update(
        updates: PyTree, state: ShampooState, params: PyTree | None = None
    ) -> tuple[PyTree, ShampooState]:
        del params
        matrices = matrices_of(updates, dimension_numbers, "scale_by_shampoo")
        stacks = matrices.stacks()
        decay = jnp.asarray(beta, state.weight.dtype)
        weight = decay * state.weight + 1
        sums = [
            added(old, g, decay.astype(g.dtype), 1.0)
            for old, g in zip(state.sums, stacks, strict=True)
        ]

        def compute() -> list[Roots]:
            return [_roots(each, weight, order, damping) for each in sums]

        roots = jax.lax.cond(state.step % every == 0, compute, lambda: state.roots)
        steps = [_step(root, g, order) for root, g in zip(roots, stacks, strict=True)]
        return matrices.tree(steps), ShampooState(
            optax.safe_increment(state.step), weight, sums, roots
        )

    return in_float32(optax.GradientTransformation(init, update))


def _roots(sums: GramSums, weight: Array, order: ArrayLike, damping: ArrayLike) -> Roots:
    """(H/w + damping · I)^(-1/order) of both sides H, times unit^(2/order)."""
    dtype = sums.left.dtype
    root_of_damping = jnp.sqrt(jnp.asarray(damping, dtype))
    unit = jnp.maximum(sums.power, root_of_damping)
    # Both square numbers in [0, 1], and one of these is 1.
    of_sums, of_damping = (
        (sums.power / unit) ** 2 / weight.astype(dtype),
        (root_of_damping / unit) ** 2,
    )
    exponent = -1 / jnp.asarray(order, dtype)

    def root(h: Array, factor: Array, added: Array) -> Array:
        found = spectral_map(h, lambda s: (factor[0, 0] * s + added[0, 0]) ** exponent)
        return 0.5 * (found + found.mT)

    left, right = (jax.vmap(root)(h, of_sums, of_damping) for h in (sums.left, sums.right))
    return Roots(left, right, unit)


def _step(
    roots: Roots, g: Float[Array, "batch m n"], order: ArrayLike
) -> Float[Array, "batch m n"]:
    """The gradient between both roots, L^(-1/order) G R^(-1/order)."""
    if not g.size:
        return g
    direction, power = scaled(g, (1, 2))
    # Each side has the factor unit^(-2/order), which for the order 4 makes 1 / unit in all.
    size = power / roots.unit * roots.unit ** (1 - 4 / jnp.asarray(order, g.dtype))
    return size * product(product(roots.left, direction), roots.right)
