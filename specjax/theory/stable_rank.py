"""Bounds on the stable rank of activations (spectral-criterion, Section 2).

They lead from samples to the population, and through a decoder block at initialization. Constants
that the paper leaves open are omitted, and the function says so.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float
from scipy.optimize import brentq
from scipy.stats import chi2, norm

from specjax.arguments import checked
from specjax.spectral import spectral_norm

SMALL_BALL_RELU = float(norm.sf(1))
"""P(σ(G) ≥ 1) = 1 - Φ(1) = 0.1587 for the ReLU: Assumption B with τ = 1."""


@checked
def small_ball_bound(effective_rank: float, p0: float, c0: float, c: float) -> float:
    """2 er(M)/(p_0 c_0 c), a bound on st(Z_n) with probability 1 - 2c (Theorem 2.2)."""
    return 2 * effective_rank / (p0 * c0 * c)


@checked
def small_ball_samples(p0: float, c: float) -> float:
    """(8/p_0) log(1/c) samples suffice for Theorem 2.2, by exp(-p_0 n/8) ≤ c of its proof."""
    return 8 / p0 * float(np.log(1 / c))


@checked
def small_ball_samples_as_printed(p0: float, c: float) -> float:
    """log(1/2c)/(8 p_0), as printed: too small by a factor of more than 64."""
    return float(np.log(1 / (2 * c))) / (8 * p0)


class RareSpike(NamedTuple):
    """Columns z that are √a e_1 with probability p_0, else √b e_J, J uniform on the other `rows` -
    1 coordinates.

    M is diagonal with p_0 a and (1 - p_0) b/(rows - 1). With p_0 a the largest, u = e_1 has the
    small-ball property with p_0 and c_0 = 1/p_0, exactly; without a spike, the stable rank of a
    sample is of the order of its length.
    """

    p0: float
    rows: int
    ratio: float
    """‖M‖_op over its second eigenvalue."""

    def effective_rank(self) -> float:
        """er(M)."""
        return 1 + (self.rows - 1) / self.ratio

    def scales(self) -> tuple[float, float]:
        """The numbers a and b for ‖M‖_op = 1."""
        return 1 / self.p0, (self.rows - 1) / (self.ratio * (1 - self.p0))


@checked
def concentrated_bound(nsr: ArrayLike, eps1: ArrayLike, eps2: ArrayLike) -> Float[Array, "..."]:
    """NSR (1 + ε_1)/(1 - ε_2)²: Theorems 2.6 (n samples) and 2.7 (m random rows), Lemma 2.5.

    Theorem 2.6 holds for any weights and 2.7 for any inputs. The bound fails with probability at
    most 4 exp(-c n min{ε_1², ε_2² st(W)}) with an open constant c. Theorem 2.7 prints n, the number
    of columns, instead of m, that of the independent rows of W_ℓ.
    """
    nsr, eps1, eps2 = (jnp.asarray(x, jnp.result_type(float)) for x in (nsr, eps1, eps2))
    return nsr * (1 + eps1) / (1 - eps2) ** 2


@checked
def quadratic_nsr_bound(layer: int) -> float:
    """3^(2^ℓ) ≥ NSR of layer ℓ with t² and Gaussian inputs (Theorem 2.8, hypercontractivity)."""
    return 3.0 ** (2**layer)


@checked
def quadratic_bound(layer: int, c: float) -> float:
    """27·3^(3·2^ℓ)/(2c), from the proof of Theorem 2.8; the printed bound is larger.

    The proof gives it with c_0 = 1/3; printed is 27·3^(2^(ℓ+2))/(2c).
    """
    p0 = (2 / 3) ** 2 * 3.0 ** -(2 ** (layer + 1))
    return small_ball_bound(quadratic_nsr_bound(layer), p0, 1 / 3, c)


@checked
def quadratic_samples(layer: int, c: float) -> float:
    """18·3^(2^(ℓ+1)) log(1/c) columns, corrected as for Theorem 2.2."""
    return small_ball_samples((2 / 3) ** 2 * 3.0 ** -(2 ** (layer + 1)), c)


@checked
def zipf(size: int, exponent: float) -> Float[np.ndarray, " size"]:
    """Probabilities ∝ rank^(-exponent).

    Examples:
        >>> from specjax.theory import stable_rank
        >>> stable_rank.zipf(3, 1.0).round(2).tolist()
        [0.55, 0.27, 0.18]
    """
    weights = np.arange(1.0, size + 1) ** -exponent
    return weights / weights.sum()


@checked
def zipf_exponent(size: int, largest: float) -> float:
    """The exponent at which the commonest of `size` tokens has probability `largest`.

    For 1/26 of 50257 tokens it is 0.8596.

    Raises:
        ValueError: a `largest` that is not between 1/size and 1.

    """
    if not 1 / size < largest < 1:
        raise ValueError(
            f"The largest of {size} probabilities lies between {1 / size:.3g} and 1, got {largest}."
        )
    return float(brentq(lambda s: zipf(size, s)[0] - largest, 0.0, 60.0))


@checked
def indicator_stable_rank(counts: Float[Array, "*batch tokens"]) -> Float[Array, "*batch"]:
    """st(H) = n / max_j c_j = 1/p_max of the token indicator, exactly (eq. 2.15).

    Examples:
        >>> from specjax.theory import stable_rank
        >>> float(stable_rank.indicator_stable_rank(jnp.array([4.0, 3.0, 1.0])))
        2.0
    """
    return jnp.sum(counts, axis=-1) / jnp.max(counts, axis=-1)


@checked
def embedding_bound(deviation: ArrayLike, largest_share: ArrayLike) -> Float[Array, "..."]:
    """((1 + ε)/(1 - ε))/p_max ≥ st(X) for embeddings with ‖e_j‖²/d within 1 ± ε (Lemma 2.9)."""
    eps, share = (jnp.asarray(x, jnp.result_type(float)) for x in (deviation, largest_share))
    return (1 + eps) / (1 - eps) / share


@checked
def rms_norm_bound(stable_rank: ArrayLike, low: ArrayLike, high: ArrayLike) -> Float[Array, "..."]:
    """(U/L) st(X) ≥ st(RMSNorm(X)) where L ≤ ‖x_t‖² ≤ U; holds always (Lemma 2.10)."""
    stable_rank, low, high = (
        jnp.asarray(x, jnp.result_type(float)) for x in (stable_rank, low, high)
    )
    return high / low * stable_rank


@checked
def perturbation_failure(eps: float, d: int) -> float:
    """4 exp(-ε² d/64) ≥ P(‖x + g‖² not in (1 ± ε)(‖x‖² + ‖g‖²)), g ~ N(0, σ² I_d) (Lemma 2.11)."""
    return 4 * float(np.exp(-(eps**2) * d / 64))


@checked
def norm_log_tail(eps: float, d: int) -> float:
    """log P(‖g‖²/d > 1 + ε/4), exact; eq. (C.1) bounds it by log 2 - ε² d/64, false for large d.

    The rate is (t - log(1 + t))/2 with t = ε/4, which is below t²/4.
    """
    return float(chi2.logsf(d * (1 + eps / 4), d))


@checked
def norm_log_tail_as_printed(eps: float, d: int) -> float:
    """log 2 - ε² d/64, the two-sided bound of eq. (C.1) as printed."""
    return float(np.log(2)) - eps**2 * d / 64


@checked
def norm_log_tail_bound(eps: float, d: int) -> float:
    """log 2 - d (t - log(1 + t))/2, t = ε/4: Cramér's two-sided bound, in place of eq. (C.1)."""
    t = eps / 4
    return float(np.log(2) - d * (t - np.log1p(t)) / 2)


