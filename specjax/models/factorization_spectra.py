"""Targets of matrix factorization with a given spectrum, and starts aligned with them
(preconditioning, Section 2.1).

M = U diag(λ_1, ..., λ_r) Uᵀ with U ∈ R^{d×r} Haar distributed: a rotation of the basis changes
nothing for Muon and gradient descent, but matters for every entrywise method.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Key

from specjax.linalg import qr
from specjax.programs import is_traced
from specjax.sizes import normal
from specjax.theory.preconditioning.conditions import (
    check_condition_number,
    check_ranks,
    check_spectrum,
)


class SpectralTarget(NamedTuple):
    """M (d, d) with orthonormal eigenvectors (d, r) and nonzero eigenvalues (r,), descending."""

    matrix: Float[Array, "d d"]
    basis: Float[Array, "d r"]
    spectrum: Float[Array, " r"]


class AlignedStart(NamedTuple):
    """X_0 = U diag(s) Wᵀ of shape (d, k), the singular values s (r,) and W (k, r)."""

    matrix: Float[Array, "d k"]
    values: Float[Array, " r"]
    frame: Float[Array, "k r"]


def logarithmic_spectrum(
    rank: int, kappa: ArrayLike, largest: ArrayLike = 1.0
) -> Float[Array, " r"]:
    """`rank` eigenvalues in equal ratios from `largest` to `largest`/κ; κ >= 1 may be traced."""
    check_condition_number(kappa)
    kappa, largest, place = _places(rank, kappa, largest)
    return largest * kappa**-place


def orthonormal(key: Key[Array, ""], rows: int, columns: int) -> Float[Array, "rows columns"]:
    """A Haar matrix with orthonormal columns, or rows if it has more columns than rows.

    Computed as the Q of a Gaussian matrix, with the signs that make the diagonal of R positive.
    """
    if columns > rows:
        return orthonormal(key, columns, rows).T
    q, r = qr(normal(key, (rows, columns)))
    return q * jnp.sign(jnp.diagonal(r))[None, :]


def target(key: Key[Array, ""], d: int, spectrum: Float[Array, " r"]) -> SpectralTarget:
    """M = U diag(spectrum) Uᵀ with U Haar distributed, symmetric to the last bit.

    Raises ValueError for a concrete spectrum that is not positive and descending, or for more than
    d eigenvalues.
    """
    check_spectrum(spectrum)
    check_ranks(d, spectrum.shape[0], spectrum.shape[0])
    basis = orthonormal(key, d, spectrum.shape[0])
    matrix = composed(basis, spectrum, basis)
    return SpectralTarget((matrix + matrix.T) / 2, basis, spectrum)


def aligned_start(
    key: Key[Array, ""], at: SpectralTarget, k: int, scale: ArrayLike
) -> AlignedStart:
    """X_0 = U diag(s) Wᵀ with the target's U, W ∈ R^{k×r} Haar distributed and all s = `scale` (eq.
    41).

    From here Muon's and gradient descent's iterates keep the form U diag(x_t) Wᵀ, and each x_i
    obeys its scalar recursion (Lemma 3). Raises ValueError for k < r.
    """
    r = at.spectrum.shape[0]
    check_ranks(at.matrix.shape[0], k, r)
    values, frame = jnp.full_like(at.spectrum, scale), orthonormal(key, k, r)
    return AlignedStart(composed(at.basis, values, frame), values, frame)


def composed(
    left: Float[Array, "d r"], values: Float[Array, "*batch r"], right: Float[Array, "k r"]
) -> Float[Array, "*batch d k"]:
    """The products left · diag(values) · rightᵀ for each set of values."""
    return jnp.einsum("dr,...r,kr->...dk", left, values, right)


def _places(rank: int, kappa: ArrayLike, largest: ArrayLike) -> tuple[Array, Array, Array]:
    """κ and λ_1 as arrays, and positions of the eigenvalues from 0 to 1."""
    if rank < 1:
        raise ValueError(f"A spectrum needs at least one eigenvalue, got rank={rank}.")
    if not is_traced(largest):
        check_spectrum(jnp.atleast_1d(jnp.asarray(largest)))
    dtype = jnp.result_type(float)
    return jnp.asarray(kappa, dtype), jnp.asarray(largest, dtype), jnp.linspace(0.0, 1.0, rank)
