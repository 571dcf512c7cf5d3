"""SOAP: Adam in the eigenbases of Shampoo's two sides (Vyas et al. 2025, arXiv 2409.11321).

With the averages L of G Gᵀ and R of Gᵀ G and their eigenvectors Q_L, Q_R, the gradient and Adam's first moment M are rotated,
X' = Q_Lᵀ X Q_R, Adam's second moment V is that of G', and the step is rotated back:

    u = Q_L (M' / (√V + ε)) Q_Rᵀ.

M is kept in the coordinates of the parameters, V in the eigenbases.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, ArrayLike, Float, Int, PyTree

from specjax.linalg import eigh, qr
from specjax.optim.matrices import IN_OUT, DimensionNumbers, matrices_of
from specjax.optim.precision import in_float32
from specjax.optim.shampoo import Sides, squares
from specjax.spectral.products import product


class SoapMatrices(NamedTuple):
    """The state of one leaf: both moments, the averages L and R, and their eigenvectors, largest first."""

    first: Float[Array, "batch m n"]
    second: Float[Array, "batch m n"]
    averages: Sides
    bases: Sides


class SoapState(NamedTuple):
    """The number of updates, and the state of each leaf."""

    step: Int[Array, ""]
    leaves: list[SoapMatrices]


def scale_by_soap(
    b1: ArrayLike = 0.95,
    b2: ArrayLike = 0.95,
    *,
    eps: float = 1e-8,
    every: int = 10,
    dimension_numbers: DimensionNumbers = IN_OUT,
) -> optax.GradientTransformationExtraArgs:
    """Q_L (M' / (√V + ε)) Q_Rᵀ: Adam in the eigenbases Q_L and Q_R of Shampoo's averages L and R (SOAP).

    M is the average of the gradients G, V that of the squares of G', and X' is Q_Lᵀ X Q_R. Both averages are corrected for their start
    at zero as in `optax.scale_by_adam`.

    The first update is zero, as in the published code: its gradient gives the first bases, by an eigendecomposition, so that no basis
    depends on the gradient that it rotates. Every so many steps after it Q ← qr(L Q), one step of subspace iteration, after its columns are
    brought into the order of their Rayleigh quotients; V follows that order.

    Args:
        b1: Decay of M, in [0, 1).
        b2: Decay of V, L and R, in [0, 1).
        eps: ε.
        every: In which steps the bases are renewed, after the first: every so many.
        dimension_numbers: As for `orthogonalize`.

    Returns:
        A transformation that keeps the sign, shapes and dtypes; its state is at least float32, 2 (in² + out² + in · out) numbers for each
        matrix. Derivatives hold the bases fixed. A NaN or an infinity makes its own matrix NaN, from then on. Zero padding is not for
        it: the basis of a null space would mix padding and parameters.

    Raises:
        ValueError: at once for a decay outside [0, 1) or `every` below 1; at init and update for a leaf that is not a matrix.

    """
    for decay in (b1, b2):
        if isinstance(decay, int | float) and not 0 <= decay < 1:
            raise ValueError(f"scale_by_soap needs decays in [0, 1), got {decay}.")
    if every < 1:
        raise ValueError(f"scale_by_soap renews its bases every 1 or more steps, got every={every}.")

    def init(params: PyTree) -> SoapState:
        leaves = []
        for stack in matrices_of(params, dimension_numbers, "scale_by_soap").stacks():
            zero, sides = jnp.zeros_like(stack), squares(jnp.zeros_like(stack))
            leaves.append(SoapMatrices(zero, zero, sides, sides))
        return SoapState(jnp.zeros((), jnp.int32), leaves)

    def update(updates: PyTree, state: SoapState, params: PyTree | None = None) -> tuple[PyTree, SoapState]:
        del params
        matrices = matrices_of(updates, dimension_numbers, "scale_by_soap")
        stacks = matrices.stacks()
        decays = jnp.asarray(b1, jnp.result_type(float)), jnp.asarray(b2, jnp.result_type(float))

        def start() -> tuple[list[Array], list[SoapMatrices]]:
            begun = [_begun(leaf, g, decays[1]) for leaf, g in zip(state.leaves, stacks, strict=True)]
            return [0 * g for g in stacks], begun  # NaN where the gradient is not finite

        def advance() -> tuple[list[Array], list[SoapMatrices]]:
            pairs = [_adam(leaf, g, decays, eps, state.step) for leaf, g in zip(state.leaves, stacks, strict=True)]
            steps, leaves = [list(column) for column in zip(*pairs, strict=True)] if pairs else ([], [])
            due = state.step % every == 0
            return steps, jax.lax.cond(due, lambda: [_renewed(leaf) for leaf in leaves], lambda: leaves)

        steps, leaves = jax.lax.cond(state.step == 0, start, advance)
        return matrices.tree(steps), SoapState(optax.safe_increment(state.step), leaves)

    return in_float32(optax.GradientTransformation(init, update))


def _begun(leaf: SoapMatrices, g: Array, b2: Array) -> SoapMatrices:
    averages = _averaged(leaf.averages, g, b2)
    bases = jax.tree.map(lambda h: eigh(jax.lax.stop_gradient(h))[1][..., ::-1] if h.size else h, averages)
    return leaf._replace(averages=averages, bases=bases)


def _adam(
    leaf: SoapMatrices, g: Array, decays: tuple[Array, Array], eps: float, count: Array
) -> tuple[Array, SoapMatrices]:
    """The step of one leaf in its bases, and its state with the bases as they are."""
    b1, b2 = (b.astype(g.dtype) for b in decays)
    left, right = leaf.bases
    rotated = product(product(left.mT, g), right)
    first = b1 * leaf.first + (1 - b1) * g
    second = b2 * leaf.second + (1 - b2) * rotated**2
    numerator = product(product(left.mT, first), right) / (1 - b1 ** count.astype(g.dtype))
    inside = numerator / (_safe_root(second / (1 - b2 ** count.astype(g.dtype))) + eps)
    step = product(product(left, inside), right.mT)
    return step, SoapMatrices(first, second, _averaged(leaf.averages, g, decays[1]), leaf.bases)


def _averaged(averages: Sides, g: Array, b2: Array) -> Sides:
    beta = b2.astype(g.dtype)
    return jax.tree.map(lambda old, new: beta * old + (1 - beta) * new, averages, squares(g))


def _renewed(leaf: SoapMatrices) -> SoapMatrices:
    """The bases after one step of subspace iteration, and V in the order of their columns."""
    (left, rows), (right, columns) = (_iterated(h, q) for h, q in zip(leaf.averages, leaf.bases, strict=True))
    second = jnp.take_along_axis(leaf.second, rows[:, :, None], axis=1)
    second = jnp.take_along_axis(second, columns[:, None, :], axis=2)
    return leaf._replace(second=second, bases=Sides(left, right))


def _iterated(h: Float[Array, "batch n n"], q: Float[Array, "batch n n"]) -> tuple[Array, Array]:
    image = jax.lax.stop_gradient(product(h, q))
    order = jnp.argsort(-jnp.sum(q * image, axis=1), axis=-1, stable=True)
    if not h.size:
        return q, order
    return qr(jnp.take_along_axis(image, order[:, None, :], axis=2))[0], order


def _safe_root(x: Array) -> Array:
    """√x with the derivative 0 at 0."""
    return jnp.where(x > 0, jnp.sqrt(jnp.where(x > 0, x, 1)), 0 * x)
