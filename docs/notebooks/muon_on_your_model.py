# %% [markdown]
# # Muon on your model
#
# *Which leaf of your model is a matrix, what will Muon do with each, and does it help?* The program
# of the loss answers the first, so you name nothing by hand.

# %%
import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax

from specjax import optim
from specjax.diagnostics import layer_report, matrix_layout


class Net(eqx.Module):
    embedding: jax.Array
    hidden: list
    head: eqx.nn.Linear

    def __init__(self, key, width=64, vocabulary=24):
        first, *middle, last = jax.random.split(key, 4)
        self.embedding = jax.random.normal(first, (vocabulary, width))
        self.hidden = [eqx.nn.Linear(width, width, key=k) for k in middle]
        self.head = eqx.nn.Linear(width, vocabulary, key=last)

    def __call__(self, token):
        x = self.embedding[token]
        for layer in self.hidden:
            x = x + jax.nn.gelu(layer(x))
        return self.head(x)


def loss(model, batch):
    tokens, targets = batch
    logits = jax.vmap(model)(tokens)
    return optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean()


# Which token follows which is a fixed map of the vocabulary, wrong one time in ten.
follows = jax.random.permutation(jax.random.key(1), 24)


def draw(key):
    a, b, c = jax.random.split(key, 3)
    tokens = jax.random.randint(a, (256,), 0, 24)
    noise = jax.random.randint(b, (256,), 0, 24)
    return tokens, jnp.where(jax.random.uniform(c, (256,)) < 0.9, follows[tokens], noise)


model, batch = Net(jax.random.key(0)), draw(jax.random.key(2))

# %%
layout = matrix_layout(loss, model, batch)
print(layout)

# %% [markdown]
# For every linear map: nr(G), the nuclear rank of its gradient, and st(A), the stable rank of its
# inputs. A spectral step helps where the first is the larger one, for short steps.

# %%
print(layer_report(loss, model, batch))

# %%
muon = optim.jordan_muon(
    0.01,
    layout=layout,
    fallback=optax.adamw(3e-3),
)
print(optim.routing(muon, model))


# %%
def train(optimizer, steps=150):
    def step(carry, key):
        model, state = carry
        value, gradients = jax.value_and_grad(loss)(model, draw(key))
        updates, state = optimizer.update(gradients, state, model)
        return (optax.apply_updates(model, updates), state), value

    return jax.lax.scan(
        step, (model, optimizer.init(model)), jax.random.split(jax.random.key(3), steps)
    )[1]


figure, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
for name, optimizer in {"Muon": muon, "AdamW": optax.adamw(3e-3)}.items():
    axes.plot(np.asarray(jax.jit(train, static_argnums=0)(optimizer)), label=name)
axes.set(xlabel="step", ylabel="loss of a fresh batch")
axes.legend()
plt.show()

# %% [markdown]
# It does not help here: at these rates, which nobody tuned, AdamW is ahead for some thirty steps,
# and then both are at the noise of the batches. Judge an optimizer on your own model.