@checked
def frobenius_share(tau: float, probability: float) -> float:
    """c_σ = τ² p/2: ‖σ(W A)‖_F² ≥ (1 - ε) c_σ (k/d) ‖A‖_F²; the proof gives τ² p (Lemma 2.12)."""
    return tau**2 * probability / 2


@checked
def residual_bound(
    x: Float[Array, "d n"], h: Float[Array, "k n"], delta: ArrayLike
) -> Float[Array, "..."]:
    """A bound on st(X + W H) for W with independent N(0, 1/k) entries (Lemma 2.13).

    It is ((1+δ)/(1-δ)) (‖X‖_F² + (d/k)‖H‖_F²)/max{‖X‖_op², (d/k)‖H‖_op²}.
    """
    share, delta = x.shape[0] / h.shape[0], jnp.asarray(delta, x.dtype)
    frobenius = jnp.sum(x**2) + share * jnp.sum(h**2)
    spectral = jnp.maximum(spectral_norm(x) ** 2, share * spectral_norm(h) ** 2)
    return (1 + delta) / (1 - delta) * frobenius / spectral


class ColumnNorms(NamedTuple):
    """c_- d ≤ ‖x_t‖² ≤ c_+ d for every column (Assumption C)."""

    low: Float[Array, "..."]
    high: Float[Array, "..."]


class BlockBounds(NamedTuple):
    """Bounds on stable ranks in a ReLU decoder block, named as in `models.decoder_block`."""

    attention_input: Float[Array, "..."]
    after_attention: Float[Array, "..."]
    mlp_input: Float[Array, "..."]
    mlp_hidden: Float[Array, "..."]
    output: Float[Array, "..."]


@checked
def block_bounds(stable_rank: ArrayLike, norms: ColumnNorms, delta: ArrayLike) -> BlockBounds:
    """The bounds of Proposition 2.14 for an input X with st(X) and column norms; 0 < δ < 1/4."""
    st, low, high, delta = (
        jnp.asarray(x, jnp.result_type(float)) for x in (stable_rank, *norms, delta)
    )
    grown = (1 + delta) / (1 - delta)
    return BlockBounds(
        attention_input=high / low * st,
        after_attention=grown * (1 + 2 / low) * st,
        mlp_input=grown**2 * (high + 1) / low * (1 + 2 / low) * st,
        mlp_hidden=jnp.full_like(st, 2 * np.pi),
        output=2 * np.pi * grown * (1 + grown * (high + 1) / frobenius_share(1.0, SMALL_BALL_RELU)),
    )


@checked
def norms_after(norms: ColumnNorms, delta: ArrayLike, blocks: int) -> ColumnNorms:
    """Column norms c_-^(ℓ) and c_+^(ℓ) after ℓ blocks (Corollary 2.15).

    c_-^(ℓ) = (1-δ)^(2ℓ) c_- and c_+^(ℓ) = r^ℓ c_+ + 2 Σ_{j=1}^ℓ r^j with r = (1+δ)².
    """
    low, high, delta = (jnp.asarray(x, jnp.result_type(float)) for x in (*norms, delta))
    r = (1 + delta) ** 2
    powers = jnp.stack([r**j for j in range(1, blocks + 1)]) if blocks else jnp.zeros((1,))
    return ColumnNorms(
        (1 - delta) ** (2 * blocks) * low, r**blocks * high + 2 * jnp.sum(powers, axis=0)
    )
