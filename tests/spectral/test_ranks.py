"""Estimated ranks against exact ones: intervals that cover and are not idle, linear maps,
degenerate matrices, gradients.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import spectral
from specjax.spectral import estimate_ranks, estimate_stable_rank, power_iteration
from tests.reference.spectra import matrix_with

ROWS, COLUMNS, DRAWS = 48, 40, 200
SPECTRA = {
    "spike and bulk": np.concatenate([[30.0], np.linspace(1.5, 0.5, 39)]),
    "power law": np.arange(1.0, 41) ** -1.0,
    "exponential": 0.7 ** np.arange(40.0),
    "flat": np.ones(40),
    "rank three": np.array([1.0, 0.5, 0.2]),
}
EXACT = {
    name: jax.jit(getattr(spectral, f"{name}_rank")) for name in ("stable", "nuclear", "effective")
}

estimated = jax.jit(estimate_ranks, static_argnames=("steps", "probes", "directions"))
estimated_stable = jax.jit(estimate_stable_rank)
iterated = jax.jit(power_iteration)
nuclear_norm = jax.jit(spectral.nuclear_norm)


def with_spectrum(values, seed=0):
    return matrix_with(values, (ROWS, COLUMNS), seed).astype(np.float32)


@pytest.fixture(scope="module")
def drawn():
    """The matrices, and for each the estimates of many keys: few steps, probes and directions, so
    that nothing is exact.
    """
    matrices = np.stack([with_spectrum(values) for values in SPECTRA.values()])
    keys = jax.random.split(jax.random.key(0), DRAWS)
    estimate = jax.jit(
        jax.vmap(
            jax.vmap(
                lambda x, key: estimate_ranks(x, key, steps=8, probes=8, directions=4), (None, 0)
            ),
            (0, None),
        )
    )
    return matrices, estimate(matrices, keys)


@pytest.mark.integration
@pytest.mark.parametrize("name", EXACT)
def test_the_intervals_cover_and_the_values_are_unbiased(drawn, name):
    matrices, estimates = drawn
    exact = np.asarray(EXACT[name](matrices))[:, None]
    value, lower, upper = (np.asarray(end) for end in getattr(estimates, name))
    assert np.all(lower <= value)
    assert np.all(value <= upper)
    covered = (lower <= exact * (1 + 1e-4)) & (exact * (1 - 1e-4) <= upper)
    # Eight probes know their own standard error to a quarter: a few intervals in a thousand may
    # miss.
    assert covered.mean(axis=1).min() >= 0.98
    # Half a width away from the truth nothing is covered: the intervals are of the size of the
    # errors.
    assert np.all((upper - lower).mean(axis=1) < 1.0 * exact[:, 0] + 1e-3)
    assert np.all(np.abs(value.mean(axis=1) / exact[:, 0] - 1) < 0.06)


@pytest.mark.integration
def test_quadrature_bounds_enclose_the_nuclear_norm():
    """All directions are dominant, so that only the quadrature is left: lower and upper are
    certain, and narrow with the steps.
    """
    for values in (SPECTRA["power law"], SPECTRA["flat"], 0.5 ** np.arange(30.0)):
        x = with_spectrum(values, 3)
        exact, widths = float(nuclear_norm(x)), []
        for steps in (3, 12):
            norm = jax.device_get(
                estimated(x, jax.random.key(0), steps=steps, directions=COLUMNS).nuclear_norm
            )
            assert norm.lower <= exact * (1 + 1e-5)
            assert exact * (1 - 1e-5) <= norm.upper
            widths.append(float(norm.upper - norm.lower))
        assert widths[1] < 0.5 * widths[0] or widths[0] < 1e-4 * exact


@pytest.mark.integration
def test_the_spectral_norm_is_bounded_above_without_a_gap():
    """Singular values crowd at the largest, where two steps see too little: the lower bound fails
    to be sharp, the upper holds.
    """
    values = np.linspace(1.0, 0.0, 400) ** 0.25
    x = matrix_with(values, (400, 400), 1).astype(np.float32)
    keys = jax.random.split(jax.random.key(1), 50)

    @jax.jit
    @partial(jax.vmap, in_axes=(None, 0))
    def both(x, key):
        return estimate_stable_rank(x, key, steps=4), power_iteration(x, key, steps=8)

    lanczos, power = jax.device_get(both(x, keys))
    exact = np.sum(values**2)
    assert np.all(lanczos.lower <= exact)
    assert np.all(exact <= lanczos.value)
    assert np.min(lanczos.value) > 1.005 * exact
    assert np.all(power.lower <= 1 + 1e-6)
    assert np.all(power.upper >= 1)
    assert np.all(power.upper < 1.6)


@pytest.mark.integration
def test_a_linear_map_is_known_by_its_products():
    x = with_spectrum(SPECTRA["spike and bulk"])
    ranks = {name: float(rank(x)) for name, rank in EXACT.items()}
    settings = {"steps": 30, "probes": 8, "directions": 36}
    for matrix in (x, x.T):
        find = jax.jit(
            lambda m: estimate_ranks(
                lambda v: m @ v, jax.random.key(2), columns=m.shape[1], **settings
            )
        )
        found = find(matrix)
        for name, exact in ranks.items():
            estimate = getattr(found, name)
            assert float(estimate.lower) * 0.9999 <= exact <= float(estimate.upper) * 1.0001
            assert estimate.value == pytest.approx(exact, rel=0.1)
    assert found.frobenius_norm.upper > found.frobenius_norm.lower


@pytest.mark.integration
def test_no_lower_end_of_the_norm_is_no_upper_end_of_the_rank():
    """Two probes of a map of rank one may differ so much that ‖A‖_F could be zero."""
    x = np.zeros((20, 20), np.float32)
    x[0] = 1 + np.arange(20)
    find = jax.jit(
        jax.vmap(
            lambda key: estimate_ranks(
                lambda v: x @ v, key, columns=20, steps=2, probes=2, directions=0
            )
        )
    )
    found = jax.device_get(find(jax.random.split(jax.random.key(0), 20)))
    unbounded = found.frobenius_norm.lower == 0
    assert unbounded.any()
    assert np.all(np.isinf(found.nuclear.upper) == unbounded)
    for estimate in (found.stable, found.nuclear, found.effective):
        assert np.all((estimate.lower <= estimate.value) & (estimate.value <= estimate.upper))


@pytest.mark.integration
@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_zero_tiny_and_huge_matrices(scale):
    nothing = np.zeros((5, 3), np.float32)
    zero = estimated(nothing, jax.random.key(0))
    assert all(float(end) == 0 for name in EXACT for end in getattr(zero, name))
    assert all(float(end) == 0 for end in estimated_stable(nothing, jax.random.key(0)))
    assert float(iterated(nothing, jax.random.key(0)).value) == 0
    x = matrix_with([2.0, 1.0], (5, 3), 0).astype(np.float32) * np.float32(scale)
    found = estimated(x, jax.random.key(0))
    assert found.stable.value == pytest.approx(5 / 4, rel=1e-5)
    assert found.nuclear.value == pytest.approx(9 / 5, rel=1e-5)
    assert iterated(x, jax.random.key(0)).value == pytest.approx(2 * scale, rel=1e-5)


@pytest.mark.integration
def test_the_gradients_are_those_of_the_exact_ranks():
    x, key = with_spectrum(SPECTRA["spike and bulk"]), jax.random.key(0)
    functions = (
        spectral.stable_rank,
        lambda x: estimate_stable_rank(x, key).value,
        lambda x: power_iteration(x, key).value,
    )
    exact, by_estimate, norm = jax.jit(lambda x: [jax.grad(f)(x) for f in functions])(x)
    np.testing.assert_allclose(by_estimate, exact, atol=1e-4 * np.abs(exact).max())
    u, _, vt = np.linalg.svd(x)
    np.testing.assert_allclose(norm, np.outer(u[:, 0], vt[0]), atol=1e-5)


@pytest.mark.integration
def test_the_power_iteration_norm_has_a_finite_gradient_at_zero():
    first = np.zeros((2, 3, 4), np.float32)
    first[1, 0, 0] = 1
    gradient = jax.jit(jax.grad(lambda x: jnp.sum(power_iteration(x, jax.random.key(0)).value)))(
        2 * first
    )
    np.testing.assert_allclose(gradient, first, atol=1e-6)


@pytest.mark.parametrize("rank", [*EXACT.values(), spectral.entropy_rank], ids=[*EXACT, "entropy"])
def test_exact_ranks_have_finite_gradients_at_repeated_values(rank):
    gradient = jax.jit(jax.grad(rank))
    for values in ([1.0, 1.0, 1.0, 1.0], [2.0, 2.0, 0.0, 0.0], [1.0], []):
        assert np.all(np.isfinite(gradient(matrix_with(values, (4, 4), 0).astype(np.float32))))
    # At distinct singular values, by a finite difference.
    with jax.enable_x64(True):
        x, direction = (np.random.default_rng(i).standard_normal((4, 6)) for i in (0, 1))
        value = jax.jit(rank)
        central = (float(value(x + 1e-5 * direction)) - float(value(x - 1e-5 * direction))) / 2e-5
        assert np.sum(gradient(x) * direction) == pytest.approx(central, rel=1e-6)


@pytest.mark.usefixtures("unchecked")
def test_what_is_refused():
    x, key = jnp.ones((3, 2)), jax.random.key(0)
    for call in (
        lambda: estimate_ranks(x, key, steps=1),
        lambda: estimate_ranks(x, key, probes=1),
        lambda: estimate_stable_rank(x, key, steps=1),
        lambda: power_iteration(x, key, steps=0),
    ):
        with pytest.raises(ValueError, match=r"at least one step|steps >= 2"):
            call()
    with pytest.raises(ValueError, match="columns=n"):
        estimate_ranks(lambda v: v, key)
    with pytest.raises(ValueError, match="has its own"):
        estimate_ranks(x, key, columns=2)
    with pytest.raises(ValueError, match="vector to a vector"):
        estimate_ranks(lambda v: jnp.outer(v, v), key, columns=2)
