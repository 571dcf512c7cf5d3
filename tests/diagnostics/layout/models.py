"""Models as people write them: a loss, abstract parameters, an abstract batch, and by hand what
every leaf is.

The truth of a leaf is what its axes are ("in", "out", "batch"), with widths of splits behind a
slash, or the kind of a leaf that is no matrix. Nothing has values, so that no model is ever
computed.
"""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax

D, HEADS, HEAD, HIDDEN, TOKENS, CONTEXT, LAYERS, EXPERTS = 8, 2, 3, 10, 11, 6, 4, 5


def shaped(*shape, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype)


def leaves(**rows):
    """Parameters and their truth by name, of the truth and the shape of each."""
    params = {name: shaped(*shape) for name, (_, *shape) in rows.items()}
    return params, {name: truth for name, (truth, *_) in rows.items()}


BATCH = (shaped(7, D), shaped(7, 1))
TEXT = shaped(2, CONTEXT, dtype=jnp.int32)


def squares(apply):
    def loss(params, batch):
        x, y = batch
        return jnp.mean((apply(params, x) - y) ** 2)

    return loss


def cross_entropy(apply):
    def loss(params, tokens):
        logits = jax.nn.log_softmax(apply(params, tokens[:, :-1]))
        return -jnp.mean(jnp.take_along_axis(logits, tokens[:, 1:, None], axis=-1))

    return loss


def norm(x, gain):
    return x * lax.rsqrt(jnp.mean(x**2, axis=-1, keepdims=True) + 1e-6) * gain


def attend(q, k, v):
    scores = jnp.einsum("bthk,bshk->bhts", q, k)
    scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -1e9)
    return jnp.einsum("bhts,bshk->bthk", jax.nn.softmax(scores), v)


def dict_mlp():
    def apply(p, x):
        for layer in p[:-1]:
            x = jax.nn.relu(x @ layer["w"] + layer["b"])
        return x @ p[-1]["w"] + p[-1]["b"]

    sizes = [(D, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, 1)]
    params = [{"w": shaped(*size), "b": shaped(size[1])} for size in sizes]
    truth = {f"{i}.w": "in out" for i in range(3)} | {f"{i}.b": "bias" for i in range(3)}
    return squares(apply), params, BATCH, truth


def _transformer_parts():
    def block(x, p):
        a = norm(x, p["norm1"])
        q, k, v = (
            jnp.einsum("btd,dhk->bthk", a, p[name]) + p[f"{name}_bias"]
            for name in ("query", "key", "value")
        )
        x = x + jnp.einsum("bthk,hkd->btd", attend(q, k, v), p["out"])
        return x + jax.nn.gelu(norm(x, p["norm2"]) @ p["up"] + p["up_bias"]) @ p["down"]

    shapes = {
        **dict.fromkeys(("norm1", "norm2"), (D,)),
        **dict.fromkeys(("query", "key", "value"), (D, HEADS, HEAD)),
        **dict.fromkeys(("query_bias", "key_bias", "value_bias"), (HEADS, HEAD)),
        "out": (HEADS, HEAD, D),
        "up": (D, HIDDEN),
        "up_bias": (HIDDEN,),
        "down": (HIDDEN, D),
    }
    truth = {
        **dict.fromkeys(("norm1", "norm2"), "gain"),
        **dict.fromkeys(("query", "key", "value"), "in out out"),
        **dict.fromkeys(("query_bias", "key_bias", "value_bias", "up_bias"), "bias"),
        "out": "in in out",
        "up": "in out",
        "down": "in out",
    }
    ends = {
        "embedding": shaped(TOKENS, D),
        "positions": shaped(CONTEXT, D),
        "norm": shaped(D),
        "head": shaped(D, TOKENS),
    }
    of_ends = {"embedding": "lookup", "positions": "bias", "norm": "gain", "head": "in out"}
    return block, shapes, truth, ends, of_ends


def _with_ends(blocks):
    def apply(p, tokens):
        x = blocks(p["blocks"], p["embedding"][tokens] + p["positions"][None, : tokens.shape[1]])
        return norm(x, p["norm"]) @ p["head"]

    return cross_entropy(apply)


