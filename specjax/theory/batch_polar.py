"""The mean of Muon's step over batches, from three second moments; for large matrices.

The gradient of a linear layer is a mean of outer products, G = (1/B) Σ_b δ_b h_bᵀ, δ_b what comes
back to the layer's outputs from example b and h_b what goes into it. Let S_δ = E[δ δᵀ], S_h =
E[h hᵀ] and M = E[δ hᵀ], the gradient of the whole population. If m, n and B are large,

    E[polar(G)] = (2/π) ∫_0^∞ X dt,    X = w (t + u S_δ)⁻¹ M (t + v S_h + w² Mᵀ (t + u S_δ)⁻¹ M)⁻¹,

with u = q/D, v = p/D, w = (1 + η)/D, D = (1 + η)² + p q and, for every t, the numbers p, q, η with

    p = tr(S_δ P)/B,    q = tr(S_h Q)/B,    η = tr(Mᵀ X)/B,

where Q is the last factor of X and P = (t + u S_δ + w² M (t + v S_h)⁻¹ Mᵀ)⁻¹. As B → ∞ it is
polar(M).

Nothing else of the examples enters: they need independence from each other, and projections of
(δ, h) whose squares concentrate, as Gaussian ones do. Gaussian noise of the same covariance would
have u = q, v = p and w = 1, which is the limit B ≫ m, n. Beyond the papers; derived in
docs/beyond/batch-polar.md.
"""

from functools import partial

import jax
import numpy as np
from jax import numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from specjax import linalg
from specjax.arguments import checked
from specjax.theory.closed_forms import check_in, floats, in_float64, legendre

_NODES = 40
"""Places of t; with half of them the share that is kept changes by less than 1e-6."""
_CLOSE, _MOST = 1e-6, 300
"""Where steps end: the error of log p, log q and η before the last one, and their number."""

_State = tuple[Array, Array, Array]


@in_float64
@checked
def mean_polar(
    signal: ArrayLike, left: ArrayLike, right: ArrayLike, batch: ArrayLike
) -> Float[Array, "..."]:
    """E[polar(G)] of the gradient G of a batch of B independent examples; asymptotic.

    It holds for every B, also where a batch has fewer examples than the layer has units. The error
    of the share that is kept is of order 1/m + 1/n; it is below 0.01 from 40 units on.

    Args:
        signal: M = E[δ hᵀ], the gradient of the population, of the shape (..., m, n).
        left: S_δ = E[δ δᵀ], of the shape (..., m, m); means are not taken off.
        right: S_h = E[h hᵀ], of the shape (..., n, n).
        batch: B, a number or one for each matrix.

    Returns:
        A float64 array of the shape (..., m, n).

    Raises:
        ValueError: B < 1, shapes that do not fit, or a diagonal entry of `left` or `right` < 0.

    Examples:
        >>> import numpy as np
        >>> from specjax.theory import batch_polar
        >>> M = 0.5 * np.eye(64)  # δ and h have the correlation 1/2 in each of 64 coordinates
        >>> found = batch_polar.mean_polar(M, np.eye(64), np.eye(64), batch=64)
        >>> round(float(np.trace(found)) / 64, 2)
        0.39
    """
    signal, left, right, batch = floats(signal, left, right, batch)
    if signal.ndim < 2:
        raise ValueError(f"signal needs to be a matrix, got the shape {signal.shape}.")
    m, n = signal.shape[-2:]
    if left.shape[-2:] != (m, m) or right.shape[-2:] != (n, n):
        raise ValueError(
            f"left and right need the shapes {(m, m)} and {(n, n)} beside a signal of {m} x {n},"
            f" got {left.shape[-2:]} and {right.shape[-2:]}."
        )
    check_in("[1, inf)", batch=batch)
    for name, moments in (("left", left), ("right", right)):
        diagonal = jnp.diagonal(moments, axis1=-2, axis2=-1)
        check_in("[0, inf)", **{f"the diagonal of {name}": diagonal})
    matrices = signal, left, right
    # Strict promotion of ranks refuses an axis that one of them lacks.
    axes = jnp.broadcast_shapes(*(each.shape[:-2] for each in matrices), batch.shape)
    broadcast = (jnp.broadcast_to(each, (*axes, *each.shape[-2:])) for each in matrices)
    return _mean_polar(*broadcast, jnp.broadcast_to(batch, axes))


@in_float64
@checked
def kept_share(
    signal: ArrayLike, left: ArrayLike, right: ArrayLike, batch: ArrayLike
) -> Float[Array, "..."]:
    """E⟨polar(G), M⟩/‖M‖_*, how much of the descent of Muon's step a batch keeps, in [0, 1].

    A step of Muon along a batch's gradient lowers the population's loss by this share of what the
    step along the population's gradient does, to first order in its length. Without a signal it
    is 0.

    Raises:
        ValueError: as `mean_polar`.

    Examples:
        >>> import numpy as np
        >>> from specjax.theory import batch_polar
        >>> M = 0.5 * np.eye(64)
        >>> found = batch_polar.kept_share(M, np.eye(64), np.eye(64), [16, 64, 256])
        >>> np.round(np.asarray(found), 2).tolist()
        [0.12, 0.39, 0.78]
    """
    signal, batch = floats(signal, batch)
    mean = mean_polar(signal, left, right, batch)
    nuclear = jnp.sum(linalg.singular_values(signal), axis=-1)
    descent = jnp.sum(mean * jnp.broadcast_to(signal, mean.shape), axis=(-2, -1))
    return descent / jnp.broadcast_to(jnp.where(nuclear > 0, nuclear, 1.0), descent.shape)


