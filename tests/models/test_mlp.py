"""Networks and decoder blocks against a plain numpy forward pass."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.models import decoder_block, mlp
from specjax.sizes import Size


def silu(t):
    return t / (1 + np.exp(-t))


@pytest.mark.integration
def test_layers_of_a_gated_and_a_plain_network():
    x = np.asarray(jax.random.normal(jax.random.key(1), (7, 5)))
    gated = mlp.init(jax.random.key(0), (5, 6, 4, 2), "swiglu")
    assert [w.shape for w in gated] == [(12, 5), (8, 6), (2, 4)]
    a = x
    for found, w in zip(mlp.layer_inputs(gated, jnp.asarray(x), "swiglu"), gated, strict=True):
        np.testing.assert_allclose(found, a, atol=1e-5)
        z = a @ np.asarray(w).T
        a = silu(z[:, : z.shape[1] // 2]) * z[:, z.shape[1] // 2 :]
    plain = mlp.init(jax.random.key(0), (5, 6, 2), "relu_squared")
    expected = np.maximum(x @ np.asarray(plain[0]).T, 0) ** 2 @ np.asarray(plain[1]).T
    np.testing.assert_allclose(mlp.forward(plain, jnp.asarray(x), "relu_squared"), expected, atol=1e-5)
    y = np.ones((7, 2), np.float32)
    loss = mlp.loss(plain, (jnp.asarray(x), jnp.asarray(y)), "relu_squared")
    assert loss == pytest.approx(np.sum((expected - 1) ** 2) / 14, rel=1e-5)


def test_the_distributions_of_the_weights():
    (normal,), (uniform,) = (mlp.init(jax.random.key(0), (400, 300), distribution=d) for d in ("normal", "uniform"))
    # 120000 entries: four standard errors are 1.6% of a variance of N(0, 1/400), and 1.04% of U's.
    assert jnp.var(normal) * 400 == pytest.approx(1, abs=0.017)
    assert jnp.var(uniform) * 1200 == pytest.approx(1, abs=0.011)
    assert jnp.max(jnp.abs(uniform)) * 20 == pytest.approx(1, abs=1e-3)
    assert jnp.mean(uniform) * 20 == pytest.approx(0, abs=0.007)


@pytest.mark.integration
def test_padding_changes_nothing():
    draw = jax.jit(
        lambda dims, distribution: mlp.init(jax.random.key(0), dims, distribution=distribution), static_argnums=(0, 1)
    )
    for distribution in ("normal", "uniform"):
        padded = draw((Size(6, 4), Size(9, 5), 3), distribution)
        plain = draw((4, 5, 3), distribution)
        np.testing.assert_array_equal(padded[0][:5, :4], plain[0])
        np.testing.assert_array_equal(padded[0][5:], 0)
        # The scale 1/√fan_in is a constant of one program and an argument of the other.
        np.testing.assert_allclose(padded[1][:, :5], plain[1], rtol=1e-6)


@pytest.mark.integration
@pytest.mark.parametrize("causal", [False, True])
def test_a_decoder_block(causal):
    block = decoder_block.init(jax.random.key(0), 6, 10)
    x = np.asarray(jax.random.normal(jax.random.key(1), (8, 6)))
    found = decoder_block.apply(block, jnp.asarray(x), causal=causal)

    def rms(z):
        return z * np.sqrt(6) / np.linalg.norm(z, axis=1, keepdims=True)

    # As the paper writes it, tokens in columns.
    wq, wk, wv, wo, w1, w2 = (np.asarray(w) for w in block)
    a = rms(x).T
    scores = (wk @ a).T @ (wq @ a) / np.sqrt(6)
    if causal:
        scores[np.tril_indices(8, -1)] = -np.inf
    p = np.exp(scores) / np.exp(scores).sum(0)
    h = wv @ a @ p
    attended = x.T + wo @ h
    hidden = np.maximum(w1 @ rms(attended.T).T, 0)
    expected = {
        "attention_input": a,
        "attention_mixed": h,
        "after_attention": attended,
        "mlp_input": rms(attended.T).T,
        "mlp_preactivation": w1 @ rms(attended.T).T,
        "mlp_hidden": hidden,
        "output": attended + w2 @ hidden,
    }
    assert set(expected) == set(found._fields)
    for name, value in expected.items():
        np.testing.assert_allclose(getattr(found, name), value.T, atol=1e-5)


def test_tokens_and_embeddings():
    probabilities = jnp.asarray([0.5, 0.3, 0.2])
    tokens = decoder_block.zipf_tokens(jax.random.key(0), 10_000, probabilities)
    shares = np.bincount(np.asarray(tokens)) / 10_000
    assert np.all(np.abs(shares - probabilities) < 4 * np.sqrt(0.25 / 10_000))
    embedded = decoder_block.embed(jax.random.key(1), tokens[:20], 3, 4)
    for i in range(20):
        np.testing.assert_array_equal(embedded[i], embedded[int(np.argmax(np.asarray(tokens) == int(tokens[i])))])


@pytest.mark.usefixtures("unchecked")
def test_what_is_refused():
    key = jax.random.key(0)
    with pytest.raises(ValueError, match="no activation 'sin'; there are relu"):
        mlp.init(key, (2, 3), "sin")
    with pytest.raises(ValueError, match="'normal' or 'uniform'"):
        mlp.init(key, (2, 3), distribution="cauchy")
    with pytest.raises(ValueError, match="at least an input"):
        mlp.init(key, (2,))
    with pytest.raises(ValueError, match="must be ints"):
        mlp.init(key, (2, Size(4, 3), 2), "swiglu")
