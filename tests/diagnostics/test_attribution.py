"""The attribution of an exponent to the orthogonalizer: on measurements whose exponents are
known.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from specjax import sizes, spectral, sweep
from specjax.diagnostics import attribute, exponent_shift, with_polar_error
from specjax.spectral import SVD, NewtonSchulz

KEY = jax.random.key(0)
WIDTHS = sweep.widths(4, 8, 16, 32)
OVER = {"width": WIDTHS}


def half(x):
    """A method whose factor is half of the exact one."""
    return SVD()(x) * 0.5


def measure(key, method, width):
    """A move of mean `width` by the exact factor, on a 2 × width matrix of which every entry
    counts.
    """
    x = sizes.normal(key, (2, width))
    step = spectral.polar(x, method)
    noise = 1 + 0.1 * sizes.normal(jax.random.fold_in(key, 1), (1,))[0]
    exact_move = noise * jnp.asarray(sizes.active(width), jnp.float32)
    return {"move": exact_move * jnp.sum(step**2) / 2, "nested": {"rows": jnp.sum(step**2, 1)}}, {
        "first": x,
        "both": jnp.stack([x, -x]),
    }


@pytest.fixture(scope="module")
def data():
    methods = {"half": half, "muon": NewtonSchulz(5)}
    return attribute(measure, OVER, methods=methods, num_seeds=20, key=KEY)


@pytest.mark.slow
def test_the_dataset_has_every_method_and_the_error_of_each(data):
    assert data["orthogonalizer"].values.tolist() == ["half", "muon", "exact"]
    assert data["move"].dims == ("orthogonalizer", "width", "seed")
    assert data["nested.rows"].dims == ("orthogonalizer", "width", "seed", "nested.rows_dim_0")
    assert data["failed"].dims == ("width", "seed")
    alignment = data["polar_error.both.alignment"]
    assert alignment.dims[:3] == ("orthogonalizer", "width", "seed")
    assert alignment.shape[3:] == (2,)
    np.testing.assert_allclose(alignment.sel(orthogonalizer="half"), 0.5, rtol=1e-5)
    np.testing.assert_allclose(alignment.sel(orthogonalizer="exact"), 1, rtol=1e-5)
    np.testing.assert_allclose(data["polar_error.first.rank"], 2, rtol=1e-5)
    assert {name.split(".")[-1] for name in data if name.startswith("polar_error.first")} == {
        *spectral.polar_error.PolarError._fields
    }


@pytest.mark.slow
def test_every_method_is_what_a_sweep_with_it_alone_measures(data):
    alone = sweep.run(with_polar_error(measure, NewtonSchulz(5)), OVER, num_seeds=20, key=KEY)
    assert set(alone) == set(data)
    for name in alone:
        expected = data[name].sel(orthogonalizer="muon") if name != "failed" else data[name]
        np.testing.assert_allclose(alone[name], expected, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.slow
def test_a_factor_independent_of_width_moves_no_exponent(data):
    found = exponent_shift(data["move"], "width", orthogonalizer="half")
    assert abs(found.shift) < 1e-5
    assert found.stderr < 1e-5
    # Although it moves the quantity: by 1/4.
    np.testing.assert_allclose(found.fitted.means / found.exact.means, 0.25, rtol=1e-5)
    assert found.exact.exponent == pytest.approx(1, abs=4 * found.exact.stderr)


def synthetic(given, exact, noise=0.2, own=0.0, seeds=400):
    """Two power laws with relative noise over the seeds that both share, and noise of the given one
    alone.
    """
    rng = np.random.default_rng(1)
    x = np.array([8.0, 16.0, 32.0, 64.0])
    shared = 1 + noise * rng.standard_normal((len(x), seeds))
    separate = 1 + own * rng.standard_normal((len(x), seeds))
    values = np.stack([x[:, None] ** given * shared * separate, x[:, None] ** exact * shared])
    coords = {"orthogonalizer": ["mine", "exact"], "width": x}
    return xr.DataArray(values, coords, ("orthogonalizer", "width", "seed"), "y")


def test_the_shift_is_a_difference_where_shared_noise_cancels():
    found = exponent_shift(synthetic(0.1, 1.0), "width", orthogonalizer="mine")
    assert found.shift == pytest.approx(-0.9, abs=1e-12)
    assert found.stderr < 1e-12
    # Neither side alone is known as well.
    assert found.fitted.stderr > 1e-3
    assert found.exact.stderr > 1e-3
    assert found.interval == (found.shift - 4 * found.stderr, found.shift + 4 * found.stderr)


def test_the_standard_error_is_that_of_the_noise_of_its_own():
    own, seeds = 0.2, 400
    data = synthetic(0.1, 1.0, own=own, seeds=seeds)
    found = exponent_shift(data, "width", orthogonalizer="mine")
    # A slope over four doublings from log means with independent errors own/√seeds.
    log = np.log(data["width"].values)
    expected = own / np.sqrt(seeds) / np.sqrt(np.sum((log - log.mean()) ** 2))
    assert found.stderr == pytest.approx(expected, rel=0.15)
    assert abs(found.shift + 0.9) < 4 * found.stderr
    shuffled = data.isel(width=[2, 0, 3, 1]).transpose("seed", "width", "orthogonalizer")
    assert exponent_shift(shuffled, "width", orthogonalizer="mine").shift == pytest.approx(
        found.shift, abs=1e-12
    )


def test_resampling_widths_apart_gives_a_wrong_slope_error():
    """One error of the given side for all widths of a seed moves no slope; taken for independent it
    would.
    """
    rng = np.random.default_rng(2)
    common = xr.DataArray(1 + 0.2 * rng.standard_normal(400), dims="seed")
    data = synthetic(0.1, 1.0, noise=0.0)
    data = xr.where(data["orthogonalizer"] == "mine", data * common, data).transpose(
        "orthogonalizer", "width", "seed"
    )
    found = exponent_shift(data.rename("y"), "width", orthogonalizer="mine")
    assert found.stderr < 1e-12


REFUSED = {
    "no method": ({}, measure, "attribute needs at least one method, got none; write e.g."),
    "exact": (
        {"exact": SVD()},
        measure,
        "A method needs a non-empty name without '.' and '/' other than 'exact', got",
    ),
    "dot": ({"a.b": SVD()}, measure, "A method needs a non-empty name"),
    "no pair": (
        {"a": SVD()},
        lambda *_, **__: {"y": 1.0},
        "measure needs to return its outputs and the",
    ),
    "taken": (
        {"a": SVD()},
        lambda *_, **__: ({"polar_error": 1.0}, jnp.ones((2, 2))),
        "The output name 'polar_error' is taken by the report",
    ),
    "signature": (
        {"a": SVD()},
        lambda key, method, w: ({}, (key, method, w)),
        "measure needs to accept the key and the swept",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case):
    methods, measure, sentence = REFUSED[case]
    with pytest.raises(ValueError, match=f"^{sentence}"):
        attribute(measure, OVER, methods=methods, num_seeds=2, key=KEY)


def test_the_names_of_the_attribution_cannot_be_swept():
    for name in ("method", "orthogonalizer"):
        with pytest.raises(ValueError, match=f"^The name '{name}' belongs to the attribution"):
            attribute(measure, {name: WIDTHS}, methods={"a": SVD()}, num_seeds=2, key=KEY)


def test_a_shift_needs_a_method_that_was_run():
    with pytest.raises(
        ValueError, match=r"^data needs 'muon' and 'exact' along 'orthogonalizer', got"
    ):
        exponent_shift(synthetic(0.1, 1.0), "width", orthogonalizer="muon")
    with pytest.raises(ValueError, match=r"^data needs 'mine' and 'exact'"):
        exponent_shift(
            synthetic(0.1, 1.0).isel(orthogonalizer=0, drop=True), "width", orthogonalizer="mine"
        )
