"""Golub–Kahan bidiagonalization A V = U B with full reorthogonalization, and its quadratures."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Inexact

from specjax.linalg import qr, svd
from specjax.spectral.float_range import squares

MatVec = Callable[[Array], Array]


class Bases(NamedTuple):
    """A V = U B for every start: rows of `left` and `right` are the vectors of U and V, B is upper
    bidiagonal.
    """

    left: Inexact[Array, "starts steps m"]
    right: Inexact[Array, "starts steps n"]
    bidiagonal: Float[Array, "starts steps steps"]


def bidiagonalize(
    apply: MatVec, transposed: MatVec, starts: Inexact[Array, "starts n"], steps: int
) -> Bases:
    """Golub–Kahan–Lanczos with the vectors orthogonalized twice against all earlier ones; zeros
    after a breakdown.

    A remainder below rounding counts as a breakdown: the Krylov space of the start is exhausted,
    and the remainder is noise.
    """
    count, columns = starts.shape
    products = jax.vmap(apply), jax.vmap(transposed)
    rows = jax.eval_shape(apply, starts[0]).shape[0]
    steps = min(steps, columns, rows)

    def orthogonalized(v: Array, basis: Array) -> Array:
        for _ in range(2):
            v = v - jnp.einsum("skn,sk->sn", basis, jnp.einsum("skn,sn->sk", jnp.conj(basis), v))
        return v

    right = jnp.zeros((count, steps, columns), starts.dtype)
    left = jnp.zeros((count, steps, rows), starts.dtype)
    real = jnp.finfo(starts.dtype).dtype
    diagonal, above = (jnp.zeros((count, steps), real) for _ in range(2))
    direction, _ = _unit(starts, jnp.zeros(count, real))
    rounding = 8 * float(jnp.finfo(starts.dtype).eps)

    def next_unit(product: Array, basis: Array) -> tuple[Array, Array]:
        norm = jnp.sqrt(jnp.sum(squares(product), axis=-1))
        return _unit(orthogonalized(product, basis), rounding * norm)

    def step(
        j: int | Array, state: tuple[Array, Array, Array, Array, Array]
    ) -> tuple[Array, Array, Array, Array, Array]:
        left, right, diagonal, above, v = state
        right = right.at[:, j].set(v)
        # After the first step the orthogonalization removes the part along the last left vector, β.
        u, alpha = next_unit(products[0](v), left)
        left = left.at[:, j].set(u)
        w, beta = next_unit(products[1](u), right)
        return left, right, diagonal.at[:, j].set(alpha), above.at[:, j].set(beta), w

    left, right, diagonal, above, _ = jax.lax.fori_loop(
        0, steps, step, (left, right, diagonal, above, direction)
    )
    place = jnp.arange(steps)
    bidiagonal = jnp.zeros((count, steps, steps), real).at[:, place, place].set(diagonal)
    bidiagonal = bidiagonal.at[:, place[:-1], place[1:]].set(above[:, :-1])
    return Bases(left, right, bidiagonal)


def _unit(
    v: Inexact[Array, "starts n"], floor: Float[Array, " starts"]
) -> tuple[Inexact[Array, "starts n"], Float[Array, " starts"]]:
    """v / ‖v‖ and ‖v‖; zeros where ‖v‖ does not exceed the floor."""
    total = jnp.sum(squares(v), axis=-1)
    # A norm that is not finite must not count as a breakdown: NaN makes it visible in the result
    # (see `scaled`).
    total = jnp.where(jnp.isfinite(total), total, jnp.nan)
    usable = ~(total <= floor**2)
    norm = jnp.where(usable, jnp.sqrt(jnp.where(usable, total, 1)), 0)
    return (
        jnp.where(usable[:, None], v / jnp.where(usable, norm, 1)[:, None].astype(v.dtype), 0),
        norm,
    )


def quadrature_of_root(bidiagonal: Float[Array, "starts k k"]) -> Float[Array, " starts"]:
    """e_1ᵀ (BᵀB)^(1/2) e_1: the quadrature of √λ."""
    _, values, right = svd(bidiagonal)
    return jnp.sum(values * right[:, :, 0] ** 2, axis=-1)


def radau_matrix(bidiagonal: Float[Array, "starts k k"]) -> Float[Array, "starts k k"]:
    """The bidiagonal matrix whose quadrature has a node at zero, which drops its last diagonal
    entry.
    """
    return bidiagonal.at[:, -1, -1].set(0)


def dominant_directions(
    apply: MatVec, transposed: MatVec, key: Array, columns: int, directions: int, dtype: jnp.dtype
) -> Inexact[Array, "columns directions"]:
    """An orthonormal basis of the range of (AᵀA)² on random vectors."""
    basis = jax.random.normal(key, (columns, directions), dtype)
    if directions == columns:
        return jnp.eye(columns, dtype=dtype)
    for _ in range(2):
        basis = qr(jax.vmap(transposed, 1, 1)(jax.vmap(apply, 1, 1)(basis)))[0]
    return basis
