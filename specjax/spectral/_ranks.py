"""Stable, nuclear and effective rank of large matrices from products with vectors, each with an
interval.

All numbers come from Golub–Kahan bidiagonalizations A V = U B of `steps` steps, fully
reorthogonalized, from several start vectors at once, so that a step is one matrix product.

B is real, also for a complex matrix, of which Aᵀ is the conjugate transpose.

- The largest singular value of B is a lower bound on ‖A‖_op. From a random start it is close to it
  with a known probability (Kuczynski and Wozniakowski 1992, for the Lanczos method, without any
  assumption on a gap).
- zᵀ (AᵀA)^(1/2) z is the integral of √λ over a measure of which B gives the Gauss quadrature; since
  the even derivatives of √λ are negative and the odd ones positive, Gauss quadrature overestimates
  and Gauss–Radau quadrature with a node at zero underestimates (Golub and Meurant 2010, Chapter 6).
  So the quadrature has no unknown error.
- tr (AᵀA)^(1/2) = ‖A‖_* is the sum of these forms over a few dominant directions, taken exactly,
  and an average over random directions orthogonal to them (Meyer, Musco, Musco and Woodruff 2021,
  Hutch++).

Half precision is measured in float32. The norms and ranks of an empty matrix are 0; those of a
matrix with NaN or infinite entries are NaN.
"""

from math import log, sqrt
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Inexact, Key

from specjax.arguments import as_array, checked_but, shown
from specjax.linalg import singular_values, svd
from specjax.spectral._bidiagonalization import (
    MatVec,
    bidiagonalize,
    dominant_directions,
    quadrature_of_root,
    radau_matrix,
)
from specjax.spectral.float_range import (
    at_least_float32,
    divided_by,
    frobenius,
    ratio,
    scaled,
    squares,
)
from specjax.spectral.products import adjoint

STANDARD_ERRORS = 4.0
"""The intervals include four standard errors of sampled numbers."""
FAILURE = 1e-3
"""The probability with which the upper bound on ‖A‖_op may fail, for every matrix."""
_NORM_STARTS = 4


class Estimate(NamedTuple):
    """A number between `lower` and `upper`: certain bounds for a quadrature or norm, plus four
    standard errors for a sampled number.
    """

    value: Float[Array, ""]
    lower: Float[Array, ""]
    upper: Float[Array, ""]


class RankEstimates(NamedTuple):
    """The three ranks of one matrix and the norms they are made of."""

    stable: Estimate
    nuclear: Estimate
    effective: Estimate
    spectral_norm: Estimate
    frobenius_norm: Estimate
    nuclear_norm: Estimate


@checked_but("x", "key")
def estimate_stable_rank(
    x: Inexact[Array, "m n"], key: Key[Array, ""], *, steps: int = 16
) -> Estimate:
    """st(x) = ‖x‖_F² / ‖x‖_op² from `steps` products of x and xᵀ with four vectors; 0 for a zero
    matrix.

    The Frobenius norm is exact, so st(x) ≤ `value` up to rounding, and `lower` holds with
    probability 1 - 10⁻³ over the key. The value is usually right to many more digits: the bound
    knows no gap between singular values. The gradient is that of the largest singular value found,
    ⟨u, dx v⟩ with its vectors held fixed.

    Raises:
        ValueError: if steps is below 2.

    """
    _check_counts(steps)
    _check_key(key, "estimate_stable_rank")
    x = as_array(x, "x", "estimate_stable_rank")
    if x.ndim != 2:
        raise ValueError(
            f"estimate_stable_rank needs one matrix, got shape {x.shape}; take jax.vmap for"
            " several."
        )
    x, _ = scaled(_nonempty(x))
    total = jnp.sum(squares(x))
    tall = x if x.shape[0] >= x.shape[1] else adjoint(x)
    columns = tall.shape[1]
    fixed = jax.lax.stop_gradient(tall)
    starts = jax.random.normal(key, (_NORM_STARTS, columns), x.dtype)
    bases = bidiagonalize(lambda v: fixed @ v, lambda u: adjoint(fixed) @ u, starts, steps)
    left, values, right = svd(bases.bidiagonal)
    best = jnp.argmax(values[:, 0])
    in_bases = left[best, :, 0].astype(x.dtype), right[best, 0].astype(x.dtype)
    u, v = bases.left[best].T @ in_bases[0], bases.right[best].T @ in_bases[1]
    # As a function of the matrix, with fixed vectors, the Ritz value has the right derivative.
    norm_squared = squares(jnp.sum((tall @ v) * jnp.conj(u)))
    value = ratio(total, norm_squared)
    slack = _norm_slack(columns, min(steps, *x.shape), min(x.shape))
    return Estimate(
        value,
        jnp.maximum(value * (1 - slack), jnp.where(total == 0, 0, 1).astype(value.dtype)),
        value,
    )


