"""Single-head decoder blocks at initialization, with the input of each weight matrix by name.

Pre-normalization without gains, biases and positions (spectral-criterion, Section 2.2.2): X_att = X
+ W_O V P with P = softmax(Kᵀ Q/√d) of A = RMSNorm(X), then X⁺ = X_att + W_2 σ(W_1 RMSNorm(X_att)).
Tokens are rows here, so everything is transposed.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from specjax.models.mlp import GATED, activated
from specjax.models.sequence_parts import rms_norm
from specjax.sizes import AnySize, active, normal


class Block(NamedTuple):
    """The weights of one block, each (outputs, inputs)."""

    query: Float[Array, "d d"]
    key: Float[Array, "d d"]
    value: Float[Array, "d d"]
    output: Float[Array, "d d"]
    up: Float[Array, "h d"]
    down: Float[Array, "d k"]


class Activations(NamedTuple):
    """The inputs of a block's weights (spectral-criterion, Table 1) and the stream; tokens in rows.

    `attention_input` feeds W_Q, W_K and W_V, `attention_mixed` = V P feeds W_O, `mlp_input` feeds
    W_1, `mlp_hidden` feeds W_2; `mlp_preactivation` is W_1's output before the activation.
    """

    attention_input: Float[Array, "n d"]
    attention_mixed: Float[Array, "n d"]
    after_attention: Float[Array, "n d"]
    mlp_input: Float[Array, "n d"]
    mlp_preactivation: Float[Array, "n h"]
    mlp_hidden: Float[Array, "n k"]
    output: Float[Array, "n d"]


def init(key: Key[Array, ""], d: int, k: int, activation: str = "relu") -> Block:
    """Independent N(0, 1/fan_in) entries (Assumption A); a gated activation has two matrices in
    `up`.
    """
    rows = 2 * k if activation in GATED else k
    shapes = {
        "query": (d, d),
        "key": (d, d),
        "value": (d, d),
        "output": (d, d),
        "up": (rows, d),
        "down": (d, k),
    }
    keys = jax.random.split(key, len(shapes))
    # One generator serves the five matrices of d columns, each a block of the largest sample, since
    # a generator compiles slowly.
    of_width = jax.vmap(lambda one: normal(one, (max(rows, d), d)))(keys[:-1])
    samples = [*of_width, normal(keys[-1], (d, k))]
    return Block(
        **{
            name: sample[: shape[0]] / jnp.sqrt(jnp.asarray(shape[1], sample.dtype))
            for sample, (name, shape) in zip(samples, shapes.items(), strict=True)
        }
    )


def apply(
    block: Block,
    x: Float[Array, "n d"],
    activation: str = "relu",
    *,
    causal: bool | Bool[Array, ""] = False,
) -> Activations:
    """All activations of one block for hidden states x; `causal` masks later tokens."""
    a = rms_norm(x)
    query, key, value = (a @ w.T for w in (block.query, block.key, block.value))
    scores = query @ key.T / jnp.sqrt(jnp.asarray(x.shape[1], x.dtype))
    scores = jnp.where(_before(len(x)) | jnp.logical_not(causal), scores, -jnp.inf)
    mixed = jax.nn.softmax(scores, axis=-1) @ value
    after = x + mixed @ block.output.T
    mlp_input = rms_norm(after)
    preactivation = mlp_input @ block.up.T
    hidden = activated(preactivation, activation)
    return Activations(
        a, mixed, after, mlp_input, preactivation, hidden, after + hidden @ block.down.T
    )


def attention(at: Float[Array, "3 n d"], width: AnySize) -> Float[Array, "n d"]:
    """The input of W_O from the outputs of W_Q, W_K and W_V, unmasked; `width` is the active d."""
    query, key, value = at
    scores = query @ key.T / jnp.sqrt(jnp.asarray(active(width), at.dtype))
    return jax.nn.softmax(scores, axis=-1) @ value


def attention_derivative(
    key: Key[Array, ""], at: Float[Array, "3 n d"], width: AnySize
) -> Float[Array, ""]:
    """The largest singular value of `attention`'s derivative by 50 power iterations, from below."""

    def attend(at: Array) -> Array:
        return attention(at, width)

    def step(direction: Array, _: None) -> tuple[Array, Array]:
        image = jax.jvp(attend, (at,), (direction / jnp.linalg.norm(direction),))[1]
        return jax.vjp(attend, at)[1](image)[0], jnp.linalg.norm(image)

    # The start has the active width: otherwise the result of so few iterations would depend on the
    # padding.
    start = normal(key, (*at.shape[:2], width)).astype(at.dtype)
    return jax.lax.scan(step, start, length=50)[1][-1]


def zipf_tokens(
    key: Key[Array, ""], n: int, probabilities: Float[Array, " vocabulary"]
) -> Int[Array, " n"]:
    """n independent tokens with the given probabilities."""
    return jax.random.choice(key, len(probabilities), (n,), p=probabilities)


def embed(
    key: Key[Array, ""], tokens: Int[Array, " n"], vocabulary: int, d: int
) -> Float[Array, "n d"]:
    """Rows of an embedding with N(0, 1) entries (Lemma 2.9)."""
    return normal(key, (vocabulary, d))[tokens]


def _before(n: int) -> Bool[Array, "n n"]:
    return jnp.tril(jnp.ones((n, n), bool))
