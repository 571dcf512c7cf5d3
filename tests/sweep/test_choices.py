"""Arguments that choose operations, and the errors where a traced value is taken
for a number.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import sizes, sweep

KEY = jax.random.key(0)


def deep(key, d, depth):
    x = jax.random.normal(key, (4,)) / jnp.asarray(d, jnp.float32)
    for _ in range(depth):
        x = jnp.tanh(x)
    return {"x": x.sum()}


@pytest.mark.integration
@pytest.mark.parametrize("plan", ["exact", "padded", "auto"])
def test_a_choice_arrives_unchanged_and_has_its_own_program(plan):
    seen = []

    def measure(key, d, depth):
        seen.append(type(depth))
        return deep(key, sizes.active(d), depth)

    over = {"d": sweep.widths(2, 4), "depth": sweep.choices(1, 3, 7)}
    data = sweep.run(measure, over, num_seeds=3, key=KEY, plan=plan)
    assert set(seen) == {int}
    assert data["depth"].values.tolist() == [1, 3, 7]
    for d in (2, 4):
        for depth in (1, 3, 7):
            expected = [deep(jax.random.fold_in(KEY, seed), d, depth)["x"] for seed in range(3)]
            np.testing.assert_allclose(data["x"].sel(d=d, depth=depth), expected, rtol=1e-5)


@pytest.mark.integration
def test_names_are_choices_and_are_stored(tmp_path):
    def measure(key, activation, scale):
        return {"y": getattr(jnp, activation)(scale * jax.random.normal(key))}

    over = {"activation": sweep.choices("tanh", "sin"), "scale": sweep.values(1.0, 2.0)}
    data = sweep.run(measure, over, num_seeds=2, key=KEY, store=tmp_path / "s")
    again = sweep.run(measure, over, num_seeds=4, key=KEY, store=tmp_path / "s")
    assert again["activation"].values.tolist() == ["tanh", "sin"]
    np.testing.assert_array_equal(data["y"], again["y"].isel(seed=slice(2)))
    draw = jax.random.normal(jax.random.fold_in(KEY, 1))
    assert float(data["y"].sel(activation="sin", scale=2.0, seed=1)) == pytest.approx(
        float(jnp.sin(2 * draw)), rel=1e-5
    )


def test_choices_move_with_widths_along_one_dimension():
    over = {"k": sweep.zipped(d=sweep.widths(2, 4), depth=sweep.choices(1, 3))}
    data = sweep.run(deep, over, num_seeds=2, key=KEY, plan="padded")
    assert data["depth"].values.tolist() == [1, 3]
    expected = [deep(jax.random.fold_in(KEY, s), 4, 3)["x"] for s in range(2)]
    np.testing.assert_allclose(data["x"].isel(k=1), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("points", "sentence"),
    [
        ((), "choices needs at least one point, got none"),
        ((True,), "choices takes ints, finite floats or strings, got True"),
        ((1, "a"), r"choices takes points of one type, got \[1, 'a'\]"),
        ((float("nan"),), "choices takes ints, finite floats or strings, got nan"),
    ],
)
def test_wrong_choices_are_refused(points, sentence):
    with pytest.raises(ValueError, match=sentence):
        sweep.choices(*points)


def test_a_shape_that_depends_on_a_choice_is_refused():
    with pytest.raises(ValueError, match=r"has shape \(2,\) at depth=2 and \(1,\) at depth=1"):
        sweep.run(
            lambda key, depth: {"x": jax.random.normal(key, (depth,))},
            {"depth": sweep.choices(1, 2)},
            num_seeds=2,
            key=KEY,
        )


@pytest.mark.parametrize(
    ("measure", "what"),
    [
        (lambda key, rate: {"y": np.sin(rate)}, "hands a traced value to NumPy"),
        (lambda key, rate: {"y": float(rate)}, "needs a Python number where a traced value is"),
        (
            lambda key, rate: {"y": jnp.ones(rate).sum()},
            "needs a Python number where a traced value is",
        ),
        (lambda key, rate: {"y": 1.0 if rate > 1 else 0.0}, "decides by a traced value"),
    ],
)
def test_concretizing_a_traced_value_is_refused_with_the_line(measure, what):
    with pytest.raises(TypeError, match=r"sweep\.choices") as raised:
        sweep.run(measure, {"rate": sweep.values(1, 2)}, num_seeds=2, key=KEY)
    assert str(raised.value).startswith(
        f"measure {what} at {__file__}:{measure.__code__.co_firstlineno} ("
    )


@pytest.mark.integration
def test_an_impure_measure_is_refused_without_blaming_padding():
    """A sample of numpy.random is the same number for all seeds, and another in each program."""
    counter = iter(range(1000))

    def counting(key, d):
        return {"y": jax.random.normal(key) * jnp.asarray(sizes.active(d), float) + next(counter)}

    def drawing(key, d):
        return {
            "y": (
                jax.random.normal(key)
                * jnp.asarray(sizes.active(d), float)
                * np.random.default_rng().uniform()
            )
        }

    for impure in (counting, drawing):
        with pytest.raises(ValueError, match="not the same function when it is called again"):
            sweep.run(impure, {"d": sweep.widths(2, 4)}, num_seeds=2, key=KEY, plan="padded")

    def padded(key, d):
        return {"y": jnp.mean(sizes.normal(key, (d,)))}

    with pytest.raises(ValueError, match="Padding to d=4 changes what measure returns"):
        sweep.run(padded, {"d": sweep.widths(2, 4)}, num_seeds=2, key=KEY, plan="padded")


@pytest.mark.parametrize(
    "measure",
    [
        lambda key, d: {"y": jax.random.normal(jax.random.key(1)) * d},
        lambda key, d: {"y": jax.jit(lambda key, x: 2.0 * x)(key, d)},
    ],
)
def test_a_key_that_is_not_used_is_named(measure):
    with pytest.warns(sweep.EqualSeedsWarning, match="all 3 seeds give the same numbers"):
        sweep.run(measure, {"d": sweep.values(2.0, 4.0)}, num_seeds=3, key=KEY)
    sweep.run(measure, {"d": sweep.values(2.0, 4.0)}, num_seeds=1, key=KEY)


def test_keys_of_another_generator_are_refused():
    """Under vmap its samples are others than one by one: seeds of a sweep changed with their
    number.
    """
    with pytest.raises(ValueError, match="need a threefry key, got rbg"):
        sweep.run(
            deep,
            {"d": sweep.widths(2), "depth": sweep.choices(1)},
            num_seeds=2,
            key=jax.random.key(0, impl="rbg"),
        )
