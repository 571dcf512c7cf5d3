# %% [markdown]
# # A coordinate check
#
# *Is a learning rate of a narrow model right for a wide one, and if not, which layer is to blame?*
# Two calls answer this for your model.

# %%
import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import optax

from specjax import optim, scaling


def build(key, width):
    return eqx.nn.MLP(8, 1, width, 2, key=key)


def loss(model, batch):
    x, y = batch
    return jnp.mean((jax.vmap(model)(x) - y) ** 2)


def draw(key):
    x = jax.random.normal(key, (64, 8))
    return x, jnp.sin(x[:, :1] + x[:, 1:2] * x[:, 2:3])


widths = (32, 64, 128, 256)

# %% [markdown]
# Adam in standard parametrization: the updates of the hidden and the last layer grow with the
# width.

# %%
adam = scaling.coordinate_check(
    build, loss, optax.adam, rate=1e-3, widths=widths, batch=draw
)
print(adam)
adam.plot()
plt.show()

# %% [markdown]
# Muon with √(out/in), the scale of unit operator norms: the updates of both hidden layers have one
# size at every width. For the last layer these widths and seeds do not decide.


# %%
def muon(rate):
    return optim.jordan_muon(
        rate, scale="sqrt_out_over_in", muon_weight_dimension_numbers=optim.OUT_IN
    )


spectral = scaling.coordinate_check(build, loss, muon, rate=0.03, widths=widths, batch=draw)
print(spectral)
spectral.plot()
plt.show()
