"""Points are cut into buckets at the least estimated cost, and seeds into chunks that fit."""

import json
from itertools import combinations, pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import sizes, spectral
from specjax.sweep import _bucketing, values, widths, zipped
from specjax.sweep import _cost_model as module
from specjax.sweep._bucketing import Bucket, Plan, cheapest_cut, chunk, evenly, pieces, vmapped
from specjax.sweep._cost_model import CostModel, Scaling, cost, cost_model
from specjax.sweep._grid import Grid
from specjax.sweep._spec import Spec

POINTS = (64, 16, 1024, 32, 256, 128, 512)
OVER = {"n": widths(*POINTS)}


def scaling(over, exponent, at_largest):
    exponents = exponent if isinstance(exponent, dict) else dict.fromkeys(over, exponent)
    laws = {d.name: (max(d.volumes), exponents[d.name]) for d in Grid.of(over, 1).wide}
    return Scaling(at_largest, laws)


def model(
    over=OVER, exponent=2.0, compile_seconds=1.0, at_largest=0.03, lasts=False, decomposes=False
):
    time, peak = scaling(over, exponent, at_largest), scaling(over, exponent, 4e6)
    return CostModel(time, peak, peak, compile_seconds, lasts, decomposes)


def group(over, name, seeds, costs=None, checked=False, side_by_side=1):
    return _bucketing.group(
        Grid.of(over, seeds), name, costs or model(over), checked=checked, side_by_side=side_by_side
    )


def padding(groups, over, seeds, exponent):
    return _bucketing.padding(Grid.of(over, seeds), groups, scaling(over, exponent, 1.0))


def partitions(ascending):
    """Every way to cut a sequence into contiguous groups."""
    n = len(ascending)
    for cuts in (c for k in range(n) for c in combinations(range(1, n), k)):
        edges = (0, *cuts, n)
        yield tuple(tuple(ascending[a:b]) for a, b in pairwise(edges))


def sized(groups, over, dim="n"):
    return tuple(tuple(over[dim].points[i] for i in g) for g in groups[dim])


@pytest.mark.parametrize(("checked", "side_by_side"), [(False, 1), (True, 1), (True, 2)])
@pytest.mark.parametrize("seeds", [1, 30, 70, 1000, 100_000])
def test_auto_is_the_cheapest_of_all_partitions(seeds, checked, side_by_side):
    """Against enumeration: each point of a group runs at the padded width, each group compiles
    once, and the check in half of it.
    """

    def total(partition):
        check = 0.5 / side_by_side if checked and len(partition) < len(POINTS) else 0.0
        return check + sum(
            1.0 / side_by_side + seeds * len(g) * 0.03 * (max(g) / 1024) ** 2 for g in partition
        )

    chosen = sized(group(OVER, "auto", seeds, model(), checked, side_by_side), OVER)
    assert [n for g in chosen for n in g] == sorted(POINTS)
    assert total(chosen) == pytest.approx(min(map(total, partitions(sorted(POINTS)))), rel=1e-12)


def test_two_dimensions_are_cut_together():
    """Against enumeration over both: the compilations multiply, and so does the work."""
    over = {"m": widths(8, 16, 64, 256), "n": widths(4, 32, 128), "lr": values(0.1, 0.2)}
    of = {"m": 1.0, "n": 2.0}
    costs = model(over, of, compile_seconds=0.5, at_largest=0.02)

    def total(ms, ns):
        work = sum(len(g) * max(g) / 256 for g in ms) * sum(
            len(g) * (max(g) / 128) ** 2 for g in ns
        )
        return 0.5 * len(ms) * len(ns) + 100 * 2 * 0.02 * work

    groups = group(over, "auto", 100, costs)
    assert set(groups) == {"m", "n"}
    best = min(
        total(ms, ns) for ms in partitions((8, 16, 64, 256)) for ns in partitions((4, 32, 128))
    )
    assert total(sized(groups, over, "m"), sized(groups, over, "n")) == pytest.approx(
        best, rel=1e-12
    )


