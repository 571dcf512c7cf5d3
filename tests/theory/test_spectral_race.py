"""The race of spectral and gradient steps, against NumPy's steps of whole matrices, and its limit
against SciPy's solution of the differential equations.
"""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, optimize, special

from specjax.theory import spectral_race

pytestmark = pytest.mark.usefixtures("x64")


def problem(d=6, rows=20, seed=0):
    """Lengths x of the error's columns in the eigenbasis of B, and the matrices themselves."""
    rng = np.random.default_rng(seed)
    x, b = rng.uniform(0.1, 1, d), np.sort(rng.uniform(0.05, 1, d))
    u = np.linalg.qr(rng.standard_normal((rows, d)))[0]
    v = np.linalg.qr(rng.standard_normal((d, d)))[0]
    return x, b, u * x @ v.T, v * b @ v.T


def left_by(step, error, b, c, steps):
    """The part of the loss that is left after each step of whole matrices."""
    losses = [np.trace(error @ b @ error.T)]
    for _ in range(steps):
        error = error - c * step(error @ b)
        losses.append(np.trace(error @ b @ error.T))
    return np.array(losses[1:]) / losses[0]


def spectral_step(b, floor=0.0):
    def step(g):
        u, values, vt = np.linalg.svd(g, full_matrices=False)
        lifted = values >= floor * values[0]
        return values[lifted].sum() / np.trace(b) * (u[:, lifted] @ vt[lifted])

    return step


def gradient_step(b):
    return lambda g: g / np.linalg.eigvalsh(b)[-1]


LENGTHS = [0.5, 1.0, 1.7, 2.3]


@pytest.mark.parametrize("floor", [0.0, 0.2])
def test_spectral_steps_are_those_of_matrices(floor):
    x, b, error, moment = problem()
    found = spectral_race.spectral_left(jnp.asarray(x), jnp.asarray(b), LENGTHS, 7, floor)
    expected = [left_by(spectral_step(moment, floor), error, moment, c, 7) for c in LENGTHS]
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_gradient_steps_are_those_of_matrices():
    x, b, error, moment = problem()
    found = spectral_race.gradient_left(jnp.asarray(x), jnp.asarray(b), LENGTHS, 7)
    expected = [left_by(gradient_step(moment), error, moment, c, 7) for c in LENGTHS]
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.integration
def test_a_direction_at_zero_stays_there_at_any_length():
    x, b = jnp.array([0.0, 1.0]), jnp.array([1.0, 0.01])
    left = spectral_race.gradient_left(x, b, [4096.0], 100)
    # The power of the direction at zero, 4095^90, is above the largest float.
    np.testing.assert_allclose(left[0, [0, 89]], [39.96**2, 39.96**180], rtol=1e-9)


def test_a_guaranteed_step_leaves_the_variance():
    x, b, *_ = problem()
    found = spectral_race.spectral_left(jnp.asarray(x), jnp.asarray(b), [1.0], 1)[0, 0]
    square = np.average(x**2, weights=b)
    expected = (square - np.average(x, weights=b) ** 2) / square
    assert float(found) == pytest.approx(expected, rel=1e-12)


def test_passing_is_between_the_steps_around_it():
    gradient = jnp.array([[0.5, 0.4, 0.3], [0.5, 0.4, 0.3], [0.5, 0.4, 0.3]])
    spectral = jnp.array([[0.4, 0.5, 0.5], [0.9, 0.9, 0.1], [0.9, 0.9, 0.9]])
    up, down = np.log(0.9 / 0.4), np.log(0.3 / 0.1)
    found = spectral_race.passing(gradient, spectral)
    np.testing.assert_allclose(found, [1, 2 + up / (up + down), np.inf], rtol=1e-12)


@pytest.mark.integration
def test_steps_to_pass_have_the_best_lengths_of_matrices():
    rng = np.random.default_rng(3)
    u, v = (np.linalg.qr(rng.standard_normal((rows, 8)))[0] for rows in (20, 8))
    b = np.arange(1.0, 9) ** -2
    error, moment = u * (1 - b) ** 24 @ v.T, v * b @ v.T
    found = spectral_race.errors(jnp.asarray(error @ moment), jnp.asarray(moment))
    best = [
        np.min([left_by(step, error, moment, c, 12) for c in lengths], axis=0)
        for step, lengths in (
            (gradient_step(moment), spectral_race.GRADIENT_LENGTHS[:40]),
            (spectral_step(moment), spectral_race.SPECTRAL_LENGTHS),
        )
    ]
    lead = np.log(best[1] / best[0])
    place = np.flatnonzero(lead < 0)[0]
    expected = place + lead[place - 1] / (lead[place - 1] - lead[place])
    steps = float(spectral_race.steps_to_pass(found.x, found.b))
    assert steps > 2
    assert steps == pytest.approx(expected, rel=1e-4)


