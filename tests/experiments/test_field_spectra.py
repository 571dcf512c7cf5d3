"""Steps with other singular values, and what chooses their lengths, against other ways to compute
both.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from specjax import optim, spectral
from specjax.experiments.field import feature_descent, spectra, spectrum, split_half_tuning

NAMES = list(spectrum.SPECTRA)
POWERS = {"gradient": 1.0, "Muon": 0.0, "-1/3": -1 / 3, "inverse": -1.0}


def matrices():
    with jax.enable_x64(True):
        return jnp.asarray(np.random.default_rng(0).normal(size=(3, 4, 6)))


# One program for all names.
replaced_by_index = jax.jit(spectrum.replaced)


def replaced(x, name, random=0.5):
    with jax.enable_x64(True):
        return replaced_by_index(x, np.asarray(NAMES.index(name)), random * np.ones(x.shape[:-1]))


def of_one_size(x):
    return 2.0 * np.asarray(x) / np.linalg.norm(x, axis=(1, 2), keepdims=True)


@pytest.mark.integration
@pytest.mark.parametrize("name", POWERS)
def test_a_power_is_the_librarys_at_the_norm_of_four_unit_rows(name):
    x = matrices()
    with jax.enable_x64(True):
        expected = of_one_size(jax.jit(lambda x: spectral.spectral_power(x, POWERS[name]))(x))
    np.testing.assert_allclose(replaced(x, name)[0], expected, rtol=1e-10, atol=1e-12)


@pytest.mark.integration
def test_kaon_is_muon_with_other_coefficients():
    x = matrices()
    step = optim.orthogonalize(spectrum.KAON, "none", dimension_numbers=optim.OUT_IN)
    with jax.enable_x64(True):
        expected = of_one_size(
            jax.jit(jax.vmap(lambda each: step.update(each, step.init(each))[0]))(x)
        )
    np.testing.assert_allclose(replaced(x, "Kaon")[0], expected, rtol=1e-8, atol=1e-10)


def test_kaons_map_is_the_chaotic_one():
    for polynomial in spectrum.KAON.polynomials():
        for s in (0.1, 0.4, 0.9):
            assert polynomial(s) == pytest.approx(4.1 * s * (1 - s**2) ** 2, rel=1e-12)


def test_random_values_are_those_that_were_drawn():
    x, drawn = matrices(), np.random.default_rng(1).uniform(size=(3, 4))
    found = replaced(x, "uniform", drawn)[0]
    u, _, vt = np.linalg.svd(x, full_matrices=False)
    np.testing.assert_allclose(
        found, of_one_size((u * drawn[:, None]) @ vt), rtol=1e-10, atol=1e-12
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_inner_product_is_that_with_the_step(name):
    x = matrices()
    step, inner = replaced(x, name)
    np.testing.assert_allclose(
        inner, np.sum(np.asarray(x) * np.asarray(step), axis=(1, 2)), rtol=1e-10
    )


@pytest.mark.parametrize("name", NAMES)
def test_singular_values_of_zero_stay_zero(name):
    # Of two values that are not zero: Kaon's map takes the only one of a matrix, which is 1 there,
    # to zero.
    x = np.diag([-2.0, 1.0, 0.0]).astype(np.float32)[None]
    rest = np.asarray(NAMES.index(name)), np.full((1, 3), 0.5, np.float32)
    step = np.asarray(replaced_by_index(x, *rest)[0])
    assert step.dtype == np.float32
    np.testing.assert_allclose(step[0], np.diag(np.diagonal(step[0])), atol=1e-6)
    assert float(step[0, 2, 2]) == pytest.approx(0.0, abs=1e-6)
    assert float(np.sum(step**2)) == pytest.approx(3.0, rel=1e-5)
    assert not np.asarray(replaced_by_index(0 * x, *rest)[0]).any()


def test_each_half_of_the_draws_chooses_for_the_other():
    loss = xr.DataArray(
        np.random.default_rng(2).normal(size=(2, 5, 9)), dims=("width", "rate", "seed")
    )
    loss = loss.assign_coords(seed=np.arange(9), rate=np.arange(5.0))
    found, places = split_half_tuning.tuned(loss)
    for width in range(2):
        for seed in range(9):
            others = [other for other in range(9) if other % 2 != seed % 2]
            place = np.argmin(loss.values[width][:, others].mean(1))
            assert float(found.isel(width=width).sel(seed=seed)) == loss.values[width, place, seed]
            assert int(places.isel(width=width, half=seed % 2)) == place


def test_other_choices_than_the_rate_use_the_other_half_too():
    loss = xr.DataArray(
        np.zeros((2, 3, 4)), dims=("kind", "rate", "seed"), coords={"seed": np.arange(4)}
    )
    loss = loss.assign_coords(rate=np.arange(3.0), kind=["a", "b"])
    loss[1, 1, ::2], loss[0, 2, 1::2] = -1.0, -2.0
    found, places = split_half_tuning.tuned(loss, ("kind", "rate"))
    assert places.values.tolist() == [2, 1]
    assert found.values.tolist() == [0.0, 0.0, 0.0, 0.0]


@pytest.mark.integration
def test_no_other_first_step_length_ends_below_the_best_one():
    with jax.enable_x64(True):
        kind = jnp.asarray(NAMES.index("Kaon"))
        searched, lengths, _ = feature_descent.descend(
            jax.random.key(0), 5, kind, jnp.asarray(0.0), 1
        )
        others = [
            float(feature_descent.descend(jax.random.key(0), 5, kind, factor * lengths[0], 1)[0][0])
            for factor in (0.98, 1.0, 1.02)
        ]
    assert others[1] == pytest.approx(float(searched[0]), rel=1e-12)
    assert others[1] < min(others[0], others[2])


@pytest.mark.integration
def test_curvature_along_muons_step_is_the_mean_eigenvalue():
    with jax.enable_x64(True):
        curvatures = {
            name: np.asarray(
                feature_descent.descend(
                    jax.random.key(0), 5, jnp.asarray(NAMES.index(name)), jnp.asarray(0.0), 4
                )[2]
            )
            for name in ("Muon", "gradient")
        }
    np.testing.assert_allclose(curvatures["Muon"], 1.0, rtol=1e-10)
    assert np.abs(curvatures["gradient"] - 1).max() > 0.1


def test_a_network_of_alternating_shapes_is_the_perceptron():
    rng = np.random.default_rng(3)
    params = jnp.asarray(rng.normal(size=(2, spectra.CLASSES, 20)), jnp.float32)
    x = jnp.asarray(rng.normal(size=(5, spectra.CLASSES)), jnp.float32)
    y = jax.nn.one_hot(jnp.arange(5), spectra.CLASSES)
    logits = np.asarray(params[1]) @ np.maximum(np.asarray(params[0]).T @ np.asarray(x).T, 0)
    logs = logits - np.log(np.exp(logits - logits.max(0)).sum(0)) - logits.max(0)
    np.testing.assert_allclose(
        spectra.cross_entropy(params, x, y), -np.mean(np.sum(np.asarray(y).T * logs, 0)), rtol=1e-5
    )
