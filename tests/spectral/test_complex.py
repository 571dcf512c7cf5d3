"""Complex matrices: every public function against NumPy in complex128, or one sentence that refuses
them.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import spectral
from specjax.spectral import averaged_polar, gram_power_norm

rng = np.random.default_rng(0)


def normal(*shape):
    return rng.standard_normal(shape) + 1j * rng.standard_normal(shape)


WIDE, TALL = normal(2, 4, 6), normal(6, 4)
P, Q = (x @ x.conj().swapaxes(-1, -2) for x in (WIDE, normal(2, 4, 6)))
KEY = jax.random.key(0)
U, S, VH = np.linalg.svd(WIDE, full_matrices=False)
F = np.linalg.norm(WIDE, axis=(-2, -1))
DIAGONAL = np.diagonal(P, axis1=-2, axis2=-1)
OFF = P * (1 - np.eye(4))


def of_values(values):
    return (U * values[..., None, :]) @ VH


def real_inner(a, b):
    return np.sum((a.conj() * b).real, axis=(-2, -1))


def fitted(a, b):
    """‖c a - b‖ / ‖b‖ at the best real c, by least squares on real and imaginary parts."""
    columns, wanted = (np.concatenate([x.real.ravel(), x.imag.ravel()]) for x in (a, b))
    c = np.linalg.lstsq(columns[:, None], wanted, rcond=None)[0]
    return c[0], np.linalg.norm(c[0] * columns - wanted) / np.linalg.norm(wanted)


def without_mean(a):
    return a - np.trace(a, axis1=-2, axis2=-1)[..., None, None] / 4 * np.eye(4)


def hermitian_power(h, p):
    values, vectors = np.linalg.eigh(h)
    return (vectors * np.clip(values, 0, None)[..., None, :] ** p) @ vectors.conj().swapaxes(-1, -2)


def least_block_energy(p):
    masks = [[i >> j & 1 for j in range(4)] for i in range(1, 15)]
    across = [np.not_equal.outer(mask, mask) for mask in masks]
    return min(np.sum(np.abs(p) ** 2 * mask) for mask in across) / np.linalg.norm(p) ** 2


SHARES = S / S.sum(-1, keepdims=True)
CASES = {
    "spectral_norm": (lambda: spectral.spectral_norm(WIDE), S[:, 0]),
    "nuclear_norm": (lambda: spectral.nuclear_norm(WIDE), S.sum(-1)),
    "schatten_norm": (lambda: spectral.schatten_norm(WIDE, 3.0), (S**3).sum(-1) ** (1 / 3)),
    "stable_rank": (lambda: spectral.stable_rank(WIDE), F**2 / S[:, 0] ** 2),
    "nuclear_rank": (lambda: spectral.nuclear_rank(WIDE), S.sum(-1) ** 2 / F**2),
    "effective_rank": (lambda: spectral.effective_rank(WIDE), S.sum(-1) / S[:, 0]),
    "entropy_rank": (
        lambda: spectral.entropy_rank(WIDE),
        np.exp(-(SHARES * np.log(SHARES)).sum(-1)),
    ),
    "polar": (lambda: spectral.polar(WIDE), U @ VH),
    "Tikhonov": (
        lambda: spectral.polar(WIDE, spectral.Tikhonov(0.5)),
        of_values(
            (g := S / (S**2 + 0.25 * np.median(S, axis=-1, keepdims=True) ** 2))
            / np.sqrt(np.mean(g**2, axis=-1, keepdims=True))
        ),
    ),
    "spectral_map": (lambda: spectral.spectral_map(WIDE, jnp.tanh), of_values(np.tanh(S))),
    "spectral_map of a tall one": (
        lambda: spectral.spectral_map(WIDE.swapaxes(-1, -2), jnp.tanh),
        of_values(np.tanh(S)).swapaxes(-1, -2),
    ),
    "spectral_power": (lambda: spectral.spectral_power(WIDE, 0.5), of_values(np.sqrt(S))),
    "stabilized_sign": (
        lambda: spectral.stabilized_sign(WIDE, 0.7),
        of_values(S / np.hypot(S, 0.7)),
    ),
    "inverse_root": (
        lambda: spectral.inverse_root(P, 4, 0.1),
        hermitian_power(P + 0.1 * np.eye(4), -0.25),
    ),
    "row_metric": (lambda: spectral.row_metric(WIDE[0]), hermitian_power(P[0], 0.5)),
    "normalize_rows": (
        lambda: spectral.normalize_rows(WIDE),
        WIDE / np.linalg.norm(WIDE, axis=-1, keepdims=True),
    ),
    "normalize_columns": (
        lambda: spectral.normalize_columns(WIDE),
        WIDE / np.linalg.norm(WIDE, axis=-2, keepdims=True),
    ),
    "direction_error": (lambda: spectral.direction_error(WIDE[0], WIDE[1]), fitted(*WIDE)[1]),
    "factor_error": (
        lambda: spectral.polar_error.factor_error(1.25 * (U @ VH), U @ VH),
        np.array([[1.25] * 2, [0.25] * 2, [0.5625] * 2, [4.0] * 2]),
    ),
    "method_error": (
        lambda: spectral.polar_error.method_error(WIDE, lambda x: 1.25 * spectral.SVD()(x)),
        np.array([[1.25] * 2, [0.25] * 2, [0.5625] * 2, [4.0] * 2]),
    ),
    "diagonal_mean": (
        lambda: spectral.dominance.diagonal_mean(WIDE[:, :, :4]),
        np.trace(WIDE[:, :, :4], axis1=1, axis2=2) / 4,
    ),
    "off_diagonal": (lambda: spectral.dominance.off_diagonal(P), OFF),
    "off_diagonal_mean": (lambda: spectral.dominance.off_diagonal_mean(P), OFF.sum((-2, -1)) / 12),
    "dominance_ratio": (
        lambda: spectral.dominance_ratio(P),
        np.abs(OFF).sum((-2, -1)) / 12 / DIAGONAL.real.mean(-1),
    ),
    "row_dominance": (lambda: spectral.row_dominance(P), np.abs(OFF).sum(-1) / DIAGONAL.real),
    "off_diagonal_energy": (
        lambda: spectral.dominance.off_diagonal_energy(P),
        np.linalg.norm(OFF, axis=(-2, -1)) ** 2 / np.linalg.norm(P, axis=(-2, -1)) ** 2,
    ),
    "off_diagonal_coefficient": (
        lambda: spectral.dominance.off_diagonal_coefficient(P[0], Q[0]),
        fitted(Q[0] * (1 - np.eye(4)), OFF[0])[0],
    ),
    "off_block_energy": (
        lambda: spectral.dominance.off_block_energy(P),
        [least_block_energy(p) for p in P],
    ),
    "traceless_cosine": (
        lambda: spectral.dominance.traceless_cosine(P, Q),
        real_inner(without_mean(P), without_mean(Q))
        / np.linalg.norm(without_mean(P), axis=(-2, -1))
        / np.linalg.norm(without_mean(Q), axis=(-2, -1)),
    ),
    "gram_matrix": (lambda: gram_power_norm.gram_matrix(WIDE), P),
    "gram_matrix of a tall one": (lambda: gram_power_norm.gram_matrix(TALL), TALL.conj().T @ TALL),
    "mean_of_rank_one_polar": (
        lambda: averaged_polar.mean_of_rank_one_polar(WIDE[0], WIDE[1]),
        np.mean(
            [
                np.outer(a, b) / np.linalg.norm(a) / np.linalg.norm(b)
                for a, b in zip(*WIDE, strict=True)
            ],
            axis=0,
        ),
    ),
    "jackknifed_polar": (
        lambda: averaged_polar.jackknifed_polar(WIDE),
        (lambda polar: 2 * polar(WIDE.mean(0)) - np.mean([polar(x) for x in WIDE[::-1]], axis=0))(
            lambda x: (lambda u, _, vh: u @ vh)(*np.linalg.svd(x, full_matrices=False))
        ),
    ),
}
TALL_S = np.linalg.svd(TALL, compute_uv=False)
CASES["estimate_stable_rank"] = (
    lambda: spectral.estimate_stable_rank(TALL, KEY).value,
    np.sum(TALL_S**2) / TALL_S[0] ** 2,
)


# Without the type checks of other tests, since these are NumPy's arrays.
@pytest.mark.integration
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", CASES)
def test_complex_matrices_as_numpy_has_them(name):
    call, expected = CASES[name]
    with jax.enable_x64(True):
        found = np.stack(call()) if isinstance(call(), tuple) else np.asarray(call())
    assert np.iscomplexobj(found) == np.iscomplexobj(expected)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.integration
@pytest.mark.parametrize("shape", [(30, 12), (12, 30)])
def test_estimates_of_complex_matrices_hold_numpys_numbers(shape):
    with jax.enable_x64(True):
        x = jnp.asarray(normal(*shape))
        s = np.linalg.svd(x, compute_uv=False)
        norm = spectral.power_iteration(x, KEY, steps=400)
        np.testing.assert_allclose(norm.value, s[0], rtol=1e-8)
        assert norm.value.dtype == jnp.float64
        # Nothing is sampled where there are as many directions as columns; else four standard
        # errors are left.
        for directions in (12, 4):
            found = spectral.estimate_ranks(x, KEY, steps=12, directions=directions)
            expected = {
                "stable": np.sum(s**2) / s[0] ** 2,
                "nuclear": np.sum(s) ** 2 / np.sum(s**2),
                "effective": np.sum(s) / s[0],
                "spectral_norm": s[0],
                "frobenius_norm": np.sqrt(np.sum(s**2)),
                "nuclear_norm": np.sum(s),
            }
            for name, number in expected.items():
                value, lower, upper = getattr(found, name)
                assert lower * (1 - 1e-9) <= number <= upper * (1 + 1e-9), name
                np.testing.assert_allclose(
                    value, number, rtol=1e-6 if directions == 12 else 0.2, err_msg=name
                )


def test_a_linear_map_to_complex_vectors_is_refused():
    x = jnp.asarray(normal(6, 4), jnp.complex64)
    with pytest.raises(
        ValueError,
        match=r"^The linear map must take a vector to a vector of float32, got [^\n]*\.$",
    ):
        spectral.estimate_ranks(lambda v: x @ v.astype(x.dtype), KEY, columns=4)


@pytest.mark.integration
@pytest.mark.parametrize("transposed", [False, True], ids=["wide", "tall"])
def test_derivatives_of_complex_maps_are_those_of_differences(transposed):
    with jax.enable_x64(True):
        x, dx = (jnp.asarray(y.T if transposed else y) for y in (normal(3, 5), normal(3, 5)))

        def smooth(t):
            return spectral.spectral_map(x + t * dx, jnp.tanh)

        slope = jax.jvp(smooth, (0.0,), (1.0,))[1]
        h = 1e-5
        np.testing.assert_allclose(slope, (smooth(h) - smooth(-h)) / (2 * h), rtol=1e-6, atol=1e-9)


@pytest.mark.integration
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_squares_of_complex_float32_stay_in_range(scale):
    x = jnp.asarray(scale * TALL, jnp.complex64)
    np.testing.assert_allclose(spectral.stable_rank(x), CASES["estimate_stable_rank"][1], rtol=1e-5)
    np.testing.assert_allclose(
        spectral.estimate_stable_rank(x, KEY).value, CASES["estimate_stable_rank"][1], rtol=1e-5
    )
    np.testing.assert_allclose(
        gram_power_norm.stable_rank_above(x), CASES["estimate_stable_rank"][1], rtol=2e-2
    )
    np.testing.assert_allclose(
        spectral.normalize_rows(x),
        TALL / np.linalg.norm(TALL, axis=1)[:, None],
        rtol=1e-4,
        atol=1e-6,
    )