@checked_but("x", "key")
def power_iteration(
    x: Inexact[Array, "*batch m n"], key: Key[Array, ""], *, steps: int = 40
) -> Estimate:
    """‖x‖_op by `steps` products of xᵀ x with four vectors and without a decomposition, cheap
    enough for a training step.

    `value` and `lower` are a norm ‖x v‖ of a unit vector, exact up to rounding as a lower bound;
    `upper` holds with probability 1 - 10⁻³ over the key, for every matrix. The gradient is that of
    ‖x v‖ with v held fixed.

    Raises:
        ValueError: if steps is below 1.
    """
    if steps < 1:
        raise ValueError(f"power_iteration needs at least one step, got {steps}.")
    _check_key(key, "power_iteration")
    x = as_array(x, "x", "power_iteration")
    if x.ndim < 2:
        raise ValueError(
            f"power_iteration needs matrices in the last two axes, got shape {x.shape}; add an axis"
            " with x[None, :]."
        )
    unit, power = scaled(_nonempty(x))
    columns = unit.shape[-1]
    fixed = jax.lax.stop_gradient(unit)
    starts = jax.random.normal(key, (*unit.shape[:-2], columns, _NORM_STARTS), unit.dtype)

    # The vectors are rows: on a CPU products with few columns take ten times as long.
    def image(rows: Array, matrices: Array) -> Array:
        return jnp.einsum("...kn,...mn->...km", rows, matrices)

    def step(_: int | Array, rows: Array) -> Array:
        rows = image(rows, fixed) @ jnp.conj(fixed)
        return ratio(rows, jnp.sqrt(jnp.sum(squares(rows), axis=-1, keepdims=True)))

    rows = jax.lax.fori_loop(0, steps, step, starts.mT)
    value = jnp.max(frobenius(image(rows, unit), axis=-1), axis=-1) * power[..., 0, 0]
    # P(λ_1 - ξ > ε λ_1) ≤ 0.824 √n (1 - ε)^(q + 1/2) for one start (Kuczynski and Wozniakowski
    # 1992, Theorem 4.1).
    kept = (FAILURE ** (1 / _NORM_STARTS) / (0.824 * sqrt(columns))) ** (1 / (steps + 0.5))
    return Estimate(value, value, value / sqrt(min(kept, 1.0)))


