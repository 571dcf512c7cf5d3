"""The predicted exponents against each other, and the finite-size counts against simulation and
against their own limit.
"""

import itertools
import re

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr, ndtri

from specjax.theory import capacity, finite_capacity, muon_logits
from tests.wrong_calls import wrong_calls


@pytest.mark.parametrize("alpha", [1.2, 1.5, 2.0, 3.0])
def test_the_exponents_agree_with_each_other(alpha):
    one = {name: capacity.one_step_exponent(name, alpha) for name in capacity.OPTIMIZERS}
    assert one["muon"] == one["newton"] == pytest.approx(one["gd"] + 1)
    # At the critical batch the population's capacity and that of the batch are equal.
    for name in capacity.OPTIMIZERS:
        critical = capacity.critical_batch_exponent(name, alpha)
        assert capacity.one_step_exponent(name, alpha, critical) == pytest.approx(one[name])
        assert capacity.one_step_exponent(name, alpha, critical / 2) == pytest.approx(one[name] / 2)
    assert capacity.critical_batch_exponent("gd", alpha) == pytest.approx(0.5)
    assert capacity.critical_batch_exponent("muon", alpha) == pytest.approx(alpha + 0.5)
    # The first step of several is the one step.
    for name in ("gd", "muon"):
        assert capacity.multi_step_exponents(name, alpha, 1)[1] == pytest.approx(one[name])
    assert capacity.loss_exponent("muon", alpha) == pytest.approx(0.5 + 1 / (2 * alpha) - alpha)
    assert capacity.loss_exponent("gd", alpha) == pytest.approx(1 / (2 * alpha) - 0.5)
    scales = capacity.singular_value_exponents(alpha)
    # A recovered item needs a signal q d^-(bulk) above 1/√d.
    assert -alpha * one["muon"] == pytest.approx(scales["bulk"] - 0.5)
    assert [scales[k] for k in ("resolution", "smallest", "inverse_sum")] == pytest.approx(
        [-alpha, -alpha - 1, alpha + 1]
    )


@pytest.mark.parametrize("alpha", [1.25, 1.5, 2.0])
def test_several_steps(alpha):
    assert capacity.multi_step_exponents("gd", alpha, 0) == [0.0]
    muon = capacity.multi_step_exponents("muon", alpha, 200)
    gd = capacity.multi_step_exponents("gd", alpha, 200)
    assert muon[0] == gd[0] == 0
    np.testing.assert_allclose([muon[-1], gd[-1]], 2, atol=1e-8)
    # Both obey e → 1/α + (1 - 1/(2α)) e, Muon from its first step on, gradient descent once it has
    # passed 1, which takes it ⌈2α⌉ steps.
    np.testing.assert_allclose(
        muon[2:], 1 / alpha + (1 - 1 / (2 * alpha)) * np.array(muon[1:-1]), rtol=1e-12
    )
    passed = next(t for t, e in enumerate(gd) if e >= 1 - 1e-12)
    assert passed == int(np.ceil(2 * alpha - 1e-12))
    np.testing.assert_allclose(
        gd[1 : passed + 1], np.arange(1, passed + 1) / (2 * alpha), rtol=1e-12
    )
    np.testing.assert_allclose(
        gd[passed + 1 :], 1 / alpha + (1 - 1 / (2 * alpha)) * np.array(gd[passed:-1]), rtol=1e-12
    )
    assert capacity.multi_step_exponents("muon", alpha, 3, 1.0)[1:] == [
        min(e, 1 / alpha) for e in muon[1:4]
    ]


