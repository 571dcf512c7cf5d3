"""On jaxlib 0.10 decompositions in a measurement: one matrix at a time for LAPACK, with the numbers
that batches give.
"""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.programs.one_at_a_time import IS_NEEDED, without_batches

pytestmark = pytest.mark.skipif(
    not IS_NEEDED, reason="From 0.11.1 on jaxlib takes the matrices of a batch one by one itself."
)


def decomposed(text):
    """The extents of what each LAPACK call decomposes."""
    found = re.findall(r"@lapack_\w+\(.*\) .*: \(tensor<((?:\d+x){2,})", text)
    return [tuple(map(int, extents.split("x")[:-1])) for extents in found]


def stacked(x):
    return jnp.linalg.eigvalsh(jnp.stack([x + x.T, x @ x.T, x.T @ x]))


def in_a_scan(x):
    return jax.lax.scan(
        lambda c, shift: (jnp.linalg.qr(c + shift)[1], jnp.linalg.svd(c)[1]), x, jnp.arange(3.0)
    )


def in_a_loop(x):
    return jax.lax.while_loop(
        lambda c: jnp.linalg.slogdet(c)[1] < 9.0, lambda c: 2 * c + jnp.linalg.inv(c), x
    )


def in_a_branch(x):
    return jax.lax.cond(
        x[0, 0] > 0, lambda y: jnp.linalg.svd(y)[1], lambda y: jnp.linalg.eigvalsh(y @ y.T), x
    )


def solved(x):
    factor = jax.scipy.linalg.cho_factor(x @ x.T + jnp.eye(4))
    return jax.scipy.linalg.cho_solve(factor, x), jax.grad(lambda y: jnp.linalg.norm(y, "nuc"))(x)


def in_loops_side_by_side(x):
    return jax.vmap(in_a_loop)(jnp.stack([x, 3 * x, 9 * x]))


@pytest.mark.parametrize(
    "function", [stacked, in_a_scan, in_a_loop, in_loops_side_by_side, in_a_branch, solved]
)
def test_no_batch_reaches_lapack_and_the_numbers_stay(function):
    x = jax.random.normal(jax.random.key(0), (5, 4, 4))
    batched, alone = (
        jax.jit(jax.vmap(f)) for f in (function, without_batches(jax.jit(function).trace(x[0])))
    )
    assert any(len(extents) > 2 for extents in decomposed(batched.lower(x).as_text()))
    assert not any(len(extents) > 2 for extents in decomposed(alone.lower(x).as_text()))
    found, expected = (jax.tree.leaves(f(x)) for f in (alone, batched))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


def test_a_measurement_without_one_keeps_its_program():
    def product(y):
        return jnp.sin(y @ y)

    x = jnp.ones((5, 4, 4))
    own, kept = (
        jax.jit(jax.vmap(f)).lower(x).as_text().split("\n", 1)[1]
        for f in (product, without_batches(jax.jit(product).trace(x[0])))
    )
    assert own == kept