# One program, since each operation of a first run compiles alone otherwise.
@jax.jit
@partial(jnp.vectorize, signature="(m,n),(m,m),(n,n),()->(m,n)")
def _mean_polar(signal: Array, left: Array, right: Array, batch: Array) -> Array:
    """The integral over t = s tan² φ, from large t, where p and q are known, to small."""
    m, n = signal.shape
    strength = jnp.sqrt(jnp.trace(left) * jnp.trace(right))
    smallest, largest = jnp.minimum(min(m, n), batch), jnp.maximum(max(m, n), batch)
    # Units in which the singular values of the noise, or of the signal, are of order 1.
    scale = strength / jnp.sqrt(smallest * largest) + jnp.linalg.norm(signal) / min(m, n) ** 0.5
    scale = jnp.where(scale > 0, scale, 1.0)
    nodes, weights = legendre(_NODES)
    tangent = np.tan(np.pi / 4 * (nodes + 1))[::-1]
    places = tangent**2
    measure = tangent * (1 + tangent**2) * weights[::-1]  # (2/π) dt/dφ, with dφ = π/4 times weight
    # In bases of the moments' eigenvectors the traces are sums of positive terms, also where a
    # moment is singular and P or Q has entries of the order 1/t.
    left, rows = _eigenbasis(left / scale)
    right, columns = _eigenbasis(right / scale)
    moments = rows.T @ (signal / scale) @ columns, left, right
    sizes = jnp.stack([jnp.sum(left), jnp.sum(right)])
    # One node before the first, where p and q fall as 1/t.
    start = jnp.log(jnp.where(sizes > 0, sizes, 1.0) / (batch * places[0])) - 1

    def integrate(state: _State, node: Array) -> tuple[_State, None]:
        numbers, slope, total = state
        t, apart, weight = node
        # At both ends p and q are powers of t, so that a line in log t comes near.
        new = _solve(numbers + slope * apart, t, moments, batch)
        corner = _corner(new, t, moments)[0]
        return (new, (new - numbers) / apart, total + weight * corner), None

    begun = jnp.append(start, 0.0), jnp.asarray([-1.0, -1.0, 0.0]), jnp.zeros_like(signal)
    apart = np.diff(np.log(places), prepend=np.log(places[0]) + 1)
    by_node = jnp.asarray(np.stack([places, apart, measure], axis=1), float)
    (_, _, total), _ = jax.lax.scan(integrate, begun, by_node)
    return rows @ total @ columns.T


def _eigenbasis(moments: Array) -> tuple[Array, Array]:
    values, vectors = jnp.linalg.eigh(moments)
    return jnp.maximum(values, 0), vectors


def _solve(numbers: Array, t: Array, moments: tuple[Array, ...], batch: Array) -> Array:
    """log p, log q and η at t, by Newton's method from the numbers at the place before.

    Its steps are at most 1 long. Where one comes nearer by less than a tenth, the next one is of
    the plain iteration, which maps half-planes into themselves and so contracts, but slowly at
    small t.
    """

    def gap(numbers: Array) -> tuple[Array, Array]:
        traces = _corner(numbers, t, moments)[1] / batch
        positive = jnp.maximum(traces[:2], jnp.finfo(traces.dtype).tiny)
        found = jnp.append(jnp.log(positive), traces[2]) - numbers
        return found, found

    def unfinished(state: _State) -> Array:
        _, size, count = state
        return (size > _CLOSE) & (count < _MOST)

    def step(state: _State) -> _State:
        numbers, before, count = state
        slope, residual = jax.jacfwd(gap, has_aux=True)(numbers)
        size = jnp.max(jnp.abs(residual))
        newton = -jnp.linalg.solve(slope, residual)
        newton /= jnp.maximum(jnp.max(jnp.abs(newton)), 1.0)
        return numbers + jnp.where(size < 0.9 * before, newton, residual), size, count + 1

    begun = numbers, jnp.asarray(jnp.inf), jnp.zeros(())
    found, size, _ = jax.lax.while_loop(unfinished, step, begun)
    return jnp.where(size <= _CLOSE, found, jnp.nan)


def _corner(numbers: Array, t: Array, moments: tuple[Array, ...]) -> tuple[Array, Array]:
    """X, and the three traces: of S_δ P, S_h Q and Mᵀ X; S_δ and S_h by their eigenvalues."""
    signal, left, right = moments
    p, q, eta = jnp.exp(numbers[0]), jnp.exp(numbers[1]), numbers[2]
    whole = (1 + eta) ** 2 + p * q
    u, v, w = q / whole, p / whole, (1 + eta) / whole
    above = jnp.concatenate([jnp.diag(t + u * left), w * signal], axis=1)
    below = jnp.concatenate([-w * signal.T, jnp.diag(t + v * right)], axis=1)
    # P and Q are its diagonal blocks. By Woodbury's identity P would cancel at small t.
    inverse = jnp.linalg.inv(jnp.concatenate([above, below]))
    m = len(left)
    corner, diagonal = -inverse[:m, m:], jnp.diagonal(inverse)
    traces = [left @ diagonal[:m], right @ diagonal[m:], jnp.sum(signal * corner)]
    return corner, jnp.stack(traces)
