"""Tikhonov's filter in the polar factor's place: against a solved linear system, and at its
edges.
"""

import jax
import numpy as np
import optax
import pytest

from specjax import optim, spectral

polar = jax.jit(spectral.polar, static_argnums=1)


@pytest.mark.parametrize("shape", [(6, 6), (4, 9), (9, 4)])
def test_it_is_a_regularized_inverse_of_unit_mean_square(shape):
    g = np.random.default_rng(0).standard_normal(shape)
    ridge = (0.7 * np.median(np.linalg.svd(g, compute_uv=False))) ** 2
    expected = g @ np.linalg.inv(g.T @ g + ridge * np.eye(shape[1]))
    expected *= np.sqrt(min(shape)) / np.linalg.norm(expected)
    found = polar(np.float32(1e-8 * g), spectral.Tikhonov(0.7))
    np.testing.assert_allclose(found, expected, atol=3e-6)


def test_extreme_shares_are_the_pseudo_inverse_and_gradient():
    g = np.random.default_rng(1).standard_normal((5, 7))
    for share, limit in ((1e-4, np.linalg.pinv(g).T), (1e4, g)):
        found = np.asarray(polar(np.float32(g), spectral.Tikhonov(share)))
        np.testing.assert_allclose(
            found / np.linalg.norm(found), limit / np.linalg.norm(limit), atol=1e-5
        )


@pytest.mark.integration
def test_zeros_stay_and_do_not_count():
    g = np.random.default_rng(2).standard_normal((3, 4)).astype(np.float32)
    padded = np.pad(g, ((0, 2), (0, 1)))
    found = np.asarray(polar(padded, spectral.Tikhonov()))
    np.testing.assert_allclose(found[:3, :4], polar(g, spectral.Tikhonov()), atol=1e-6)
    assert np.abs(found[3:]).max() < 1e-6
    assert np.abs(found[:, 4:]).max() < 1e-6
    assert not np.asarray(polar(0 * g, spectral.Tikhonov())).any()
    assert np.isnan(polar(np.nan * g, spectral.Tikhonov())).all()


@pytest.mark.integration
def test_it_stands_in_an_optax_chain():
    g = np.random.default_rng(3).standard_normal((2, 5, 3)).astype(np.float32)
    chain = optax.chain(optim.orthogonalize(spectral.Tikhonov()), optax.scale(-0.5))
    update = jax.jit(lambda gradients: chain.update(gradients, chain.init(gradients))[0])({"w": g})
    np.testing.assert_allclose(
        update["w"], -0.5 * np.asarray(polar(g, spectral.Tikhonov())), rtol=1e-6
    )


def test_a_share_is_positive():
    with pytest.raises(ValueError, match="positive share of the median singular value, got 0"):
        spectral.Tikhonov(0.0)