def unrolled_transformer():
    block, shapes, truth, ends, of_ends = _transformer_parts()

    def blocks(layers, x):
        for p in layers:
            x = jax.checkpoint(block)(x, p)
        return x

    params = {
        **ends,
        "blocks": [{name: shaped(*shape) for name, shape in shapes.items()} for _ in range(2)],
    }
    names = {f"blocks.{i}.{name}": what for i in range(2) for name, what in truth.items()}
    return _with_ends(blocks), params, TEXT, of_ends | names


def scanned_transformer():
    block, shapes, truth, ends, of_ends = _transformer_parts()

    def blocks(stack, x):
        return lax.scan(jax.checkpoint(lambda x, p: (block(x, p), None)), x, stack)[0]

    params = {**ends, "blocks": {name: shaped(LAYERS, *shape) for name, shape in shapes.items()}}
    stacked = {
        f"blocks.{name}": f"batch {what}" if " " in what else what for name, what in truth.items()
    }
    return _with_ends(blocks), params, TEXT, of_ends | stacked


def looped_transformer():
    """Stacked layers that a `fori_loop` takes by its counter, the last of them behind a `cond`."""
    block = _transformer_parts()[0]

    def blocks(stack, x):
        layer = lambda i: jax.tree.map(lambda w: w[i], stack)  # noqa: E731
        x = lax.fori_loop(0, LAYERS - 1, lambda i, x: block(x, layer(i)), x)
        return lax.cond(jnp.sum(x) > 0, lambda x: block(x, layer(LAYERS - 1)), lambda x: x, x)

    _, params, _, truth = scanned_transformer()
    return _with_ends(blocks), params, TEXT, truth


def experts():
    """A mixture of experts that computes all of them and weights them."""

    def apply(p, x):
        gates = jax.nn.softmax(x @ p["router"])
        hidden = jax.nn.silu(jnp.einsum("bd,edh->beh", x, p["gate"])) * jnp.einsum(
            "bd,edh->beh", x, p["up"]
        )
        mixed = jnp.einsum("beh,ehd->bed", hidden, p["down"])
        return jnp.einsum("be,bed->bd", gates, mixed) @ p["readout"]

    params, truth = leaves(
        router=("in out", D, EXPERTS),
        gate=("batch in out", EXPERTS, D, HIDDEN),
        up=("batch in out", EXPERTS, D, HIDDEN),
        down=("batch in out", EXPERTS, HIDDEN, D),
        readout=("in out", D, 1),
    )
    return squares(apply), params, BATCH, truth


def dispatched_experts():
    """A mixture that sends tokens to places of experts."""

    def apply(p, x):
        dispatch = jax.nn.one_hot(jnp.argmax(x @ p["router"], axis=-1), EXPERTS)
        sent = jnp.einsum("be,bd->ebd", dispatch, x)
        hidden = jax.nn.relu(jnp.einsum("ebd,edh->ebh", sent, p["up"]) + p["bias"][:, None])
        return jnp.einsum("ebh,ehd,be->bd", hidden, p["down"], dispatch)

    params, truth = leaves(
        router=("in out", D, EXPERTS),
        up=("batch in out", EXPERTS, D, HIDDEN),
        bias=("bias", EXPERTS, HIDDEN),
        down=("batch in out", EXPERTS, HIDDEN, D),
    )
    return squares(apply), params, (shaped(7, D), shaped(7, D)), truth


