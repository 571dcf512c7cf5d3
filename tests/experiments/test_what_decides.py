"""Quantities that may decide between both steps against NumPy, and statistics against SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from scipy import stats

from specjax.experiments.beyond.what_decides import networks, outcomes, quantities

D, WIDTH, OUT, N = 5, 4, 3, 9


@pytest.fixture(scope="module")
def drawn():
    """Weights of two blocks, and inputs with a large mean, so that squaring has the norms exactly;
    a zero row at the end does not count.
    """
    rng = np.random.default_rng(3)
    w = [rng.standard_normal((WIDTH, D)) / 2, rng.standard_normal((OUT, WIDTH))]
    x = rng.standard_normal((N, D)) + 5
    return w, x, rng.standard_normal((N, OUT))


def quantities_of(weights, x, y, activation):
    x, y = (np.concatenate([z, np.zeros((1, z.shape[1]))]) for z in (x, y))
    with jax.enable_x64(True):
        problem = quantities.Problem(
            tuple(map(jnp.asarray, weights)),
            jnp.asarray(x),
            jnp.asarray(y),
            jnp.asarray(N + 0.0),
            activation,
        )
        found = jax.jit(lambda *of: quantities.quantities(quantities.Problem(*of, activation)))(
            *problem[:-1]
        )
        return {name: float(value) for name, value in found.items()}


@pytest.mark.integration
def test_of_a_linear_map_every_quantity_is_its_formula(drawn):
    (_, w), (x, y) = (0, np.random.default_rng(4).standard_normal((OUT, D))), drawn[1:]
    found = quantities_of([w], x, y, "linear")
    a, n = x.T, N
    g = 2 * (w @ a - y.T) @ a.T / n
    u, s, v = np.linalg.svd(g, full_matrices=False)
    polar, b = u @ v, a @ a.T / n
    ratio = s.sum() ** 2 / (s**2).sum() / (np.linalg.norm(a) / np.linalg.norm(a, 2)) ** 2
    rho = np.trace(g @ b @ g.T) / (s**2).sum() / np.linalg.eigvalsh(b)[-1]
    tau = np.trace(polar @ b @ polar.T) / np.trace(b)
    expected = {
        "nr/st": ratio,
        "mean nr/st": ratio,
        "guaranteed steps": ratio * (2 - tau) / (2 - rho),
        "best steps": ratio * rho / tau,
        "measured curvature": ratio * rho / tau,
        # In units of λ_1(B): ρ along G, and tr(P B Pᵀ)/‖P‖_F² along P.
        "slowness": (
            rho * np.linalg.eigvalsh(b)[-1] / (np.trace(polar @ b @ polar.T) / np.sum(polar**2))
        ),
    }
    for name, value in expected.items():
        assert found[name] == pytest.approx(np.log(value), rel=1e-8), name

    def loss(w):
        return np.sum((w @ a - y.T) ** 2) / n

    def raced(direction):
        """The loss after two steps, each with the best of a million lengths."""
        weights = w
        for _ in range(quantities.FIRST):
            d = direction(2 * (weights @ a - y.T) @ a.T / n)
            bend, slope = (
                loss(weights - d) - 2 * loss(weights) + loss(weights + d),
                loss(weights + d) - loss(weights - d),
            )
            weights = weights - slope / (2 * bend) * d
        return loss(weights)

    def factor(g):
        u, _, v = np.linalg.svd(g, full_matrices=False)
        return u @ v

    falls = [np.log(loss(w) / raced(d)) for d in (factor, lambda g: g)]
    assert found["race"] == pytest.approx(np.log(falls[0] / falls[1]), rel=1e-6)


@pytest.mark.integration
def test_of_a_network_the_curvature_is_that_of_its_loss(drawn):
    (w1, w2), x, y = drawn
    found = quantities_of([w1, w2], x, y, "tanh")

    def loss(w1, w2):
        return np.sum((np.tanh(x @ w1.T) @ w2.T - y) ** 2) / N

    hidden = np.tanh(x @ w1.T)
    error = 2 * (hidden @ w2.T - y) / N
    gradients = [((error @ w2) * (1 - hidden**2)).T @ x, error.T @ hidden]
    norms = [np.linalg.norm(a, 2) ** 2 * 2 / N for a in (x, hidden)]
    squares = [np.sum(a**2) * 2 / N for a in (x, hidden)]
    values = [np.linalg.svd(g, full_matrices=False) for g in gradients]
    steps = {
        "gradient": [g / norm for g, norm in zip(gradients, norms, strict=True)],
        "spectral": [
            s.sum() * u @ v / size for (u, s, v), size in zip(values, squares, strict=True)
        ],
    }

    def gain(step):
        """⟨G, D⟩²/⟨D, H D⟩, both by central differences of the loss."""
        t = 1e-4 / max(np.linalg.norm(d) for d in step)
        at = [
            loss(*(w + k * t * d for w, d in zip((w1, w2), step, strict=True))) for k in (-1, 0, 1)
        ]
        bend, slope = (at[0] - 2 * at[1] + at[2]) / t**2, (at[2] - at[0]) / (2 * t)
        assert bend > 0  # else there is no best length
        return slope**2 / bend

    assert found["measured curvature"] == pytest.approx(
        np.log(gain(steps["spectral"]) / gain(steps["gradient"])), abs=1e-5
    )
    promised = [
        [np.sum(g * d) for g, d in zip(gradients, step, strict=True)] for step in steps.values()
    ]
    assert found["nr/st"] == pytest.approx(np.log(sum(promised[1]) / sum(promised[0])), abs=1e-8)
    assert found["mean nr/st"] == pytest.approx(
        np.mean(np.log(promised[1]) - np.log(promised[0])), abs=1e-8
    )
    # The blocks' promises are nr(G)/st(A) of each.
    nuclear = [s.sum() ** 2 / np.sum(s**2) for _, s, _ in values]
    stable = [size / norm for size, norm in zip(squares, norms, strict=True)]
    np.testing.assert_allclose(np.divide(*promised[::-1]), np.divide(nuclear, stable), rtol=1e-8)


def pooled(*columns):
    """Arrays as `outcomes.pooled` makes them, of two starts of a class in turns."""
    n = np.arange(len(columns[0]))
    named = {
        "network": ("seed", np.full(len(n), "one")),
        "start": ("seed", np.array(["fresh", "warm"])[n % 2]),
        "drawn": ("seed", n // 2),
    }
    return [xr.DataArray(column, named, "seed", name="x") for column in columns]


@pytest.mark.integration
def test_concordance_is_kendalls_tau_of_each_start():
    rng = np.random.default_rng(5)
    estimates, errors = [], []
    for _ in range(300):
        x, noise = rng.standard_normal((2, 60))
        # The starts lie far apart, which pairs of one start do not see.
        draws = outcomes.concordance(
            *pooled(x + 9 * (np.arange(60) % 2), x + noise - 9 * (np.arange(60) % 2))
        )
        taus = [stats.kendalltau(x[i::2], (x + noise)[i::2]).statistic for i in range(2)]
        assert float(draws.mean()) == pytest.approx(np.mean(taus), abs=1e-12)
        estimates.append(float(draws.mean()))
        errors.append(float(draws.std(ddof=1)) / np.sqrt(60))
    # 300 samples give a spread to 4 %; without the factor of two it would be half.
    assert np.mean(errors) == pytest.approx(np.std(estimates, ddof=1), rel=0.16)


def test_probability_errors_are_between_zero_and_the_variance():
    rng = np.random.default_rng(6)
    x, other = rng.standard_normal((2, 8000))
    faster = np.log(outcomes.MUCH) + np.where(x > 0.3, 1.0, -1.0)
    known, nothing = (outcomes.brier(*pooled(given, faster)) for given in (x, other))
    assert known.size == 8000
    assert float(known.mean()) < 0.001
    # Fitting noise adds a little to the variance of the event.
    share = np.mean(x > 0.3)
    # Judged in the half that it was fitted to, the error would lie below the variance.
    assert share * (1 - share) < float(nothing.mean()) < share * (1 - share) + 0.02


def test_leaving_out_a_network_changes_no_error_in_its_half():
    """It is in the fit for the other half alone."""
    x, noise = np.random.default_rng(7).standard_normal((2, 400))
    whole, rest = (
        outcomes.brier(*(column[kept] for column in pooled(x, x + noise)))
        for kept in (slice(400), slice(1, 400))
    )
    same = np.isclose(whole[1:], rest, rtol=0, atol=1e-12)
    even = np.arange(1, 400) // 2 % 2 == 0
    assert same[even].all()
    assert not same[~even].all()


def losses():
    """Of one class of three networks, at every rate and length: the best rate is the fifth, with
    10^-1 and 10^-2 left.
    """
    rates = np.abs(np.arange(len(networks.RATES)) - 4.0)
    left = -2 + rates[None, None, :, None] * 0.1 + np.zeros((3, 2, 1, 2))
    left[:, 0] += 1
    full = np.concatenate([np.zeros_like(left[..., :1]), left], axis=-1)[None, None]
    dims = ("network", "start", "seed", "optimizer", "rate", "length")
    coords = {
        "network": ["one"],
        "start": ["fresh"],
        "optimizer": ["gradient", "spectral"],
        "rate": networks.RATES,
        "length": [0, 5, 9],
    }
    return xr.Dataset({"left": xr.DataArray(full, coords, dims)})


def test_the_faster_method_lowers_the_log_loss_more():
    speed = outcomes.speed(losses())
    np.testing.assert_allclose(speed, np.log(2), rtol=1e-12)
    assert speed.sizes == {"seed": 3, "length": 2}


def test_a_network_whose_best_rate_is_at_an_end_is_left_out():
    data = losses()
    data["left"][0, 0, 1, 0, 0, 2] = -5
    np.testing.assert_array_equal(outcomes.inside(data)[0, 0], [True, False, True])
    # The others keep their numbers, which say in which half they are.
    assert outcomes.speed(data)["drawn"].values.tolist() == [0, 2]


@pytest.mark.integration
def test_a_training_follows_the_steps_one_by_one(drawn):
    (w1, w2), x, y = drawn
    with jax.enable_x64(True):
        problem = quantities.Problem(
            (jnp.asarray(w1), jnp.asarray(w2)),
            jnp.asarray(x),
            jnp.asarray(y),
            jnp.asarray(N + 0.0),
            "tanh",
        )
        left = jax.jit(lambda p: networks.trained(problem._replace(params=p), (1, 2)))(
            problem.params
        )
        loss = jax.jit(lambda p: quantities.loss(problem, p))
        place = 5
        for row, step in enumerate((quantities.gradient_step, quantities.spectral_step)):
            moves = jax.jit(lambda p, step=step: step(problem, quantities.slope(problem, p)))
            params, expected = (w1, w2), [loss((w1, w2))]
            for _ in range(2):
                pairs = zip(params, moves(params), strict=True)
                params = tuple(w - float(networks.RATES[place]) * np.asarray(d) for w, d in pairs)
                expected.append(loss(params))
            np.testing.assert_allclose(left[row, place], np.log10(np.asarray(expected)), rtol=1e-9)


def warmed(weights, x, y, activation, steps, longest):
    with jax.enable_x64(True):
        problem = quantities.Problem(
            tuple(map(jnp.asarray, weights)),
            jnp.asarray(x),
            jnp.asarray(y),
            jnp.asarray(float(len(x))),
            activation,
        )
        start = jnp.asarray(steps), jnp.asarray(longest)
        found = jax.jit(lambda p: networks.warmed(problem._replace(params=p), *start))(
            problem.params
        )
        return [np.asarray(w) for w in found]


@pytest.mark.integration
def test_ordinary_steps_have_the_length_of_the_guarantee():
    rng = np.random.default_rng(8)
    w, x = rng.standard_normal((OUT, D)), rng.standard_normal((N, D))
    y, expected = rng.standard_normal((N, OUT)), w
    for _ in range(4):
        g = 2 * (expected @ x.T - y.T) @ x / N
        expected = expected - g / (2 * np.linalg.norm(x, 2) ** 2 / N)
    np.testing.assert_allclose(warmed([w], x, y, "linear", 4, False)[0], expected, rtol=1e-9)
    assert np.abs(warmed([w], x, y, "linear", 4, True)[0] - expected).max() > 1e-3
    np.testing.assert_array_equal(warmed([w], x, y, "linear", 0, True)[0], w)


def test_a_step_that_raises_the_loss_is_halved():
    """The guarantee is of one block: both together take w₂ w₁ from 4 to -2 where 1 is the
    target.
    """
    w = [np.array([[2.0]]), np.array([[2.0]])]
    found = warmed(w, np.ones((1, 1)), np.ones((1, 1)), "linear", 1, False)
    # Both gradients are 12, L_F is 2 and 8, and half of the step leaves -1.25: a loss of 81/16 < 9.
    np.testing.assert_allclose([found[0][0, 0], found[1][0, 0]], [2 - 3, 2 - 0.75], rtol=1e-9)
