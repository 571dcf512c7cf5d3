"""Matrix linear regression: L(W) = ½ ‖W A - Y‖_F², W ∈ R^{m×d}, inputs A ∈ R^{d×n}.

The preconditioning paper leaves it open (Section 5). With Y = W* A the gradient is (W - W*) A Aᵀ:
its singular vectors are not those of W - W*, unless A Aᵀ is a multiple of I, so Muon's dynamics do
not decouple.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from specjax.models.factorization_spectra import logarithmic_spectrum, orthonormal
from specjax.models.targets import check_target
from specjax.sizes import AnySize, normal, padded


def init(rows: int, d: int) -> Float[Array, "rows d"]:
    """W_0 = 0."""
    return jnp.zeros((rows, d))


def loss(
    w: Float[Array, "m d"], inputs: Float[Array, "d n"], outputs: Float[Array, "m n"]
) -> Float[Array, ""]:
    """½ ‖W A - Y‖_F². Raises ValueError for outputs of another shape or not finite."""
    return jnp.sum(_residual(w, inputs, outputs) ** 2) / 2


def sampled_loss(
    w: Float[Array, "m d"],
    inputs: Float[Array, "d n"],
    outputs: Float[Array, "m n"],
    columns: Float[Array, " batch"],
) -> Float[Array, ""]:
    """n/2 mean_i ‖W a_i - y_i‖² at columns from numbers in [0, 1); unbiased if they are uniform."""
    n = inputs.shape[1]
    chosen = jnp.floor(columns * n).astype(int)
    return n * jnp.mean(jnp.sum(_residual(w, inputs, outputs)[:, chosen] ** 2, axis=0)) / 2


def gradient(
    w: Float[Array, "m d"], inputs: Float[Array, "d n"], outputs: Float[Array, "m n"]
) -> Float[Array, "m d"]:
    """(W A - Y) Aᵀ, exact. Raises as `loss`."""
    return _residual(w, inputs, outputs) @ inputs.T


def conditioned_inputs(
    key: Key[Array, ""], d: int, n: int, kappa: Float[Array, ""] | float
) -> Float[Array, "d n"]:
    """A with singular values from 1 to κ^(-1/2) in equal ratios: A Aᵀ has condition number κ.

    The singular vectors are Haar, and n >= d. Raises ValueError for κ below 1 or fewer inputs than
    dimensions.
    """
    if n < d:
        raise ValueError(
            f"A Aᵀ is singular with n={n} inputs in d={d} dimensions; take n of at least {d}, or a"
            " smaller d."
        )
    rotated = orthonormal(key, n, d)
    return jnp.sqrt(logarithmic_spectrum(d, kappa))[:, None] * rotated.T


def linear_outputs(
    key: Key[Array, ""], inputs: Float[Array, "d n"], rows: AnySize
) -> Float[Array, "rows n"]:
    """Y = W* A for a W* with independent N(0, 1) entries."""
    return normal(key, (padded(rows), inputs.shape[0])) @ inputs


def _residual(w: Array, inputs: Array, outputs: Array) -> Array:
    check_target(outputs, (w.shape[0], inputs.shape[1]), "The outputs of a matrix regression")
    return w @ inputs - outputs