def weighted_experts(route):
    """Experts whose hidden layers are weighted before they are summed, in a scan over layers."""

    def apply(p, x):
        def layer(x, q):
            gate, up = (jnp.einsum("bd,edf->bef", x, q[n]) for n in ("wi_0", "wi_1"))
            hidden = jax.nn.silu(gate + q["wi_0_bias"]) * up
            return x + route(hidden, x @ q["gate"] + q["gate_bias"], q["wo"]), None

        return lax.scan(layer, x, p)[0] @ jnp.ones((D, 1))

    params, truth = leaves(
        gate=("batch in out", LAYERS, D, EXPERTS),
        gate_bias=("bias", LAYERS, EXPERTS),
        wi_0=("batch batch in out", LAYERS, EXPERTS, D, HIDDEN),
        wi_1=("batch batch in out", LAYERS, EXPERTS, D, HIDDEN),
        wi_0_bias=("bias", LAYERS, EXPERTS, HIDDEN),
        wo=("batch batch in out", LAYERS, EXPERTS, HIDDEN, D),
    )
    return squares(apply), params, BATCH, truth


def by_product(hidden, scores, out):
    weighted = hidden * jax.nn.softmax(scores)[..., None]
    return jnp.einsum("bef,efd->bd", weighted, out)


def by_einsum(hidden, scores, out):
    return jnp.einsum("bef,be,efd->bd", hidden, jax.nn.sigmoid(scores), out)


def by_top_k(hidden, scores, out):
    values, chosen = lax.top_k(scores, 2)
    weights = jnp.sum(jax.nn.one_hot(chosen, EXPERTS) * values[..., None], axis=-2)
    weighted = hidden * jnp.broadcast_to(weights[..., None], hidden.shape).astype(hidden.dtype)
    return jnp.tensordot(weighted, out, 2)


def gated_heads():
    """Attention whose heads are normed and gated, outer products of keys and values, head by head,
    and a norm of each head alone: no experts.
    """

    def apply(p, x):
        q, k, v, w, u = (jnp.einsum("btd,dhk->bthk", x, p[n]) for n in "qkvwu")
        q = q * lax.rsqrt(jnp.mean(q**2, axis=-1, keepdims=True))
        gate = jax.nn.sigmoid(x @ p["gate"])[..., None]
        y = attend(q, k, v) * gate
        memory = jnp.cumsum(w[..., :, None] * u[..., None, :], axis=1)
        z = jnp.sum(memory * q[..., None], axis=-2) * gate
        normed = jnp.einsum("btd,dhk->bthk", x, p["n"])
        normed = normed * lax.rsqrt(jnp.mean(normed**2, axis=-1, keepdims=True))
        joined = zip((y, z, normed), "opm", strict=True)
        return sum(jnp.einsum("bthk,hkd->btd", value, p[name]) for value, name in joined)

    params, truth = leaves(
        **dict.fromkeys("qkvwun", ("in out out", D, HEADS, HEAD)),
        gate=("in out", D, HEADS),
        **dict.fromkeys("opm", ("in in out", HEADS, HEAD, D)),
    )
    return squares(apply), params, (shaped(2, CONTEXT, D), shaped(2, CONTEXT, D)), truth


def state_space():
    """A recurrence with steps of its own for each head, behind a depthwise convolution."""
    width = HEADS * HEAD

    def apply(p, x):
        u, steps = jnp.split(x @ p["in_proj"], [width], axis=-1)
        u = lax.conv_general_dilated(
            u,
            p["conv"],
            (1,),
            [(3, 0)],
            dimension_numbers=("NHC", "HIO", "NHC"),
            feature_group_count=width,
        )
        u = u.reshape(*u.shape[:2], HEADS, HEAD)
        steps = jax.nn.softplus(steps + p["dt_bias"])[..., None]
        decay = jnp.exp(-steps * jnp.exp(p["A_log"])[:, None])
        _, states = lax.associative_scan(
            lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (decay, u * steps), axis=1
        )
        return (states + p["D"][:, None] * u).reshape(*x.shape[:2], width) @ p["out_proj"]

    params, truth = leaves(
        in_proj=(f"in out / {width} {HEADS}", D, width + HEADS),
        conv=("convolution", 4, 1, width),
        dt_bias=("bias", HEADS),
        A_log=("gain", HEADS),
        D=("gain", HEADS),
        out_proj=("in out", width, D),
    )
    return squares(apply), params, (shaped(2, CONTEXT, D), shaped(2, CONTEXT, D)), truth


