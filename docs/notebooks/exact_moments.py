# %% [markdown]
# # Exact moments
#
# *What is the expectation of this, at every size?* A polynomial in Gaussian matrices has an exact
# answer; here each stands beside a simulation.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

from specjax import moments

u = moments.gaussian("U", "d", "k")
print("E[(U Uᵀ)²] =", moments.expectation(u @ u.T @ u @ u.T))

# %% [markdown]
# `moments.express_function` follows a JAX function: the loss of a matrix factorization after one
# step of gradient descent of length η.


# %%
def after_a_step(u, m, eta):
    def loss(u):
        return jnp.sum((u @ u.T - m) ** 2) / 4

    return loss(u - eta * jax.grad(loss)(u))


d, k = 4, 8
target = moments.constant("M", "d", "d", symmetric=True)
word = moments.express_function(
    after_a_step, gaussian={"u": ("d", "k")}, constant={"m": target, "eta": ()}
)
exact = moments.expectation(word)
print(len(moments.orders(exact, "eta").parts), "powers of η")

# %%
rates = np.linspace(0, 0.09, 31)
curve = np.asarray(exact(k=k, M=jnp.eye(d), eta=rates))
samples = jax.random.normal(jax.random.key(0), (4000, d, k))
simulate = jax.jit(
    jax.vmap(
        jax.vmap(lambda u, eta: after_a_step(u, jnp.eye(d), eta), (0, None)), (None, 0)
    )
)
losses = np.asarray(simulate(samples, jnp.asarray(rates[::5], jnp.float32)))
mean, error = losses.mean(1), losses.std(1) / len(samples) ** 0.5

figure, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
axes.plot(rates, curve, label="exact, a polynomial in η")
axes.errorbar(
    rates[::5],
    mean,
    2 * error,
    fmt="o",
    capsize=2,
    label="4000 samples, ± 2 standard errors",
)
axes.set(xlabel="length η of the step", ylabel="E[loss after a step]")
axes.legend()
plt.show()

# %% [markdown]
# The best single step, from the exact curve. All points of the simulation share their samples, so
# they are off together.

# %%
best = rates[np.argmin(curve)]
print(f"least expected loss {curve.min():.2f} of {curve[0]:.2f} at η = {best:.4f}")
print(
    "largest distance of the simulation, in standard errors:",
    np.abs((mean - curve[::5]) / error).max().round(1),
)