@pytest.mark.parametrize("seeds", [1, 30, 1000, 100_000])
def test_padding_above_a_third_is_paid_for_by_compile_time(seeds):
    groups = group(OVER, "auto", seeds, model())
    waste = padding(groups, OVER, seeds, 2.0)
    exact = seeds * 0.03 * sum((n / 1024) ** 2 for n in POINTS)
    assert waste >= 1
    assert waste <= 1.3 or (waste - 1) * exact < 1.0 * (len(POINTS) - len(groups["n"]))


def test_padding_counts_the_work_of_padded_points():
    groups = group(OVER, "padded", 5)
    assert padding(groups, OVER, 5, 1.5) == pytest.approx(
        7 * 1024**1.5 / sum(n**1.5 for n in POINTS)
    )
    assert padding(group(OVER, "exact", 5), OVER, 5, 1.5) == 1


def test_auto_compiles_more_as_the_work_grows():
    counts = [len(group(OVER, "auto", seeds, model())["n"]) for seeds in (1, 100, 10_000, 10**9)]
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (1, len(POINTS))


def test_exact_and_padded():
    over = {"n": widths(8, 2, 4)}
    assert sized(group(over, "exact", 1), over) == ((2,), (4,), (8,))
    assert sized(group(over, "padded", 10**9), over) == ((2, 4, 8),)


def test_zipped_widths_are_ordered_by_product_and_padded_each():
    over = {"k": zipped(n=widths(64, 16, 32), d=widths(4, 64, 8))}  # products 256, 1024, 256
    groups = group(over, "exact", 1)
    assert groups == {"k": ((0,), (2,), (1,))}
    together = {"k": ((0, 2, 1),)}
    assert padding(together, over, 1, 1.0) == pytest.approx(3 * 64 * 64 / (256 + 1024 + 256))


def test_seeds_of_a_bucket_are_the_most_of_its_points():
    grid = Grid.of({"n": widths(8, 16, 4)}, {"n": (10, 40, 20)})
    assert (grid.seeds, grid.select({"n": (0, 2)}).seeds) == (40, 20)
    # All points of a group run the most seeds of any of them.
    over, seeds = {"n": widths(8, 16)}, {"n": (1000, 10)}
    expected = 2 * 1000 * 16 / (1000 * 8 + 10 * 16)
    assert padding({"n": ((0, 1),)}, over, seeds, 1.0) == pytest.approx(expected)


def test_a_nested_piece_knows_its_place_and_its_programs_inputs():
    over = {"k": zipped(n=widths(64, 16, 32), power=values(1, 2, 3)), "lr": values(0.5, 2.0)}
    some = Grid.of(over, 7).select({"k": (1, 2, 0)})
    one = some.select({"k": (1,)})
    assert (some.shape, some.places, some.axes) == ((3, 2), [[1, 2, 0], [0, 1]], ("k", "lr"))
    assert (one.shape, one.places, one.axes) == ((1, 2), [[2], [0, 1]], ("lr",))
    assert {name: a.tolist() for name, a in some.coordinates["k"].items()} == {
        "n": [16, 32, 64],
        "power": [2, 3, 1],
    }
    assert {name: a.tolist() for name, a in one.coordinates["k"].items()} == {"power": 3}
    assert some.point({"k": {"n": 16, "power": 2}, "lr": {"lr": 2.0}}) == {
        "n": sizes.Size(64, 16),
        "power": 2,
        "lr": 2.0,
    }
    assert one.point({"k": {"power": 3}, "lr": {"lr": 2.0}}) == {"n": 32, "power": 3, "lr": 2.0}
    assert (some.padding, one.padding, one.described((0, 1))) == (4.0, 1.0, "n=32, power=3, lr=2.0")
    whole = np.arange(2 * 5 * 3).reshape(2, 5, 3)
    np.testing.assert_array_equal(one.whole(whole), whole[None])


