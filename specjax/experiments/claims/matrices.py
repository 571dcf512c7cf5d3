"""Random matrices with a given spectrum, their number, and error measures of several claims."""

from collections.abc import Mapping
from itertools import accumulate
from math import prod

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from specjax import lab


class Matrices(lab.Config):
    """The number of random matrices on which a claim is tried."""

    matrices: int = lab.config.seeds(
        200, least=20, help="random matrices, or clouds of them, at each point"
    )


def normals(key: Key[Array, ""], *shapes: tuple[int, ...]) -> list[Array]:
    """Independent standard normal arrays from one sample, which compiles faster than several."""
    sizes = [prod(shape) for shape in shapes]
    pieces = jnp.split(jax.random.normal(key, (sum(sizes),)), list(accumulate(sizes))[:-1])
    return [piece.reshape(shape) for piece, shape in zip(pieces, shapes, strict=True)]


def orthonormal(x: Float[Array, "m n"]) -> Float[Array, "m n"]:
    """Orthonormal columns that span those of x (m >= n), uniform up to signs for Gaussian x."""
    return jnp.linalg.qr(x)[0]


def spectra(
    key: Key[Array, ""],
    shapes: Mapping[str, tuple[int, int]],
    values: Mapping[str, Float[Array, " _"]],
) -> dict[str, Float[Array, "_ _"]]:
    """U diag(s) Vᵀ by name, with random orthonormal U, V and the singular values of that name."""
    ranks = {name: values[name].shape[0] for name in shapes}
    sides = [(extent, ranks[name]) for name, shape in shapes.items() for extent in shape]
    bases = [orthonormal(x) for x in normals(key, *sides)]
    return {
        name: (left * values[name][None, :]) @ right.T
        for name, left, right in zip(shapes, bases[::2], bases[1::2], strict=True)
    }


def symmetric_exponential(
    a: Float[Array, "n n"], spread: Float[Array, ""] | float
) -> Float[Array, "n n"]:
    """exp(spread · (a + aᵀ)/√2), a positive definite matrix that is I at spread 0."""
    values, vectors = jnp.linalg.eigh((a + a.T) / jnp.sqrt(2.0))
    return (vectors * jnp.exp(spread * values)[None, :]) @ vectors.T


def relative(measured: Float[Array, "..."], expected: Float[Array, "..."]) -> Float[Array, ""]:
    """‖measured - expected‖ / ‖expected‖, Frobenius."""
    return jnp.linalg.norm((measured - expected).ravel()) / jnp.linalg.norm(expected.ravel())


def cosine(a: Float[Array, "..."], b: Float[Array, "..."]) -> Float[Array, ""]:
    """The cosine of the angle of two arrays of the same shape."""
    return jnp.sum(a * b) / (jnp.linalg.norm(a.ravel()) * jnp.linalg.norm(b.ravel()))
