"""A transformer in numpy, one sequence and one head at a time, with what feeds every matrix."""

import numpy as np
from scipy.special import erf, softmax

ACTIVATIONS = {
    "relu": lambda t: np.maximum(t, 0),
    "relu_squared": lambda t: np.maximum(t, 0) ** 2,
    "gelu": lambda t: t * (1 + erf(t / np.sqrt(2))) / 2,
    "swiglu": lambda t: t / (1 + np.exp(-t)),
}


def rms_norm(x):
    return x / np.sqrt((x**2).mean(-1, keepdims=True))


def rotated(x):
    """One head of one token after another: pairs of entries as complex numbers, each turned by its
    angle times the position.
    """
    turned = np.empty_like(x)
    n, size = x.shape
    for t in range(n):
        for i in range(size // 2):
            angle = t * 1024.0 ** (-i / (size // 4 - 1)) if i < size // 4 else 0
            z = (x[t, i] + 1j * x[t, i + size // 2]) * np.exp(-1j * angle)
            turned[t, i], turned[t, i + size // 2] = z.real, z.imag
    return turned


def forward(model, tokens):
    """Logits, and the inputs of every matrix by (name, block); the model's leaves as numpy
    arrays.
    """
    blocks, inputs = model.blocks, {}
    x = model.embedding[tokens]
    if model.positions is not None:
        x = x + model.positions[: len(tokens)]
    n, d = x.shape
    size, depth, waiting = d // model.heads, len(blocks.query), []
    for layer in range(depth):
        if model.skips is not None and layer >= depth // 2:
            x = x + model.skips[layer - depth // 2] * waiting.pop()
        a = rms_norm(x)
        query, key, value = (a @ w[layer].T for w in (blocks.query, blocks.key, blocks.value))
        if model.values is not None:
            first, last = layer, layer - depth + len(model.values.tables)
            value = model.values.shares[layer, 0] * value
            if last >= 0 or first < len(model.values.tables):
                table = model.values.tables[last if last >= 0 else first]
                value = value + model.values.shares[layer, 1] * table[tokens]
        mixed = np.zeros_like(x)
        for head in range(model.heads):
            cut = slice(head * size, (head + 1) * size)
            q, k = query[:, cut], key[:, cut]
            if model.qk_norm:
                q, k = rms_norm(q), rms_norm(k)
            if model.positions is None:
                q, k = rotated(q), rotated(k)
            for t in range(n):
                scores = k[: t + 1] @ q[t] / np.sqrt(size)
                mixed[t, cut] = softmax(scores) @ value[: t + 1, cut]
        x = x + (mixed if blocks.output is None else mixed @ blocks.output[layer].T)
        inputs |= {(name, layer): a for name in ("query", "key", "value")} | {
            ("output", layer): mixed
        }
        if blocks.up is not None:
            b = rms_norm(x)
            hidden = ACTIVATIONS[model.activation](
                b @ (blocks.up if blocks.gate is None else blocks.gate)[layer].T
            )
            if blocks.gate is not None:
                hidden = hidden * (b @ blocks.up[layer].T)
            x = x + hidden @ blocks.down[layer].T
            inputs |= {("up", layer): b, ("gate", layer): b, ("down", layer): hidden}
        if layer < depth // 2:
            waiting.append(x)
    final = rms_norm(x)
    head = model.embedding / np.sqrt(d) if model.head is None else model.head
    logits = final @ head.T
    if model.cap is not None:
        logits = model.cap * (1 - 2 / (1 + np.exp(2 * logits / model.cap)))
    return logits, inputs | {("head", None): final}
