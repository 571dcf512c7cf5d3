"""What each method promises: accuracy against the condition number, rank, padding, and the Gram
form.
"""

import copy
import dataclasses
from itertools import combinations, pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import spectral
from specjax.spectral import QDWH, SVD, Newton, NewtonSchulz, PolarExpress
from specjax.spectral.methods._qdwh import halley_weights
from specjax.spectral.methods.newton_schulz import (
    GRAM_GROWTH,
    gram_blocks,
    gram_is_cheaper,
)
from specjax.spectral.polynomials import CUBIC, MUON, Quintic, band
from tests.reference.spectra import matrix_with, named
from tests.spectral.differences import directional

polar = jax.jit(spectral.polar, static_argnums=1)
EXACT = {"svd": SVD(), "qdwh": QDWH(), "newton": Newton()}
NEW = {"qdwh": QDWH(), "newton": Newton(), "express": PolarExpress(8, 1e-2)}
exact_method = pytest.mark.parametrize("method", EXACT.values(), ids=EXACT)
new_method = pytest.mark.parametrize("method", NEW.values(), ids=NEW)
CONDITIONS = (1, 1e3, 1e6, 1e9, 1e12)


def close(measured, expected, tolerance=1e-11):
    np.testing.assert_allclose(measured, expected, rtol=0, atol=tolerance)


@exact_method
@pytest.mark.parametrize("shape", [(24, 24), (12, 40)], ids=str)
@pytest.mark.usefixtures("x64")
def test_accuracy_does_not_depend_on_the_condition_number(method, shape):
    """Orthonormal, and x = H P with H positive semidefinite, to a few roundings; the distance to U
    Vᵀ grows as it must.
    """
    for condition in CONDITIONS:
        values = np.geomspace(1, 1 / condition, min(shape))
        x = matrix_with(values, shape, 1)
        factor = np.asarray(polar(jnp.asarray(x), method))
        h = factor @ x.T
        assert np.linalg.norm(factor @ factor.T - np.eye(shape[0]), 2) < 1e-14
        assert np.linalg.norm(0.5 * (h + h.T) @ factor - x, 2) < 1e-14
        assert np.linalg.eigvalsh(0.5 * (h + h.T)).min() > -1e-15
        # Kenney and Laub's condition number of the factor.
        amplification = 2 / (values[-1] + values[-2]) if shape[0] == shape[1] else 1 / values[-1]
        exact = matrix_with(np.ones(min(shape)), shape, 1)
        assert np.linalg.norm(factor - exact, 2) < 3e-15 + 1e-15 * amplification


@pytest.mark.integration
@pytest.mark.parametrize("shape", [(24, 24), (12, 40)], ids=str)
@pytest.mark.usefixtures("x64")
def test_products_alone_reach_working_precision_up_to_1e7(shape):
    """Orthonormal, and close to U Vᵀ of numpy, as SVD() is; the Gram form with its restarts too."""
    x = [
        matrix_with(np.geomspace(1, 1 / condition, min(shape)), shape, 1)
        for condition in (1, 1e3, 1e7)
    ]
    u, s, vt = np.linalg.svd(x, full_matrices=False)
    for method in (PolarExpress(18, 1e-8, gram=False), NewtonSchulz(48, CUBIC, gram=False)):
        factor = np.asarray(polar(jnp.asarray(x), method))
        close(
            factor @ factor.swapaxes(1, 2),
            np.broadcast_to(np.eye(shape[0]), (3, shape[0], shape[0])),
            1e-14,
        )
        distances = np.linalg.norm(factor - u @ vt, 2, axis=(1, 2))
        assert (distances < 3e-14 + 4e-16 / s[:, -1]).all()
    gram = np.asarray(polar(jnp.asarray(x), PolarExpress(18, 1e-8, gram=True)))
    close(
        gram @ gram.swapaxes(1, 2),
        np.broadcast_to(np.eye(shape[0]), (3, shape[0], shape[0])),
        1e-13,
    )
    assert (np.linalg.norm(gram - u @ vt, 2, axis=(1, 2)) < 3e-14 + 4e-16 / s[:, -1]).all()


@exact_method
def test_accuracy_in_float32_up_to_1e5(method):
    for condition in (1, 1e3, 1e5):
        x = matrix_with(np.geomspace(1, 1 / condition, 24), (24, 24), 1).astype(np.float32)
        factor = np.asarray(polar(jnp.asarray(x), method), np.float64)
        assert np.linalg.norm(factor @ factor.T - np.eye(24), 2) < 5e-6
        h = factor @ x.T
        assert np.linalg.norm(0.5 * (h + h.T) @ factor - x, 2) < 5e-6


