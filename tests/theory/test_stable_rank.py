"""Bounds of Section 2 on random matrices, with the corrected sample sizes, and where the printed
ones fail.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specjax import spectral
from specjax.models import decoder_block, sequence_parts
from specjax.theory import stable_rank as theory
from tests.theory.near import close, leading_axes_are_batch_axes

exact, rms_norm = jax.jit(spectral.stable_rank), jax.jit(sequence_parts.rms_norm)


@given(seed=st.integers(0, 2**31), spread=st.floats(0, 2))
def test_normalizing_the_columns_costs_at_most_their_spread(seed, spread):
    """Lemma 2.10, and its bound attained to a factor 2 somewhere: the constant is not idle."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((6, 9)) * np.exp(spread * rng.standard_normal(9))
    squares = np.sum(x**2, axis=0)
    bound = float(
        theory.rms_norm_bound(exact(jnp.asarray(x, jnp.float32)), squares.min(), squares.max())
    )
    assert float(exact(rms_norm(jnp.asarray(x.T, jnp.float32)))) <= bound * (1 + 1e-4)


def test_the_bound_on_normalized_columns_is_attained():
    """One long column and n - 1 short orthogonal ones: st goes from 1 + (n-1)/c to n, the factor c
    is nearly used.
    """
    x = np.diag([10.0, *[1.0] * 7])
    bound = float(theory.rms_norm_bound(exact(jnp.asarray(x, jnp.float32)), 1.0, 100.0))
    assert float(exact(rms_norm(jnp.asarray(x, jnp.float32)))) == pytest.approx(8, rel=1e-5)
    assert bound == pytest.approx(107, rel=1e-5)


@given(seed=st.integers(0, 2**31), exponent=st.floats(0.2, 2))
def test_embedded_tokens_and_their_indicator(seed, exponent):
    """Eq. 2.15 and Lemma 2.9 in its deterministic form."""
    rng = np.random.default_rng(seed)
    tokens = rng.choice(20, 60, p=theory.zipf(20, exponent))
    counts = np.bincount(tokens, minlength=20)
    indicator = jnp.asarray(np.eye(20)[:, tokens], jnp.float32)
    assert theory.indicator_stable_rank(jnp.asarray(counts, jnp.float32)) == pytest.approx(
        float(exact(indicator)), rel=1e-4
    )
    table = rng.standard_normal((20, 32))
    deviation = np.max(np.abs(np.sum(table[counts > 0] ** 2, axis=1) / 32 - 1))
    if deviation < 1:
        x = jnp.asarray(table[tokens].T, jnp.float32)
        assert exact(x) <= theory.embedding_bound(deviation, counts.max() / 60) * (1 + 1e-4)


def test_zipf():
    assert theory.zipf_exponent(50257, 1 / 26) == pytest.approx(0.8596, abs=1e-4)
    assert theory.zipf(7, 1.3)[0] / theory.zipf(7, 1.3)[3] == pytest.approx(4**1.3)
    # Of two tokens the commonest has p = 1/(1 + 2^-s).
    for largest in (0.5 + 1e-9, 0.6, 0.75, 1 - 1e-9):
        assert theory.zipf_exponent(2, largest) == pytest.approx(
            math.log2(largest / (1 - largest)), abs=1e-8
        )


@pytest.mark.parametrize("largest", [0.05, 0.125, 1.0, 1.5])
def test_what_no_zipf_law_can_have_is_refused(largest):
    sentence = rf"^The largest of 8 probabilities lies between 0\.125 and 1, got {largest}\.$"
    with pytest.raises(ValueError, match=sentence):
        theory.zipf_exponent(8, largest)


def test_rare_spikes_need_the_corrected_number_of_samples():
    """Theorem 2.2 promises failure in at most half of the samples; without a spike among the
    columns the bound fails.
    """
    spike, c = theory.RareSpike(p0=1e-3, rows=513, ratio=512.0), 0.25
    bound = theory.small_ball_bound(spike.effective_rank(), spike.p0, 1 / spike.p0, c)
    a, b = spike.scales()
    rng, failures = np.random.default_rng(0), {}
    for name, samples in (
        ("printed", theory.small_ball_samples_as_printed),
        ("corrected", theory.small_ball_samples),
    ):
        n = int(np.ceil(samples(spike.p0, c)))
        weights = np.array([a, *[b] * 512])
        counts = rng.multinomial(n, [spike.p0, *[(1 - spike.p0) / 512] * 512], size=2000)
        ranks = np.sum(counts * weights, axis=1) / np.max(counts * weights, axis=1)
        failures[name] = np.mean(ranks > bound)
    assert failures["corrected"] == 0
    assert failures["printed"] > 0.5 + 4 * np.sqrt(0.25 / 2000)
    assert spike.p0 * a == pytest.approx(1)
    assert (1 - spike.p0) * b / 512 == pytest.approx(1 / spike.ratio)