def reference_count(optimizer, d, n, alpha, rng):
    """One draw in float64, by dense linear algebra and a dense comparison of all N² logits."""
    u, v = rng.standard_normal((2, n, d)) / np.sqrt(d)
    p = np.arange(1.0, n + 1) ** -alpha
    p /= p.sum()
    g = (u - u.mean(axis=0)).T @ (v * p[:, None])
    if optimizer == "muon":
        left, _, right = np.linalg.svd(g)
        g = left @ right
    elif optimizer == "newton":
        g = np.linalg.solve(np.cov(u.T, bias=True), g) @ np.linalg.inv(v.T @ (v * p[:, None]))
    logits = v @ g.T @ u.T
    own = np.diagonal(logits).copy()
    np.fill_diagonal(logits, -np.inf)
    return np.sum(own > logits.max(axis=1))


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.parametrize(("optimizer", "linear"), [("muon", 52.301), ("newton", 61.043)])
def test_the_finite_size_count_is_that_of_simulated_memories(optimizer, linear):
    """Within 4 standard errors, which the counts `linear` with an own logit whose response is
    linear, 2 % and more too few, are not.
    """
    d, n, alpha, draws = 64, 1500, 2.0, 240
    counts = [
        reference_count(optimizer, d, n, alpha, np.random.default_rng(s)) for s in range(draws)
    ]
    mean, stderr = np.mean(counts), np.std(counts, ddof=1) / np.sqrt(draws)
    assert (
        abs(mean - finite_capacity.expected_count(optimizer, d, n, alpha))
        < 4 * stderr
        < abs(mean - linear)
    )


@pytest.mark.integration
def test_own_logits_of_muon_recover_what_the_formula_says():
    """Σ_i Φ(x_i √d/‖v_i‖)^(N-1) over simulated own logits, within 4 standard errors; with a linear
    response it would be 2 % less.
    """
    d, n, alpha, draws = 64, 1500, 2.0, 400
    p, totals = np.arange(1.0, n + 1) ** -alpha, []
    for seed in range(draws):
        u, v = np.random.default_rng(seed).standard_normal((2, n, d)) / np.sqrt(d)
        left, _, right = np.linalg.svd(u.T @ (v * p[:, None]))
        own = np.sum((u @ (left @ right)) * v, axis=1) / np.linalg.norm(v, axis=1)
        totals.append(np.sum(np.exp((n - 1) * log_ndtr(own * np.sqrt(d)))))
    mean, stderr = np.mean(totals), np.std(totals, ddof=1) / np.sqrt(draws)
    assert (
        abs(mean - finite_capacity.expected_count("muon", d, n, alpha)) < 4 * stderr < 0.01 * mean
    )