COMPLEX = EXACT | {
    "express": PolarExpress(9, 1e-2, gram=False),
    "express-gram": PolarExpress(9, 1e-2, gram=True),
    "cubic": NewtonSchulz(24, CUBIC),
}


@pytest.mark.integration
@pytest.mark.parametrize("method", COMPLEX.values(), ids=COMPLEX)
@pytest.mark.usefixtures("x64")
def test_a_complex_matrix_has_its_unitary_factor_and_derivative(method):
    rng = np.random.default_rng(7)

    def draw(*shape):
        return rng.standard_normal(shape) + 1j * rng.standard_normal(shape)

    def exact(x):
        u, _, vh = np.linalg.svd(x, full_matrices=False)
        return u @ vh

    @jax.jit
    def along(x, dx, w):
        factor, push = jax.linearize(lambda x: spectral.polar(x, method), x)
        return factor, push(dx), jax.linear_transpose(push, x)(w)[0]

    for x in (draw(3, 4), draw(3, 4).T, np.linalg.qr(draw(4, 4))[0]):
        dx, w = 0.1 * draw(*x.shape), draw(*x.shape)
        factor, change, pulled = along(x, dx, w)
        close(factor, exact(x), 1e-13)
        close(change, directional(exact, x, dx), 1e-9)
        # The pairing of JAX: the real part, without conjugation, since the factor is not
        # holomorphic.
        close(np.sum(w * change).real, np.sum(np.asarray(pulled) * dx).real, 1e-13)
    assert polar(jnp.asarray(x, jnp.complex64), method).dtype == jnp.complex64
    scaled, *_ = along(1e-200j * x, dx, w)
    close(scaled, 1j * exact(x), 1e-13)


@pytest.mark.integration
@new_method
@pytest.mark.usefixtures("x64")
def test_the_contract(method):
    """Agreement with the decomposition, transposition, sign, scale, batches, zero padding, zero and
    NaN.
    """
    rng = np.random.default_rng(0)
    # Wide matrices are the transposed tall ones in shape, so that both have the same programs.
    for shape in ((4, 4), (3, 7), (7, 3)):
        x = rng.standard_normal((2, *shape))
        factor = np.asarray(polar(x, method))
        u, _, vt = np.linalg.svd(x, full_matrices=False)
        close(factor, u @ vt, 1e-10)
        close(polar(x.swapaxes(1, 2), method), factor.swapaxes(1, 2))
        close(polar(-1e-200 * x, method), -factor)
        close(factor[0], polar(x[0], method), 1e-12)
        # Zero rows and columns in between, too.
        rows, columns = np.arange(shape[0]) * 2, np.arange(shape[1]) * 2 + 1
        padded = np.zeros((2 * shape[0], 2 * shape[1] + 1))
        padded[np.ix_(rows, columns)] = x[0]
        result = np.array(polar(padded, method))
        close(result[np.ix_(rows, columns)], factor[0])
        result[np.ix_(rows, columns)] = 0
        assert not result.any()
        np.testing.assert_array_equal(polar(np.zeros(shape), method), np.zeros(shape))
        spoiled = x.copy()
        spoiled[0, 1, 1] = np.nan
        assert np.isnan(polar(spoiled, method)[0]).all()
    close(jax.jit(jax.vmap(lambda x: spectral.polar(x, method)))(x), factor, 1e-12)


@pytest.mark.integration
@pytest.mark.usefixtures("x64")
def test_deficient_matrices_have_partial_isometries_or_nan():
    for name in ("rank-deficient", "rank-deficient-tall"):
        x = named(name)
        close(polar(x, QDWH()), polar(x, SVD()), 1e-14)
        assert np.isnan(polar(x, Newton())).all()
    # Active 2×4 and 4×2 blocks in one wide matrix: the second has more nonzero rows than rank.
    block = np.random.default_rng(1).standard_normal((4, 2))
    padded = np.pad(block, ((0, 1), (0, 7)))
    close(np.asarray(polar(padded, QDWH()))[:4, :2], polar(block, SVD()), 1e-14)
    assert np.isnan(polar(padded, Newton())).any()