def adapted():
    """A frozen matrix with a low-rank adapter, frozen layers before it, and a loss of its norm."""

    def apply(p, x):
        x = jnp.tanh(x @ lax.stop_gradient(p["below"]) + lax.stop_gradient(p["shift"]))
        frozen = lax.stop_gradient(p["w"])
        x = jnp.tanh(x @ (frozen / jnp.linalg.norm(frozen) + p["a"] @ p["b"]))
        return x @ p["twice"] + lax.stop_gradient(x @ p["twice"])

    params, truth = leaves(
        below=("other", D, D),
        shift=("other", D),
        w=("other", D, HIDDEN),
        a=("in out", D, HEADS),
        b=("in out", HEADS, HIDDEN),
        twice=("in out", HIDDEN, D),
    )
    return squares(apply), params, (shaped(7, D), shaped(7, D)), truth


def ragged_experts():
    def apply(p, x):
        sizes = jnp.array([3, 2, 0, 1, 1], jnp.int32)
        return lax.ragged_dot(jax.nn.relu(lax.ragged_dot(x, p["up"], sizes)), p["down"], sizes)

    params = {"up": shaped(EXPERTS, D, HIDDEN), "down": shaped(EXPERTS, HIDDEN, 1)}
    return squares(apply), params, BATCH, dict.fromkeys(("up", "down"), "batch in out")


def picked_experts():
    """Every token takes the matrix of its expert by an index."""

    def apply(p, x):
        chosen = jnp.argmax(x @ p["router"], axis=-1)
        return jnp.einsum("bd,bdh->bh", x, p["up"][chosen]) + p["bias"][chosen]

    params = {"router": shaped(D, EXPERTS), "up": shaped(EXPERTS, D, 1), "bias": shaped(EXPERTS, 1)}
    return (
        squares(apply),
        params,
        BATCH,
        {"router": "in out", "up": "batch in out", "bias": "lookup"},
    )


def images(layout):
    """A convolutional network in any layout: strided, dilated, grouped, depthwise."""
    data, kernel = layout
    places = {axis: kernel.index(axis) for axis in "OIHW"}

    def stored(o, i, n):
        sizes = {"O": o, "I": i, "H": n, "W": n}
        return shaped(*(sizes[axis] for axis in kernel))

    def apply(p, x):
        conv = partial(
            lax.conv_general_dilated, padding="SAME", dimension_numbers=(data, kernel, data)
        )
        shape = [1, 1, 1, 1]
        shape[data.index("C")] = 8
        x = jax.nn.relu(conv(x, p["first"], window_strides=(2, 2)) + p["bias"].reshape(shape))
        x = conv(x, p["dilated"], window_strides=(1, 1), rhs_dilation=(2, 2))
        x = conv(x, p["grouped"], window_strides=(1, 1), feature_group_count=4)
        x = conv(x, p["depthwise"], window_strides=(1, 1), feature_group_count=8)
        x = jnp.mean(x, axis=(data.index("H"), data.index("W")))
        return (x if data.index("N") < data.index("C") else x.T) @ p["head"]

    params = {
        "first": stored(8, 3, 3),
        "bias": shaped(8),
        "dilated": stored(8, 8, 3),
        "grouped": stored(8, 2, 3),
        "depthwise": stored(8, 1, 3),
        "head": shaped(8, 1),
    }
    axes = ["in"] * 4
    axes[places["O"]] = "out"
    whole = " ".join(axes)
    truth = {
        "first": whole,
        "bias": "bias",
        "dilated": whole,
        "grouped": f"{whole} / 2 2 2 2",
        "depthwise": "convolution",
    }
    size = {"N": 7, "C": 3, "H": 6, "W": 6}
    return (
        squares(apply),
        params,
        (shaped(*(size[a] for a in data)), shaped(7, 1)),
        truth | {"head": "in out"},
    )


