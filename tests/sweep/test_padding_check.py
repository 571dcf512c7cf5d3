"""A measurement that depends on padding is refused, and one that only rounds in another way is
not.
"""

# ruff: noqa: ARG001, ARG005 (a measurement is called by its argument names, whether it uses them or not)

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from measures import bits, overlap, scaled_product

from specjax import optim, sizes
from specjax.sweep import (
    _bucketing,
    _executor,
    _padding_check,
    _rounding,
    run,
    values,
    widths,
    zipped,
)

KEY = jax.random.key(11)
OVER = {"d": widths(4, 16)}


def muon(key, n, options):
    """The loss of a matrix after ten steps of Muon towards another."""
    width = jnp.asarray(sizes.active(n), jnp.float32)
    start, target = (sizes.normal(k, (n, n)) / jnp.sqrt(width) for k in jax.random.split(key))
    optimizer = optim.jordan_muon(
        0.02, scale="point_two_sqrt_max", fallback=optax.sgd(0.02), **options(n)
    )

    def loss(w):
        return jnp.sum((w - target) ** 2) / width

    def step(carry, _):
        w, state = carry
        updates, state = optimizer.update(jax.grad(loss)(w), state, w)
        return (optax.apply_updates(w, updates), state), None

    (w, _), _ = jax.lax.scan(step, (start, optimizer.init(start)), None, length=10)
    return {"loss": loss(w), "start": loss(start)}


@pytest.mark.integration
def test_muon_scaled_by_padded_widths_is_refused_unlike_by_sizes():
    def swept(options, **arguments):
        return run(
            partial(muon, options=options), {"n": widths(8, 32)}, num_seeds=2, key=KEY, **arguments
        )

    with pytest.raises(
        ValueError, match=r"Padding to n=32 changes .* for seed 0: 'loss' at n=8 is .* optim.muon"
    ) as refused:
        swept(lambda n: {}, plan="padded")
    assert "'start'" not in str(refused.value)
    exact = swept(lambda n: {}, plan="exact")["loss"].values
    wrong = swept(lambda n: {}, plan="padded", check_padding=False)["loss"].values
    by_itself, padded = (
        str(refused.value).split(cut)[1].split()[0] for cut in ("n=8 is ", "by itself and ")
    )
    np.testing.assert_allclose(
        [float(by_itself), float(padded)], [exact[0, 0], wrong[0, 0]], rtol=1e-5
    )
    right = swept(lambda n: {"sizes": optim.Fans(n, n)}, plan="padded")["loss"].values
    np.testing.assert_allclose(right, exact, rtol=1e-3)


def draw(key, d):
    return sizes.normal(key, (d,))


WRONG = {
    "mean": lambda key, d: {"y": jnp.mean(draw(key, d) ** 2)},
    "shape": lambda key, d: {"y": jnp.sum(draw(key, d)) / draw(key, d).shape[0] ** 0.5},
    "int": lambda key, d: {"y": jnp.sum(draw(key, d) <= 0)},
    "bool": lambda key, d: {"y": jnp.all(draw(key, d) != 0)},
    "complex": lambda key, d: {"y": jnp.fft.fft(draw(key, d))[1]},
    "nan": lambda key, d: {"y": jnp.sum(jnp.abs(draw(key, d)) / jnp.abs(draw(key, d)))},
    "entry": lambda key, d: {"y": jnp.stack([jnp.sum(draw(key, d)), jnp.var(draw(key, d))])},
}


# Moments of complex numbers are refused before.
MOMENTS = [
    pytest.param(name, "moments", marks=pytest.mark.integration)
    for name in WRONG
    if name != "complex"
]


@pytest.mark.integration
@pytest.mark.parametrize(("name", "reduce"), [*((name, None) for name in WRONG), *MOMENTS])
def test_an_output_that_padding_changes_is_refused(name, reduce):
    with pytest.raises(
        ValueError, match=r"Padding to d=16 changes .*'y' at d=4 is .* by itself and .* padded"
    ):
        run(WRONG[name], OVER, num_seeds=5, key=KEY, plan="padded", reduce=reduce)


@pytest.mark.integration
def test_the_message_names_the_point_and_every_output():
    def measure(key, m, lr, n, d):
        x = sizes.normal(key, (m, n))
        return {
            "fine": jnp.sum(x),
            "by": {
                "m": lr * jnp.sum(x) / x.shape[0],
                "n": jnp.sum(x) + jnp.where(lr > 0.15, x.shape[1], 0),
            },
        }

    over = {
        "lr": values(0.1, 0.2),
        "m": widths(6, 3),
        "k": zipped(n=widths(2, 5), d=values(1.0, 2.0)),
    }
    with pytest.raises(ValueError, match="Padding to m=6, n=5 changes") as refused:
        run(measure, over, num_seeds=2, key=KEY, plan="padded")
    message = str(refused.value)
    assert "'by.m' at lr=0.1, m=3, n=2, d=1.0 is" in message
    assert "'by.n' at lr=0.2, m=3, n=2, d=1.0 is" in message
    assert "'fine'" not in message


