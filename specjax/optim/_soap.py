"""SOAP: Adam in the eigenbases of Shampoo's two sides (Vyas et al. 2025, arXiv 2409.11321).

With the averages L of G Gᵀ and R of Gᵀ G and their eigenvectors Q_L, Q_R, the gradient and Adam's
first moment M are rotated, X' = Q_Lᵀ X Q_R, Adam's second moment V is that of G', and the step is
rotated back:

    u = Q_L (M' / (√V + ε)) Q_Rᵀ.

M is kept in the coordinates of the parameters, V in the eigenbases.

Where L or R lacks rank, as that of the longer side does in the first steps, the basis of its null
space is arbitrary, and entrywise steps depend on the basis. Here V is isotropic there: each entry
for a vector of the null space is replaced by the mean of all of them. The step then depends on the
null space alone.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PyTree

from specjax.arguments import check_count, check_number, checked
from specjax.linalg import eigh, qr
from specjax.optim._float32_wrapper import in_float32
from specjax.optim._gram_sums import GramSums, added, no_sums
from specjax.optim._hyperparameters import Number, takes_schedules
from specjax.optim.matrices import IN_OUT, DimensionNumbers, matrices_of
from specjax.spectral.float_range import averaged_rms, frobenius, ratio, scaled
from specjax.spectral.products import product

CUT = 64
"""Eigenvalues, and entries of √V, below this number of roundings of the largest count as zero."""


class Basis(NamedTuple):
    """The eigenvectors of one side of each matrix, largest eigenvalues first, and which of them
    span its null space.
    """

    vectors: Float[Array, "batch n n"]
    is_null: Bool[Array, "batch n"]


class SoapMatrices(NamedTuple):
    """The state of one leaf: the first moment M, √V, the averages L and R, and their bases."""

    first: Float[Array, "batch m n"]
    rms: Float[Array, "batch m n"]
    averages: GramSums
    left: Basis
    right: Basis


class SoapState(NamedTuple):
    """The number of updates, and the state of each leaf."""

    step: Int[Array, ""]
    leaves: list[SoapMatrices]


@takes_schedules
@checked
def scale_by_soap(
    b1: Number = 0.95,
    b2: Number = 0.95,
    *,
    eps: Number = 1e-8,
    every: int = 10,
    dimension_numbers: DimensionNumbers = IN_OUT,
) -> optax.GradientTransformationExtraArgs:
    """Q_L (M' / (√V + ε)) Q_Rᵀ: Adam in the eigenbases Q_L and Q_R of Shampoo's averages L and R
    (SOAP).

    M is the average of the gradients G, V that of the squares of G', and X' is Q_Lᵀ X Q_R. Both
    averages are corrected for their start at zero as in `optax.scale_by_adam`.

    The first update is zero, as in the published code: its gradient gives the first bases, by an
    eigendecomposition, so that no basis depends on the gradient that it rotates. After that, every
    `every` steps, the columns of Q are sorted by their Rayleigh quotients, V with them, and one
    step of subspace iteration follows: Q ← qr(L Q).

    Where L or R lacks rank the algorithm as published divides by numbers that depend on an
    arbitrary basis of the null space. Here V is the mean over that basis, the next bases are an
    eigendecomposition, and V is carried over by the squared overlaps of both bases. Entries of √V
    below 64 roundings of the largest count as zero, and the step is zero there.

    Args:
        b1: Decay of M, in [0, 1).
        b2: Decay of V, L and R, in [0, 1).
        eps: ε, not negative, in the units of the gradient.
        every: Steps from one renewal of the bases to the next.
        dimension_numbers: As for `orthogonalize`.

    Returns:
        A transformation that keeps the sign, shapes and dtypes; its state is at least float32, 2
        (in² + out² + in · out) numbers for each matrix. With ε = 0 it does not depend on the size
        of the gradients. Derivatives hold the bases fixed. A NaN or an infinity makes its own
        matrix NaN, from then on. Do not pad with zeros: padding would be averaged with parameters
        in the null space.

    Raises:
        ValueError: at once for a decay outside [0, 1), a negative `eps` or `every` below 1; at init
            and update for a leaf that is not a matrix.

    Examples:
        >>> import jax.numpy as jnp
        >>> from specjax import optim
        >>> transform = optim.scale_by_soap(every=10)
        >>> gradient = jnp.array([[2.0, 1.0], [1.0, 2.0]])
        >>> first, state = transform.update(gradient, transform.init(gradient))
        >>> second, state = transform.update(gradient, state)
        >>> float(jnp.linalg.norm(first)), bool(jnp.allclose(second, jnp.eye(2), atol=1e-3))
        (0.0, True)

    """
    check_number(b1, "b1", "[0, 1)", "scale_by_soap")
    check_number(b2, "b2", "[0, 1)", "scale_by_soap")
    check_number(eps, "eps", "[0, inf)", "scale_by_soap")
    check_count(every, "every", 1, "scale_by_soap")

    def init(params: PyTree) -> SoapState:
        stacks = matrices_of(params, dimension_numbers, "scale_by_soap").stacks()
        return SoapState(jnp.zeros((), jnp.int32), [_empty(stack) for stack in stacks])

    def update(
        updates: PyTree, state: SoapState, params: PyTree | None = None
    ) -> tuple[PyTree, SoapState]:
        del params
        matrices = matrices_of(updates, dimension_numbers, "scale_by_soap")
        stacks = matrices.stacks()
        decays = jnp.asarray(b1, jnp.result_type(float)), jnp.asarray(b2, jnp.result_type(float))

        def start() -> tuple[list[Array], list[SoapMatrices]]:
            begun = [
                _begun(leaf, g, decays[1]) for leaf, g in zip(state.leaves, stacks, strict=True)
            ]
            return [0 * g for g in stacks], begun  # NaN where the gradient is not finite

        def advance() -> tuple[list[Array], list[SoapMatrices]]:
            pairs = [
                _adam(leaf, g, decays, eps, state.step)
                for leaf, g in zip(state.leaves, stacks, strict=True)
            ]
            steps, leaves = (
                [list(column) for column in zip(*pairs, strict=True)] if pairs else ([], [])
            )
            due = state.step % every == 0
            return steps, jax.lax.cond(
                due, lambda: [_renewed(leaf) for leaf in leaves], lambda: leaves
            )

        steps, leaves = jax.lax.cond(state.step == 0, start, advance)
        return matrices.tree(steps), SoapState(optax.safe_increment(state.step), leaves)

    return in_float32(optax.GradientTransformation(init, update))


def _empty(stack: Float[Array, "batch m n"]) -> SoapMatrices:
    batch, m, n = stack.shape
    left, right = (
        Basis(jnp.zeros((batch, length, length), stack.dtype), jnp.zeros((batch, length), bool))
        for length in (m, n)
    )
    return SoapMatrices(jnp.zeros_like(stack), jnp.zeros_like(stack), no_sums(stack), left, right)


def _begun(leaf: SoapMatrices, g: Array, b2: Array) -> SoapMatrices:
    averages = _averaged(leaf.averages, g, b2)
    return leaf._replace(
        averages=averages, left=_eigenbasis(averages.left), right=_eigenbasis(averages.right)
    )


def _averaged(averages: GramSums, g: Array, b2: Array) -> GramSums:
    beta = b2.astype(g.dtype)
    return added(averages, g, beta, 1 - beta)


def _eigenbasis(h: Float[Array, "batch n n"]) -> Basis:
    if not h.size:
        return Basis(h, jnp.zeros(h.shape[:2], bool))
    values, vectors = eigh(jax.lax.stop_gradient(h))
    return Basis(vectors[..., ::-1], _is_nothing(values[..., ::-1], (1,)))


def _is_nothing(x: Float[Array, "..."], axes: tuple[int, ...]) -> Bool[Array, "..."]:
    """Marks the entries that are no larger than the roundings of the largest."""
    return x <= CUT * jnp.finfo(x.dtype).eps * jnp.max(x, axis=axes, keepdims=True, initial=0)


def _adam(
    leaf: SoapMatrices, g: Array, decays: tuple[Array, Array], eps: ArrayLike, count: Array
) -> tuple[Array, SoapMatrices]:
    """The step of one leaf in its current bases, and its state with these bases."""
    b1, b2 = (b.astype(g.dtype) for b in decays)
    left, right = leaf.left.vectors, leaf.right.vectors
    rotated = product(product(left.mT, g), right)
    rotated = _isotropic(_isotropic(rotated, leaf.left.is_null, 1), leaf.right.is_null, 2)
    first = b1 * leaf.first + (1 - b1) * g
    rms = averaged_rms(leaf.rms, rotated, b2)
    numerator = product(product(left.mT, first), right) / (1 - b1 ** count.astype(g.dtype))
    denominator = rms / jnp.sqrt(1 - b2 ** count.astype(g.dtype)) + jnp.asarray(eps, g.dtype)
    inside = jnp.where(_is_nothing(rms, (1, 2)), 0 * g, ratio(numerator, denominator))
    step = product(product(left, inside), right.mT)
    return step, leaf._replace(
        first=first, rms=rms, averages=_averaged(leaf.averages, g, decays[1])
    )


def _isotropic(
    x: Float[Array, "batch m n"], is_null: Bool[Array, "batch k"], axis: int
) -> Float[Array, "batch m n"]:
    """x with each entry of the null space, along an axis, replaced by their root mean square."""
    inside = jnp.expand_dims(is_null, 3 - axis)
    count = jnp.maximum(jnp.sum(inside, axis=axis, keepdims=True), 1).astype(x.dtype)
    mean = jnp.expand_dims(frobenius(jnp.where(inside, x, 0), axis), axis) / jnp.sqrt(count)
    return jnp.where(inside, mean, x)


def _renewed(leaf: SoapMatrices) -> SoapMatrices:
    """The next bases, and V in them."""
    (left, rows), (right, columns) = (
        _next_basis(h, basis)
        for h, basis in ((leaf.averages.left, leaf.left), (leaf.averages.right, leaf.right))
    )
    unit, power = scaled(leaf.rms, (1, 2))
    second = product(product(rows.mT, unit**2), columns)
    return leaf._replace(rms=_safe_root(second) * power, left=left, right=right)


def _next_basis(
    h: Float[Array, "batch n n"], basis: Basis
) -> tuple[Basis, Float[Array, "batch n n"]]:
    """One step of subspace iteration, or the eigenbasis of a matrix that lacks rank; and the shares
    of old vectors in the new ones.
    """
    if not h.size:
        return basis, h
    h = jax.lax.stop_gradient(h)
    iterated = _iterated(h, basis.vectors)
    lacks_rank = jnp.any(basis.is_null, axis=1)

    def some_decomposed() -> tuple[Basis, Array]:
        exact = _eigenbasis(h)
        overlaps = product(basis.vectors.mT, exact.vectors) ** 2
        return jax.tree.map(
            lambda a, b: jnp.where(lacks_rank.reshape(-1, *[1] * (a.ndim - 1)), a, b),
            (exact, overlaps),
            iterated,
        )

    return jax.lax.cond(jnp.any(lacks_rank), some_decomposed, lambda: iterated)


def _iterated(
    h: Float[Array, "batch n n"], q: Float[Array, "batch n n"]
) -> tuple[Basis, Float[Array, "batch n n"]]:
    image = product(h, q)
    order = jnp.argsort(-jnp.sum(q * image, axis=1), axis=-1, stable=True)
    vectors, triangle = qr(jnp.take_along_axis(image, order[:, None, :], axis=2))
    is_null = _is_nothing(jnp.abs(jnp.diagonal(triangle, axis1=1, axis2=2)), (1,))
    return Basis(vectors, is_null), jax.nn.one_hot(order, h.shape[-1], axis=1, dtype=h.dtype)


def _safe_root(x: Array) -> Array:
    """√x with the derivative 0 at 0."""
    return jnp.where(x > 0, jnp.sqrt(jnp.where(x > 0, x, 1)), 0 * x)
