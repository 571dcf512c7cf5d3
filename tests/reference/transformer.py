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
    return x / np.sqrt((x**2).mean(1, keepdims=True))


def forward(model, tokens):
    """Logits, and the inputs of every matrix by (name, block); the model's leaves as numpy arrays."""
    blocks, inputs = model.blocks, {}
    x = model.embedding[tokens] + model.positions[: len(tokens)]
    n, d = x.shape
    size = d // model.heads
    for layer in range(len(blocks.query)):
        a = rms_norm(x)
        query, key, value = (a @ w[layer].T for w in (blocks.query, blocks.key, blocks.value))
        mixed = np.zeros_like(x)
        for head in range(model.heads):
            cut = slice(head * size, (head + 1) * size)
            for t in range(n):
                scores = key[: t + 1, cut] @ query[t, cut] / np.sqrt(size)
                mixed[t, cut] = softmax(scores) @ value[: t + 1, cut]
        x = x + (mixed if blocks.output is None else mixed @ blocks.output[layer].T)
        inputs |= {(name, layer): a for name in ("query", "key", "value")} | {("output", layer): mixed}
        if blocks.up is None:
            continue
        b = rms_norm(x)
        hidden = ACTIVATIONS[model.activation](b @ (blocks.up if blocks.gate is None else blocks.gate)[layer].T)
        if blocks.gate is not None:
            hidden = hidden * (b @ blocks.up[layer].T)
        x = x + hidden @ blocks.down[layer].T
        inputs |= {("up", layer): b, ("gate", layer): b, ("down", layer): hidden}
    final = rms_norm(x)
    head = model.embedding / np.sqrt(d) if model.head is None else model.head
    return final @ head.T, inputs | {("head", None): final}