def test_errors_are_those_of_the_gradient():
    x, b, error, moment = problem()
    found = spectral_race.errors(jnp.asarray(error @ moment), jnp.asarray(moment))
    np.testing.assert_allclose(found.x, x, rtol=1e-9)
    np.testing.assert_allclose(found.b, b, rtol=1e-9)
    assert float(found.orthogonality) == pytest.approx(1, rel=1e-9)


def test_directions_without_inputs_do_not_count():
    # Rounding leaves a gradient where the inputs have none.
    moment, gradient = jnp.diag(jnp.array([0.0, 0.5, 1.0])), jnp.diag(jnp.array([1e-9, 1.0, 1.0]))
    found = spectral_race.errors(gradient, moment)
    np.testing.assert_allclose(found.x, [0, 2, 1], rtol=1e-12)
    # Columns along one direction: ‖G‖_* = √2 of a sum of lengths of 2.
    parallel = spectral_race.errors(jnp.ones((1, 2)), jnp.diag(jnp.array([0.5, 1.0])))
    assert float(parallel.orthogonality) == pytest.approx(2**-0.5, rel=1e-9)


def kappa_of_scipy(s):
    """κ(s) by quadrature, an adaptive solver and a search over dampings."""
    gain = 1 + optimize.brentq(lambda g: np.log(g) - 1 - 1 / g, 1, 9)

    def moment(reach, power):
        if reach >= 1:
            return 0.0
        # z = y^(1/s) takes the singularity at zero away.
        return integrate.quad(
            lambda y: (np.exp(-(y ** (1 / s))) - reach) ** power,
            0,
            min(-np.log(max(reach, 1e-12)), 30) ** s,
            epsabs=1e-8,
        )[0] / special.gamma(s + 1)

    def at(damping):
        def passed(_, state):
            return 2**s * (moment(state[1], 2) + state[0] ** 2) - gain**-s

        passed.terminal = True

        def slope(_, state):
            return [2 * moment(state[1], 1) - damping * state[0], 2 * state[0]]

        run = integrate.solve_ivp(slope, (0, 2), [0.0, 0.0], events=passed, rtol=1e-7, atol=1e-9)
        return run.t_events[0][0] if len(run.t_events[0]) else np.inf

    return min(at(damping) for damping in np.linspace(1, 5, 17))


@pytest.mark.integration
@pytest.mark.parametrize("a", [2.0, 3.0])
def test_the_limit_is_that_of_the_differential_equations(a):
    s, k = 1 - 1 / a, 500.0
    h = special.gamma(s) / (a * special.zeta(a)) * k**-s
    found = float(spectral_race.asymptotic_steps_to_pass(k, a)) * h**0.5
    assert found == pytest.approx(kappa_of_scipy(s), rel=3e-3)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("a", "k", "d", "within"),
    [(2.0, 64, 240, 0.16), (2.0, 1024, 900, 0.1), (3.0, 64, 60, 0.16), (3.0, 4096, 240, 0.04)],
)
def test_the_recursion_tends_to_the_limit(a, k, d, within):
    b = jnp.arange(1.0, d + 1) ** -a
    x = (1 - b) ** k
    left = (
        spectral_race.gradient_left(x, b, np.geomspace(1, k, 80), 20),
        spectral_race.spectral_left(x, b, np.linspace(1.2, 2, 41), 20),
    )
    found = float(spectral_race.passing(*(jnp.min(each, axis=0) for each in left)))
    limit = float(spectral_race.asymptotic_steps_to_pass(k, a))
    assert found == pytest.approx(limit, rel=within)


def test_the_limit_has_half_of_the_exponent_of_the_error():
    at = [float(spectral_race.asymptotic_steps_to_pass(k, 3.0)) for k in (10, 80)]
    assert at[1] / at[0] == pytest.approx(2, rel=1e-9)


def test_numbers_outside_of_the_limit_are_refused():
    with pytest.raises(ValueError, match=r"a must be in \(1, 100\)"):
        spectral_race.asymptotic_steps_to_pass(10, 1.0)
    with pytest.raises(ValueError, match=r"k must be in"):
        spectral_race.asymptotic_steps_to_pass(0, 2.0)
