"""Random second moments of features: a few large eigenvalues above a bulk of order one.

They sample the assumptions E to H of spectral-criterion, Section 3: B = S + Σ with a low-rank S of
spikes and a bulk Σ whose eigenvalues are uniform on an interval; B̄ = S̄ + Σ̄ with a bulk of rank
r, whose right spike directions are those of B. Bulks are diagonal: teachers and spike directions
are rotation invariant, so this only chooses the axes.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from specjax.linalg import qr
from specjax.sizes import AnySize, active, mask, normal, padded, uniform

BULK = (0.5, 1.5)
"""Interval of the bulk's eigenvalues: c_1 and c_2 of the assumptions."""


class Moments(NamedTuple):
    """B, positive definite on the active block, and B̄ (spectral-criterion, Section 3.2)."""

    b: Float[Array, "k k"]
    b_bar: Float[Array, "k k"]


def spiked(
    key: Key[Array, ""], k: AnySize, spikes: Float[Array, " p"], bulk: tuple[float, float] = BULK
) -> Float[Array, "k k"]:
    """B = U diag(spikes) Uᵀ + Σ, U ∈ R^{k×p} uniform with orthonormal columns: assumption E (p = 1)
    or F.

    Args:
        key: The key, used row by row.
        k: Features, at least p.
        spikes: The nonzero eigenvalues of S.
        bulk: The interval of the eigenvalues of Σ.

    Raises:
        ValueError: more spikes than features, or a bulk that is not an interval above 0.

    """
    _check(k, spikes, bulk)
    key_directions, key_bulk = jax.random.split(key)
    u = directions(key_directions, k, spikes.shape[0])
    return (u * spikes[None, :]) @ u.T + jnp.diag(_bulk(key_bulk, k, bulk))


def teacher_student(
    key: Key[Array, ""],
    k: AnySize,
    spikes: Float[Array, " p"],
    cross_spikes: Float[Array, " p"],
    rank: AnySize,
    bulk: tuple[float, float] = BULK,
) -> Moments:
    """B = U Q Uᵀ + Γ and B̄ = V Q̄ Uᵀ + Σ̄ with independent U and V: assumption G (p = 1) or H.

    Σ̄ is diagonal with `rank` entries in the interval `bulk` and the rest zero, Γ as in `spiked`.
    Arguments and errors as there.
    """
    _check(k, spikes, bulk)
    # Mapped over keys, since a generator compiles slowly.
    keys = jax.random.split(key, (2, 2))
    u, v = jax.vmap(lambda one: directions(one, k, spikes.shape[0]))(keys[0])
    full, other = jax.vmap(lambda one: _bulk(one, k, bulk))(keys[1])
    low_rank = jnp.where(jnp.arange(padded(k)) < active(rank), other, 0)
    return Moments(
        (u * spikes[None, :]) @ u.T + jnp.diag(full),
        (v * cross_spikes[None, :]) @ u.T + jnp.diag(low_rank),
    )


def directions(key: Key[Array, ""], k: AnySize, count: int) -> Float[Array, "k count"]:
    """`count` orthonormal vectors of R^k, uniformly distributed; zero on padding."""
    return qr(normal(key, (k, count)))[0]


def _bulk(key: Array, k: AnySize, bulk: tuple[float, float]) -> Array:
    low, high = bulk
    return jnp.where(mask(k), low + (high - low) * uniform(key, (k,)), 0)


def _check(k: AnySize, spikes: Array, bulk: tuple[float, float]) -> None:
    if not 0 < spikes.shape[0] <= padded(k):
        raise ValueError(
            f"A spiked model needs from 1 to k={padded(k)} spikes, got {spikes.shape[0]}."
        )
    if not 0 < bulk[0] <= bulk[1]:
        raise ValueError(f"The bulk must be an interval above 0, got {bulk}.")
