"""What the experiment on layered models computes, beside brute force."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from specjax import sweep
from specjax.experiments.spectral_criterion import layered
from specjax.models import decoder_block

pytestmark = pytest.mark.usefixtures("x64")


@pytest.mark.integration
def test_attention_has_the_blocks_jacobian_and_its_whole_norm():
    keys = jax.random.split(jax.random.key(0), 3)

    @jax.jit
    def measured():
        x, block = jax.random.normal(keys[0], (5, 3)), decoder_block.init(keys[1], 3, 4)
        found = decoder_block.apply(block, x)
        at = jnp.stack([found.attention_input @ w.T for w in (block.query, block.key, block.value)])
        whole = jax.jacobian(lambda stacked: decoder_block.attention(stacked, 3))(at).reshape(
            15, 45
        )
        norm = decoder_block.attention_derivative(keys[2], at, 3)
        return decoder_block.attention(at, 3), found.attention_mixed, whole, norm

    again, mixed, whole, norm = measured()
    np.testing.assert_allclose(again, mixed, rtol=1e-12)
    np.testing.assert_allclose(norm, np.linalg.norm(whole, 2), rtol=1e-6)


@pytest.mark.integration
@pytest.mark.parametrize("name", list(layered.NETWORKS))
def test_a_mixed_step_is_the_minimizer_of_its_bound(name):
    """Its linear term is twice the promise, whatever is spectral, and no curvature takes more than
    half of that back.
    """
    found = jax.jit(lambda key: layered.network(key, name))(jax.random.key(3))
    np.testing.assert_allclose(found["linear"][3:], 2, rtol=1e-9)
    assert np.all(np.asarray(found["quadratic"][3:]) <= 1)
    assert all(
        np.all(np.asarray(found[bound]) <= 1)
        for bound in ("first", "second", "hessian", "samplewise")
    )


@pytest.mark.slow
def test_padding_does_not_change_the_jacobians_of_a_width():
    """Rejects a power iteration that starts from a sample of the padded shape: the starts, and what
    fifty steps come to, then differ.
    """
    over = {"d": sweep.widths(4, 8, 16)}
    exact, padded = (
        sweep.run(layered.jacobians, over, num_seeds=20, key=jax.random.key(0), plan=plan)
        for plan in ("exact", "padded")
    )
    xr.testing.assert_allclose(exact, padded, rtol=1e-12)