def chaos(key, d):
    """200 steps of x ← 4x(1-x) from a mean over the width, which may round in another way with
    padding.

    Where XLA adds in the same order with zeros behind, it does not: so it is moved by one unit of
    the last place.
    """
    nudge = 1 + np.finfo(np.float32).eps * (sizes.padded(d) > 4)
    x = (
        nudge
        * jnp.sum(jnp.abs(sizes.normal(key, (d, 64))))
        / jnp.asarray(128 * sizes.active(d), jnp.float32)
    )
    _, path = jax.lax.scan(lambda x, _: (4 * x * (1 - x), x), x, None, length=200)
    return {"path": path, "step": jnp.argmax(path > 0.99), "high": path[-1] > 0.5}


def cancelled(key, d):
    """A difference of two sums that are equal but for rounding, and what is left of an orthogonal
    matrix.
    """
    x = sizes.normal(key, (d, d))
    q = jnp.linalg.qr(jnp.eye(sizes.padded(d)) + x)[0]
    left = jnp.sum(x @ x.T) - jnp.sum(jnp.sum(x, axis=0) ** 2)
    return {
        "left": left,
        "sign": jnp.sign(left),
        "residual": jnp.linalg.norm(q.T @ q - jnp.eye(sizes.padded(d)), axis=0)[0],
    }


def undefined(key, d):
    x = sizes.normal(key, (d,))
    return {"nan": jnp.sqrt(-jnp.sum(x**2)), "inf": jnp.sum(x**2) / 0.0, "whole": sizes.active(d)}


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore::specjax.sweep.FailedSeedsWarning")
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))]
)
@pytest.mark.parametrize("measure", [overlap, bits, chaos, cancelled, undefined])
def test_rounding_is_no_dependence_on_padding(measure, seed):
    """One seed, where no other can vouch that a difference is an accident."""
    run(measure, {"d": widths(4, 7, 16)}, num_seeds=1, key=jax.random.key(seed), plan="padded")


def test_a_count_that_differs_in_one_seed_is_not_padding():
    """Whatever the chunk is: a call of one seed alone cannot tell a count that rounding changes."""

    def unlucky(key, d):
        lucky = jax.random.uniform(key) < 0.5
        return {"count": sizes.padded(d) * lucky.astype(int)}

    root = next(k for k in map(jax.random.key, range(99)) if differ(k))
    run(unlucky, {"d": widths(4, 16)}, num_seeds=4, key=root, plan="padded", chunk=1)


def differ(root):
    """Whether the first of four seeds is lucky, and another is not."""
    lucky = [float(jax.random.uniform(jax.random.fold_in(root, seed))) < 0.5 for seed in range(4)]
    return lucky[0] and not all(lucky)


def test_two_axes_with_values_between_them_pass():
    over = {
        "m": widths(4, 2),
        "lr": values(0.5, 2.0),
        "k": zipped(n=widths(2, 6), power=values(1, 2)),
    }
    run(scaled_product, over, num_seeds=3, key=KEY, plan="padded")


@pytest.mark.integration
def test_the_check_costs_one_program_if_padded_work_remains(tmp_path, monkeypatch):
    compiled, checked = [], []
    compile_program, check = _executor.compile_program, _padding_check.checked

    def noted(lowered, *, is_kept=True):
        compiled.append("bucket" if is_kept else "check")
        return compile_program(lowered, is_kept=is_kept)

    def checking(calls, measurement, bucket, *arguments):
        checked.append(bucket.label)
        return check(calls, measurement, bucket, *arguments)

    monkeypatch.setattr(_executor, "compile_program", noted)
    monkeypatch.setattr(_padding_check, "checked", checking)

    def programs(num_seeds=3, **options):
        compiled.clear()
        checked.clear()
        run(overlap, {"d": widths(2, 4, 8, 64)}, num_seeds=num_seeds, key=KEY, **options)
        assert compiled.count("check") == len(checked)
        return compiled.count("bucket"), checked

    assert programs(plan="padded") == (1, ["d=2,4,8,64"])
    assert programs(plan="padded", check_padding=False) == (1, [])
    assert programs(plan="exact") == (4, [])
    assert programs(plan="padded", store=tmp_path / "store") == (1, ["d=2,4,8,64"])
    assert programs(plan="padded", store=tmp_path / "store") == (0, [])
    assert programs(plan="padded", store=tmp_path / "store", num_seeds=4) == (1, ["d=2,4,8,64"])
    # Of several buckets that pad, the one that pads most, and before any other runs.
    monkeypatch.setattr(_bucketing, "group", lambda *_, **__: {"d": ((0, 1), (2, 3))})
    assert programs() == (2, ["d=8,64"])


