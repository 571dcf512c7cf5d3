"""Bytes moved, against counts by hand."""

import jax
import jax.numpy as jnp
import pytest

from specjax.sweep.traffic import traffic

N = 32
PASS = 4 * N * N
MATRIX = jax.ShapeDtypeStruct((N, N), jnp.float32)


def moved(f, *arguments):
    return traffic(jax.jit(f).trace(*arguments).jaxpr.jaxpr)


@pytest.mark.parametrize(
    ("f", "passes"),
    [
        # However many operations: the input is read, the result is written.
        (lambda x: jnp.tanh(3 * x**5 - x) / (1 + jnp.abs(x)), 2),
        # Calls that XLA inlines, with and without a derivative rule of their own.
        (lambda x: jnp.where(x > 0, jnp.clip(x, 0, 1), jax.nn.relu(-x)), 2),
        # Two reads and a write.
        (lambda x: x @ x, 3),
        # The operand is written first, read twice, and the product is read and written once more.
        (lambda x: 2 * (jnp.exp(x) @ jnp.exp(x)), 1 + 2 + 2 + 1 + 1 + 1),
        # A product of a product: nothing is written twice.
        (lambda x: (x @ x) @ x, 6),
    ],
)
def test_it_counts_what_stands_in_memory(f, passes):
    assert moved(f, MATRIX) == passes * PASS


def test_reductions_are_fused_with_their_operands():
    assert moved(lambda x: jnp.sum(jnp.sin(x) ** 2, axis=1), MATRIX) == PASS + 4 * N


def test_a_scan_counts_its_body_as_often_as_it_is_long():
    def repeated(x, length):
        return jax.lax.scan(lambda y, _: (y @ y, None), x, length=length)[0]

    one, ten = (moved(lambda x, k=k: repeated(x, k), MATRIX) for k in (1, 10))
    assert ten - one == 9 * 3 * PASS
