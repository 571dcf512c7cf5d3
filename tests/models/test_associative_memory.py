"""The memory's loss, gradients, Hessian, embeddings and frequencies, by autodiff, by float64 and by
what they must sum to.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import spectral
from specjax.models import associative_memory as memory
from specjax.models.associative_memory import gradients
from specjax.sizes import Size
from tests.wrong_calls import wrong_calls

N, D = 700, 6


def dense_loss(w, u, v, q):
    logits = jnp.einsum("nd,de,me->mn", u, w, v)
    return -jnp.sum(q * jnp.diagonal(jax.nn.log_softmax(logits, axis=1)))


@pytest.fixture(scope="module")
def problem():
    """Float64 items, frequencies of which some are zero, and a W with logits of order 10."""
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        u, v = jnp.asarray(rng.standard_normal((2, N, D)) / np.sqrt(D))
        q = jnp.asarray(rng.dirichlet(np.full(N, 0.1)) * (rng.random(N) < 0.8))
        return u, v, q / q.sum(), jnp.asarray(10 * rng.standard_normal((D, D)))


@pytest.fixture(
    params=[(64, 96), pytest.param((512, 1024), marks=pytest.mark.slow)],
    ids=["several blocks", "one block"],
)
def blocks(request, monkeypatch):
    """Blocks that do not divide N, and blocks larger than N."""
    monkeypatch.setattr(gradients, "ROWS", request.param[0])
    monkeypatch.setattr(gradients, "COLUMNS", request.param[1])


@pytest.mark.integration
@pytest.mark.usefixtures("x64", "blocks")
def test_streamed_loss_and_gradient_are_those_of_the_dense_loss(problem):
    u, v, q, w = problem

    # A new function, so that it is traced with these blocks.
    def three(*at):
        return jax.value_and_grad(dense_loss)(*at), memory.loss_and_gradient(*at), memory.loss(*at)

    (value, slope), streamed, loss = jax.jit(three)(w, u, v, q)
    np.testing.assert_allclose(streamed.loss, value, rtol=1e-12)
    np.testing.assert_allclose(streamed.gradient, slope, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(loss, value, rtol=1e-12)


@pytest.mark.integration
@pytest.mark.usefixtures("x64")
def test_the_newton_direction_is_that_of_the_dense_hessian(problem):
    """At a W where the scores are far from uniform; at zero it is the Newton step."""
    u, v, q, w = problem
    u, v, q = u[:60], v[:60], q[:60] / q[:60].sum()
    hessian = np.asarray(jax.jit(jax.hessian(dense_loss))(w / 5, u, v, q)).reshape(D * D, D * D)
    slope = np.asarray(jax.jit(jax.grad(dense_loss))(w / 5, u, v, q)).reshape(D * D)
    direction = jax.jit(memory.newton_direction)
    for ridge in (0.0, 0.1):
        dense = -np.linalg.solve(hessian + ridge * np.eye(D * D), slope).reshape(D, D)
        np.testing.assert_allclose(direction(w / 5, u, v, q, ridge), dense, rtol=1e-6, atol=1e-8)
    step = jax.jit(
        lambda u, v, q: memory.newton_step(
            memory.gradient_at_zero(u, v, q), memory.hessian_at_zero(u, v, q)
        )
    )(u, v, q)
    np.testing.assert_allclose(direction(0 * w, u, v, q, 0.0), step, rtol=1e-6, atol=1e-8)


@pytest.mark.integration
@pytest.mark.usefixtures("x64")
def test_batches_and_vmap_give_each_problem_its_own(problem):
    u, v, q, w = problem
    ws = jnp.stack([w, -w, 0 * w])
    single = jax.jit(memory.loss_and_gradient)
    several = single(ws, u, v, q)
    mapped = jax.jit(jax.vmap(memory.loss_and_gradient, in_axes=(0, None, None, None)))(ws, u, v, q)
    for k in range(3):
        one = single(np.asarray(ws[k]), u, v, q)
        for together in (several, mapped):
            np.testing.assert_allclose(together.loss[k], one.loss, rtol=1e-13)
            np.testing.assert_allclose(together.gradient[k], one.gradient, atol=1e-13)


@pytest.mark.integration
@pytest.mark.usefixtures("x64")
def test_the_loss_does_not_overflow(problem):
    u, v, q, w = problem
    scaled = memory.loss_and_gradient(1e4 * w, u, v, q)
    np.testing.assert_allclose(scaled.loss, dense_loss(1e4 * w, u, v, q), rtol=1e-12)
    assert np.isfinite(scaled.gradient).all()


@pytest.mark.integration
@pytest.mark.usefixtures("x64")
def test_gradient_and_hessian_at_zero_are_the_dense_losss(problem):
    u, v, q, w = problem
    assert memory.init(u, 3).shape == (3, D, D)

    @jax.jit
    def found(u, v, q, w):
        dense = jax.jvp(lambda w: jax.grad(dense_loss)(w, u, v, q), (memory.init(u),), (w,))
        g, hessian = memory.gradient_at_zero(u, v, q), memory.hessian_at_zero(u, v, q)
        return (
            dense,
            g,
            hessian,
            memory.newton_step(g, hessian),
            memory.newton_step(g, hessian, 0.1),
        )

    (slope, second), g, (left, right), step, ridged = jax.tree.map(np.asarray, found(u, v, q, w))
    np.testing.assert_allclose(g, slope, atol=1e-14)
    np.testing.assert_allclose(left @ w @ right, second, atol=1e-12)
    # Newton's step is where the second-order expansion has no slope.
    np.testing.assert_allclose(left @ step @ right, -g, atol=1e-13)
    ridge = 0.1 * np.eye(D)
    np.testing.assert_allclose((left + ridge) @ ridged @ (right + ridge), -g, atol=1e-13)


@pytest.mark.integration
@pytest.mark.usefixtures("x64")
def test_the_deflated_gradient_leaves_out_the_first_items(problem):
    u, v, q, _ = problem
    expected = -sum(q[i] * np.outer(u[i], v[i]) for i in range(5, N))
    np.testing.assert_allclose(
        memory.deflated_gradient(u, v, q, jnp.asarray(5)), expected, atol=1e-14
    )


@pytest.mark.usefixtures("x64")
def test_rotations_keep_the_loss_and_rotate_its_gradient(problem):
    """Proposition C.1: u → Uᵀu, v → Vᵀv, W → UᵀWV leaves every logit, so the loss, and turns the
    gradient.
    """
    u, v, q, w = problem
    rng = np.random.default_rng(1)
    left, right = (jnp.asarray(np.linalg.qr(rng.standard_normal((D, D)))[0]) for _ in range(2))
    plain = memory.loss_and_gradient(w, u, v, q)
    turned = memory.loss_and_gradient(left.T @ w @ right, u @ left, v @ right, q)
    np.testing.assert_allclose(turned.loss, plain.loss, rtol=1e-12)
    np.testing.assert_allclose(turned.gradient, left.T @ plain.gradient @ right, atol=1e-12)
    at_zero = memory.gradient_at_zero(u @ left, v @ right, q)
    np.testing.assert_allclose(
        at_zero, left.T @ memory.gradient_at_zero(u, v, q) @ right, atol=1e-13
    )


def test_newton_is_invariant_to_linear_maps_of_the_embeddings():
    """u → A u, v → C v changes no logit of Newton's step (Appendix B.1), and those of the polar
    factor.
    """
    rng = np.random.default_rng(2)
    with jax.enable_x64(True):
        u, v = rng.standard_normal((2, 50, 4))
        q = jnp.asarray(rng.dirichlet(np.ones(50)))
        a, c = rng.standard_normal((2, 4, 4))
        at_zero = jax.jit(
            lambda u, v: (memory.gradient_at_zero(u, v, q), memory.hessian_at_zero(u, v, q))
        )

        def logits(u, v, step):
            return u @ np.asarray(step(*at_zero(u, v))) @ v.T

        def changed(step):
            return np.max(np.abs(logits(u @ a.T, v @ c.T, step) - logits(u, v, step)))

        assert changed(jax.jit(memory.newton_step)) < 1e-9
        assert changed(lambda g, _: np.linalg.svd(g)[0] @ np.linalg.svd(g)[2]) > 0.1


@pytest.mark.integration
def test_padding_changes_no_embedding_and_no_step():
    q = memory.power_law(40, 1.5)

    @jax.jit
    def draws_and_steps(key):
        draws = [
            [draw(key, 40, d) for d in (Size(8, 5), 5)]
            for draw in (memory.isotropic, lambda key, n, d: memory.anisotropic(key, n, d, 0.7))
        ]
        u, v = draws[0][0], memory.isotropic(jax.random.key(1), 40, Size(8, 5))
        steps = [
            memory.newton_step(memory.gradient_at_zero(u, v, q), memory.hessian_at_zero(u, v, q))
            for u, v in ((u, v), (u[:, :5], v[:, :5]))
        ]
        return draws, steps

    draws, (step, plain_step) = jax.tree.map(np.asarray, draws_and_steps(jax.random.key(0)))
    for padded, plain in draws:
        np.testing.assert_allclose(padded[:, :5], plain, rtol=1e-6)
        assert not np.any(padded[:, 5:])
    np.testing.assert_allclose(step[:5, :5], plain_step, rtol=1e-3)
    assert not np.any(step[5:])
    assert not np.any(step[:, 5:])


def test_embeddings_have_their_covariance():
    n = 40_000
    x = np.asarray(memory.anisotropic(jax.random.key(3), n, 4, 1.0))
    values = np.array([1, 1 / 2, 1 / 3, 1 / 4]) / (25 / 12)
    np.testing.assert_allclose(memory.spectrum(4, 1.0), values, rtol=1e-6)
    # The standard error of a variance s² is s² √(2/n), that of a covariance √(s² t² / n); a
    # neighbouring value is 30 % off.
    errors = np.sqrt(np.outer(values, values) * (1 + np.eye(4)) / n)
    assert np.all(np.abs(x.T @ x / n - np.diag(values)) < 4 * errors)
    y = np.asarray(memory.isotropic(jax.random.key(3), n, 4))
    np.testing.assert_allclose(memory.anisotropic(jax.random.key(3), n, 4, 0.0), y, rtol=1e-6)
    assert abs(np.mean(y**2) - 1 / 4) < 4 * np.sqrt(2 / (4 * n)) / 4


def test_the_power_law():
    p = np.asarray(memory.power_law(1000, 1.5), float)
    np.testing.assert_allclose(p.sum(), 1, rtol=1e-5)
    np.testing.assert_allclose(p[[1, 9, 999]] / p[0], np.array([2.0, 10, 1000]) ** -1.5, rtol=1e-5)


def test_a_minibatch_has_the_frequencies_it_was_drawn_with():
    p, batch = memory.power_law(30, 1.2), 20_000
    q = np.asarray(memory.minibatch(jax.random.key(0), p, batch), float)
    assert q.sum() == pytest.approx(1, abs=1e-5)
    exact = np.asarray(p, float)
    z = (q - exact) / np.sqrt(exact * (1 - exact) / batch)
    assert np.max(np.abs(z)) < 4
    # 29 degrees of freedom: a chi-square between its 0.01 % and 99.99 % quantiles.
    assert 8 < np.sum((q - exact) ** 2 / exact) * batch < 68


@pytest.mark.integration
def test_a_batch_starts_a_larger_one_and_has_rare_items():
    key, p = jax.random.key(1), memory.power_law(100_000, 1.1)
    batches = jax.jit(memory.minibatches, static_argnums=2)(key, p, (1000, 20_000))
    small, large = (np.asarray(q) * batch for q, batch in zip(batches, (1000, 20_000), strict=True))
    np.testing.assert_array_equal(memory.minibatch(key, p, 1000), batches[0])
    assert small.sum() == pytest.approx(1000)
    assert large.sum() == pytest.approx(20_000)
    assert np.all(small <= large + 1e-3)
    # Float32 samples could not reach most of the last half of the items, whose p is below 1e-6.
    tail = np.asarray(p, float)[50_000:].sum()
    assert abs(large[50_000:].sum() - 20_000 * tail) < 4 * np.sqrt(20_000 * tail)
    assert large[50_000:].max() <= 3.01


WRONG_CALLS = """
memory.power_law(1, 1.5)
    An associative memory needs N of at least 2 items, got N=1.
