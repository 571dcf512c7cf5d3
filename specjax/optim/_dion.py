"""Dion: orthonormal updates of low rank with error feedback (Ahn et al. 2025, arXiv 2504.05295;
`dion/dion_reference.py` of microsoft/dion).

For a matrix with momentum M, (long, short), and a basis Q, (short, r), of the last step:

    M ← M + G,   P, _ = qr(M Q),   R = Mᵀ P,
    M ← M - (1 - β) P Rᵀ,   Q ← the columns of R over their norms,   u = P Qᵀ

P Rᵀ is one step of power iteration towards the best approximation of M of rank r. What it leaves
out stays in M for later steps: this is the error feedback.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key, PyTree

from specjax.arguments import check_count, check_number, checked
from specjax.linalg import qr
from specjax.optim._float32_wrapper import in_float32
from specjax.optim._hyperparameters import Number, takes_schedules
from specjax.optim._scales import Scale, scale_named, shape_factors
from specjax.optim.fused_projections import Splits
from specjax.optim.matrices import IN_OUT, DimensionNumbers, Matrices, matrices_of
from specjax.spectral.float_range import frobenius, ratio, scaled
from specjax.spectral.products import product

NOISE = 64
"""Roundings of the longest column of R below which a column is noise."""


class DionState(NamedTuple):
    """The momentum M, a tree like the parameters, and Q for each matrix shape of each leaf."""

    mu: PyTree
    basis: list[Float[Array, "batch short r"]]


@takes_schedules
@checked
def scale_by_dion(
    rank: int | float,
    beta: Number = 0.95,
    scale: str | Scale = "sqrt_out_over_in",
    *,
    key: Key[Array, ""],
    dimension_numbers: DimensionNumbers = IN_OUT,
    splits: Splits | None = None,
) -> optax.GradientTransformationExtraArgs:
    """P Qᵀ for each matrix, of rank r: an orthonormal P and a Q with unit columns, from one power
    iteration on the momentum that starts at the last Q (Dion). It takes the place of `momentum` and
    `orthogonalize`.

    The steps are those of the authors' code with `qr_method="qr"`, up to its bfloat16 and the 1e-8
    that it adds to the norms of columns. Columns of R at rounding, of a momentum of lower rank, are
    left out of the step here and keep their direction in Q; the code makes rounding a full column.

    Args:
        rank: r as a whole number, at most the shorter side; or a share of the shorter side in (0,
            1], rounded up, such as 0.25 and 1.0 (1 is the rank one).
        beta: 1 - β is the share of P Rᵀ that leaves the momentum, β in [0, 1).
        scale: As for `orthogonalize`.
        key: The random key of the first Q, which is Gaussian and the same for leaves of one
            shape.
        dimension_numbers: As for `orthogonalize`.
        splits: As for `orthogonalize`: each fused matrix has a basis of its own.

    Returns:
        A transformation that keeps the sign, shapes and dtypes. Its state is at least float32, in ·
        out + r · min(in, out) numbers for each matrix. A step takes 8 in · out · r operations
        and a QR factorization of a (max(in, out), r) matrix, where five Newton–Schulz steps take 20
        in · out · min(in, out) and more. A zero matrix stays zero; a NaN or an infinity makes its
        own matrix NaN, from then on.

    Raises:
        ValueError: at once for a rank that is neither a positive whole number nor a share in (0,
            1], a beta outside [0, 1) or an unknown scale; at init and update for a leaf that is not
            a matrix.

    Examples:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> from specjax import optim
        >>> transform = optim.scale_by_dion(1, key=jax.random.key(0))
        >>> gradient = jnp.array([[0.0, 2.0], [0.0, 0.0]])
        >>> step, state = transform.update(gradient, transform.init(gradient))
        >>> bool(jnp.allclose(step, gradient / 2))
        True

    """
    if isinstance(rank, float):
        check_number(rank, "rank", "(0, 1]", "scale_by_dion")
    else:
        check_count(rank, "rank", 1, "scale_by_dion")
    check_number(beta, "beta", "[0, 1)", "scale_by_dion")
    formula = scale_named(scale)

    def matrices_in(tree: PyTree) -> Matrices:
        return matrices_of(tree, dimension_numbers, "scale_by_dion", splits)

    def init(params: PyTree) -> DionState:
        # One key for all leaves, so that a leaf has the same steps in any tree.
        basis = [
            jax.random.normal(key, _basis_shape(rank, stack.shape), stack.dtype)
            for stack in matrices_in(params).parts()
        ]
        return DionState(jax.tree.map(jnp.zeros_like, params), basis)

    def update(
        updates: PyTree, state: DionState, params: PyTree | None = None
    ) -> tuple[PyTree, DionState]:
        del params
        matrices, momenta = matrices_in(updates), matrices_in(state.mu)
        found = [
            _step(mu + g, basis, jnp.asarray(1 - beta, g.dtype))
            for g, mu, basis in zip(matrices.parts(), momenta.parts(), state.basis, strict=True)
        ]
        steps, kept, basis = ([each[i] for each in found] for i in range(3))
        factors = shape_factors(formula, matrices, None, updates)
        return matrices.join(steps, factors), DionState(momenta.join(kept), basis)

    return in_float32(optax.GradientTransformation(init, update))


def _basis_shape(rank: int | float, shape: tuple[int, ...]) -> tuple[int, int, int]:
    """(batch, short, r) for a stack of this shape."""
    batch, *fans = shape
    short = min(fans)
    return batch, short, math.ceil(rank * short) if isinstance(rank, float) else min(rank, short)


def _step(
    mu: Float[Array, "batch m n"], basis: Float[Array, "batch short r"], share: Float[Array, ""]
) -> tuple[Array, Array, Array]:
    """The step of rank r, the momentum without its share of P Rᵀ, and the next basis."""
    if not mu.size:
        return mu, mu, basis
    # (long, short); a square matrix (in, out) as (out, in), as in the code.
    turned = mu.shape[1] <= mu.shape[2]
    unit, power = scaled(mu.mT if turned else mu, (1, 2))
    p, _ = qr(product(unit, basis))
    r = product(unit.mT, p)
    lengths = frobenius(r, axis=1)[:, None, :]
    longest = jnp.max(lengths, axis=2, keepdims=True)
    is_noise = lengths <= NOISE * jnp.finfo(r.dtype).eps * longest
    columns = jnp.where(is_noise, 0, ratio(r, lengths))
    step, approximation = product(p, columns.mT), power * product(p, r.mT)
    if turned:
        step, approximation = step.mT, approximation.mT
    return step, mu - share * approximation, jnp.where(is_noise, basis, columns)