def test_quadratic_networks_are_far_below_the_bound():
    assert theory.quadratic_nsr_bound(2) == 81
    assert theory.quadratic_bound(2, 0.25) == pytest.approx(27 * 3**12 / 0.5)
    assert theory.quadratic_samples(1, 0.25) == pytest.approx(18 * 3**4 * np.log(4))
    rng = np.random.default_rng(0)
    a = rng.standard_normal((16, 4000))
    for layer in range(1, 4):
        w = rng.standard_normal((16, 16)) / 4
        a = (w @ a) ** 2
        empirical = np.mean(np.sum(a**2, axis=0)) / np.sum(np.mean(a, axis=1) ** 2)
        assert exact(jnp.asarray(a / a.max(), jnp.float32)) <= empirical * (1 + 1e-4)
        assert empirical < theory.quadratic_nsr_bound(layer) * 1.2


def test_a_gaussian_perturbation_keeps_norms():
    """Lemma 2.11 at the worst ‖x‖² = σ² d, where the failures are counted."""
    d, eps = 512, 0.25
    rng = np.random.default_rng(0)
    g = rng.standard_normal((4000, d))
    x = np.zeros(d)
    x[0] = np.sqrt(d)
    apart = np.sum((x + g) ** 2, axis=1) / (d + np.sum(g**2, axis=1)) - 1
    assert np.mean(np.abs(apart) > 0.1) < 2 * np.exp(-(0.1**2) * d / 2) * 1.5
    assert np.mean(np.abs(apart) > eps) <= theory.perturbation_failure(eps, d)
    # At d = 10⁵ the intermediate bound of the proof is false, and Cramér's is not.
    for size in (100, 10_000, 100_000):
        assert theory.norm_log_tail(0.3, size) <= theory.norm_log_tail_bound(0.3, size)
    assert theory.norm_log_tail(0.3, 100_000) > theory.norm_log_tail_as_printed(0.3, 100_000)


@pytest.mark.integration
def test_a_residual_branch_is_bounded_by_its_parts():
    """Lemma 2.13: the smallest δ with which the bound holds shrinks with d; at d = 200 it is below
    0.1.
    """
    rng = np.random.default_rng(0)
    needed, residual_bound = [], jax.jit(theory.residual_bound)
    for d in (50, 200):
        k, n = 2 * d, 40
        x, h = (
            rng.standard_normal((d, n)) * np.linspace(0.1, 2, n),
            np.abs(rng.standard_normal((k, n))),
        )
        bound = float(residual_bound(jnp.asarray(x, jnp.float32), jnp.asarray(h, jnp.float32), 0.0))
        ranks = [
            np.linalg.norm(y) ** 2 / np.linalg.norm(y, 2) ** 2
            for y in (x + rng.standard_normal((d, k)) @ h / np.sqrt(k) for _ in range(40))
        ]
        ratio = max(ranks) / bound
        needed.append((ratio - 1) / (ratio + 1))
    assert needed[1] < 0.1
    share = theory.frobenius_share(1.0, theory.SMALL_BALL_RELU)
    assert share == pytest.approx(0.0793, abs=1e-4)


@pytest.mark.usefixtures("x64")
def test_the_column_norms_by_their_recursion():
    norms, delta = theory.ColumnNorms(jnp.asarray(0.9), jnp.asarray(1.1)), np.array([0.0625, 0.25])
    after_each = jax.jit(lambda *start: [theory.norms_after(*start, blocks) for blocks in range(4)])
    low, high = 0.9, 1.1
    for found in after_each(norms, jnp.asarray(delta, jnp.float32)):
        np.testing.assert_allclose(found.low, np.broadcast_to(low, 2), rtol=1e-12)
        np.testing.assert_allclose(found.high, np.broadcast_to(high, 2), rtol=1e-12)
        low, high = (1 - delta) ** 2 * low, (1 + delta) ** 2 * (high + 2)


