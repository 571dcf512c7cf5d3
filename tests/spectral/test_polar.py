from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from hypothesis import given
from hypothesis import strategies as st

from specjax import optim, spectral
from specjax.spectral import SVD, NewtonSchulz
from specjax.spectral.polar import METHODS as NAMED
from specjax.spectral.polynomials import CUBIC, MUON, Quintic
from tests.reference.spectra import SHAPES, SPECTRA, matrix_with, named, orthogonal

polar = jax.jit(spectral.polar)
CONVERGED = NewtonSchulz(18, CUBIC)
METHODS = {"svd": SVD(), "cubic": CONVERGED}
# Of the two polynomial methods the one with fewer steps to compile: they differ in steps and
# coefficients alone.
ALL = {"svd": SVD(), "muon": NewtonSchulz()}
SEEDS = st.integers(0, 2**31)
VALUES = st.lists(st.floats(0.05, 1.0), min_size=4, max_size=4)

exact_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
every_method = pytest.mark.parametrize("method", ALL.values(), ids=ALL)
every_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)
every_spectrum = pytest.mark.parametrize("name", SPECTRA)


def close(measured, expected, tolerance=1e-11):
    np.testing.assert_allclose(measured, expected, rtol=0, atol=tolerance)


def draw_matrix(values, shape, seed):
    return matrix_with(values[: min(shape)], shape, seed)


@pytest.mark.integration
@every_method
@every_shape
@given(values=VALUES, seed=SEEDS)
@pytest.mark.usefixtures("x64")
def test_it_commutes_with_orthogonal_matrices_and_transposition(method, shape, values, seed):
    x = draw_matrix(values, shape, seed)
    q, r = (orthogonal(n, seed + 7) for n in shape)
    factor = np.asarray(polar(x, method))
    # Muon's steps multiply an error in x by up to 485; the others contract it.
    close(polar(q @ x @ r, method), q @ factor @ r)
    close(polar(x.T, method), factor.T)
    close(polar(-x, method), -factor)


@exact_method
@every_shape
@given(values=VALUES, seed=SEEDS)
@pytest.mark.usefixtures("x64")
def test_it_has_the_properties_that_define_the_polar_factor(method, shape, values, seed):
    """Orthonormal rows or columns, and x = p · (positive semidefinite): no decomposition is
    computed here.
    """
    x = draw_matrix(values, shape, seed)
    factor = np.asarray(polar(x, method))
    tall = shape[0] >= shape[1]
    close(factor.T @ factor if tall else factor @ factor.T, np.eye(min(shape)))
    hermitian = factor.T @ x if tall else x @ factor.T
    close(hermitian, hermitian.T)
    assert np.linalg.eigvalsh(hermitian).min() > 0.049
    close(factor @ hermitian if tall else hermitian @ factor, x)


@exact_method
@every_shape
@pytest.mark.usefixtures("x64")
def test_it_agrees_with_scipy(method, shape):
    x = np.random.default_rng(3).standard_normal(shape)
    expected = scipy.linalg.polar(x, side="right" if shape[0] >= shape[1] else "left")[0]
    close(polar(jnp.asarray(x), method), expected)


@every_spectrum
@pytest.mark.usefixtures("x64")
def test_singular_values_go_to_one_or_stay_zero(name):
    shape, values = SPECTRA[name]
    x = named(name)
    factor = np.asarray(polar(jnp.asarray(x)))
    close(
        np.linalg.svd(factor, compute_uv=False),
        [1] * len(values) + [0] * (min(shape) - len(values)),
    )
    # The same row and column space: p pᵀ x = x = x pᵀ p.
    close(factor @ factor.T @ x, x)
    close(x @ factor.T @ factor, x)
    assert factor.shape == shape


@pytest.mark.parametrize("name", NAMED)
def test_a_method_has_a_name(name):
    x = jnp.asarray([[3.0, 1.0, 0.0], [0.0, 2.0, 1.0]])
    found, expected = spectral.polar(x, name), spectral.polar(x, NAMED[name]())
    np.testing.assert_array_equal(found, expected)


@pytest.mark.integration
def test_muon_takes_a_method_by_name():
    x = jnp.asarray([[3.0, 1.0, 0.0], [0.0, 2.0, 1.0]])
    optimizer = optim.muon(1.0, method="svd", scale="none", nesterov=False)
    step, _ = optimizer.update(x, optimizer.init(x), x)
    np.testing.assert_allclose(step, -spectral.polar(x), atol=1e-6)


