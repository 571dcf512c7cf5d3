"""Ranks along a training, against singular values of what a transformer in numpy multiplies."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.models import transformer
from specjax.models.transformer import Architecture, Sequences
from specjax.training import measure_ranks
from tests.reference import transformer as reference

pytestmark = pytest.mark.integration


def test_ranks_of_a_transformer():
    model = transformer.init(jax.random.key(0), Architecture(9, 16, 12, heads=2, activation="swiglu"))
    tokens = np.array(jax.random.randint(jax.random.key(1), (5, 13), 0, 9))
    batch = Sequences(jnp.asarray(tokens))
    ranks = jax.jit(lambda m: measure_ranks(transformer.loss, m, batch))(model)
    gradient = jax.tree.map(np.asarray, jax.grad(transformer.loss)(model, batch))
    seen = [reference.forward(jax.tree.map(np.asarray, model), row[:-1])[1] for row in tokens]
    for name, layer in seen[0]:
        in_blocks = layer is not None
        stable = getattr(ranks.stable.blocks, name)[layer] if in_blocks else ranks.stable.head
        nuclear = getattr(ranks.nuclear.blocks, name)[layer] if in_blocks else ranks.nuclear.head
        s = np.linalg.svd(np.concatenate([inputs[name, layer] for inputs in seen]), compute_uv=False)
        np.testing.assert_allclose(stable, np.sum(s**2) / s[0] ** 2, rtol=0.02, err_msg=name)
        s = np.linalg.svd(getattr(gradient.blocks, name)[layer] if in_blocks else gradient.head, compute_uv=False)
        np.testing.assert_allclose(nuclear, s.sum() ** 2 / np.sum(s**2), rtol=1e-3, err_msg=name)
    counts = np.bincount(tokens[:, :-1].ravel())
    np.testing.assert_allclose(ranks.stable.embedding, counts.sum() / counts.max(), rtol=1e-5)
    assert ranks.stable.positions is None
    assert ranks.nuclear.positions is None