@checked_but("x", "key", "columns")
def estimate_ranks(
    x: Inexact[Array, "m n"] | MatVec,
    key: Key[Array, ""],
    *,
    columns: int | None = None,
    steps: int = 24,
    probes: int = 16,
    directions: int = 16,
) -> RankEstimates:
    """st(x), nr(x) = ‖x‖_*² / ‖x‖_F² and er(x) = ‖x‖_* / ‖x‖_op with intervals, of a matrix or of a
    linear map v -> x v.

    The cost is `steps + 2` products of x, and of xᵀ, with `probes + directions + 4` vectors. For an
    array the Frobenius norm is exact; for a map it is estimated from the same vectors. If `probes +
    directions` is at least the number of columns, the result is computed without sampling.

    Args:
        x: The matrix, or a function that is linear in its argument of shape `(columns,)`; its
            transpose is derived from it.
        key: The key of the random directions.
        columns: The length of the vectors that a map takes; only for a map.
        steps: Bidiagonalization steps; the quadrature interval shrinks with more of them.
        probes: Random directions of which the sampling error is estimated, at least 2; it falls as
            the inverse root of their number.
        directions: Dominant directions that are removed from the sample first; 0 gives plain
            sampling.

    Returns:
        The estimates, in the dtype of x and at least float32 (for a map, JAX's default float). Do
        not differentiate them: the gradient would be that of a sample, and `spectral.nuclear_rank`
        has the exact one. The interval of a rank combines the ends of the intervals of its norms.

    Raises:
        ValueError: for an array that is not a matrix, counts too small, `columns` missing for a map
            or given for an array, or a map that is not linear.

    """
    _check_counts(steps, probes, directions)
    _check_key(key, "estimate_ranks")
    random_key, range_key, norm_key = jax.random.split(key, 3)
    apply, transposed, columns, exact, power = _as_map(x, columns, norm_key)
    dtype = power.dtype if exact is None else exact.dtype
    directions = min(directions, columns)
    dominant = dominant_directions(apply, transposed, range_key, columns, directions, dtype)
    sampled = jax.random.rademacher(random_key, (probes, columns), power.dtype).astype(dtype)
    sampled = sampled - (sampled @ jnp.conj(dominant)) @ dominant.T
    everything = directions == columns
    starts = jnp.concatenate(
        [dominant.T, sampled, jax.random.normal(norm_key, (_NORM_STARTS, columns), dtype)]
    )
    weights = jnp.sum(squares(starts), axis=-1)
    bases = bidiagonalize(apply, transposed, starts, steps)

    values = singular_values(bases.bidiagonal)
    largest = jnp.max(values[:, 0])
    slack = _norm_slack(columns, min(steps, columns), columns)

    gauss, radau = (
        quadrature_of_root(b) * weights for b in (bases.bidiagonal, radau_matrix(bases.bidiagonal))
    )
    first = bases.bidiagonal[:, 0, 0] ** 2 * weights

    def total(forms: Array) -> tuple[Array, Array]:
        """The trace and its standard error: the dominant directions are summed, the others are
        averaged.
        """
        kept, rest = forms[:directions], forms[directions : directions + probes]
        if everything:
            return jnp.sum(kept), jnp.zeros((), power.dtype)
        return jnp.sum(kept) + jnp.mean(rest), jnp.std(rest, ddof=1) / sqrt(probes)

    (nuclear_high, error), (nuclear_low, _) = total(gauss), total(radau)
    half_width = STANDARD_ERRORS * error
    frobenius = (
        _exact(jnp.sqrt(jnp.sum(squares(exact)))) if exact is not None else _root(*total(first))
    )
    # ‖A‖_op ≤ ‖A‖_F ≤ ‖A‖_* ≤ √n ‖A‖_F, whatever was sampled.
    spectral = Estimate(
        largest,
        largest,
        jnp.minimum(largest / sqrt(1 - slack), jnp.maximum(frobenius.upper, largest)),
    )
    ends = (
        jnp.maximum(nuclear_low - half_width, frobenius.lower),
        jnp.minimum(nuclear_high + half_width, sqrt(columns) * frobenius.upper),
    )
    # Where both ends are exact they may have crossed by a rounding.
    lower, upper = jnp.minimum(*ends), jnp.maximum(*ends)
    nuclear = Estimate(jnp.clip((nuclear_high + nuclear_low) / 2, lower, upper), lower, upper)
    return RankEstimates(
        stable=_squared(_quotient(frobenius, spectral)),
        nuclear=_squared(_quotient(nuclear, frobenius)),
        effective=_quotient(nuclear, spectral),
        spectral_norm=_scale_estimate(spectral, power),
        frobenius_norm=_scale_estimate(frobenius, power),
        nuclear_norm=_scale_estimate(nuclear, power),
    )


