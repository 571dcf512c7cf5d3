# %% [markdown]
# # A conjecture, judged
#
# *Does G Gᵀ of a network's first gradient become diagonal as the network widens?* One call over
# widths and seeds, a fit that allows for finite sizes, and a verdict answer this.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt

from specjax import fits, lab, sizes, sweep

D = 6
target = jax.random.normal(jax.random.key(1), (D, D))


def loss(w1, w2):
    return jnp.sum((w2 @ w1 - target) ** 2) / 2


# %% [markdown]
# A measurement is a pure function of a key and of sizes. `k` is an int or a padded, traced size.


# %%
def measure(key, k):
    w1 = sizes.normal(sizes.stream(key, "w1"), (k, D))
    w2 = sizes.normal(sizes.stream(key, "w2"), (D, k))
    gradient = jax.grad(loss, argnums=1)(w1, w2)
    gram = gradient @ gradient.T
    off = gram - jnp.diag(jnp.diagonal(gram))
    ratio = jnp.mean(jnp.abs(off)) / jnp.mean(jnp.diagonal(gram))
    return {"squared_norm": jnp.trace(gram), "off_over_diagonal": ratio}


data = sweep.run(
    measure,
    {"k": sweep.widths(8, 16, 32, 64, 128, 256)},
    num_seeds=1000,
    key=jax.random.key(0),
)
means = data[["squared_norm", "off_over_diagonal"]].mean("seed")
print(means.to_dataframe().to_string(float_format="{:.4g}".format))

# %% [markdown]
# The norm is a power of the width up to a subleading term; the ratio in a single sample is not the
# ratio of expectations.

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
limit = fits.asymptotic_exponent(data["squared_norm"], "k")
fits.draw_fit(limit, left)
fits.draw_fit(fits.fit_power_law(data["off_over_diagonal"], "k"), right)
left.legend(loc="upper left", fontsize="x-small")
right.legend(loc="upper right", fontsize="x-small")
print(limit)
plt.show()

# %% [markdown]
# The verdict: a statement has rivals, which the data must exclude before it is confirmed.

# %%
order = lab.scales_as(data["squared_norm"], "k", 2).judge({"k^1.5": 1.5, "k^2.5": 2.5})
vanishes = lab.vanishes(data["off_over_diagonal"], "k").judge({})
print("‖G₂‖² grows as k²:", order.verdict)
print("its outer product becomes diagonal in every sample:", vanishes.verdict)
print(vanishes.rule)