@pytest.mark.integration
def test_a_block_at_initialization_is_within_its_bounds():
    d, n, delta = 64, 96, 0.2

    @jax.jit
    def ranks_and_bounds(key):
        keys = jax.random.split(key, 4)
        tokens = decoder_block.zipf_tokens(
            keys[0], n, jnp.asarray(theory.zipf(200, 1.0), jnp.float32)
        )
        x = decoder_block.embed(keys[1], tokens, 200, d)
        squares = jnp.sum(x**2, axis=1) / d
        found = decoder_block.apply(decoder_block.init(keys[2], d, 2 * d), x)
        bounds = theory.block_bounds(
            exact(x), theory.ColumnNorms(jnp.min(squares), jnp.max(squares)), delta
        )
        return {
            name: (exact(getattr(found, name)), bound) for name, bound in bounds._asdict().items()
        }

    for name, (rank, bound) in ranks_and_bounds(jax.random.key(0)).items():
        assert float(rank) <= float(bound), name


@pytest.mark.usefixtures("x64")
def test_the_bounds_on_stable_ranks_by_hand():
    close(theory.small_ball_bound(3.0, 0.5, 0.25, 0.2), 240)
    # A number of less precision among the arguments does not lower that of the result.
    close(theory.concentrated_bound(3.0, np.float32(0.5), 0.1), 3 * 1.5 / 0.81)
    close(theory.embedding_bound(np.float32(0.25), 0.1), 5 / 3 / 0.1)
    close(theory.rms_norm_bound(np.float32(3), 0.7, 2.0), 6 / 0.7)
    assert [theory.quadratic_nsr_bound(layer) for layer in (0, 1, 2, 3)] == [3, 9, 81, 6561]
    close(theory.quadratic_samples(2, 0.25), 18 * 6561 * math.log(4))
    close(theory.perturbation_failure(0.25, 512), 4 * math.exp(-0.5))
    # The failure allowed and the samples that keep it, Chernoff's exp(-p_0 n/8) and as printed.
    close(math.exp(-0.3 * theory.small_ball_samples(0.3, 0.05) / 8), 0.05)
    close(math.exp(-8 * 0.3 * theory.small_ball_samples_as_printed(0.3, 0.05)), 0.1)
    spike = theory.RareSpike(p0=0.2, rows=5, ratio=3.0)
    a, b = spike.scales()
    moments = np.array([0.2 * a, *[0.8 * b / 4] * 4])
    close(spike.effective_rank(), moments.sum() / moments.max())
    close(moments[0] / moments[1], 3)


@pytest.mark.usefixtures("x64")
def test_the_bounds_of_a_decoder_block_by_hand():
    """δ = 0.2, c_- = 1/2, c_+ = 2, st = 3: (1 + δ)/(1 - δ) = 3/2, 1 + 2/c_- = 5, and c_σ = P(N(0,
    1) > 1)/2.
    """
    bounds = theory.block_bounds(np.float32(3), theory.ColumnNorms(0.5, 2.0), 0.2)
    share = math.erfc(math.sqrt(0.5)) / 4
    expected = (12, 22.5, 2.25 * 6 * 5 * 3, 2 * math.pi, 3 * math.pi * (1 + 4.5 / share))
    close(np.array(bounds), expected)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("scale", [0.1, 10.0], ids=["X", "H"])
def test_a_residual_branch_is_bounded_whichever_part_is_larger(scale, rng):
    x, h = rng.standard_normal((3, 6)), scale * rng.standard_normal((5, 6))
    parts = [
        [np.sum(s**2), s[0] ** 2]
        for s in (np.linalg.svd(y, compute_uv=False) for y in (x, math.sqrt(0.6) * h))
    ]
    expected = 1.3 / 0.7 * (parts[0][0] + parts[1][0]) / max(parts[0][1], parts[1][1])
    close(jax.jit(theory.residual_bound)(x, h, 0.3), expected)


@pytest.mark.usefixtures("x64")
def test_the_norm_tail_matches_samples_and_its_bound_is_cramers(rng):
    d, eps = 20, 1.0
    share = np.mean(rng.chisquare(d, 200_000) / d > 1 + eps / 4)
    tail = math.exp(theory.norm_log_tail(eps, d))
    stderr = math.sqrt(tail / 200_000)
    assert abs(share - tail) < 4 * stderr
    assert 4 * stderr < 0.03 * tail
    # Cramér: log 2 + min over s of log E exp(s ‖g‖²) - s d (1 + ε/4).
    s = np.linspace(0, 0.4999, 200_001)
    cramer = np.log(2) + np.min(-d / 2 * np.log(1 - 2 * s) - s * d * (1 + eps / 4))
    close(theory.norm_log_tail_bound(eps, d), cramer, 1e-8)
    close(theory.norm_log_tail_as_printed(0.5, 128), math.log(2) - 0.5)


@pytest.mark.usefixtures("x64")
def test_leading_axes_of_an_indicator_are_batch_axes(rng):
    leading_axes_are_batch_axes(theory.indicator_stable_rank, [(6,)], rng)