def _as_map(
    x: Array | MatVec, columns: int | None, key: Array
) -> tuple[MatVec, MatVec, int, Array | None, Float[Array, ""]]:
    """x over a power of two, which keeps squares of its norms in range, and that power.

    It returns the products with x and with its transpose, of vectors on the smaller side, the
    length of these vectors, x itself if it is an array (else None), and the power.
    """
    if not callable(x):
        x = as_array(x, "x", "estimate_ranks")
        if x.ndim != 2:
            raise ValueError(
                f"estimate_ranks needs one matrix, got shape {x.shape}; take jax.vmap for several."
            )
        if columns is not None:
            raise ValueError(
                f"columns is for a linear map; an array of shape {x.shape} has its own."
            )
        unit, power = scaled(_nonempty(x))
        tall = unit if unit.shape[0] >= unit.shape[1] else adjoint(unit)
        return lambda v: tall @ v, lambda u: adjoint(tall) @ u, tall.shape[1], tall, power[0, 0]
    if not isinstance(columns, int):
        raise ValueError(
            "estimate_ranks needs the length of the vectors that a linear map takes: columns=n."
        )
    vector = jax.ShapeDtypeStruct((columns,), jnp.result_type(float))
    linear: MatVec = x
    output = jax.eval_shape(linear, vector)
    if (
        not isinstance(output, jax.ShapeDtypeStruct)
        or output.ndim != 1
        or output.dtype != vector.dtype
    ):
        raise ValueError(
            f"The linear map must take a vector to a vector of {vector.dtype}, got {output}."
        )
    rows = output.shape
    transpose = jax.linear_transpose(linear, vector)
    # One product with a random vector gives the size of the map.
    _, powers = scaled(linear(jax.random.normal(key, vector.shape, vector.dtype)), axis=0)
    power = powers[0]

    def apply(v: Array) -> Array:
        return divided_by(linear(v), power)

    def transposed(u: Array) -> Array:
        return divided_by(transpose(u)[0], power)

    if rows[0] >= columns:
        return apply, transposed, columns, None, power
    return transposed, apply, rows[0], None, power


def _nonempty(x: Array) -> Array:
    """x in at least float32. An empty matrix becomes a zero matrix, which has the same norms."""
    return (
        at_least_float32(x) if 0 not in x.shape[-2:] else jnp.zeros((*x.shape[:-2], 1, 1), x.dtype)
    )


def _norm_slack(columns: int, steps: int, rank: int) -> float:
    """ε with λ_1 - ξ ≤ ε λ_1 for the largest Ritz value ξ of all starts, λ_1 = ‖A‖_op², except with
    probability `FAILURE`.

    For one uniform start P(λ_1 - ξ > ε λ_1) ≤ 1.648 √n exp(-√ε (2k - 1)) (Kuczynski and
    Wozniakowski 1992, Theorem 4.2).
    """
    if steps >= rank:
        return 0.0
    root = (log(1.648 * sqrt(columns)) + log(1 / FAILURE) / _NORM_STARTS) / (2 * steps - 1)
    return min(root**2, 0.999)


def _exact(value: Array) -> Estimate:
    return Estimate(value, value, value)


def _root(value: Array, error: Array) -> Estimate:
    """The square root of a sampled nonnegative number."""
    half_width = STANDARD_ERRORS * error
    ends = (value, jnp.maximum(value - half_width, 0), value + half_width)
    return Estimate(*(jnp.sqrt(end) for end in ends))


def _quotient(over: Estimate, under: Estimate) -> Estimate:
    return Estimate(
        ratio(over.value, under.value),
        ratio(over.lower, under.upper),
        ratio(over.upper, under.lower),
    )


def _squared(estimate: Estimate) -> Estimate:
    return Estimate(*(end**2 for end in estimate))


def _scale_estimate(estimate: Estimate, factor: Inexact[Array, ""]) -> Estimate:
    return Estimate(*(factor * end for end in estimate))


def _check_key(key: object, by: str) -> None:
    if not isinstance(key, jax.Array) or not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        raise ValueError(
            f"{by} needs a typed key, got {shown(key)}; make one with jax.random.key(seed)."
        )


def _check_counts(steps: int, probes: int = 2, directions: int = 0) -> None:
    if steps < 2 or probes < 2 or directions < 0:
        raise ValueError(
            f"Estimates of ranks need steps >= 2, probes >= 2 and directions >= 0, got {steps},"
            f" {probes} and {directions}."
        )
