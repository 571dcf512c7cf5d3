"""Decompositions that cannot wait for each other: on a CPU a batch of them is computed one matrix after the other.

jaxlib 0.10.0 to 0.11.0 cut a batched LAPACK call (svd, eigh, qr, lu, cholesky, triangular solves) into tasks for XLA's pool of threads and
wait for them on a thread of that pool. As many calls at once as the pool has threads then never end, be they in one program, in two,
or in one program on several devices. A call for one matrix is not cut and waits for nothing. So no order among calls is needed, which
could not be kept between programs anyway. Later versions compute a batch in this way themselves, and the loop costs them little: tasks
of OpenBLAS are hardly faster side by side (jax issue 36927).

Only functions that decompose are treated so, and only where they run on a CPU: elsewhere a batch stays a batch.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core
from jaxtyping import Array, Inexact

from specjax.spectral.compact_svd import compact_svd
from specjax.spectral.scaling import nan_unless_finite

# The primitives that jaxlib hands to LAPACK on a CPU, and foreign calls, which may do as it does.
DECOMPOSITIONS = frozenset(
    {
        "cholesky",
        "eig",
        "eigh",
        "ffi_call",
        "geqp3",
        "geqrf",
        "hessenberg",
        "householder_product",
        "lu",
        "ormqr",
        "qr",
        "schur",
        "svd",
        "triangular_solve",
        "tridiagonal",
        "tridiagonal_solve",
    }
)


def one_by_one(function: Callable[..., Any], *arrays: Array) -> Any:
    """function(*arrays), and under `vmap` on a CPU one after the other if `function` decomposes matrices, by its trace.

    Derivatives of both modes and any order are those of `function`. What they decompose comes one by one as well, except for triangular
    solves with the tangents themselves, as in the derivative of a solution.

    Args:
        function: Takes arrays to a tree of arrays. It may close over traced values.
        *arrays: Its arguments.

    Returns:
        What `function` returns.

    """
    # Outside every transformation there is no batch, and the function may look at its values.
    if not any(isinstance(array, jax.core.Tracer) for array in arrays):
        return function(*arrays)
    closed, shapes = jax.make_jaxpr(function, return_shape=True)(*arrays)
    # Without decompositions what was traced is used as it is: a second trace would call the function twice.
    evaluate = _evaluate if decomposes(closed.jaxpr) else _plain
    return jax.tree.unflatten(jax.tree.structure(shapes), evaluate(closed.jaxpr, *closed.consts, *arrays))


# Outside jit a loop would be compiled anew at each call. A function that is given here is kept, so it must close over nothing traced.
compiled_one_by_one = jax.jit(one_by_one, static_argnums=0, inline=True)


def svd(x: Inexact[Array, "*batch m n"]) -> tuple[Array, Array, Array]:
    """The compact singular value decomposition (U, s, Vᴴ) of each matrix, as `jnp.linalg.svd`; NaN for one that is not finite."""
    compact = partial(compiled_one_by_one, compact_svd)
    return jnp.vectorize(compact, signature="(m,n)->(m,k),(k),(k,n)")(x)


def singular_values(x: Inexact[Array, "*batch m n"]) -> Array:
    """Those of each matrix, in descending order, as `jnp.linalg.svd`; NaN for one that is not finite."""
    return jnp.vectorize(partial(compiled_one_by_one, _singular_values), signature="(m,n)->(k)")(x)


def eigh(h: Inexact[Array, "*batch n n"], *, symmetrize_input: bool = True) -> tuple[Array, Array]:
    """Eigenvalues and eigenvectors of each Hermitian matrix, as `jnp.linalg.eigh`; of the lower triangle if it is not symmetrized."""
    one = _eigh if symmetrize_input else _eigh_of_lower_triangle
    return jnp.vectorize(partial(compiled_one_by_one, one), signature="(n,n)->(n),(n,n)")(h)


def eigvalsh(h: Inexact[Array, "*batch n n"]) -> Array:
    """Eigenvalues of each Hermitian matrix in ascending order, as `jnp.linalg.eigvalsh`."""
    return jnp.vectorize(partial(compiled_one_by_one, jnp.linalg.eigvalsh), signature="(n,n)->(n)")(h)


def qr(x: Inexact[Array, "*batch m n"]) -> tuple[Array, Array]:
    """Q with orthonormal columns and the triangular R of each matrix, as `jnp.linalg.qr`."""
    return jnp.vectorize(partial(compiled_one_by_one, _qr), signature="(m,n)->(m,k),(k,n)")(x)


def _singular_values(x: Array) -> Array:
    return jnp.linalg.svd(nan_unless_finite(x), compute_uv=False)


def _eigh(h: Array) -> tuple[Array, Array]:
    values, vectors = jnp.linalg.eigh(h)
    return values, vectors


def _eigh_of_lower_triangle(h: Array) -> tuple[Array, Array]:
    values, vectors = jnp.linalg.eigh(h, symmetrize_input=False)
    return values, vectors


def _qr(x: Array) -> tuple[Array, Array]:
    q, r = jnp.linalg.qr(x)
    return q, r


def decomposes(jaxpr: core.Jaxpr) -> bool:
    """Whether a program hands matrices to LAPACK on a CPU, in a loop or a branch too."""
    return any(eqn.primitive.name in DECOMPOSITIONS for eqn in jaxpr.eqns) or any(
        map(decomposes, core.subjaxprs(jaxpr))
    )


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _evaluate(jaxpr: core.Jaxpr, *values: Array) -> tuple[Array, ...]:
    """The results of `jaxpr` for the values of its constants and arguments."""
    plain = partial(_plain, jaxpr)
    alone = jax.custom_batching.custom_vmap(plain)

    @alone.def_vmap
    def _(size: int, batched: Sequence[bool], *values: Array) -> tuple[tuple[Array, ...], tuple[bool, ...]]:
        def in_turn(*values: Array) -> tuple[Array, ...]:
            def member(rows: list[Array]) -> tuple[Array, ...]:
                row = iter(rows)
                # Not `plain`: a further batch axis is taken in turn too.
                return alone(*(next(row) if b else v for v, b in zip(values, batched, strict=True)))

            return jax.lax.map(member, [v for v, b in zip(values, batched, strict=True) if b])

        at_once = jax.vmap(plain, in_axes=[0 if b else None for b in batched], axis_size=size)
        results = jax.lax.platform_dependent(*values, cpu=in_turn, default=at_once)
        return results, (True,) * len(results)

    return alone(*values)


@_evaluate.defjvp
def _derivative(
    jaxpr: core.Jaxpr, primals: tuple[Array, ...], tangents: tuple[Array, ...]
) -> tuple[tuple[Array, ...], Any]:  # tangents of integers are NumPy's float0
    # The loop computes the coefficients of the linear map, since it could not be transposed itself.
    results, linear = one_by_one(partial(jax.linearize, partial(_plain, jaxpr)), *primals)
    return results, linear(*tangents)


def _plain(jaxpr: core.Jaxpr, *values: Array) -> tuple[Array, ...]:
    constants = len(jaxpr.constvars)
    return tuple(jax.core.eval_jaxpr(jaxpr, values[:constants], *values[constants:]))