@pytest.mark.integration
@pytest.mark.usefixtures("x64")
def test_qdwh_keeps_values_above_rtol_and_drops_those_far_below():
    x = np.diag([1.0, 1e-3, 1e-8, 1e-16])
    for rtol, rank in ((None, 3), (1e-6, 2), (1e-2, 1)):
        close(polar(x, QDWH(rtol)), np.diag([1.0] * rank + [0.0] * (4 - rank)), 1e-14)
    for rtol in (1e-12, 1e-6, 1e-2):
        x = np.diag([1.0, rtol * 1.01, rtol * 0.1])
        close(polar(x, QDWH(rtol)), np.diag([1.0, 1.0, 0.0]), 1e-14)


def test_halley_weights():
    """Six steps from 1e-16 (Nakatsukasa, Bai and Gygi); the limit is Halley's own iteration (3, 1,
    3).
    """
    weights = halley_weights(1e-16, 2.0**-52)
    assert len(weights) == 6
    close(halley_weights(1 - 1e-9, 1e-12)[-1], (3, 1, 3), 1e-6)
    s = np.geomspace(1e-16, 1, 1001)
    for a, b, c in weights:
        s = s * (a + b * s**2) / (1 + c * s**2)
    close(s, np.ones(1001), 1e-14)


@pytest.mark.integration
@pytest.mark.usefixtures("x64")
def test_newton_that_has_not_converged_is_nan():
    x = np.diag([1.0, 0.3, 1e-3])
    assert np.isnan(polar(x, Newton(2))).all()
    close(polar(x, Newton(9)), np.eye(3), 1e-14)


@pytest.mark.integration
@pytest.mark.usefixtures("x64")
def test_polar_express_ends_in_its_band():
    for method in (PolarExpress(5), PolarExpress(5, 1e-2), PolarExpress(4, 1e-3, 1.02, 0.0)):
        values = np.geomspace(1, method.lower, 40)
        x = matrix_with(values, (40, 40), 2)
        lo, hi = band(method.polynomials(), method.lower / np.linalg.norm(values))
        ends = np.linalg.svd(polar(jnp.asarray(x), method), compute_uv=False)
        assert lo - 1e-12 < ends.min()
        assert ends.max() < hi + 1e-12
        # Far closer to 1 than Muon's steps for the same spectrum.
        muon = np.linalg.svd(polar(jnp.asarray(x), NewtonSchulz(method.steps)), compute_uv=False)
        assert 1 - ends.min() < 0.95 * (1 - muon.min())


@pytest.mark.integration
@pytest.mark.parametrize("steps", [2, 6])
@pytest.mark.usefixtures("x64")
def test_the_gram_form_is_the_standard_form(steps):
    x = np.array([matrix_with(np.geomspace(1, 1 / k, 16), (16, 80), 3) for k in (10, 1e4, 1e8)])
    for form in (lambda g: NewtonSchulz(steps, gram=g), lambda g: PolarExpress(steps, gram=g)):
        gram, standard = polar(x, form(True)), polar(x, form(False))
        # A block of steps magnifies rounding by the product of its a².
        growth = max(
            np.prod([p.a**2 for p in block])
            for block in gram_blocks(form(None).polynomials(), GRAM_GROWTH)
        )
        close(gram, standard, 1e-12 + 4e-16 * growth)
        np.testing.assert_array_equal(polar(x, form(None)), gram)
        padded = np.asarray(polar(np.pad(x, ((0, 0), (0, 2), (0, 3))), form(True)))
        close(padded[:, :16, :80], gram, 1e-9)
        assert not padded[:, 16:].any()


N = 48
SPECTRUM = {
    "flat": np.linspace(1, 0.5, N),
    "k^-1": 1 / np.arange(1, N + 1),
    "k^-2": 1 / np.arange(1, N + 1) ** 2,
    "to 1e-7": np.geomspace(1, 1e-7, N),
    "one large": np.array([1.0, *[2e-3] * (N - 1)]),
}
ROUNDED = [matrix_with(values, (N, 4 * N), 3) for values in SPECTRUM.values()]


def errors(method, dtype):
    """Of each matrix of `ROUNDED`, rounded to `dtype`: the distance to the same polynomials in
    float64, in the spectral norm.
    """
    x = jnp.asarray(np.array(ROUNDED), dtype)
    measured = np.asarray(polar(x, method).astype(jnp.float32), np.float64)
    result = {}
    for name, factor, matrix in zip(
        SPECTRUM, measured, np.asarray(x.astype(jnp.float32), np.float64), strict=True
    ):
        u, s, vt = np.linalg.svd(matrix, full_matrices=False)
        s = s / np.linalg.norm(s)
        for p in method.polynomials():
            s = p(s)
        result[name] = np.linalg.norm(factor - (u * s) @ vt, 2)
    return result