memory.power_law(9, float("nan"))
    The exponent α of a power law must be finite, got nan.
memory.frequencies(np.array([1.5, -0.5]))
    Frequencies must be finite and not negative, got
memory.frequencies(np.array([0.5, np.inf]))
    Frequencies must be finite and not negative, got
memory.frequencies(np.array([0.5, 0.6]))
    Frequencies must sum to 1, these sum to 1.1; divide them
memory.frequencies(np.array([1.0]))
    An associative memory needs N of at least 2 items, got N=1.
memory.minibatch(jax.random.key(0), memory.power_law(9, 2.0), 0)
    A batch needs at least one sample, got batch=0; leave it out for the population.
memory.newton_step(jnp.eye(2), memory.HessianAtZero(jnp.eye(2), jnp.eye(2)), -1.0)
    The ridge of a Newton step must not be negative, got -1.0.
memory.recovered(*jnp.ones((2, 1, 3)), jnp.eye(3))
    Recovery compares items, so it needs N
memory.recovered(jnp.ones((4, 3)), jnp.ones((5, 3)), jnp.eye(3))
    u and v need the shape (N, d)
"""


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("call", "sentence"), wrong_calls(WRONG_CALLS))
def test_bad_input_is_refused_in_a_sentence(call, sentence):
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        eval(call)
    assert str(refused.value).startswith(sentence)


def test_good_frequencies_pass():
    np.testing.assert_allclose(memory.frequencies(np.array([0.25, 0.75])), [0.25, 0.75])


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("lam", [0.3, 2.0])
def test_the_slope_of_a_signal_is_that_of_differences(lam):
    rng = np.random.default_rng(1)
    without, u, v = rng.standard_normal((D, D)), *rng.standard_normal((2, D))

    def signal(q):
        left, s, right = np.linalg.svd(without + q * np.outer(u, v))
        return u @ (left * (s / np.hypot(s, lam))) @ right @ v

    step = 1e-3
    difference = (8 * (signal(step) - signal(-step)) - (signal(2 * step) - signal(-2 * step))) / (
        12 * step
    )
    sums = memory.signal_slope(*map(jnp.asarray, (without, u, v)), lam)
    assert float(sum(sums)) == pytest.approx(difference, rel=1e-8)
    # All three are needed.
    assert all(float(part) > 1e-3 * difference for part in sums)


@pytest.mark.usefixtures("x64")
def test_the_largest_interaction_is_that_of_all_logits(problem):
    u, v, _, w = problem
    logits = np.abs(np.asarray(v) @ np.asarray(w).T @ np.asarray(u).T)
    np.fill_diagonal(logits, 0)
    assert float(memory.largest_interaction(u, v, w)) == pytest.approx(logits.max(), rel=1e-12)


@pytest.mark.parametrize("ridge", [0.0, 0.05])
def test_one_step_is_that_of_float64_up_to_its_length(ridge):
    """From frequencies so steep that the polar factor of a float32 gradient is another one."""
    n, d = 300, 24
    rng = np.random.default_rng(2)
    u, v = (rng.standard_normal((2, n, d)) / np.sqrt(d)).astype(np.float32)
    q = (np.arange(1.0, n + 1) ** -3.0 / np.sum(np.arange(1.0, n + 1) ** -3.0)).astype(np.float32)
    centred, wide_v = u.astype(float) - u.astype(float).mean(0), v.astype(float)
    down = centred.T @ (wide_v * q[:, None])
    left, _, right = np.linalg.svd(down)
    sigma, moment = (
        centred.T @ centred / n + ridge * np.eye(d),
        wide_v.T @ (wide_v * q[:, None]) + ridge * np.eye(d),
    )
    expected = {
        "gd": down,
        "muon": left @ right,
        "newton": np.linalg.solve(sigma, np.linalg.solve(moment, down.T).T),
    }
    found = memory.one_step(u, v, q, tuple(expected), ridge)
    for w, exact in zip(np.asarray(found, float), expected.values(), strict=True):
        assert np.isfinite(w).all()
        np.testing.assert_allclose(w / np.linalg.norm(w), exact / np.linalg.norm(exact), atol=3e-5)
    assert found.dtype == np.float32


def test_steps_with_a_resolution_are_those_of_float64():
    n, d = 300, 24
    rng = np.random.default_rng(2)
    u, v = (rng.standard_normal((2, n, d)) / np.sqrt(d)).astype(np.float32)
    q = (np.arange(1.0, n + 1) ** -3.0 / np.sum(np.arange(1.0, n + 1) ** -3.0)).astype(np.float32)
    down = (u.astype(float) - u.astype(float).mean(0)).T @ (v.astype(float) * q[:, None])
    left, s, right = np.linalg.svd(down)
    lambdas = np.array([0.0, s[-1] / 10, s[d // 2], s[0]], np.float32)
    for w, lam in zip(
        memory.stabilized_steps(u, v, q, jnp.asarray(lambdas)), lambdas.astype(float), strict=True
    ):
        np.testing.assert_allclose(w, (left * (s / np.hypot(s, lam))) @ right, atol=3e-6)


def test_maps_of_singular_values_leave_the_padding_alone():
    n, d, padded = 60, 5, 8
    u, v = np.random.default_rng(4).standard_normal((2, n, d)).astype(np.float32)
    q = np.arange(1, n + 1, dtype=np.float32) ** -1.5
    left, s, right = np.linalg.svd(
        (u.astype(float) - u.astype(float).mean(0)).T @ (v.astype(float) * q[:, None])
    )

    def maps(x, share):
        return jnp.stack([jnp.ones_like(x), x / (x**2 + share**2)])

    def steps(columns):
        wide = [jnp.pad(jnp.asarray(x), ((0, 0), (0, columns - d))) for x in (u, v)]
        return np.asarray(
            memory.mapped_steps(*wide, jnp.asarray(q), jnp.asarray(d), maps, jnp.asarray(0.5))
        )

    x = s / np.median(s)
    for found, h in zip(steps(padded), (np.ones(d), x / (x**2 + 0.25)), strict=True):
        np.testing.assert_allclose(found[:d, :d], (left * (h / h.max())) @ right, atol=3e-6)
        assert not found[d:].any()
        assert not found[:, d:].any()
    np.testing.assert_allclose(steps(d), steps(padded)[:, :d, :d], atol=1e-6)


@pytest.mark.integration
def test_the_count_of_few_is_that_of_what_is_recovered():
    rng = np.random.default_rng(3)
    u, v = jnp.asarray(rng.standard_normal((2, 50, 8)), jnp.float32)
    w = u.T @ v
    few, all_of_them = jax.jit(
        lambda u, v, w: (memory.count_of_few(u, v, w), memory.count(memory.recovered(u, v, w)))
    )(u, v, w)
    assert int(few) == int(all_of_them) > 0


@pytest.mark.integration
@pytest.mark.parametrize("most", [5, 9])
def test_the_count_of_descent_is_that_of_its_gradient(most):
    # Unembeddings with a mean, so that leaving it in W would show.
    us, vs = np.random.default_rng(5).standard_normal((2, 20, 50, 16)).astype(np.float32)
    us += 0.5
    # The last item is seen, and the first is not: neither stands for items that are lacking.
    q = np.zeros(50, np.float32)
    q[[3, 17, 30, 41, 49]] = 0.4, 0.3, 0.1, 0.1, 0.1

    @jax.jit
    def both(u, v):
        w = -memory.gradient_at_zero(u, v, jnp.asarray(q))
        return memory.count_of_descent(u, v, jnp.asarray(q), most), memory.count_of_few(u, v, w)

    found, expected = np.array([both(u, v) for u, v in zip(us, vs, strict=True)]).T
    np.testing.assert_array_equal(found, expected)
    assert len(set(found)) > 2, (
        "Samples that all recover as many tell no wrong W from the right one."
    )


@pytest.mark.usefixtures("x64")
def test_signals_are_those_of_each_spike_by_itself():
    rng = np.random.default_rng(6)
    without, u, v, spikes = (
        rng.standard_normal((D, D)),
        *rng.standard_normal((2, D)),
        np.array([0.0, 0.5, 4.0]),
    )
    expected = []
    for q in spikes:
        left, s, right = np.linalg.svd(without + q * np.outer(u, v))
        expected.append(u @ (left * np.tanh(s)) @ right @ v)
    found = memory.signals(
        *map(jnp.asarray, (without, u, v, spikes)), lambda x: spectral.spectral_map(x, jnp.tanh)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_singular_values_of_the_gradient_are_those_of_float64():
    u, v = np.random.default_rng(7).standard_normal((2, 400, 12)).astype(np.float32)
    q = np.asarray(memory.power_law(400, 3.0))
    centred = u.astype(float) - u.astype(float).mean(0)
    expected = np.linalg.svd(centred.T @ (v.astype(float) * q[:, None]), compute_uv=False)
    found = memory.gradient_singular_values(*map(jnp.asarray, (u, v, q)))
    # One rounding of the largest in float32 would be seen in the smallest.
    assert np.finfo(np.float32).eps * expected[0] > 1e-3 * expected[-1]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.integration
def test_thresholded_steps_leave_out_what_has_left():
    rng = np.random.default_rng(8)
    n, d, bounds, rates = 40, 6, [0.0, 2.5, 7.0], [1.0, 2.0, 5.0]
    u, v = rng.standard_normal((2, n, d)).astype(np.float32)
    q = np.asarray(memory.power_law(n, 1.5))
    muon = memory.thresholded_muon(*map(jnp.asarray, (u, v, q)), jnp.asarray(bounds))
    descent = memory.thresholded_descent(
        *map(jnp.asarray, (u, v, q)), jnp.asarray(bounds), jnp.asarray(rates)
    )
    w_muon, w_descent = np.zeros((2, d, d))
    for t, first in enumerate((0, 2, 7)):
        down = (u[first:].astype(float) * q[first:, None].astype(float)).T @ v[first:]
        left, _, right = np.linalg.svd(down)
        w_muon, w_descent = w_muon + left @ right, w_descent + rates[t] * down
        np.testing.assert_allclose(muon[t], w_muon, atol=1e-5)
        np.testing.assert_allclose(descent[t], w_descent, atol=1e-5)
