"""What is read off a lowered program: which matrices LAPACK is to decompose, real and complex, alone and in batches."""

import jax
import jax.numpy as jnp
import pytest

from specjax.sweep.lapack import calls_lapack, decomposed


def lowered(function, shape, dtype=jnp.float32):
    return jax.jit(function).lower(jax.ShapeDtypeStruct(shape, dtype)).as_text()


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.complex64])
def test_every_decomposition_is_found_with_its_extents(dtype):
    assert decomposed(lowered(jnp.linalg.svd, (5, 3), dtype)) == [(5, 3)]
    assert decomposed(lowered(jax.vmap(jnp.linalg.eigh), (7, 4, 4), dtype)) == [(7, 4, 4)]


def test_a_program_without_one_has_none():
    text = lowered(lambda x: x @ x, (4, 4))
    assert not calls_lapack(text)
    assert decomposed(text) == []
    assert calls_lapack(lowered(jnp.linalg.svd, (4, 4)))
