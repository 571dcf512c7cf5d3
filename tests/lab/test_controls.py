"""Controls made of the data themselves."""

import numpy as np
import pytest
import xarray as xr

from specjax import lab

DATA = xr.Dataset(
    {"right": (("d", "seed"), np.arange(6.0).reshape(2, 3)), "wrong": ("seed", [7.0, 8.0, 9.0])}
)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("wrong", DATA["wrong"]),
        (0.5, xr.full_like(DATA["right"], 0.5)),
        (lambda d: 2 * d["right"], 2 * DATA["right"]),
    ],
)
def test_a_quantity_is_replaced_and_nothing_else(source, expected):
    control = lab.controls.replacing("right", source)(None, DATA)
    xr.testing.assert_equal(control["right"], expected)
    xr.testing.assert_equal(control["wrong"], DATA["wrong"])
    of_one = lab.controls.replacing("right", source, of="one")(None, {"one": DATA, "other": DATA})
    xr.testing.assert_equal(of_one["one"], control)
    assert of_one["other"] is DATA
    assert list(DATA["wrong"].values) == [7.0, 8.0, 9.0]


@pytest.mark.parametrize("names", [("left", "wrong"), ("right", "left")])
def test_a_name_that_the_data_lack_is_refused(names):
    with pytest.raises(
        ValueError,
        match=f"A control replaces {names[0]!r} by {names[1]!r}, and the data have no 'left'",
    ):
        lab.controls.replacing(*names)(None, DATA)


def test_a_control_changes_a_dataset_as_a_function_says():
    halved = lab.controls.changing(lambda data: data / 2)(None, DATA)
    xr.testing.assert_identical(halved, DATA / 2)
    of_one = lab.controls.changing(lambda data: data / 2, of="one")(
        None, {"one": DATA, "other": DATA}
    )
    assert set(of_one) == {"one", "other"}
    xr.testing.assert_identical(of_one["one"], DATA / 2)
    xr.testing.assert_identical(of_one["other"], DATA)


def test_other_places_at_the_same_coordinates():
    data = DATA.assign_coords(d=[8, 16])
    reversed_ = lab.controls.reverse(data, "d")
    np.testing.assert_array_equal(reversed_["right"], data["right"].values[::-1])
    np.testing.assert_array_equal(reversed_["d"], [8, 16])
    exchanged = lab.controls.at_places(data, "d", [1, 0])
    xr.testing.assert_identical(exchanged, reversed_)
    first = lab.controls.at_places(data["right"], "d", 0)
    np.testing.assert_array_equal(first.sel(d=16), data["right"].sel(d=8))
    np.testing.assert_array_equal(first["d"], [8, 16])


def test_two_quantities_are_in_the_places_of_each_other():
    exchanged = lab.controls.exchanging("right", "wrong", of="one")(
        None, {"one": DATA, "other": DATA}
    )
    xr.testing.assert_equal(exchanged["one"]["right"], DATA["wrong"])
    xr.testing.assert_equal(exchanged["one"]["wrong"], DATA["right"])
    assert exchanged["other"] is DATA


def test_what_is_at_one_label_is_put_at_another():
    data = DATA.assign_coords(d=["a", "b"])
    exchanged = lab.controls.at_labels(data, "d", {"a": "b", "b": "a"})
    np.testing.assert_array_equal(exchanged["right"], data["right"].values[::-1])
    np.testing.assert_array_equal(exchanged["d"], ["a", "b"])
    both = lab.controls.at_labels(data["right"], "d", {"a": "b"})
    np.testing.assert_array_equal(both, [data["right"].values[1]] * 2)


def test_what_is_at_one_label_is_moved_toward_another():
    data = DATA.assign_coords(d=["a", "b"])
    right = DATA["right"].values
    nearer = lab.controls.toward(data, "d", {"a": "b"}, 0.25)
    np.testing.assert_allclose(nearer["right"], [0.75 * right[0] + 0.25 * right[1], right[1]])
    np.testing.assert_array_equal(nearer["wrong"], DATA["wrong"])
    both = lab.controls.toward(data["right"], "d", {"a": "b", "b": "a"})
    np.testing.assert_allclose(both, [right.mean(0)] * 2)
    for share in (0, 1, -0.5):
        with pytest.raises(ValueError, match=f"between 0 and 1, got {share}"):
            lab.controls.toward(data, "d", {"a": "b"}, share)
    with pytest.raises(ValueError, match="'d' has no label c; it has"):
        lab.controls.toward(data, "d", {"a": "c"})


def test_shuffled_quantities_keep_values_and_lose_places():
    rng = np.random.default_rng(1)
    first = xr.DataArray(rng.normal(5, 1, (2, 200)), dims=("d", "seed"))
    data = xr.Dataset({"first": first, "second": first - 3, "other": first})
    noise = lab.controls.shuffling("first", "second", of="one")(None, {"one": data})["one"]
    xr.testing.assert_equal(noise["other"], data["other"])
    mixed, before = (np.concatenate([d["first"], d["second"]]).ravel() for d in (noise, data))
    np.testing.assert_array_equal(np.sort(mixed), np.sort(before))
    # Neither the quantity nor the place decides: of 400 values a mean has a standard error of 0.09.
    for name in ("first", "second"):
        np.testing.assert_allclose(noise[name].mean("seed"), before.mean(), atol=4 * 1.8 / 200**0.5)
    paired = np.corrcoef(noise["first"].values.ravel(), noise["second"].values.ravel())[0, 1]
    assert abs(paired) < 4 / 400**0.5
    assert np.corrcoef(data["first"].values.ravel(), data["second"].values.ravel())[0, 1] > 0.99
    again = lab.controls.shuffling("first", "second", of="one")(None, {"one": data})["one"]
    xr.testing.assert_identical(again, noise)


@pytest.mark.parametrize(
    ("names", "message"), [((), "got none"), (("right", "left"), "the data have no 'left'")]
)
def test_a_shuffle_without_its_quantities_is_refused(names, message):
    with pytest.raises(ValueError, match=message):
        lab.controls.shuffling(*names)(None, DATA)


def test_a_label_takes_the_values_of_another_in_other_draws():
    values = np.arange(8.0).reshape(4, 2)
    loss = xr.DataArray(values, {"optimizer": ["adam", "muon"]}, ("seed", "optimizer"))
    data = xr.Dataset({"loss": loss, "rate": ("seed", [1.0, 2.0, 3.0, 4.0]), "n": 3.0})
    found = lab.controls.of_other_samples(data, "optimizer", {"muon": "adam"})
    assert found["loss"].dims == loss.dims
    np.testing.assert_array_equal(found["loss"].sel(optimizer="adam"), values[:, 0])
    np.testing.assert_array_equal(found["loss"].sel(optimizer="muon"), [4.0, 6.0, 0.0, 2.0])
    xr.testing.assert_identical(found[["rate", "n"]], data[["rate", "n"]])


@pytest.mark.parametrize("of", [None, "runs"])
def test_a_control_changes_every_second_draw_only(of):
    runs = xr.Dataset({"right": (("d", "seed"), np.zeros((2, 5))), "left": ("seed", np.ones(5))})
    data = runs if of is None else {of: runs, "other": DATA}
    half = lab.controls.every_second(lab.controls.replacing("right", 1.0, of=of), of=of)
    changed = half(None, data)
    found = changed if of is None else changed[of]
    np.testing.assert_array_equal(found["right"], [[0, 1, 0, 1, 0]] * 2)
    xr.testing.assert_identical(found["left"], runs["left"])
    assert of is None or changed["other"] is DATA
