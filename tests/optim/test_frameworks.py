"""Models as their users write them: with `layout=` the losses are those of `optax.contrib.muon`
with dimension numbers by hand, and nothing of ours warns (pytest makes warnings errors).
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
import pytest

from specjax import optim
from specjax.diagnostics import matrix_layout

N = optax.contrib.MuonDimensionNumbers
TOKENS, D, HIDDEN, LAYERS, EXPERTS, RANK = 32, 16, 24, 2, 3, 4
KEYS = jax.random.split(jax.random.key(0), 8)
TEXT = jax.random.randint(KEYS[0], (8, 13), 0, TOKENS)


def draw(i, *shape):
    return 0.2 * jax.random.normal(KEYS[i], shape)


def entropy(logits):
    return optax.softmax_cross_entropy_with_integer_labels(logits, TEXT[:, 1:]).mean()


TABLES = {"table": draw(1, TOKENS, D), "head": draw(2, D, TOKENS)}
STACK = {"up": draw(3, LAYERS, D, HIDDEN), "down": draw(4, LAYERS, HIDDEN, D)}
BIAS = {"bias": jnp.zeros((LAYERS, HIDDEN))}
ENDS = {"table": None, "head": N(0, 1)}
ON_LAYERS = {"up": N(1, 2), "down": N(1, 2)}


def scanned(p, _=None):
    def block(x, q):
        return x + jax.nn.gelu(x @ q["up"] + q["bias"][None, None]) @ q["down"], None

    x, _ = jax.lax.scan(block, p["table"][TEXT[:, :-1]], p["blocks"])
    return entropy(x @ p["head"])


def scan_stacked():
    return scanned, TABLES | {"blocks": STACK | BIAS}, ENDS | {"blocks": ON_LAYERS | {"bias": None}}


def lora():
    """The base is a constant of the loss."""
    factors = {
        name: {"a": draw(5, LAYERS, w.shape[1], RANK), "b": jnp.zeros((LAYERS, RANK, w.shape[2]))}
        for name, w in STACK.items()
    }

    def loss(p, _=None):
        adapted = {name: w + p[name]["a"] @ p[name]["b"] for name, w in STACK.items()}
        return scanned(TABLES | {"blocks": adapted | BIAS})

    return loss, factors, jax.tree.map(lambda _: N(1, 2), factors)


def experts():
    params = TABLES | {
        "router": draw(5, D, EXPERTS),
        "up": draw(6, EXPERTS, D, HIDDEN),
        "down": draw(7, EXPERTS, HIDDEN, D),
    }

    def loss(p, _=None):
        x = p["table"][TEXT[:, :-1]]
        hidden = jax.nn.gelu(jnp.einsum("btd,edh->bteh", x, p["up"]))
        gates = jax.nn.softmax(x @ p["router"])
        return entropy((x + jnp.einsum("bteh,ehd,bte->btd", hidden, p["down"], gates)) @ p["head"])

    return loss, params, ENDS | ON_LAYERS | {"router": N(0, 1)}


def linen():
    nn = pytest.importorskip("flax.linen")

    class Network(nn.Module):
        @nn.compact
        def __call__(self, tokens):
            x = nn.Embed(TOKENS, D)(tokens)
            x = x + nn.MultiHeadDotProductAttention(num_heads=2)(x)
            return nn.Dense(TOKENS)(x)

    def numbers(path, _):
        name = ".".join(key.key for key in path)
        if "Attention" in name and "kernel" in name:
            return N((0, 1), 2) if ".out." in name else N(0, (1, 2))
        return N(0, 1) if "kernel" in name else None

    model = Network()
    params = model.init(KEYS[1], TEXT[:, :-1])
    hand = jax.tree.map_with_path(numbers, params)
    return lambda p, _=None: entropy(model.apply(p, TEXT[:, :-1])), params, hand


def haiku():
    hk = pytest.importorskip("haiku")

    def network(tokens):
        x = hk.Embed(TOKENS, D)(tokens)
        return hk.Linear(TOKENS)(x + hk.nets.MLP([HIDDEN, D])(x))

    model = hk.without_apply_rng(hk.transform(network))
    params = model.init(KEYS[1], TEXT[:, :-1])
    hand = {
        layer: {k: N(0, 1) if k == "w" else None for k in leaves}
        for layer, leaves in params.items()
    }
    return lambda p, _=None: entropy(model.apply(p, TEXT[:, :-1])), params, hand


def losses(loss, params, optimizer):
    state = optimizer.init(params)

    @jax.jit
    def step(params, state):
        value, gradients = jax.value_and_grad(loss)(params)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, value

    found = []
    for _ in range(6):
        params, state, value = step(params, state)
        found.append(float(value))
    return found


# Old frameworks call what JAX has deprecated since.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.integration
@pytest.mark.parametrize("made", [scan_stacked, lora, experts, linen, haiku])
def test_losses_with_a_layout_are_those_of_optax(made):
    loss, params, hand = made()
    found = losses(loss, params, optim.muon(0.02, layout=matrix_layout(loss, params, TEXT)))
    by_hand = optax.contrib.muon(0.02, muon_weight_dimension_numbers=lambda _: hand)
    expected = losses(loss, params, by_hand)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert found[-1] < found[0] - 1e-2
    other = losses(loss, params, optax.adamw(0.02))
    assert np.abs(np.array(other) - expected).max() > 1e-3