def test_groups_of_seeds_keep_the_working_set():
    over = {"n": widths(16, 1024), "lr": values(1.0, 2.0)}
    largest, smallest = (Grid.of(over, 10**6).select({"n": (place,)}) for place in (1, 0))

    def seeds(bucket, platform="cpu", budget=2**34, **costs):
        return vmapped(bucket, model(over, **costs), platform, budget, 1)

    # 4 MB alive at the largest width for each of the two values of lr: 1 seed in 8 MiB; at the
    # smallest a 4096th of that.
    assert seeds(largest) == 1
    nearly = 0.99  # as many as make groups of one size
    for bound, found in (
        (8 * 2**20, seeds(smallest)),
        (2**16, seeds(smallest, budget=2**16)),
        (2**20, seeds(smallest, lasts=True)),
    ):
        most = bound // (4e6 / 4096) // 2
        assert nearly * most <= found <= most
    assert seeds(smallest, lasts=True, decomposes=True) == 1
    assert nearly * 268 <= seeds(largest, "gpu") <= 2**31 // 4e6 // 2 == 268


@pytest.mark.parametrize("calls", [1, 2])
def test_a_long_call_has_several_groups_if_equally_efficient(calls):
    """At 4096 bytes alive 64 to 256 seeds are efficient."""
    costs = Scaling(4096.0, {})

    def groups(seeds, lasts):
        grid = Grid.of({"n": values(1.0)}, seeds)
        return -(
            -seeds
            // vmapped(grid, CostModel(costs, costs, costs, 1.0, lasts, False), "cpu", 2**34, calls)
        )

    assert groups(64 * calls, True) == calls
    assert groups(128 * calls, True) == 2 * calls
    assert groups(8 * 100 * calls, True) == 8 * calls
    assert groups(16 * 256 * calls, True) == 16 * calls
    assert groups(8 * 100 * calls, False) == calls


