"""Zipped dimensions, seeds by width, independent widths, and hyper-parameters as swept arrays."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from measures import bits

from specjax import optim, sizes, sweep
from specjax.sweep import run, values, widths, zipped
from specjax.sweep.axes import check_different
from tests.wrong_calls import wrong_calls

KEY = jax.random.key(7)


def rectangle(key, n, d, lr):
    return {
        "y": lr * jnp.sum(sizes.normal(key, (n, d))),
        "n": jnp.asarray(sizes.active(n)),
        "rows": jnp.asarray(lr),
    }


def shape(key, n, d, lr):
    return {"y": lr * jnp.sum(sizes.normal(key, (n, d)))}


ZIPPED = zipped(n=widths(4, 2, 8), d=widths(3, 3, 1), lr=values(0.5, 1.0, 2.0))


@pytest.mark.integration
@pytest.mark.parametrize("plan", ["exact", "padded"])
def test_zipped_axes_move_together(plan):
    data = run(shape, {"k": ZIPPED}, num_seeds=3, key=KEY, plan=plan)
    assert data["y"].dims == ("k", "seed")
    assert data["n"].dims == data["d"].dims == data["lr"].dims == ("k",)
    assert "k" not in data.coords
    for i, (n, d, lr) in enumerate([(4, 3, 0.5), (2, 3, 1.0), (8, 1, 2.0)]):
        assert (data["n"][i], data["d"][i], data["lr"][i]) == (n, d, lr)
        for seed in range(3):
            total = np.sum(sizes.normal(jax.random.fold_in(KEY, seed), (n, d)), dtype=float)
            np.testing.assert_allclose(data["y"][i, seed], lr * total, rtol=1e-5)
    assert data.swap_dims(k="n")["y"].dims == ("n", "seed")


@pytest.mark.integration
def test_a_zipped_axis_named_as_its_dimension_is_its_coordinate():
    data = run(
        shape,
        {"n": zipped(n=widths(2, 4), d=widths(1, 2)), "lr": values(1.0, 3.0)},
        num_seeds=2,
        key=KEY,
    )
    assert data["y"].dims == ("n", "lr", "seed")
    np.testing.assert_allclose(
        data["y"].sel(n=4, lr=3.0), 3 * data["y"].sel(n=4, lr=1.0), rtol=1e-6
    )


WRONG_CALLS = r"""
zipped()
    at least one axis
zipped(n=widths(1, 2), d=widths(1))
    axes of one length
zipped(n=[1, 2])
    takes widths
zipped(n=widths(4, 4), d=widths(2, 2))
    more than once
run(shape, {"k": ZIPPED, "n": widths(2)}, num_seeds=1, key=KEY)
    'n' is swept by more than one
run(shape, {"method": values(1.0, 2.0)}, num_seeds=1, key=KEY)
    xarray's sel has an argument of that name
run(rectangle, {"k": ZIPPED}, num_seeds=1, key=KEY)
    output name 'n' is already
run(shape, {"k": ZIPPED}, num_seeds={"n": (1, 2, 3)}, key=KEY)
    seeds by width needs one swept dimension
run(shape, {"k": ZIPPED}, num_seeds={"k": (1, 2)}, key=KEY)
    needs 3 numbers, .* got \(1, 2\)
run(shape, {"k": ZIPPED}, num_seeds={"k": (1, 2, 0)}, key=KEY)
    positive int, got 0
run(shape, {"k": ZIPPED}, num_seeds=2**32 + 1, key=KEY)
    at most 2\*\*32
run(shape, {"k": ZIPPED}, num_seeds=2, key=KEY, memory="lots")
    such as '4GiB'
run(shape, {"k": ZIPPED}, num_seeds=2, key=KEY, reduce="mean")
    or 'moments', got 'mean'
run(shape, {"k": ZIPPED}, num_seeds={"k": (2, 2, 2)}, key=KEY, reduce="moments")
    one number of seeds for all points