def fused():
    """Queries, keys and values of unequal widths in one matrix, rotary positions, gate and up in
    one, one key for two queries.
    """
    groups = 2

    def rotated(x):
        a, b = jnp.split(x, 2, axis=-1)
        angle = jnp.arange(x.shape[1], dtype=jnp.float32)[None, :, None, None]
        return jnp.concatenate(
            [a * jnp.cos(angle) - b * jnp.sin(angle), b * jnp.cos(angle) + a * jnp.sin(angle)],
            axis=-1,
        )

    def apply(p, tokens):
        x = p["embedding"][tokens]
        b, t, _ = x.shape
        q, k, v = jnp.split(x @ p["qkv"] + p["qkv_bias"], [4 * groups, 4 * groups + 4], axis=-1)
        q, k, v = (
            rotated(q.reshape(b, t, groups, 4)),
            rotated(k.reshape(b, t, 1, 4)),
            v.reshape(b, t, 1, 4),
        )
        x = (
            x
            + attend(q, jnp.repeat(k, groups, axis=2), jnp.repeat(v, groups, axis=2)).reshape(
                b, t, -1
            )
            @ p["out"]
        )
        gate, up = jnp.split(x @ p["gate_up"], 2, axis=-1)
        stacked = jnp.einsum("btd,dnh->btnh", x, p["three"])
        mixed = stacked[:, :, 0] * stacked[:, :, 1] + stacked[:, :, 2]
        return (x + (jax.nn.silu(gate) * up) @ p["down"] + mixed) @ p["embedding"].T

    params, truth = leaves(
        embedding=("lookup", TOKENS, D),
        qkv=("in out / 8 4 4", D, 8 + 4 + 4),
        qkv_bias=("bias", 16),
        out=("in out", 8, D),
        gate_up=("in out / 10 10", D, 2 * HIDDEN),
        down=("in out", HIDDEN, D),
        three=("in batch out", D, 3, D),
    )
    return cross_entropy(apply), params, TEXT, truth


def interleaved():
    """Fused matrices stored by head and by group, as by Megatron, Falcon and DeepSeek; those of the
    first have rotary positions.
    """
    heads, head, per_key, nope = 2, 4, 2, 6

    def rotated(x):
        a, b = jnp.split(x, 2, axis=-1)
        angle = jnp.arange(x.shape[1], dtype=jnp.float32)[None, :, None, None]
        return x * jnp.cos(angle) + jnp.concatenate([-b, a], axis=-1) * jnp.sin(angle)

    def apply(p, tokens):
        x = p["embedding"][tokens]
        b, t, _ = x.shape
        q, k, v = jnp.split((x @ p["by_head"]).reshape(b, t, heads, 3 * head), 3, axis=-1)
        x = x + attend(rotated(q), rotated(k), v).reshape(b, t, -1) @ p["out"]
        groups = (x @ p["by_group"].T).reshape(b, t, heads, per_key + 2, head)
        q, k, v = (
            groups[:, :, :, :-2].reshape(b, t, -1, head),
            groups[:, :, :, -2],
            groups[:, :, :, -1],
        )
        x = (
            x
            + attend(q, *(jnp.repeat(z, per_key, axis=2) for z in (k, v))).reshape(b, t, -1)
            @ p["grouped_out"]
        )
        # Latent attention: keys have a part without positions, beside the values, and one with,
        # which all heads share.
        q = jnp.einsum("btd,dhk->bthk", x, p["q"])
        q = jnp.concatenate([q[..., :nope], rotated(q[..., nope:])], axis=-1)
        up = jnp.einsum("btd,dhk->bthk", x, p["up"])
        shared = jnp.broadcast_to(rotated((x @ p["k_rope"])[:, :, None]), (b, t, heads, head))
        k = jnp.concatenate([up[..., :nope], shared], axis=-1)
        x = x + jnp.einsum("bthk,hkd->btd", attend(q, k, up[..., nope:]), p["latent_out"])
        return x @ p["embedding"].T

    params, truth = leaves(
        embedding=("lookup", TOKENS, D),
        by_head=("in out / 2 turns of 4 4 4", D, heads * 3 * head),
        out=("in out", heads * head, D),
        by_group=("out in / 2 turns of 8 4 4", heads * (per_key + 2) * head, D),
        grouped_out=("in out", heads * per_key * head, D),
        q=("in out out", D, heads, nope + head),
        up=("in out out / 2 turns of 6 5", D, heads, nope + 5),
        k_rope=("in out", D, head),
        latent_out=("in in out", heads, 5, D),
    )
    return cross_entropy(apply), params, TEXT, truth