@pytest.mark.parametrize("seeds", [1, 2, 7, 40, 1001, 10**6])
@pytest.mark.parametrize("most", [1, 64, 1000])
@pytest.mark.parametrize("calls", [1, 2, 8])
def test_groups_are_even_and_every_core_has_one(seeds, most, calls):
    size = evenly(seeds, most, calls)
    number = -(-seeds // size)
    assert size <= most
    assert number >= min(calls, seeds)
    # Few seeds more than there are, and no core has a group more than it needs.
    assert size * number - seeds < size
    assert -(-number // calls) == -(-seeds // (most * calls))


@pytest.mark.parametrize("seeds", [1, 7, 1001, 10**6])
@pytest.mark.parametrize(("size", "devices"), [(1, 1), (64, 1), (1000, 1), (64, 8)])
def test_calls_are_as_many_whole_groups_as_exist_or_fit(seeds, size, devices):
    groups = -(-seeds // (size * devices))
    assert chunk(seeds, size, 10**9, devices) == min(groups, 2**16 // size) * size * devices
    assert chunk(seeds, size, 4 * size - 1, devices) == min(groups, 3) * size * devices
    assert chunk(seeds, size, 0, devices) == size * devices


def test_plan_survives_json():
    def measure(key, m, n):
        return {"sum": jnp.sum(sizes.normal(key, (m, n)))}

    over = {"m": widths(2, 4, 8), "n": widths(3)}
    spec = Spec.of(measure, over, 5, jax.random.key(0))
    groups = {"m": ((1,), (0, 2)), "n": ((0,),)}
    first, second = pieces(spec.grid, groups)
    assert (first.label, second.label) == ("m=4 n=3", "m=2,8 n=3")
    plan = Plan(spec, groups, (Bucket(first, 4, 2), Bucket(second, 9, 3)), spec.sampling())
    assert Plan.from_json(json.loads(json.dumps(plan.to_json())), spec) == plan
    values_alone = Grid.of({"lr": values(0.1, 0.2)}, 5)
    assert pieces(values_alone, {}) == [values_alone]


def test_cheapest_cut_with_arbitrary_costs():
    rng = np.random.default_rng(0)
    points = tuple(range(7))
    costs = {(i, j): float(rng.random()) for j in range(1, 8) for i in range(j)}
    best = min(sum(costs[g[0], g[-1] + 1] for g in partition) for partition in partitions(points))
    assert sum(costs[g[0], g[-1] + 1] for g in cheapest_cut(points, costs)) == pytest.approx(
        best, rel=1e-12
    )


def _traced(function, *arguments):
    return jax.jit(function).trace(*arguments)


def until(step, w):
    return jax.lax.while_loop(lambda w: jnp.max(w) < 9, step, w)


@pytest.fixture
def counted(monkeypatch):
    """A function that gives the cost of a traced one, with FLOPs for seconds; and the same with
    bytes.
    """

    def of(rates):
        def found(traced):
            monkeypatch.setitem(module._RATES, "cpu", rates)
            return cost(traced, "cpu")

        return found

    return of((1.0, float("inf"), 1.0)), of((float("inf"), 1.0, 1.0))


def test_cost_of_a_product_is_that_of_the_formula(counted):
    n = 64
    product = _traced(lambda a, b: a @ b, *[jax.ShapeDtypeStruct((n, n), jnp.float32)] * 2)
    flops, moved = counted
    assert flops(product).seconds == pytest.approx(2 * n**3, rel=0.05)
    assert moved(product).seconds == pytest.approx(3 * n * n * 4, rel=0.05)
    assert flops(product).peak_bytes == n * n * 4


DRAWN = jax.ShapeDtypeStruct((300, 200), jnp.float32)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x @ x.T,
        lambda x: jnp.sum(jnp.tanh(x) ** 2),
        lambda x: jnp.einsum("ij,kj->ik", x, jnp.maximum(x, 0)) / jnp.linalg.norm(x),
        lambda x: jnp.vdot(x, jax.random.normal(jax.random.key(0), x.shape)),
        lambda x: jax.random.uniform(jax.random.key(0), x.shape),
        lambda x: jax.grad(lambda y: jnp.mean(jnp.square(jnp.tanh(y @ y.T))))(x),
        lambda x: jax.vmap(lambda y: jnp.outer(y, y) @ y)(x),
        lambda x: spectral.NewtonSchulz()(x),
        lambda x: jax.lax.cond(x[0, 0] > 0, lambda y: y @ y.T, lambda y: y @ y[::-1].T, x),
    ],
    ids=[
        "product",
        "entries",
        "einsum",
        "normal",
        "uniform",
        "gradient",
        "vmapped",
        "newton_schulz",
        "cond",
    ],
)
def test_it_counts_as_xla_counts_in_the_program(function):
    """Without its products, or with one operation for a sample, the seconds are a fifth or less,
    and with both branches twice as many.
    """
    traced = _traced(function, DRAWN)
    by_xla, (flops, moved, _) = traced.lower().cost_analysis(), module._RATES["cpu"]
    expected = by_xla["flops"] / flops + by_xla["bytes accessed"] / moved
    assert 0.5 < cost(traced, "cpu").seconds / expected < 1.5


def test_a_scan_costs_its_length_and_a_loop_a_hundred_turns(counted):
    flops, _ = counted
    square = jax.ShapeDtypeStruct((32, 32), jnp.float32)

    def steps(length):
        return flops(
            _traced(
                lambda w: jax.lax.scan(lambda w, _: (jnp.sin(w @ w), None), w, None, length=length)[
                    0
                ],
                square,
            )
        ).seconds

    assert steps(100) == pytest.approx(100 * steps(1), rel=0.01)
    # Also where one runs in another.

    def nested(w):
        def outer(w, _):
            return jax.lax.scan(lambda w, _: (jnp.sin(w @ w), None), w, None, length=10)[0], None

        return jax.lax.scan(outer, w, None, length=10)[0]

    assert flops(_traced(nested, square)).seconds == pytest.approx(steps(100), rel=0.02)

    def until_large(w):
        return jax.lax.while_loop(lambda w: jnp.max(w) < 9, lambda w: jnp.sin(w @ w), w)

    assert flops(_traced(until_large, square)).seconds == pytest.approx(steps(100), rel=0.1)


def test_loops_in_a_scan_of_a_float64_scope_have_a_cost():
    def decomposed(x):
        with jax.enable_x64(True):
            return jax.lax.scan(
                lambda y, _: (spectral.polar(y), None), x.astype(jnp.float64), length=3
            )[0].astype(jnp.float32)

    assert (
        cost(_traced(decomposed, jax.ShapeDtypeStruct((2, 8, 8), jnp.float32)), "cpu").seconds > 0
    )


@pytest.mark.parametrize(
    "loop", [lambda f, w: jax.lax.scan(lambda w, _: (f(w), None), w, None, length=99)[0], until]
)
def test_what_may_last_is_seen(loop):
    square = jax.ShapeDtypeStruct((32, 32), jnp.float32)
    looped = cost(_traced(lambda w: loop(lambda w: jnp.sin(w @ w), w), square), "cpu")
    assert (looped.lasts, looped.decomposes) == (True, False)
    # The carry, the product and its sine; of what is stacked or drawn before nothing is gone over
    # again.
    assert looped.working_bytes == 3 * 4 * 32**2
    drawn = cost(
        _traced(
            lambda key: loop(lambda w: jnp.sin(w @ w), jax.random.normal(key, (9, 32, 32))[0]),
            jax.random.key(0),
        ),
        "cpu",
    )
    assert (drawn.lasts, drawn.working_bytes) == (True, 3 * 4 * 32**2)
    assert drawn.peak_bytes >= 9 * 4 * 32**2


def test_decompositions_and_callbacks_may_last():
    square = jax.ShapeDtypeStruct((32, 32), jnp.float32)
    decomposed = cost(_traced(lambda w: jnp.linalg.svd(w, compute_uv=False), square), "cpu")
    assert (decomposed.lasts, decomposed.decomposes) == (True, True)
    called = cost(_traced(lambda w: jax.pure_callback(np.sin, w, w), square), "cpu")
    assert (called.lasts, called.decomposes) == (True, False)
    product = cost(_traced(lambda w: w @ w, square), "cpu")
    assert (product.lasts, product.decomposes) == (False, False)


def test_a_decomposition_costs_about_twenty_products(counted):
    """XLA counts nothing for it."""
    flops, _ = counted

    def of(m, n, repeats):
        def values(x):
            return jax.lax.map(
                lambda y: jnp.linalg.svd(y, compute_uv=False), jnp.stack([x] * repeats)
            )

        return flops(_traced(values, jax.ShapeDtypeStruct((m, n), jnp.float32))).seconds

    assert of(64, 128, 1) == pytest.approx(20 * 128 * 64**2, rel=0.05)
    assert of(64, 128, 3) == pytest.approx(3 * of(64, 128, 1), rel=0.05)


def test_costs_between_the_traced_points_follow_the_volume():
    def measured(n):
        return _traced(
            lambda key: jnp.sum(sizes.normal(key, (n, n)) @ sizes.normal(key, (n, n))),
            jax.random.key(0),
        )

    over = {"n": widths(32, 64, 128, 256)}
    grid = Grid.of(over, 1)
    costs = cost_model(grid, measured(256), {"n": measured(32)}, "cpu")
    for place, n in enumerate(over["n"].points):
        estimate = costs.seconds.cost(grid.select({"n": (place,)}))
        assert 1 / 1.5 < estimate / cost(measured(n), "cpu").seconds < 1.5
    exponents = {name: getattr(costs, name).laws["n"][1] for name in ("peak", "seconds")}
    assert 2 < exponents["seconds"] < 3
    assert exponents["peak"] == pytest.approx(2, abs=0.2)
