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
    x = np.random.default_rng(0).standard_normal((7, 5)).astype(np.float32)
    y = np.ones((7, 2), np.float32)

    @jax.jit
    def both(key, x, y):
        gated = mlp.init(key, (5, 6, 4, 2), "swiglu")
        plain = mlp.init(key, (5, 6, 2), "relu_squared")
        outputs = mlp.forward(plain, x, "relu_squared"), mlp.loss(plain, (x, y), "relu_squared")
        return gated, mlp.layer_inputs(gated, x, "swiglu"), plain, outputs

    gated, inputs, plain, (output, loss) = jax.tree.map(np.asarray, both(jax.random.key(0), x, y))
    assert [w.shape for w in gated] == [(12, 5), (8, 6), (2, 4)]
    a = x
    for found, w in zip(inputs, gated, strict=True):
        np.testing.assert_allclose(found, a, atol=1e-5)
        z = a @ w.T
        a = silu(z[:, : z.shape[1] // 2]) * z[:, z.shape[1] // 2 :]
    expected = np.maximum(x @ plain[0].T, 0) ** 2 @ plain[1].T
    np.testing.assert_allclose(output, expected, atol=1e-5)
    assert loss == pytest.approx(np.sum((expected - 1) ** 2) / 14, rel=1e-5)


def test_the_distributions_of_the_weights():
    draw = jax.jit(
        lambda key: [
            mlp.init(key, (400, 300), distribution=distribution)[0]
            for distribution in ("normal", "uniform")
        ]
    )
    normal, uniform = map(np.asarray, draw(jax.random.key(0)))
    # 120000 entries: four standard errors are 1.6% of a variance of N(0, 1/400), and 1.04% of U's.
    assert np.var(normal) * 400 == pytest.approx(1, abs=0.017)
    assert np.var(uniform) * 1200 == pytest.approx(1, abs=0.011)
    assert np.max(np.abs(uniform)) * 20 == pytest.approx(1, abs=1e-3)
    assert np.mean(uniform) * 20 == pytest.approx(0, abs=0.007)


@pytest.mark.integration
def test_padding_changes_nothing():
    draw = jax.jit(
        lambda dims, distribution: mlp.init(jax.random.key(0), dims, distribution=distribution),
        static_argnums=(0, 1),
    )
    for distribution in ("normal", "uniform"):
        dims = (Size(6, 4), Size(9, 5), 3), (4, 5, 3)
        padded, plain = (jax.tree.map(np.asarray, draw(of, distribution)) for of in dims)
        np.testing.assert_array_equal(padded[0][:5, :4], plain[0])
        np.testing.assert_array_equal(padded[0][5:], 0)
        # The scale 1/√fan_in is a constant of one program and an argument of the other.
        np.testing.assert_allclose(padded[1][:, :5], plain[1], rtol=1e-6)


@pytest.mark.integration
@pytest.mark.parametrize("causal", [False, True])
def test_a_decoder_block(causal):
    x = np.random.default_rng(0).standard_normal((8, 6)).astype(np.float32)

    @jax.jit
    def applied(key, x):
        block = decoder_block.init(key, 6, 10)
        return block, decoder_block.apply(block, x, causal=causal)

    block, found = jax.tree.map(np.asarray, applied(jax.random.key(0), x))

    def rms(z):
        return z * np.sqrt(6) / np.linalg.norm(z, axis=1, keepdims=True)

    # As the paper writes it, tokens in columns.
    wq, wk, wv, wo, w1, w2 = block
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
        np.testing.assert_array_equal(
            embedded[i], embedded[int(np.argmax(np.asarray(tokens) == int(tokens[i])))]
        )


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
