"""Names and labels for the axes that outputs have by themselves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import sweep


@pytest.fixture(scope="module")
def data():
    def measure(key, x):
        shapes = {
            "loss": x * jnp.arange(6.0).reshape(2, 3),
            "rate": x * jnp.ones(2),
            "curve": jnp.ones(4),
            "mean": x,
        }
        return shapes | {"noise": jax.random.normal(key)}

    return sweep.run(measure, {"x": sweep.values(1.0, 2.0)}, num_seeds=2, key=jax.random.key(0))


def test_axes_of_all_or_some_outputs_have_names_and_labels(data):
    named = sweep.labelled(
        data,
        "optimizer",
        "step",
        outputs=["loss", "rate"],
        optimizer=["adam", "muon"],
        step=[0, 5, 9],
    )
    assert named["loss"].dims == ("x", "seed", "optimizer", "step")
    assert named["rate"].dims == ("x", "seed", "optimizer")
    assert named["curve"].dims == ("x", "seed", "curve_dim_0")
    np.testing.assert_array_equal(
        named["loss"].sel(x=2.0, optimizer="muon", step=[0, 9]), [[6.0, 10.0]] * 2
    )
    alone = sweep.labelled(data[["loss", "rate", "mean"]], "optimizer", x=["one", "two"])
    assert alone["loss"].dims == ("x", "seed", "optimizer", "loss_dim_1")
    assert alone["x"].values.tolist() == ["one", "two"]


def test_labels_may_be_a_tuple_as_they_may_be_a_list(data):
    chosen = data[["loss", "rate", "mean"]]
    one, other = (
        sweep.labelled(chosen, "optimizer", x=labels) for labels in (("one", "two"), ["one", "two"])
    )
    assert one.identical(other)


def test_names_without_axis_and_labels_that_misfit_are_refused(data):
    with pytest.raises(
        ValueError, match="No output has a dimension of its own for the name 'layer'"
    ):
        sweep.labelled(data, "optimizer", "step", "layer", outputs=["loss"])
    with pytest.raises(ValueError, match="Nothing could be selected along a dimension 'method'"):
        sweep.labelled(data, "method", outputs=["rate"])
    with pytest.raises(ValueError, match="conflicting sizes"):
        sweep.labelled(data, "optimizer", outputs=["rate"], optimizer=["adam"])
    with pytest.raises(ValueError, match="got labels along 'depth'; the dimensions"):
        sweep.labelled(data, "optimizer", outputs=["rate"], depth=["one", "two"])