def test_a_zero_matrix_goes_to_zero_exactly():
    for method in ALL.values():
        np.testing.assert_array_equal(polar(np.zeros((3, 2), np.float32), method), np.zeros((3, 2)))


@exact_method
@pytest.mark.usefixtures("x64")
def test_vectors_are_normalized(method):
    x = np.array([[3.0, 0.0, -4.0]])
    close(polar(x, method), [[0.6, 0, -0.8]])
    close(polar(x.T, method), [[0.6], [0], [-0.8]])
    close(polar(np.array([[-2.5]]), method), [[-1.0]])


@every_method
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 0, 3), (0, 2, 3)], ids=str)
def test_an_empty_extent_is_kept(method, shape):
    assert polar(np.zeros(shape, np.float32), method).shape == shape


@every_method
@pytest.mark.parametrize("exponent", [-35, -12, -3, 3, 12, 38])
def test_only_the_direction_counts_in_all_of_float32(method, exponent):
    x = matrix_with((1.0, 0.5, 0.2), (3, 5), 1).astype(np.float32)
    x = x / np.abs(x).max()
    scaled = x * np.float32(10.0**exponent)
    assert 0 < np.abs(scaled).max() < np.inf
    close(polar(scaled, method), polar(x, method), 1e-5)


@every_method
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_entries_are_never_silent(method, bad):
    x = np.array([[1.0, bad], [2.0, 3.0]], np.float32)
    assert np.isnan(polar(x, method)).all()


@pytest.mark.integration
@every_method
@pytest.mark.usefixtures("x64")
def test_a_batch_is_its_slices(method):
    x = np.random.default_rng(5).standard_normal((2, 3, 4, 2))
    batched = np.asarray(polar(x, method))
    for i in np.ndindex(2, 3):
        close(batched[i], polar(x[i], method))
    close(jax.jit(jax.vmap(lambda m: polar(m, method)))(x), batched)


@every_method
@pytest.mark.parametrize("padding", [(0, 3), (3, 2)], ids=str)
@every_shape
@given(values=VALUES, seed=SEEDS)
def test_zero_padding_commutes_with_it(method, padding, shape, values, seed):
    x = draw_matrix(values, shape, seed).astype(np.float32)
    m, n = shape
    padded = np.asarray(polar(np.pad(x, ((0, padding[0]), (0, padding[1]))), method))
    close(padded[:m, :n], polar(x, method), 1e-4)
    assert not padded[m:].any()
    assert not padded[:, n:].any()


@every_method
def test_padding_of_a_rank_deficient_matrix_is_exactly_zero(method):
    x = named("rank-deficient").astype(np.float32)
    padded = np.asarray(polar(np.pad(x, ((0, 3), (0, 5))), method))
    assert not padded[4:].any()
    assert not padded[:, 4:].any()
    tolerance = 3e-5 if isinstance(method, SVD) else 1e-3
    close(padded[:4, :4], polar(x, method), tolerance)


@every_method
def test_zero_rows_and_columns_between_others_stay_exactly_zero(method):
    x = np.random.default_rng(6).standard_normal((20, 30))
    x[::2] = 0
    x[:, 1::3] = 0
    factor = np.asarray(polar(jnp.asarray(x, jnp.float32), method))
    assert not factor[::2].any()
    assert not factor[:, 1::3].any()
    kept = np.ix_(np.arange(1, 20, 2), np.flatnonzero(np.arange(30) % 3 != 1))
    close(factor[kept], polar(jnp.asarray(x[kept], jnp.float32), method), 1e-4)


@every_method
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16])
def test_the_dtype_is_kept_and_the_error_is_a_few_roundings(method, dtype):
    exact = matrix_with((1.0, 0.7, 0.4), (3, 5), 2)
    x = jnp.asarray(exact).astype(dtype)
    factor = polar(x, method)
    assert factor.dtype == dtype
    with jax.enable_x64(True):
        reference = polar(jnp.asarray(np.asarray(x, np.float64)), method)
    rounding = float(jnp.finfo(dtype).eps)
    # Iterations run in the dtype itself, the SVD in at least float32.
    close(
        np.asarray(factor, np.float64),
        reference,
        (1 if isinstance(method, SVD) else 12) * max(rounding, 1e-6),
    )


