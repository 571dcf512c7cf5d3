"""Several matrices side by side in one leaf, against a loop over them in numpy; and where every
leaf goes.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from optax.contrib import MuonDimensionNumbers

from specjax import optim
from specjax.optim.leaf_names import leaf_names
from specjax.spectral import SVD
from tests.optim.registry import ITERATION
from tests.reference.spectra import polar


@pytest.mark.integration
@pytest.mark.parametrize(
    ("shape", "numbers", "matrices"),
    [
        ((6, 14), optim.IN_OUT, lambda x: [x]),
        ((14, 6), optim.OUT_IN, lambda x: [x.T]),
        ((3, 6, 14), optim.IN_OUT, list),
        # Outputs of two axes, cut along both as one: (2, 7) at 8.
        ((6, 2, 7), MuonDimensionNumbers(0, (1, 2)), lambda x: [x.reshape(6, 14)]),
    ],
    ids=["in-out", "out-in", "stack", "two-axes"],
)
def test_each_part_is_orthogonalized_and_scaled_separately(shape, numbers, matrices):
    x = np.asarray(jax.random.normal(jax.random.key(0), shape))
    transform = optim.orthogonalize(
        SVD(), "sqrt_out_over_in", dimension_numbers=numbers, splits={"qkv": (8, 4, 2)}
    )
    updates = (
        {"block": {"qkv": jnp.asarray(x)}, "w": jnp.ones((3, 3))}
        if len(shape) < 3
        else {"qkv": jnp.asarray(x)}
    )
    updated, _ = jax.jit(transform.update)(updates, transform.init(updates))
    found = matrices(np.asarray(updated["block"]["qkv"] if len(shape) < 3 else updated["qkv"]))
    for matrix, result in zip(matrices(x), found, strict=True):
        parts = np.split(matrix, [8, 12], axis=1)
        expected = np.concatenate(
            [(part.shape[1] / 6) ** 0.5 * polar(part) for part in parts], axis=1
        )
        np.testing.assert_allclose(result, expected, atol=2e-6)


@pytest.mark.integration
@pytest.mark.parametrize("dims", [optim.IN_OUT, optim.OUT_IN], ids=["in-out", "out-in"])
def test_matrices_that_take_turns_are_orthogonalized_apart(dims):
    """[q₀ k₀ v₀ q₁ k₁ v₁ …] of three heads, by a loop over columns."""
    widths, heads = (4, 2, 1), 3
    x = np.random.default_rng(0).standard_normal((6, 21)).astype(np.float32)
    splits = {"qkv": optim.Interleaved(widths, heads)}
    transform = optim.orthogonalize(
        SVD(), "sqrt_out_over_in", dimension_numbers=dims, splits=splits
    )
    updates = {"qkv": jnp.asarray(x if dims == optim.IN_OUT else x.T)}
    found = np.asarray(jax.jit(lambda u: transform.update(u, transform.init(u))[0]["qkv"])(updates))
    owner = np.array(
        [part for _ in range(heads) for part, width in enumerate(widths) for _ in range(width)]
    )
    expected = np.zeros_like(x)
    for part, width in enumerate(widths):
        expected[:, owner == part] = (heads * width / 6) ** 0.5 * polar(x[:, owner == part])
    np.testing.assert_allclose(found if dims == optim.IN_OUT else found.T, expected, atol=2e-6)
    routes = optim.routing(
        optim.jordan_muon(0.1, muon_weight_dimension_numbers=dims, splits=splits), updates
    ).rows
    assert routes[0].matrices == ((1, 6, 12), (1, 6, 6), (1, 6, 3))


def test_parts_and_leaves_of_one_shape_share_a_call():
    calls = []

    def counting(x):
        calls.append(x.shape)
        return x

    updates = {"qkv": jnp.ones((4, 12)), "out": jnp.ones((4, 4))}
    transform = optim.orthogonalize(counting, splits={"qkv": (4, 4, 4)})
    jax.eval_shape(lambda g: transform.update(g, optax.EmptyState()), updates)
    # `polar` gives a method one matrix at a time, and traces it once for all of a call.
    assert set(calls) == {(4, 4)}


def test_a_name_ends_where_a_key_of_the_path_begins():
    blocks = {
        "blocks": [{"qkv": jnp.ones((2, 6))}, {"qkv": jnp.ones((2, 6))}],
        "not_qkv": jnp.ones((2, 6)),
    }
    rows = optim.routing(optim.jordan_muon(0.1, splits={"qkv": (4, 2)}), blocks).rows
    assert {row.name: len(row.matrices) for row in rows} == {
        "blocks.0.qkv": 2,
        "blocks.1.qkv": 2,
        "not_qkv": 1,
    }


def test_a_layer_may_stand_for_its_kernel():
    """As layers of flax and haiku are; where a leaf has the name itself it is that one."""
    numbers = {
        "blocks": [{"qkv": {"kernel": optim.IN_OUT, "bias": None}}],
        "up": {"qkv": optim.IN_OUT},
    }
    layers = {
        "blocks": [{"qkv": {"kernel": jnp.ones((2, 6)), "bias": jnp.ones(6)}}],
        "up": {"qkv": jnp.ones((2, 6))},
    }

    def found(*places):
        chosen = {name: layers[name] for name in places}
        given = {name: numbers[name] for name in places}
        rows = optim.routing(
            optim.jordan_muon(0.1, muon_weight_dimension_numbers=given, splits={"qkv": (4, 2)}),
            chosen,
        ).rows
        return {row.name: len(row.matrices) for row in rows}

    assert found("blocks") == {"blocks.0.qkv.bias": 0, "blocks.0.qkv.kernel": 2}
    assert found("blocks", "up") == {"blocks.0.qkv.bias": 0, "blocks.0.qkv.kernel": 1, "up.qkv": 2}


def test_sizes_and_splits_of_one_leaf_are_refused():
    both = optim.orthogonalize(splits={"w": (2, 2)}, sizes={"w": optim.Fans(3, 4)})
    updates = {"w": jnp.ones((3, 4))}
    with pytest.raises(ValueError, match="The leaf w has both sizes and splits"):
        both.update(updates, both.init(updates))


@pytest.mark.integration
def test_routing_is_what_muon_does():
    params = {"qkv": jnp.ones((4, 8)), "stack": jnp.ones((3, 4, 16)), "bias": jnp.ones(4)}
    labels = {"qkv": "matrix", "stack": "matrix", "bias": "other"}
    optimizer = optim.jordan_muon(
        0.1,
        method=ITERATION,
        labels=labels,
        splits={"qkv": (4, 2, 2)},
        fallback=optax.set_to_zero(),
    )
    routing = optim.routing(optimizer, jax.eval_shape(lambda: params))
    assert (
        str(routing) == "leaf   shape       optimizer  matrices               scale\n"
        "bias   4           other\n"
        "qkv    4 x 8       matrix     4 x 4 + 4 x 2 + 4 x 2  1, 1, 1\n"
        "stack  3 x 4 x 16  matrix     3 of 4 x 16            2"
    )
    updates = jax.jit(lambda params: optimizer.update(params, optimizer.init(params), params)[0])(
        params
    )
    assert {name for name, x in updates.items() if np.any(x)} == {"qkv", "stack"}
    with pytest.raises(TypeError, match=r"the optimizer that optim\.muon returns"):
        optim.routing(optax.adam(0.1), params)


def test_names_are_those_that_users_write():
    class Box:
        """What flax puts around an array."""

        def __init__(self, array):
            self.array = array

        @property
        def value(self):
            raise AssertionError

    Box.__module__ = "flax.nnx.variablelib"
    keys = jax.tree_util.GetAttrKey("value")
    jax.tree_util.register_pytree_with_keys(
        Box, lambda b: (((keys, b.array),), None), lambda _, x: Box(*x)
    )
    tree = {
        "blocks": [{"attention": Box(1.0)}],
        "value": {"value": 2.0},
        "mlp/~/linear_0": {"w": (3.0,)},
    }
    assert leaf_names(tree) == ["blocks.0.attention", "mlp/~/linear_0.w.0", "value.value"]
    assert leaf_names(1.0) == ["the only leaf"]
