"""Models of flax and haiku as their users write them, with what every leaf is; of what is not
installed there is none.

Each is a function that gives loss, abstract parameters, abstract batch and the truth, as in
`models`.
"""

import jax
import jax.numpy as jnp

from tests.diagnostics.layout.models import (
    BATCH,
    EXPERTS,
    HIDDEN,
    TEXT,
    TOKENS,
    D,
    cross_entropy,
    shaped,
    squares,
)

KEY = jax.random.key(0)
IMAGES = (shaped(7, 12, 12, 3), shaped(7, 1))


def named(prefix, truth):
    return {f"{prefix}.{name}": what for name, what in truth.items()}


def linen_attention():
    from flax import linen as nn

    class Network(nn.Module):
        @nn.compact
        def __call__(self, tokens):
            x = nn.Embed(TOKENS, D)(tokens)
            a = nn.LayerNorm()(x)
            x = x + nn.MultiHeadDotProductAttention(num_heads=2)(
                a, mask=nn.make_causal_mask(tokens)
            )
            x = x + nn.Dense(D)(nn.gelu(nn.Dense(HIDDEN)(x)))
            return nn.Dense(TOKENS)(x)

    model = Network()
    params = jax.eval_shape(model.init, KEY, jnp.ones((2, 5), int))
    attention = {f"{name}.kernel": "in out out" for name in ("query", "key", "value")} | {
        "out.kernel": "in in out"
    }
    attention |= {f"{name}.bias": "bias" for name in ("query", "key", "value", "out")}
    truth = {"Embed_0.embedding": "lookup", "LayerNorm_0.scale": "gain", "LayerNorm_0.bias": "bias"}
    truth |= named("MultiHeadDotProductAttention_0", attention)
    truth |= {f"Dense_{i}.kernel": "in out" for i in range(3)} | {
        f"Dense_{i}.bias": "bias" for i in range(3)
    }
    return cross_entropy(model.apply), params, TEXT, named("params", truth)