def reparametrized():
    """Weights made of parameters: an adapter of low rank, a weight norm, matrices joined before the
    product, tables by one-hot rows.
    """

    def apply(p, batch):
        x, tokens = batch
        x = x + jax.nn.one_hot(tokens, TOKENS) @ p["table"]
        x = x @ (p["w"] + 0.5 * p["a"] @ p["b"])
        direction = p["v"] / jnp.linalg.norm(p["v"], axis=0, keepdims=True)
        x = jnp.tanh(x @ (p["g"] * direction))
        q, k = jnp.split(x @ jnp.concatenate([p["q"], p["k"].T], axis=1), [3], axis=1)
        return q @ p["after_q"] + k @ p["after_k"], sum(
            jnp.sum(leaf**2) for leaf in jax.tree.leaves(p)
        )

    def loss(p, batch):
        y, penalty = apply(p, batch[:2])
        return jnp.mean((y - batch[2]) ** 2) + 1e-3 * penalty, {"penalty": penalty}

    params, truth = leaves(
        table=("lookup", TOKENS, D),
        w=("in out", D, HIDDEN),
        a=("in out", D, 2),
        b=("in out", 2, HIDDEN),
        v=("in out", HIDDEN, D),
        g=("gain", D),
        q=("in out", D, 3),
        k=("out in", 4, D),
        after_q=("in out", 3, 1),
        after_k=("in out", 4, 1),
    )
    return loss, params, (shaped(7, D), shaped(7, dtype=jnp.int32), shaped(7, 1)), truth


def recurrent():
    """An LSTM with four gates side by side, scanned over time, with a learned first state."""

    def apply(p, x):
        def step(state, token):
            h, c = state
            i, f, g, o = jnp.split(token @ p["input"] + h @ p["recurrent"] + p["bias"], 4, axis=-1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), None

        start = jnp.broadcast_to(p["start"], (x.shape[1], HIDDEN))
        (h, _), _ = lax.scan(step, (start, jnp.zeros_like(start)), x)
        return h @ p["head"]

    params, truth = leaves(
        input=("in out / 10 10 10 10", D, 4 * HIDDEN),
        recurrent=("in out / 10 10 10 10", HIDDEN, 4 * HIDDEN),
        bias=("bias", 4 * HIDDEN),
        start=("other", HIDDEN),
        head=("in out", HIDDEN, 1),
    )
    return squares(apply), params, (shaped(5, 7, D), shaped(7, 1)), truth


def factorization():
    """No data at all: ‖U Vᵀ - M‖², and a penalty on a matrix that nothing else uses."""

    def loss(p, target):
        return jnp.mean((p["u"] @ p["v"].T - target) ** 2) + jnp.sum(p["alone"] ** 2)

    params = {"u": shaped(D, 2), "v": shaped(HIDDEN, 2), "alone": shaped(3, 3)}
    return loss, params, shaped(D, HIDDEN), {"u": "out in", "v": "in out", "alone": "other"}


def equinox_mlp():
    model = eqx.filter_eval_shape(eqx.nn.MLP, D, 1, HIDDEN, 2, key=jax.random.key(0))
    truth = {f"layers.{i}.weight": "out in" for i in range(3)} | {
        f"layers.{i}.bias": "bias" for i in range(3)
    }
    return squares(lambda model, x: jax.vmap(model)(x)), model, BATCH, truth