def composed(coefficients, s):
    """The scalar polynomials in turn, in float64."""
    for a, b, c in coefficients:
        s = a * s + b * s**3 + c * s**5
    return s


@pytest.mark.parametrize(
    "method",
    [
        NewtonSchulz(),
        NewtonSchulz(3, CUBIC),
        NewtonSchulz(2, (MUON, CUBIC)),
        NewtonSchulz(1, Quintic(2.0, -1.5, 0.5)),
    ],
    ids=["muon", "cubic", "mixed", "one"],
)
@every_shape
@pytest.mark.usefixtures("x64")
def test_newton_schulz_maps_each_value_by_its_polynomials(method, shape):
    values = np.geomspace(1, 0.03, min(shape))
    x = matrix_with(values, shape, 9)
    table = {
        "muon": [MUON] * 5,
        "cubic": [CUBIC] * 3,
        "mixed": [MUON, CUBIC],
        "one": [Quintic(2.0, -1.5, 0.5)],
    }
    steps = next(c for c in table.values() if tuple(c) == method.polynomials())
    u, s, vt = np.linalg.svd(x, full_matrices=False)
    expected = (u * composed(steps, s / np.linalg.norm(s))) @ vt
    close(polar(jnp.asarray(x), method), expected)


@pytest.mark.integration
@pytest.mark.usefixtures("x64")
def test_muon_ends_in_a_band_around_one_and_never_converges():
    s = np.geomspace(1e-2, 1, 100_001)
    for steps in (5, 6, 10, 40):
        ends = composed([MUON] * steps, s)
        assert ends.min() == pytest.approx(0.6818, abs=1e-3)
        assert ends.max() == pytest.approx(1.1344, abs=1e-3)
    values = np.geomspace(1, 1.5e-2, 40)
    x = jnp.asarray(matrix_with(values / np.linalg.norm(values), (40, 40), 4))
    for steps in (5, 10, 20):
        ends = np.linalg.svd(polar(x, NewtonSchulz(steps)), compute_uv=False)
        assert 0.681 < ends.min() < 0.75
        assert 1.09 < ends.max() < 1.135


@pytest.mark.usefixtures("x64")
def test_muon_leaves_small_singular_values_short():
    ends = np.linalg.svd(polar(np.diag([1.0, 1e-6]), NewtonSchulz()), compute_uv=False)
    assert ends[1] == pytest.approx(3.4445**5 * 1e-6, rel=1e-6)
    assert composed([MUON] * 5, np.geomspace(1e-8, 1, 200_001)).max() == pytest.approx(
        1.2024, abs=1e-3
    )


@pytest.mark.integration
@pytest.mark.usefixtures("x64")
def test_the_cubic_is_quadratic_after_log_condition_steps():
    x = np.diag([1.0, 1e-3])

    def error(steps):
        return float(np.abs(polar(x, NewtonSchulz(steps, CUBIC)) - np.eye(2)).max())

    start = int(np.log(1e3) / np.log(1.5))
    assert error(start - 5) > 0.5
    assert error(start + 8) < 1e-12
    errors = [error(start + n) for n in (2, 3, 4)]
    for before, after in pairwise(errors):
        # 1 - p(1 - e) = 3e²/2 - e³/2
        assert after == pytest.approx(1.5 * before**2 - 0.5 * before**3, rel=1e-6)


@pytest.mark.integration
@pytest.mark.usefixtures("x64")
def test_singular_values_up_to_rtol_count_as_zero():
    x = np.diag([2.0, 2e-3, 2e-9, 2e-15])
    assert np.linalg.matrix_rank(polar(x)) == 3
    for rtol, rank in ((0.0, 4), (1e-12, 3), (1e-6, 2), (0.9e-3, 2), (2e-3, 1)):
        close(polar(x, SVD(rtol)), np.diag([1.0] * rank + [0.0] * (4 - rank)))


def test_the_default_rtol_follows_the_dtype_and_not_the_shape():
    below, above = 60 * 2.0**-23, 70 * 2.0**-23
    for n in (2, 40):
        for second, rank in ((below, 1), (above, 2)):
            x = np.diag([1, second, *[0] * (n - 2)]).astype(np.float32)
            close(np.trace(polar(x)), rank)