def linen_cnn():
    from flax import linen as nn

    class Network(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = nn.relu(nn.Conv(8, (3, 3), strides=2)(x))
            x = nn.Conv(8, (3, 3), feature_group_count=2)(nn.GroupNorm(2)(x))
            x = nn.ConvTranspose(4, (2, 2), strides=(2, 2))(x)
            return nn.Dense(1)(x.mean(axis=(1, 2)))

    model = Network()
    params = jax.eval_shape(model.init, KEY, jnp.ones(IMAGES[0].shape))
    conv = "in in in out"
    truth = {
        "Conv_0.kernel": conv,
        "Conv_0.bias": "bias",
        "GroupNorm_0.scale": "gain",
        "GroupNorm_0.bias": "bias",
        "Conv_1.kernel": f"{conv} / 4 4",
        "Conv_1.bias": "bias",
        "ConvTranspose_0.kernel": conv,
        "ConvTranspose_0.bias": "bias",
        "Dense_0.kernel": "in out",
        "Dense_0.bias": "bias",
    }
    return squares(model.apply), params, IMAGES, named("params", truth)


def linen_scan():
    from flax import linen as nn

    class Block(nn.Module):
        @nn.compact
        def __call__(self, x, _):
            a = nn.RMSNorm()(x)
            x = x + nn.MultiHeadDotProductAttention(num_heads=2)(a)
            return x + nn.Dense(D)(nn.gelu(nn.Dense(HIDDEN)(x))), None

    class Network(nn.Module):
        @nn.compact
        def __call__(self, x):
            blocks = nn.scan(
                nn.remat(Block), variable_axes={"params": 0}, split_rngs={"params": True}, length=3
            )
            x, _ = blocks(name="blocks")(x[:, None], None)
            return nn.Dense(1)(x[:, 0])

    model = Network()
    params = jax.eval_shape(model.init, KEY, jnp.ones(BATCH[0].shape))
    attention = {f"{name}.kernel": "batch in out out" for name in ("query", "key", "value")}
    attention |= {"out.kernel": "batch in in out"} | {
        f"{name}.bias": "bias" for name in ("query", "key", "value", "out")
    }
    truth = {"RMSNorm_0.scale": "gain"} | named("MultiHeadDotProductAttention_0", attention)
    truth |= {f"Dense_{i}.kernel": "batch in out" for i in range(2)} | {
        f"Dense_{i}.bias": "bias" for i in range(2)
    }
    ends = {"params.Dense_0.kernel": "in out", "params.Dense_0.bias": "bias"}
    return squares(model.apply), params, BATCH, named("params.blocks", truth) | ends


def of_nnx(make, wrap, batch, truth):
    """A model of nnx as (graph, parameters), the usual way to a pure function."""
    from flax import nnx

    graph, params = nnx.split(nnx.eval_shape(make))
    return wrap(lambda params, x: nnx.merge(graph, params)(x)), params, batch, truth


def nnx_mlp():
    from flax import nnx

    class Network(nnx.Module):
        def __init__(self, rngs):
            self.layers = nnx.List(
                [nnx.Linear(D, HIDDEN, rngs=rngs), nnx.Linear(HIDDEN, 1, rngs=rngs)]
            )

        def __call__(self, x):
            return self.layers[1](nnx.relu(self.layers[0](x)))

    truth = {f"layers.{i}.kernel": "in out" for i in range(2)} | {
        f"layers.{i}.bias": "bias" for i in range(2)
    }
    return of_nnx(lambda: Network(nnx.Rngs(0)), squares, BATCH, truth)


def nnx_transformer():
    from flax import nnx

    class Network(nnx.Module):
        def __init__(self, rngs):
            self.embed = nnx.Embed(TOKENS, D, rngs=rngs)
            self.norm = nnx.RMSNorm(D, rngs=rngs)
            self.attention = nnx.MultiHeadAttention(2, D, decode=False, rngs=rngs)
            self.gate_up = nnx.Linear(D, 2 * HIDDEN, use_bias=False, rngs=rngs)
            self.down = nnx.Linear(HIDDEN, D, use_bias=False, rngs=rngs)

        def __call__(self, tokens):
            x = self.embed(tokens)
            x = x + self.attention(self.norm(x), mask=nnx.make_causal_mask(tokens))
            gate, up = jnp.split(self.gate_up(x), 2, axis=-1)
            return self.embed.attend(x + self.down(nnx.silu(gate) * up))

    truth = {
        "embed.embedding": "lookup",
        "norm.scale": "gain",
        "gate_up.kernel": "in out / 10 10",
        "down.kernel": "in out",
        "attention.out.kernel": "in in out",
        **{f"attention.{name}.kernel": "in out out" for name in ("query", "key", "value")},
        **{f"attention.{name}.bias": "bias" for name in ("query", "key", "value", "out")},
    }
    return of_nnx(lambda: Network(nnx.Rngs(0)), cross_entropy, TEXT, truth)


def nnx_experts():
    from flax import nnx

    class Network(nnx.Module):
        def __init__(self, rngs):
            draw = nnx.initializers.lecun_normal()
            self.router = nnx.Linear(D, EXPERTS, use_bias=False, rngs=rngs)
            self.up = nnx.Param(draw(rngs.params(), (EXPERTS, D, HIDDEN)))
            self.down = nnx.Param(draw(rngs.params(), (EXPERTS, HIDDEN, 1)))

        def __call__(self, x):
            gates = nnx.softmax(self.router(x))
            hidden = nnx.relu(jnp.einsum("bd,edh->beh", x, self.up[...]))
            return jnp.einsum("beh,ehd,be->bd", hidden, self.down[...], gates)

    truth = {"router.kernel": "in out", "up": "batch in out", "down": "batch in out"}
    return of_nnx(lambda: Network(nnx.Rngs(0)), squares, BATCH, truth)


def of_haiku(network, wrap, batch, example, truth):
    import haiku as hk

    model = hk.without_apply_rng(hk.transform(network))
    return wrap(model.apply), jax.eval_shape(model.init, KEY, example), batch, truth


def haiku_mlp():
    import haiku as hk

    truth = {f"mlp/~/linear_{i}.w": "in out" for i in range(2)} | {
        f"mlp/~/linear_{i}.b": "bias" for i in range(2)
    }
    return of_haiku(
        lambda x: hk.nets.MLP([HIDDEN, 1])(x), squares, BATCH, jnp.ones(BATCH[0].shape), truth
    )


def haiku_transformer():
    import haiku as hk

    def network(tokens):
        x = hk.Embed(TOKENS, D)(tokens)
        a = hk.LayerNorm(-1, create_scale=True, create_offset=True)(x)
        mask = jnp.tril(jnp.ones((1, 1, tokens.shape[1], tokens.shape[1])))
        x = x + hk.MultiHeadAttention(2, 4, w_init=hk.initializers.VarianceScaling(), model_size=D)(
            a, a, a, mask
        )
        return hk.Linear(TOKENS)(x)

    projections = {
        f"multi_head_attention/{name}.w": "in out" for name in ("query", "key", "value", "linear")
    }
    projections |= {name.removesuffix("w") + "b": "bias" for name in projections}
    truth = {
        "embed.embeddings": "lookup",
        "layer_norm.scale": "gain",
        "layer_norm.offset": "bias",
        **projections,
    }
    truth |= {"linear.w": "in out", "linear.b": "bias"}
    return of_haiku(network, cross_entropy, TEXT, jnp.ones((2, 5), int), truth)


def haiku_cnn():
    import haiku as hk

    def network(x):
        x = jax.nn.relu(hk.Conv2D(8, 3, stride=2)(x))
        return hk.Linear(1)(jnp.mean(hk.DepthwiseConv2D(1, 3)(x), axis=(1, 2)))

    truth = {
        "conv2_d.w": "in in in out",
        "conv2_d.b": "bias",
        "depthwise_conv2_d.w": "convolution",
        "depthwise_conv2_d.b": "bias",
        "linear.w": "in out",
        "linear.b": "bias",
    }
    return of_haiku(network, squares, IMAGES, jnp.ones(IMAGES[0].shape), truth)


MODELS = {
    "flax": {
        "linen-attention": linen_attention,
        "linen-cnn": linen_cnn,
        "linen-scan": linen_scan,
        "nnx-mlp": nnx_mlp,
        "nnx-transformer": nnx_transformer,
        "nnx-moe": nnx_experts,
    },
    "haiku": {
        "haiku-mlp": haiku_mlp,
        "haiku-transformer": haiku_transformer,
        "haiku-cnn": haiku_cnn,
    },
}