def equinox_cnn():
    class Network(eqx.Module):
        first: eqx.nn.Conv2d
        grouped: eqx.nn.Conv2d
        up: eqx.nn.ConvTranspose2d
        norm: eqx.nn.GroupNorm
        head: eqx.nn.Linear

        def __init__(self, key):
            self.first = eqx.nn.Conv2d(3, 8, 3, stride=2, key=key)
            self.grouped = eqx.nn.Conv2d(8, 8, 3, groups=2, key=key)
            self.up = eqx.nn.ConvTranspose2d(8, 4, 3, stride=2, key=key)
            self.norm = eqx.nn.GroupNorm(2, 4)
            self.head = eqx.nn.Linear(4, 1, key=key)

        def __call__(self, x):
            x = self.norm(self.up(jax.nn.relu(self.grouped(self.first(x)))))
            return self.head(jnp.mean(x, axis=(1, 2)))

    model = eqx.filter_eval_shape(Network, jax.random.key(0))
    truth = {
        "first.weight": "out in in in",
        "first.bias": "bias",
        "grouped.weight": "out in in in / 4 4",
        "grouped.bias": "bias",
        "up.weight": "out in in in",
        "up.bias": "bias",
        "norm.weight": "gain",
        "norm.bias": "bias",
        "head.weight": "out in",
        "head.bias": "bias",
    }
    return (
        squares(lambda model, x: jax.vmap(model)(x)),
        model,
        (shaped(7, 3, 12, 12), shaped(7, 1)),
        truth,
    )


class EquinoxBlock(eqx.Module):
    norm: eqx.nn.LayerNorm
    attention: eqx.nn.MultiheadAttention
    mlp: eqx.nn.MLP

    def __init__(self, key):
        self.norm = eqx.nn.LayerNorm(D)
        self.attention = eqx.nn.MultiheadAttention(2, D, key=key)
        self.mlp = eqx.nn.MLP(D, D, HIDDEN, 1, key=key)

    def __call__(self, x):
        a = jax.vmap(self.norm)(x)
        x = x + self.attention(a, a, a)
        return x + jax.vmap(self.mlp)(x)


def equinox_transformer():
    class Network(eqx.Module):
        embedding: eqx.nn.Embedding
        blocks: list
        head: eqx.nn.Linear

        def __init__(self, key):
            self.embedding = eqx.nn.Embedding(TOKENS, D, key=key)
            self.blocks = [EquinoxBlock(key) for _ in range(2)]
            self.head = eqx.nn.Linear(D, TOKENS, use_bias=False, key=key)

        def __call__(self, tokens):
            x = jax.vmap(self.embedding)(tokens)
            for block in self.blocks:
                x = block(x)
            return jax.vmap(self.head)(x)

    model = eqx.filter_eval_shape(Network, jax.random.key(0))
    truth = {"embedding.weight": "lookup", "head.weight": "out in"}
    for i in range(2):
        truth |= {
            f"blocks.{i}.attention.{name}_proj.weight": "out in"
            for name in ("query", "key", "value", "output")
        }
        truth |= {f"blocks.{i}.norm.weight": "gain", f"blocks.{i}.norm.bias": "bias"}
        truth |= {f"blocks.{i}.mlp.layers.{j}.weight": "out in" for j in range(2)}
        truth |= {f"blocks.{i}.mlp.layers.{j}.bias": "bias" for j in range(2)}
    return cross_entropy(lambda model, tokens: jax.vmap(model)(tokens)), model, TEXT, truth


def equinox_scanned():
    """Layers made by `filter_vmap` of their constructor, and scanned."""

    def loss(model, x):
        arrays, static = eqx.partition(model, lambda leaf: hasattr(leaf, "shape"))

        def layer(x, arrays):
            return jax.vmap(eqx.combine(arrays, static))(x), None

        return jnp.mean(lax.scan(layer, x, arrays)[0] ** 2)

    model = eqx.filter_eval_shape(
        eqx.filter_vmap(EquinoxBlock), jax.random.split(jax.random.key(0), 3)
    )
    truth = {
        f"attention.{name}_proj.weight": "batch out in"
        for name in ("query", "key", "value", "output")
    }
    truth |= {"norm.weight": "gain", "norm.bias": "bias"}
    truth |= {f"mlp.layers.{j}.weight": "batch out in" for j in range(2)}
    truth |= {f"mlp.layers.{j}.bias": "bias" for j in range(2)}
    return loss, model, shaped(2, CONTEXT, D), truth