@pytest.mark.integration
@pytest.mark.parametrize("alpha", [1.25, 3.0])
def test_newtons_logits_spread_as_those_of_simulated_memories(alpha):
    """Over the length of the other logits, of the items about the last that is recovered, within 4
    standard errors.
    """
    d, n, draws = 60, 1200, 200
    p, items, squares = np.arange(1.0, n + 1) ** -alpha, np.arange(30, 70), []
    signal, spread, variances = finite_capacity.newton_logits(d, p, np.ones(n))
    for seed in range(draws):
        u, v = np.random.default_rng(seed).standard_normal((2, n, d)) / np.sqrt(d)
        w = np.linalg.solve(v.T @ (v * p[:, None]), v[items].T).T @ (v.T * p) @ u
        logits = np.linalg.solve(u.T @ u, w.T).T @ u.T
        squares.append(logits[np.arange(len(items)), items] / np.std(logits[:, n // 2 :], axis=1))
    by_item = np.var(squares, axis=0, ddof=1)
    expected = (spread[items] / variances[items, -1]).mean()
    rest = variances[items, -1] / (1 - d / n) - signal[items] ** 2
    linear = ((rest + 2.5 * signal[items] ** 2) / variances[items, -1]).mean()
    stderr = by_item.std(ddof=1) / np.sqrt(len(items))
    assert abs(by_item.mean() - expected) < 4 * stderr < abs(expected - linear)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("d", "n", "alpha"),
    [
        (32, 500, 2.0),
        *(pytest.param(64, 500, alpha, marks=pytest.mark.slow) for alpha in (1.5, 3.0)),
    ],
)
def test_gradient_descent_counts_as_simulated_memories_do(d, n, alpha):
    """Without the noise in an item's own logit the formula would be a tenth to a fifth too
    small.
    """
    counts = [reference_count("gd", d, n, alpha, np.random.default_rng(s)) for s in range(1200)]
    mean, stderr = np.mean(counts), np.std(counts, ddof=1) / np.sqrt(len(counts))
    assert abs(mean - finite_capacity.expected_count("gd", d, n, alpha)) < 4 * stderr
    assert 4 * stderr < 0.05 * mean


@pytest.mark.integration
@pytest.mark.parametrize("alpha", [1.25, 2.0])
@pytest.mark.parametrize("optimizer", capacity.OPTIMIZERS)
def test_the_finite_size_count_has_the_theorems_exponent_far_out(optimizer, alpha):
    low, high = (
        finite_capacity.expected_count(optimizer, d, float(d) ** (2 * alpha + 2), alpha)
        for d in (2**20, 2**22)
    )
    exponent = np.log2(high / low) / 2
    # log N grows with d: Muon and Newton lose 1/(2α) · d log log N / d log d, a few hundredths at
    # this d.
    loss = 0.5 / alpha / (21 * np.log(2)) if optimizer != "gd" else 0
    assert exponent == pytest.approx(capacity.one_step_exponent(optimizer, alpha) - loss, abs=0.03)


@pytest.mark.integration
def test_the_count_far_out_is_smooth_in_the_dimension():
    """Quadratures that have not converged move by parts of a per cent from one d to the next; the
    count does not.
    """
    dims = 2.0**23 * 1.3 ** np.arange(9)
    logs = np.log([finite_capacity.expected_count("muon", d, d**8, 3.0) for d in dims])
    assert np.max(np.abs(np.diff(logs, n=3))) < 1e-3


def test_the_orthogonal_signal_is_one_when_items_are_few():
    """With fewer than d items of p > 0 Muon's W maps each v_i to its u_i, as for orthogonal
    embeddings.
    """
    p = np.full(4, 0.25)
    signal = muon_logits.signal(4000, np.append(p, 1e-12), np.append(np.ones(4), 8000))
    # Less 1/4 per item and dimension: K items of p and t g = 1 - (K/d) p² / (p² + t²) + O(1/d²)
    # give 1 - K/(4d).
    np.testing.assert_allclose(signal[:4], 1 - 1 / 4000, atol=2e-6)
    assert signal[4] < 0.6


WRONG_CALLS = """
capacity.one_step_exponent("muon", 1.0)
    The exponents hold for power laws with finite α > 1, got α=1.0.
capacity.one_step_exponent("adam", 1.5)
    There is a prediction for gd, muon, newton, not for 'adam'.
capacity.multi_step_exponents("newton", 1.5, 2)
    Several steps are predicted for 'gd' and 'muon', not 'newton'.
capacity.multi_step_exponents("gd", 1.5, -1)
    The number of steps must not be negative, got -1.
finite_capacity.expected_count("muon", 8, 8, 1.5)
    A count needs 2 <= d < n, got d=8 and n=8.
finite_capacity.expected_count("muon", 1, 8, 1.5)
    A count needs 2 <= d < n, got d=1 and n=8.
muon_logits.signal(4, np.full(4, 0.25), np.ones(4))
    Muon's signal needs more items than dimensions, got d=4 and 4 items.
finite_capacity.expected_count("muon", 8, 90, 0.5)
    The exponents hold for power laws with finite α > 1, got α=0.5.
finite_capacity.expected_count("adam", 8, 90, 1.5)
    There is a prediction for gd, muon, newton, not for 'adam'.
"""


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("call", "sentence"), wrong_calls(WRONG_CALLS))
def test_bad_input_is_refused_in_a_sentence(call, sentence):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        eval(call)


def test_two_dimensions_are_enough_for_a_count():
    assert 0 < finite_capacity.expected_count("newton", 2, 3, 1.5) < 3


def test_the_number_of_distinct_items_is_that_of_drawn_batches():
    p = np.arange(1.0, 501) ** -1.5
    rng = np.random.default_rng(0)
    drawn = [len(set(rng.choice(500, 200, p=p / p.sum()))) for _ in range(400)]
    stderr = np.std(drawn, ddof=1) / 20
    assert abs(np.mean(drawn) - finite_capacity.distinct_items(500, 1.5, 200)) < 4 * stderr
    assert stderr < 0.01 * np.mean(drawn)


def test_the_number_of_distinct_items_by_counting_every_batch():
    p = np.arange(1.0, 5) ** -1.5
    p /= p.sum()
    batches = [
        (len(set(batch)), np.prod(p[list(batch)]))
        for batch in itertools.product(range(4), repeat=3)
    ]
    expected = sum(count * probability for count, probability in batches)
    assert finite_capacity.distinct_items(4, 1.5, 3) == pytest.approx(expected, rel=1e-12)


D, N, ALPHA = 12, 60, 1.4
P = np.arange(1.0, N + 1) ** -ALPHA / np.sum(np.arange(1.0, N + 1) ** -ALPHA)
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(81)


def the_sum(signal, spread, deviations):
    """Σ_i E_x Π_{j≠i} Φ(x_i/σ_ij), item by item, as the docstring of the module has it."""
    total = 0.0
    for i in range(N):
        products = [
            np.prod([ndtr(x / deviations[i, j]) for j in range(N) if j != i])
            for x in signal[i] + spread[i] * NODES
        ]
        total += products @ WEIGHTS / WEIGHTS.sum()
    return total


def own_spreads(d, p):
    ones = np.ones_like(p)
    return muon_logits.spreads(muon_logits.muon_steps(d, p, ones, ones), p, ones)[0]


def spreads_by_traces(resolvent, signals):
    """The double integral with w and z as traces of two resolvents of one matrix, which partial
    fractions make of single ones.
    """
    logs = np.arange(np.log(1e-9), np.log(1e7), 0.1)
    t, other = np.exp(logs)[:, None], np.exp(logs + 0.05)[None, :]  # never equal
    g, g_other = (np.vectorize(resolvent)(x) for x in (t, other))
    w = (other * g_other - t * g) / (other**2 - t**2) * 0.01 * t * other
    z = (other * g - t * g_other) / (other**2 - t**2) * 0.01 * t * other
    found = []
    for p, s in zip(P, signals, strict=True):
        q, r = p * g, p * g_other
        kernel = ((1 - q**2) * (1 - r**2) * w + 4 * q * r * z) / ((1 + q**2) ** 2 * (1 + r**2) ** 2)
        tau = 2 / np.pi * np.sum(q * g / (1 + q**2) ** 2 * t) * 0.1
        found.append((2 / np.pi) ** 2 * kernel.sum() - 2 * s * tau + s**2 / 2)
    return found


def test_the_count_of_muon_is_its_sum_and_integral():
    def resolvent(t):
        return brentq(
            lambda g: np.sum(P**2 * g**2 / (1 + P**2 * g**2)) / D - 1 + t * g, 0, 1e9, xtol=1e-14
        )

    def signal(p):
        def integrand(t):
            g = resolvent(t)
            return p * g**2 / (1 + p**2 * g**2)

        return (
            2
            / np.pi
            * (quad(integrand, 0, 1, limit=200)[0] + quad(integrand, 1, np.inf, limit=200)[0])
        )

    found = muon_logits.signal(D, P, np.ones(N))
    np.testing.assert_allclose(spreads_by_traces(resolvent, found), own_spreads(D, P), rtol=1e-5)
    chosen = [0, 3, 20, 59]
    signals = [signal(P[i]) for i in chosen]
    np.testing.assert_allclose(found[chosen], signals, rtol=1e-7)
    # A factor common to all frequencies, however small, cancels.
    np.testing.assert_allclose(
        muon_logits.signal(D, 1e-40 * P, np.ones(N))[chosen], signals, rtol=1e-7
    )
    expected = the_sum(found, np.sqrt(own_spreads(D, P) / D), np.full((N, N), D**-0.5))
    assert finite_capacity.expected_count("muon", D, N, ALPHA) == pytest.approx(expected, rel=1e-4)


def test_the_count_of_newton_is_its_sum():
    """With (1/d) tr (M_v + λ)⁻¹ = m(λ) from its equation, (1/d) tr M_v⁻² = -m'(0), and an H whose
    rows have the length f.
    """

    def trace(shift):
        return brentq(lambda m: np.sum(P * m / (1 + P * m)) / D - 1 + shift * m, 0, 1e5, xtol=1e-13)

    m, h = trace(0.0), 1e-7
    second = (trace(-h) - trace(h)) / (2 * h)
    a, signal = P / (1 + P * m), P * m
    rest = second * np.sum(a**2) / D
    variances = second * a[None, :] ** 2 + (1 - D / N) * (signal[:, None] ** 2 + rest)
    found, spread, of_others = finite_capacity.newton_logits(D, P, np.ones(N))
    np.testing.assert_allclose(found, signal, rtol=1e-7)
    np.testing.assert_allclose(of_others, variances, rtol=1e-4)
    expected = the_sum(signal, np.sqrt(spread / D), np.sqrt(variances / D))
    assert finite_capacity.expected_count("newton", D, N, ALPHA) == pytest.approx(
        expected, rel=1e-4
    )


@pytest.mark.parametrize("alpha", [1.25, 3.0])
def test_the_signal_of_newton_varies_by_traces_of_the_hessian(alpha):
    """d Var (log b - log ‖e‖) of quadratic forms in v_i, by dense linear algebra; every term of it
    is more than the tolerance.
    """
    d, n = 400, 4000
    p = np.arange(1.0, n + 1) ** -alpha
    v = np.random.default_rng(1).standard_normal((n, d)) / np.sqrt(d)
    inverse = np.linalg.inv(v.T @ (v * p[:, None]))
    m = np.trace(inverse) / d
    inverse /= m
    k = inverse @ (v.T @ (v * (m * p)[:, None] ** 2)) @ inverse
    r = np.trace(k) / d
    both, square = np.trace(inverse @ k) / d, np.trace(k @ k) / d
    expected = 2 * np.trace(inverse @ inverse) / d - 2 * both / r + square / (2 * r**2)
    signal, spread, variances = finite_capacity.newton_logits(d, p, np.ones(n))
    free = 1 - d / n
    of_e = variances[-1, -1] / free - signal[-1] ** 2
    assert of_e == pytest.approx(r, rel=0.02)
    signal, spread = signal[d], spread[d]
    kept = of_e / (signal**2 + of_e)
    found = ((spread - (1 + kept) ** 2 / 2 * free * signal**2) / kept**2 - free * of_e) / signal**2
    assert found == pytest.approx(expected, rel=0.05)


@pytest.mark.integration
@pytest.mark.parametrize("alpha", [1.25, 3.0])
def test_the_count_of_gradient_descent_is_its_sum(alpha):
    """Item by item and competitor by competitor, over samples of everything that the formula
    averages over.
    """
    batches, batch, p = (
        20,
        1000,
        np.arange(1.0, N + 1) ** -alpha / np.sum(np.arange(1.0, N + 1) ** -alpha),
    )
    rng = np.random.default_rng(5)
    draws = batches * batch
    # The noise of the item itself decides most: each batch has one of every 1000 of its quantiles.
    along = ndtri((np.tile(np.arange(batch), batches) + rng.random(draws)) / batch)
    z = rng.standard_normal((draws, N))
    squared_u, squared_v = (along**2 + rng.chisquare(D - 1, draws)) / D, rng.chisquare(D, draws) / D
    totals = np.zeros(draws)
    for i in range(N):
        others = np.arange(N) != i
        noise = np.sqrt(z[:, others] ** 2 @ p[others] ** 2 / D)
        own = p[i] * np.sqrt(squared_v)
        x = own * squared_u + noise * along / np.sqrt(D)
        length = np.sqrt(own**2 * squared_u + noise**2 + 2 * own * noise * along / np.sqrt(D))
        margins = x[:, None] - z[:, others] * p[others] / np.sqrt(D)
        totals += np.prod(ndtr(margins * np.sqrt(D) / length[:, None]), axis=1)
    error = totals.reshape(batches, batch).mean(axis=1).std(ddof=1) / np.sqrt(batches)
    assert abs(finite_capacity.expected_count("gd", D, N, alpha) - totals.mean()) < 4 * error
    # Without the noise of the item itself rare items are never found, more than a tenth of the
    # count.
    assert 4 * error < 0.03 * totals.mean()


SIZES = [
    (32, 1000, 3.0),
    (32, 100_000, 1.25),
    (192, 10_000, 1.25),
    (1024, 100_000, 3.0),
    (4096, 100_000, 1.25),
]


@pytest.mark.parametrize(("d", "n", "alpha"), SIZES)
@pytest.mark.parametrize(
    ("optimizer", "tolerance"),
    [("muon", 1e-4), ("newton", 1e-4), pytest.param("gd", 2e-3, marks=pytest.mark.integration)],
)
def test_the_count_has_converged(optimizer, tolerance, d, n, alpha, monkeypatch):
    """Twice as many items one by one, and as many steps, nodes, samples and coupled competitors,
    change next to nothing.
    """
    found = finite_capacity.expected_count(optimizer, d, n, alpha)
    for name, factor in {"SINGLE": 2, "ORDER": 2, "SAMPLES": 2, "FIRST": 2, "_STEP": 0.5}.items():
        with monkeypatch.context() as finer:
            finer.setattr(finite_capacity, name, factor * getattr(finite_capacity, name))
            relevant = {"SAMPLES", "FIRST"} if optimizer == "gd" else {"_STEP"}
            if name in relevant | {"SINGLE", "ORDER"}:
                assert finite_capacity.expected_count(optimizer, d, n, alpha) == pytest.approx(
                    found, rel=tolerance
                )
    if optimizer == "muon":
        monkeypatch.setattr(muon_logits, "POINTS", 2 * muon_logits.POINTS)
        assert finite_capacity.expected_count(optimizer, d, n, alpha) == pytest.approx(
            found, rel=tolerance
        )


@pytest.mark.integration
@pytest.mark.parametrize(("d", "n", "alpha"), [(32, 1000, 3.0), (192, 2000, 1.25)])
def test_the_counts_of_muon_and_newton_are_sums_over_all_items(d, n, alpha):
    """Every item and every competitor by itself, without nodes: what the quadratures of the items
    stand for.
    """
    p = np.arange(1.0, n + 1) ** -alpha / np.sum(np.arange(1.0, n + 1) ** -alpha)
    x, weights = np.polynomial.hermite_e.hermegauss(61)
    weights = weights / weights.sum()
    signal = muon_logits.signal(d, p, np.ones(n))
    logits = signal[:, None] + np.sqrt(own_spreads(d, p) / d)[:, None] * x
    muon = np.sum(ndtr(logits * np.sqrt(d)) ** (n - 1) @ weights)
    assert finite_capacity.expected_count("muon", d, n, alpha) == pytest.approx(muon, rel=2e-4)
    signal, spread, variances = finite_capacity.newton_logits(d, p, np.ones(n))
    newton, near = 0.0, np.abs(x) < 7
    for i in range(n):
        logit = np.sqrt(d) * signal[i] + np.sqrt(spread[i]) * x[near]
        logs = np.log(
            np.maximum(ndtr(logit[:, None] / np.sqrt(np.delete(variances[i], i))), 1e-300)
        ).sum(axis=1)
        newton += np.exp(logs) @ weights[near]
    assert finite_capacity.expected_count("newton", d, n, alpha) == pytest.approx(newton, rel=2e-4)


@pytest.mark.parametrize("items", [3.0, 17.4, 400.0])
def test_the_half_batch_is_that_of_the_expected_item_count(items):
    p = np.arange(1.0, 401) ** -1.5
    p /= p.sum()
    whole = int(items)
    # A Poisson number of samples shows item i with the probability 1 - e^(-B p_i).
    seen = 1 - np.exp(-finite_capacity.half_seen_batch(400, 1.5, items) * p)
    part = (items - whole) * seen[whole] if whole < 400 else 0.0
    assert seen[:whole].sum() + part == pytest.approx(items / 2, rel=1e-9)


def test_no_batch_shows_half_of_more_items_than_there_are():
    with pytest.raises(ValueError, match="at most n=10 of them, got 11"):
        finite_capacity.half_seen_batch(10, 1.5, 11)