@pytest.mark.integration
@pytest.mark.parametrize("form", [NewtonSchulz, PolarExpress])
def test_the_stated_accuracy_in_float32_and_bfloat16(form):
    """Against exact arithmetic on the same rounded matrix: the numbers in the docstrings."""
    standard, gram = (errors(form(gram=g), jnp.float32) for g in (False, True))
    for found in (standard, gram):
        assert found["flat"] < 1e-5
        assert max(found.values()) < (3e-5 if form is NewtonSchulz else 2e-4)
    # Half-precision operands: no spectrum makes the noise of 2⁻⁹ grow. Rounding nothing but
    # operands, and of square ones the difference from their mean eigenvalue, is what keeps it
    # small: bfloat16 in between is several times worse.
    plain = errors(iteration_on_x(form(), jnp.bfloat16), jnp.bfloat16)
    for dtype, operands in ((jnp.bfloat16, None), (jnp.float32, jnp.bfloat16)):
        standard, gram = (errors(form(gram=g, operands=operands), dtype) for g in (False, True))
        assert max(standard.values()) < 0.25 * max(plain.values())
        assert max(gram.values()) < 0.25 * max(plain.values())


@pytest.mark.parametrize(("gram", "most"), [(False, 2e-2), (True, 5e-2)])
def test_half_precision_costs_few_rows_up_to_a_twentieth(gram, most):
    u, _, vt = np.linalg.svd(np.random.default_rng(0).normal(size=(16, 64)), full_matrices=False)
    x = (u * np.exp(-np.arange(16) / 2)) @ vt
    method = NewtonSchulz(gram=gram, operands=jnp.bfloat16)
    found = np.asarray(polar(jnp.asarray(x, jnp.float32), method), float)
    s = np.exp(-np.arange(16) / 2) / np.linalg.norm(x)
    for p in method.polynomials():
        s = p(s)
    error = np.linalg.norm(found - (u * s) @ vt) / np.linalg.norm(s)
    assert most / 5 < error < most


def iteration_on_x(method, dtype):
    """The standard form where every intermediate has this dtype, as torch.optim.Muon has it in
    bfloat16 and optax in float32.
    """

    def plain(x):
        x = x / jnp.linalg.norm(x.astype(jnp.float32)).astype(dtype)
        for a, b, c in method.polynomials():
            gram = x @ x.T
            x = (a * x + (b * gram + c * (gram @ gram).astype(dtype)).astype(dtype) @ x).astype(
                dtype
            )
        return x

    plain.polynomials = method.polynomials
    return plain


def test_each_step_may_have_a_polynomial_of_its_own():
    assert NewtonSchulz(2, (MUON, CUBIC)).polynomials() == (MUON, CUBIC)


@pytest.mark.integration
def test_operands_in_half_precision_keep_the_dtype():
    x = jnp.asarray(np.array(ROUNDED), jnp.float32)
    assert polar(x, NewtonSchulz(operands=jnp.bfloat16)).dtype == jnp.float32


def test_blocks_are_as_few_as_their_bound_allows_and_balanced():
    def growth(block):
        return np.prod([p.a**2 for p in block])

    def largest(polynomials, cuts):
        return max(growth(polynomials[i:j]) for i, j in pairwise((0, *cuts, len(polynomials))))

    assert gram_blocks((MUON,) * 5, 2.0**18) == ((MUON,) * 5,)
    assert [len(block) for block in gram_blocks((MUON,) * 5, GRAM_GROWTH)] == [3, 2]
    assert [len(block) for block in gram_blocks((MUON,) * 9, GRAM_GROWTH)] == [3, 3, 3]
    assert [len(block) for block in gram_blocks((Quintic(1e3, 0.0, 0.0),) * 2, GRAM_GROWTH)] == [
        1,
        1,
    ]
    for steps in (5, 8, 14):
        polynomials = PolarExpress(steps, 1e-6).polynomials()
        found = gram_blocks(polynomials, GRAM_GROWTH)
        assert sum(found, ()) == polynomials
        assert max(map(growth, found)) <= GRAM_GROWTH
        # No division into fewer blocks obeys the bound, and none into as many has a smaller
        # maximum.
        cuts = range(1, steps)
        assert (
            min(largest(polynomials, c) for c in combinations(cuts, len(found) - 2)) > GRAM_GROWTH
        )
        best = min(largest(polynomials, c) for c in combinations(cuts, len(found) - 1))
        assert max(map(growth, found)) == pytest.approx(best)