@pytest.mark.integration
def test_nothing_of_a_refused_sweep_is_kept(tmp_path):
    for _ in range(2):
        with pytest.raises(ValueError, match="Padding to d=16"):
            run(WRONG["mean"], OVER, num_seeds=5, key=KEY, plan="padded", store=tmp_path / "store")
    assert not list((tmp_path / "store").glob("bucket*"))


@pytest.mark.integration
def test_a_refused_measurement_is_mended_in_the_same_store(tmp_path):
    """No block was finished: the store holds nothing of the measurement that was refused."""
    with pytest.raises(ValueError, match="Padding to d=16"):
        run(WRONG["mean"], OVER, num_seeds=5, key=KEY, plan="padded", store=tmp_path / "store")

    def mended(key, d):
        return {"y": jnp.sum(draw(key, d) ** 2) / jnp.asarray(sizes.active(d), jnp.float32)}

    for _ in range(2):
        found = run(mended, OVER, num_seeds=5, key=KEY, plan="padded", store=tmp_path / "store")
    np.testing.assert_array_equal(
        found["y"], run(mended, OVER, num_seeds=5, key=KEY, plan="padded")["y"]
    )
    with pytest.raises(ValueError, match="another configuration"):
        run(WRONG["mean"], OVER, num_seeds=5, key=KEY, plan="padded", store=tmp_path / "store")


def stream(number):
    return jnp.asarray(number, jnp.uint32)


def test_stream_zero_moves_nothing_and_all_others_differ():
    x = jax.random.normal(jax.random.key(0), (50, 50))
    found = [np.asarray(_rounding.moved(lambda x: jnp.tanh(x @ x), stream(i), x)) for i in range(4)]
    np.testing.assert_array_equal(found[0], jnp.tanh(x @ x))
    assert len({array.tobytes() for array in found}) == 4


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16, jnp.complex64])
def test_last_bits_move_by_eight_units_with_a_sign_per_entry(dtype):
    """A product moved entry by entry: as many up as down, within 4 standard errors."""
    x = jnp.asarray(jax.random.uniform(jax.random.key(1), (4000,), minval=0.5), dtype)
    moved = np.asarray(_rounding.moved(lambda x: x * x, stream(3), x)).astype(np.complex128)
    ratio = (moved.real / np.asarray(x * x).astype(np.complex128).real - 1) / float(
        jnp.finfo(dtype).eps
    )
    assert np.all((np.abs(ratio) > 6) & (np.abs(ratio) < 10))
    _, first = np.unique(np.asarray(x), return_index=True)  # equal numbers move the same way
    assert abs(np.mean(np.sign(ratio[first]))) < 4 / np.sqrt(len(first))


@pytest.mark.slow
@pytest.mark.integration
def test_moves_and_comparisons_are_exact_and_samples_stay():
    def function(key, x):
        largest, order = jnp.max(x), jnp.sort(x)
        drawn = {
            "ints": jax.random.randint(key, (1000,), 0, 10**6),
            "order": jax.random.permutation(key, 100),
            "signs": jax.random.rademacher(key, (1000,)),
            "rows": jax.random.categorical(key, jnp.zeros(50), shape=(100,)),
        }
        return {
            "argmax": jnp.sum(x == largest),
            "first": jnp.sum(x == order[0]),
            "grad": jax.grad(jnp.max)(x),
            **drawn,
        }

    arguments = jax.random.key(2), jax.random.normal(jax.random.key(3), (64,))
    expected, moved = function(*arguments), _rounding.moved(function, stream(5), *arguments)
    assert expected["argmax"] == moved["argmax"] == 1
    for name in expected:
        np.testing.assert_allclose(moved[name], expected[name], rtol=1e-4, err_msg=name)


def test_scans_calls_and_custom_derivatives_are_entered():
    """Each step of a scan is moved: after n steps that change nothing, by about √n times what one
    is.
    """

    @jax.custom_jvp
    def same(x):
        return x * 1.0

    same.defjvp(lambda xs, ts: (same(*xs), *ts))

    def steps(x):
        return jax.lax.scan(lambda x, _: (jax.jit(same)(x), None), x, None, length=100)[0]

    x = jax.random.uniform(jax.random.key(4), (2000,), minval=1.0, maxval=2.0)
    ratio = (
        np.asarray(_rounding.moved(steps, stream(1), x), np.float64) / np.asarray(x) - 1
    ) / np.finfo(np.float32).eps
    assert 0.5 < np.std(ratio) / (8 * np.sqrt(100)) < 2

    def loop(x):
        return jax.lax.while_loop(
            lambda p: p[0] != p[1], lambda p: (p[0] / 2 + 1 / p[0], p[0]), (x, x + 1)
        )[0]

    moved = _rounding.moved(loop, stream(1), jnp.ones(()))
    np.testing.assert_allclose(moved, np.sqrt(2), rtol=1e-5)