"""


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("make", "message"), wrong_calls(WRONG_CALLS))
def test_refusals(make, message):
    with pytest.raises(ValueError, match=message):
        eval(make)


@pytest.mark.integration
@pytest.mark.parametrize("plan", ["exact", "padded"])
def test_seeds_by_width(plan):
    over = {"d": widths(3, 8, 5), "lr": values(1.0, 2.0)}

    def measure(key, d, lr):
        return {**bits(key, d), "y": lr * jnp.sum(sizes.normal(key, (d,)))}

    whole = run(measure, over, num_seeds=6, key=KEY, plan=plan)
    data = run(measure, over, num_seeds={"d": (6, 2, 4)}, key=KEY, plan=plan)
    assert data["seeds"].dims == ("d",)
    assert data["seeds"].values.tolist() == [6, 2, 4]
    for d, n in ((3, 6), (8, 2), (5, 4)):
        here, there = data.sel(d=d), whole.sel(d=d)
        np.testing.assert_array_equal(
            here["bits"].isel(seed=slice(n)), there["bits"].isel(seed=slice(n))
        )
        np.testing.assert_allclose(
            here["y"].isel(seed=slice(n)), there["y"].isel(seed=slice(n)), rtol=1e-5
        )
        assert np.isnan(here["y"].isel(seed=slice(n, None))).all()
        assert np.isnan(here["bits"].isel(seed=slice(n, None))).all()
    assert not data["failed"].any()
    mean, _ = sweep.mean_and_stderr(data["y"])
    np.testing.assert_allclose(
        mean.sel(d=5, lr=2.0), whole["y"].sel(d=5, lr=2.0).isel(seed=slice(4)).mean(), rtol=1e-5
    )


@pytest.mark.integration
def test_with_the_width_in_the_key_draws_are_independent():
    """Coupled, the first entry is the same sample at every width; with the width in the key it is
    one of its own, whatever the plan.
    """

    def first(key, d):
        return {"x": sizes.normal(key, (d, 2))[0, 0]}

    def own(key, d):
        return first(jax.random.fold_in(key, sizes.active(d)), d)

    over = {"d": widths(4, 8)}
    coupled = run(first, over, num_seeds=400, key=KEY)["x"]
    assert np.array_equal(coupled[0], coupled[1])
    alone = {
        plan: run(own, over, num_seeds=400, key=KEY, plan=plan)["x"] for plan in ("exact", "padded")
    }
    np.testing.assert_array_equal(alone["exact"], alone["padded"])
    # A correlation of 400 independent pairs is within 4/20 of 0.
    assert abs(np.corrcoef(alone["exact"])[0, 1]) < 0.2
    assert len(np.unique(alone["exact"])) == 800


@pytest.mark.integration
def test_hyper_parameters_are_swept_in_one_trace():
    """Learning rate, momentum and Schatten power are arrays: one program for all their values,
    equal to Python floats one by one.
    """
    traces = []
    target = jnp.asarray([[1.0, 0.5, 0.0], [0.0, 2.0, 1.0]])

    def trained(key, lr, momentum, power):
        traces.append(lr)
        w = sizes.normal(key, (2, 3))
        transform = optax.chain(
            optax.trace(momentum),
            optim.orthogonalize(lambda x: powered(x, power)),
            optax.scale_by_learning_rate(lr),
        )
        state = transform.init(w)
        for _ in range(3):
            updates, state = transform.update(w - target, state)
            w = w + updates
        return {"loss": jnp.sum((w - target) ** 2)}

    def powered(x, power):
        u, s, vt = jnp.linalg.svd(x, full_matrices=False)
        return (u * s[None] ** power) @ vt

    over = {"lr": values(0.01, 0.1), "momentum": values(0.0, 0.9), "power": values(0.0, 0.5, 1.0)}
    data = run(trained, over, num_seeds=2, key=KEY)
    assert len(traces) == 1
    for point in ((0.01, 0.9, 0.5), (0.1, 0.0, 1.0)):
        alone = trained(jax.random.fold_in(KEY, 1), *point)["loss"]
        here = data["loss"].sel({**dict(zip(over, point, strict=True)), "seed": 1})
        np.testing.assert_allclose(here, alone, rtol=1e-4)


@pytest.mark.integration
@pytest.mark.usefixtures("unchecked")
def test_ints_and_floats_of_numpy_are_numbers():
    """As those of Python, wherever `run` and the axes take them."""
    over = {
        "d": widths(np.int64(2), np.int32(4)),
        "lr": values(np.float32(0.5), np.int64(2), np.float16(1.0)),
    }

    def measure(key, d, lr):
        return {"y": lr * jnp.sum(sizes.normal(key, (d,)))}

    own = {"d": widths(2, 4), "lr": values(0.5, 2, 1.0)}
    expected = run(measure, own, num_seeds=5, key=KEY, chunk=3, memory=10**8)
    found = run(
        measure, over, num_seeds=np.int64(5), key=KEY, chunk=np.int32(3), memory=np.int64(10**8)
    )
    np.testing.assert_array_equal(found["y"], expected["y"])
    each = run(measure, over, num_seeds={"d": [np.int64(5), np.uint8(2)]}, key=KEY)
    np.testing.assert_allclose(each["y"].isel(d=0), expected["y"].isel(d=0), rtol=1e-6)
    assert np.isnan(each["y"].isel(d=1, seed=slice(2, None))).all()


def test_looking_for_repeats_compares_no_point_with_all_others():
    compared = 0

    class Point(int):
        def __eq__(self, other):
            nonlocal compared
            compared += 1
            return int(self) == int(other)

        __hash__ = int.__hash__

    check_different("values", [Point(n) for n in range(1000)])
    assert compared < 1000
    with pytest.raises(ValueError, match="got 3, 5 more than once"):
        check_different("values", [*map(Point, (5, 3, 1, 3, 5, 5))])