def ensemble():
    """Four networks of which one call evaluates all, by `vmap` over the parameters."""

    def loss(params, batch):
        x, y = batch
        return jnp.mean(
            jax.vmap(lambda p: jnp.mean((jnp.tanh(x @ p["w"] + p["b"]) @ p["v"] - y) ** 2))(params)
        )

    params = {"w": shaped(4, D, HIDDEN), "b": shaped(4, HIDDEN), "v": shaped(4, HIDDEN, 1)}
    return loss, params, BATCH, {"w": "batch in out", "b": "bias", "v": "batch in out"}


def sharded():
    """Columns of the first matrix and rows of the second on other devices, the third gathered from
    parts.
    """
    mesh = jax.sharding.AbstractMesh((2,), ("model",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec

    def device(x, first, second, gathered):
        w = lax.all_gather(gathered, "model", axis=0, tiled=True)
        return lax.psum(jax.nn.relu(x @ first) @ second, "model") @ w

    def apply(p, x):
        specs = spec(), spec(None, "model"), spec("model", None), spec("model", None)
        run = jax.shard_map(device, mesh=mesh, in_specs=specs, out_specs=spec(), check_vma=False)
        return run(x, p["first"], p["second"], p["gathered"])

    params = {"first": shaped(D, HIDDEN), "second": shaped(HIDDEN, D), "gathered": shaped(D, 1)}
    return squares(apply), params, BATCH, dict.fromkeys(params, "in out")


def scalars():
    """Scalars, complex numbers, a table of attention's places, an axis of one entry, a matrix that
    only a loop sees.
    """

    def apply(p, x):
        x = jnp.exp(p["temperature"]) * (x @ (p["scale"] * p["w"])) + p["one"]
        x = x + jnp.real(x.astype(complex) @ p["complex"])
        x = x + p["places"][jnp.arange(7) % 3][:, None]
        _, x = lax.while_loop(
            lambda c: c[0] < 3, lambda c: (c[0] + 1, jnp.tanh(c[1] @ p["looped"])), (0, x)
        )
        return x @ p["vector"]

    params = {
        "temperature": shaped(),
        "scale": shaped(),
        "w": shaped(D, HIDDEN),
        "one": shaped(1),
        "complex": shaped(HIDDEN, HIDDEN, dtype=jnp.complex64),
        "places": shaped(3),
        "looped": shaped(HIDDEN, HIDDEN),
        "vector": shaped(HIDDEN),
    }
    truth = {
        "temperature": "gain",
        "scale": "gain",
        "w": "in out",
        "one": "bias",
        "complex": "linear",
    }
    truth |= {"places": "lookup", "looped": "in out", "vector": "linear"}
    return squares(apply), params, (shaped(7, D), shaped(7)), truth


MODELS = {
    "dict-mlp": dict_mlp,
    "transformer": unrolled_transformer,
    "transformer-scan": scanned_transformer,
    "transformer-loop": looped_transformer,
    "moe": experts,
    "moe-dispatch": dispatched_experts,
    "moe-ragged": ragged_experts,
    "frozen": adapted,
    "moe-weighted": partial(weighted_experts, by_product),
    "moe-einsum": partial(weighted_experts, by_einsum),
    "moe-top-k": partial(weighted_experts, by_top_k),
    "gated-heads": gated_heads,
    "state-space": state_space,
    "moe-index": picked_experts,
    "cnn-nhwc": partial(images, ("NHWC", "HWIO")),
    "cnn-nchw": partial(images, ("NCHW", "OIHW")),
    "cnn-chwn": partial(images, ("CHWN", "IHWO")),
    "fused": fused,
    "interleaved": interleaved,
    "reparametrized": reparametrized,
    "lstm": recurrent,
    "factorization": factorization,
    "ensemble": ensemble,
    "shard-map": sharded,
    "scalars": scalars,
    "equinox-mlp": equinox_mlp,
    "equinox-cnn": equinox_cnn,
    "equinox-transformer": equinox_transformer,
    "equinox-scan": equinox_scanned,
}
