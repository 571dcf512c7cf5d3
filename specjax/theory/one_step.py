"""Exact comparison of one gradient-descent step with one spectral step: guarantees and gains.

L(W) = (1/2n)‖W A - Y‖_F² with features A ∈ R^{k×n} in columns and B = A Aᵀ/n, gradient G = (W A -
Y) Aᵀ/n (spectral-criterion, Section 1.2). Gradient descent steps to W - G/L_F with L_F = λ_1(B),
the spectral step to W - (‖G‖_*/L_op) polar(G) with L_op = tr B. Everything depends on G and B
alone. Leading axes are batch axes.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from specjax import spectral
from specjax.arguments import checked
from specjax.linalg import eigvalsh, svd


class Comparison(NamedTuple):
    """Both steps at one point.

    `gd` and `spectral` are the decreases of the loss, exact; the guarantees are the lower bounds of
    the paper, ‖G‖_F²/2L_F and ‖G‖_*²/2L_op. With the stretches ρ = tr(G B Gᵀ)/(L_F ‖G‖_F²) and τ =
    tr(P B Pᵀ)/L_op, P = polar(G), both in (0, 1],

        gd = (2 - ρ) guaranteed_gd,   spectral = (2 - τ) guaranteed_spectral.

    `nuclear_rank` is nr(G), `stable_rank` st(A) = L_op/L_F. For a zero gradient nr(G), ρ, `gd` and
    the ratios are NaN; its spectral step, τ and `spectral` are zero.
    """

    gd: Float[Array, "*batch"]
    spectral: Float[Array, "*batch"]
    guaranteed_gd: Float[Array, "*batch"]
    guaranteed_spectral: Float[Array, "*batch"]
    nuclear_rank: Float[Array, "*batch"]
    stable_rank: Float[Array, "*batch"]
    gd_stretch: Float[Array, "*batch"]
    spectral_stretch: Float[Array, "*batch"]

    @property
    def advantage(self) -> Float[Array, "*batch"]:
        """nr(G)/st(A), the ratio of the guarantees; the paper's rule (1.5) requires at least 1."""
        return self.nuclear_rank / self.stable_rank

    @property
    def threshold(self) -> Float[Array, "*batch"]:
        """(2 - ρ)/(2 - τ), in [1/2, 2]: the spectral step gains more iff `advantage` is above it.

        Where G has the rank of A, PᵀP projects on the range of A: τ = 1, and the threshold is 2 -
        ρ, between 1 and 2.
        """
        return (2 - self.gd_stretch) / (2 - self.spectral_stretch)

    def ratio_at(self, fraction: float | Float[Array, "*batch"]) -> Float[Array, "*batch"]:
        """Decreases by this fraction of both steps, spectral over gradient descent."""
        return (
            self.advantage
            * (2 - fraction * self.spectral_stretch)
            / (2 - fraction * self.gd_stretch)
        )

    @property
    def best_ratio(self) -> Float[Array, "*batch"]:
        """(nr/st)(ρ/τ), the ratio at the best lengths: 1/ρ and 1/τ times the guaranteed ones."""
        return self.advantage * self.gd_stretch / self.spectral_stretch


@checked
def compare(g: Float[Array, "*batch m k"], b: Float[Array, "*batch k k"]) -> Comparison:
    """Compare the steps for the gradient G and the features' second moment B, best in float64.

    Examples:
        >>> from specjax.theory import one_step
        >>> found = one_step.compare(jnp.eye(3), jnp.diag(jnp.array([4.0, 1.0, 1.0])))
        >>> round(float(found.nuclear_rank), 1), round(float(found.stable_rank), 1)
        (3.0, 1.5)
        >>> bool(found.spectral > found.gd)
        True
    """
    _, values, right = svd(g)
    # The cut of spectral.polar, so that both use the same factor of a rank-deficient gradient.
    support = (values > 64 * jnp.finfo(g.dtype).eps * values[..., :1]).astype(g.dtype)
    # tr(P B Pᵀ) and tr(G B Gᵀ) are sums over the right singular vectors v_i of v_iᵀ B v_i.
    along = jnp.sum((right @ b) * right, axis=-1)
    curvature = eigvalsh(b)[..., -1]
    trace = jnp.trace(b, axis1=-2, axis2=-1)
    squared = jnp.sum(values**2, axis=-1)
    nuclear = jnp.sum(values, axis=-1)
    rho = jnp.sum(values**2 * along, axis=-1) / (curvature * squared)
    tau = jnp.sum(support * along, axis=-1) / trace
    guaranteed_gd, guaranteed_spectral = squared / (2 * curvature), nuclear**2 / (2 * trace)
    return Comparison(
        gd=(2 - rho) * guaranteed_gd,
        spectral=(2 - tau) * guaranteed_spectral,
        guaranteed_gd=guaranteed_gd,
        guaranteed_spectral=guaranteed_spectral,
        nuclear_rank=nuclear**2 / squared,
        stable_rank=trace / curvature,
        gd_stretch=rho,
        spectral_stretch=tau,
    )


@checked
def spectral_direction(g: Float[Array, "*batch m k"]) -> Float[Array, "*batch m k"]:
    """‖G‖_* polar(G): steepest descent in the spectral norm, with the length of the dual norm."""
    factor = spectral.polar(g)
    # ‖G‖_* = ⟨G, polar(G)⟩ saves a second decomposition.
    return jnp.sum(g * factor, axis=(-2, -1), keepdims=True) * factor


class Rates(NamedTuple):
    """Step sizes: `gd` multiplies G and `spectral` multiplies ‖G‖_* polar(G)."""

    gd: Float[Array, "*batch"]
    spectral: Float[Array, "*batch"]


@checked
def smooth_rates(a: Float[Array, "*batch k n"], lipschitz: float | Float[Array, ""]) -> Rates:
    """1/(L ‖A‖_op²) and 1/(L ‖A‖_F²) for L(W) = f(W A), where ∇f has Lipschitz constant L.

    With them the loss falls by at least ‖G‖_F²/(2 L ‖A‖_op²) and ‖G‖_*²/(2 L ‖A‖_F²)
    (spectral-criterion, (1.6), corrected). For f(Z) = (1/2n)‖Z - Y‖_F², where L = 1/n, they are
    1/L_F and 1/L_op.
    """
    gram = a @ a.mT
    largest, trace = eigvalsh(gram)[..., -1], jnp.trace(gram, axis1=-2, axis2=-1)
    return Rates(1 / (lipschitz * largest), 1 / (lipschitz * trace))


@checked
def smooth_rates_as_printed(
    a: Float[Array, "*batch k n"], lipschitz: float | Float[Array, ""]
) -> Rates:
    """1/(L_F L) and 1/(L_op L), L_F = ‖A‖_op²/n, L_op = ‖A‖_F²/n, as printed: n times too long.

    The paper prints them below (1.6). Kept to measure the difference; use `smooth_rates`.
    """
    rates = smooth_rates(a, lipschitz)
    return Rates(a.shape[-1] * rates.gd, a.shape[-1] * rates.spectral)


@checked
def identity_plus_rank_one_stable_rank(
    k: int, strength: float | Float[Array, "*batch"]
) -> Float[Array, "*batch"]:
    """st(I + λ 1 1ᵀ) = (k - 1 + (1 + λk)²)/(1 + λk)², exact: k at λ = 0, falling to 1."""
    top = (1 + jnp.asarray(strength, jnp.result_type(float)) * k) ** 2
    return (k - 1 + top) / top
