"""The affine-invariant geometry of positive definite matrices: distance, mean, dispersion.

The distance of A and B is ‖log(A^(-1/2) B A^(-1/2))‖_F, the norm of the logarithms of the
eigenvalues of A⁻¹B. It is invariant under inversion and congruence with any invertible matrix
(Bhatia, Positive Definite Matrices, 2007, Chapter 6). Leading axes of the arrays are batch axes,
float64 is advisable, and a matrix that is not positive definite makes its results NaN.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from specjax.arguments import checked
from specjax.linalg import eigh
from specjax.programs.one_at_a_time import compiled_one_at_a_time
from specjax.spectral.products import product


@checked
def affine_invariant_distance(
    a: Float[Array, "*batch n n"], b: Float[Array, "*batch n n"]
) -> Float[Array, "*batch"]:
    """‖log(a^(-1/2) b a^(-1/2))‖_F, exact; NaN if a or b is not positive definite.

    Examples:
        >>> from specjax.theory import geometry
        >>> round(float(geometry.affine_invariant_distance(jnp.eye(2), jnp.e * jnp.eye(2))), 2)
        1.41
    """
    return jnp.vectorize(partial(compiled_one_at_a_time, _distance), signature="(n,n),(n,n)->()")(
        a, b
    )


def _distance(a: Array, b: Array) -> Array:
    root = jnp.linalg.cholesky(a)
    half = jax.lax.linalg.triangular_solve(root, b, left_side=True, lower=True)
    whole = jax.lax.linalg.triangular_solve(
        root, half, left_side=False, lower=True, transpose_a=True
    )
    eigenvalues = jnp.linalg.eigvalsh(_symmetric(whole))
    return jnp.sqrt(jnp.sum(jnp.log(eigenvalues) ** 2, axis=-1))


@checked
def dispersion(matrices: Float[Array, "k n n"], centre: Float[Array, "n n"]) -> Float[Array, ""]:
    """The mean squared affine-invariant distance to `centre`: σ_R² of Claim 10 for the arithmetic
    mean.

    Its least value over all centres, at the Karcher mean, is the Fréchet variance.
    """
    return jnp.mean(
        affine_invariant_distance(jnp.broadcast_to(centre, matrices.shape), matrices) ** 2
    )


@checked
def karcher_mean(
    matrices: Float[Array, "k n n"], *, steps: int = 200, tolerance: float | None = None
) -> Float[Array, "n n"]:
    """The matrix with the least mean squared affine-invariant distance to `matrices`.

    It exists and is unique. The method is gradient descent on the manifold, X ← X^(1/2) exp(θ S)
    X^(1/2) with S the mean of log(X^(-1/2) H_i X^(-1/2)), from the arithmetic mean, with the step θ
    = 2 / (1 + c), the best for a Hessian between 1 and c = mean_i (l_i/2) coth(l_i/2), l_i the
    logarithm of the condition number of X⁻¹H_i (Bini and Iannazzo, Computing the Karcher mean,
    2013). It ends when ‖S‖_F, a bound on the distance to the mean, is below `tolerance` (by default
    the machine epsilon to the power 2/3; the error of a dispersion about the mean is of the order
    of its square).

    Returns:
        The mean; NaN if it was not reached in `steps` steps or a matrix is not positive definite.

    Raises:
        ValueError: steps < 1.

    Examples:
        >>> from specjax.theory import geometry
        >>> mean = geometry.karcher_mean(jnp.stack([jnp.eye(2), 4 * jnp.eye(2)]))
        >>> [round(float(entry), 1) for entry in jnp.diagonal(mean)]
        [2.0, 2.0]
    """
    if steps < 1:
        raise ValueError(f"karcher_mean needs steps >= 1, got steps={steps}.")
    limit = float(jnp.finfo(matrices.dtype).eps) ** (2 / 3) if tolerance is None else tolerance

    def unfinished(state: tuple[Array, Array, Array]) -> Array:
        step, _, size = state
        return (step < steps) & (size > limit)

    def advance(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        step, x, _ = state
        values, vectors = eigh(x)
        root, inverse = (
            _rebuilt(f(values), vectors) for f in (jnp.sqrt, lambda v: 1 / jnp.sqrt(v))
        )
        whitened = jax.vmap(lambda matrix: product(product(inverse, matrix), inverse))(matrices)
        relative, bases = eigh(_symmetric(whitened))
        logs = jnp.log(relative)
        tangent = jnp.mean(_rebuilt(logs, bases), axis=0)
        spread = (logs[:, -1] - logs[:, 0]) / 2
        curvature = jnp.mean(
            jnp.where(spread > 0, spread / jnp.tanh(jnp.where(spread > 0, spread, 1)), 1)
        )
        exponents, directions = eigh(2 / (1 + curvature) * tangent)
        moved = product(product(root, _rebuilt(jnp.exp(exponents), directions)), root)
        return step + 1, _symmetric(moved), jnp.linalg.norm(tangent)

    start = jnp.asarray(0), jnp.mean(matrices, axis=0), jnp.asarray(jnp.inf, matrices.dtype)
    _, x, size = jax.lax.while_loop(unfinished, advance, start)
    return jnp.where(size <= limit, x, jnp.nan)


def _symmetric(x: Array) -> Array:
    return 0.5 * (x + jnp.swapaxes(x, -1, -2))


def _rebuilt(values: Array, vectors: Array) -> Array:
    return product(vectors * values[..., None, :], jnp.swapaxes(vectors, -1, -2))