def test_the_gram_form_is_taken_where_it_has_fewer_operations():
    for m, n, steps, blocks in ((64, 97, 5, 1), (64, 97, 5, 2)):
        assert gram_is_cheaper((m, n), steps, blocks)
        assert not gram_is_cheaper((m, n - 1), steps, blocks)
    assert not gram_is_cheaper((64, 10**6), 1, 1)
    x = jnp.asarray(matrix_with([1.0, 0.5], (2, 6), 0), jnp.float32)

    def products(method):
        return str(jax.make_jaxpr(lambda x: spectral.polar(x, method))(x)).count("dot_general")

    # In units of one product: XXᵀ and the return, G² at each step, three more at each step but the
    # first.
    assert products(NewtonSchulz(restart=5)) == 2 + 5 + 3 * 4
    assert products(NewtonSchulz(gram=False)) == 3 * 5
    # Every block but the first needs a Gram matrix and a return more, and three products fewer.
    for method in (NewtonSchulz(), NewtonSchulz(gram=True), NewtonSchulz(operands=jnp.bfloat16)):
        assert products(method) == products(NewtonSchulz(restart=3)) == 2 * 2 + 5 + 3 * 3
    assert products(NewtonSchulz(restart=1, gram=True)) == 2 * 5 + 5


@pytest.mark.integration
def test_float32_errors_are_near_those_of_the_iteration_on_x():
    """That iteration, as optax has it, is written out here."""
    theirs = errors(iteration_on_x(NewtonSchulz(), jnp.float32), jnp.float32)
    for name, error in errors(NewtonSchulz(), jnp.float32).items():
        assert error < 10 * theirs[name], name
    one_block = errors(NewtonSchulz(restart=5), jnp.float32)
    assert one_block["k^-1"] > 10 * theirs["k^-1"]
    assert one_block["k^-2"] > 40 * theirs["k^-2"]


@pytest.mark.integration
def test_any_callable_is_a_method():
    def first_column(x):
        return jnp.zeros_like(x).at[:, 0].set(x[:, 0])

    x = named("tall").astype(np.float32)
    # Divided by a power of two, exactly.
    scaled = x / 2.0 ** np.floor(np.log2(np.abs(x).max()))
    assert 1 <= np.abs(scaled).max() < 2
    close(polar(x, first_column), np.concatenate([scaled[:1], np.zeros((5, 2))]), 0)
    close(polar(x, lambda x: SVD()(x)), polar(x), 0)


@pytest.mark.parametrize(
    "method",
    [
        SVD(),
        Newton(7),
        QDWH(),
        NewtonSchulz(3, operands=jnp.bfloat16),
        PolarExpress(4),
        spectral.Tikhonov(0.3),
    ],
    ids=repr,
)
def test_a_method_is_static_in_a_tree_and_equal_by_its_fields(method):
    assert not jax.tree.leaves(method)
    traces = []

    @jax.jit
    def counted(method, x):
        traces.append(method)
        return x

    counted(method, 1.0)
    counted(copy.copy(method), 2.0)
    assert traces == [method]
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(method, dataclasses.fields(method)[0].name, 1)


SCALED = {
    "frobenius": lambda x: x / np.linalg.norm(x),
    "schatten-4": lambda x: x / np.linalg.norm(np.linalg.svd(x, compute_uv=False), 4),
    "spectral": lambda x: x / np.linalg.norm(x, 2),
    "aol": lambda x: x / np.sqrt(np.abs(x @ x.conj().T).sum(axis=1, keepdims=True)),
}


@pytest.mark.integration
@pytest.mark.parametrize("scaling", SCALED)
@pytest.mark.parametrize("gram", [True, False])
@pytest.mark.usefixtures("x64")
def test_newton_schulz_starts_from_the_scaling_it_is_given(scaling, gram):
    rng = np.random.default_rng(3)
    for x in (
        rng.standard_normal((3, 5)),
        rng.standard_normal((3, 5)) + 1j * rng.standard_normal((3, 5)),
    ):
        u, s, vh = np.linalg.svd(SCALED[scaling](x), full_matrices=False)
        assert s[0] <= 1 + 1e-12
        for _ in range(2):
            s = MUON(s)
        method = NewtonSchulz(2, gram=gram, scaling=scaling)
        close(polar(jnp.asarray(x), method), u * s @ vh, 1e-12)
        close(polar(jnp.asarray(x.T), method), (u * s @ vh).T, 1e-12)
    padded = np.zeros((6, 7))
    padded[1:6:2, :5] = x.real
    result = np.array(polar(padded, method))
    close(result[1:6:2, :5], polar(x.real, method), 1e-12)
    result[1:6:2, :5] = 0
    assert not result.any()
