"""Memory is a budget: chunks are cut to fit it, and streamed moments need the same of it for any
number of seeds.
"""

import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from measures import diverging, overlap

from specjax import sizes, sweep
from specjax.sweep import _cost_model, memory, run, values, widths
from specjax.sweep.failures import FailedSeedsWarning

KEY = jax.random.key(3)
OVER = {"d": widths(64, 128)}


def gram(key, d):
    x = sizes.normal(key, (d, d))
    return {"y": jnp.trace(x @ x.T @ x @ x.T)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4GiB", 4 * 2**30),
        ("500MB", 500_000_000),
        ("1.5 KiB", 1536),
        ("7B", 7),
        (12345, 12345),
        ("2 TiB", 2**41),
    ],
)
def test_sizes_are_parsed(text, expected):
    assert memory.parse(text) == expected


@pytest.mark.parametrize("wrong", ["4", "GiB", "-1GB", "4 gb", "0B", 0, -5, True, ""])
def test_wrong_sizes_are_refused(wrong):
    with pytest.raises(ValueError, match="such as '4GiB'"):
        memory.parse(wrong)


def test_bytes_are_described():
    assert [memory.described(n) for n in (512, 1536, 5 * 2**30, 3 * 2**40)] == [
        "512 B",
        "1.5 KiB",
        "5 GiB",
        "3 TiB",
    ]


@pytest.mark.integration
@pytest.mark.parametrize("estimated", [1e9, 1.0])
def test_seeds_at_a_time_are_cut_until_xla_says_that_they_fit(monkeypatch, estimated):
    """However little the estimate says that a seed needs, the program compiled last fits twice, as
    two calls may run at a time.
    """
    peak = _cost_model.peak_bytes
    monkeypatch.setattr(_cost_model, "peak_bytes", lambda jaxpr: min(peak(jaxpr), estimated))
    budget = 3 * 2**20
    data = run(gram, OVER, num_seeds=100, key=KEY, plan="padded", memory=budget)
    (row,) = json.loads(data.attrs["bucket_table"])
    assert 2 * row["bytes"] <= budget
    whole = run(gram, OVER, num_seeds=100, key=KEY, plan="padded")
    (more,) = json.loads(whole.attrs["bucket_table"])
    assert more["bytes"] > row["bytes"]
    np.testing.assert_allclose(data["y"], whole["y"], rtol=1e-5)


@pytest.mark.integration
def test_calls_are_cut_until_their_results_fit():
    def row(key, d):
        return {"row": jnp.broadcast_to(jnp.sum(sizes.normal(key, (d,))), (5000,))}

    data = run(row, OVER, num_seeds=300, key=KEY, plan="padded", memory="2MB")
    (cut,) = json.loads(data.attrs["bucket_table"])
    assert cut["chunk"] * 2 * 5000 * 4 < cut["bytes"] <= 1e6
    np.testing.assert_array_equal(data["row"][..., 0], data["row"][..., -1])


@pytest.mark.integration
def test_one_seed_that_does_not_fit_is_refused():
    with pytest.raises(
        ValueError,
        match=r"bucket d=64,128 needs .* for one seed .* more than the 97.7 KiB of memory",
    ):
        run(gram, OVER, num_seeds=3, key=KEY, plan="padded", memory="100KB")


def test_a_result_larger_than_the_host_is_refused_early(monkeypatch):
    monkeypatch.setattr("specjax.sweep.memory.host_memory", lambda: 1000)
    with pytest.raises(
        ValueError, match=r"The result takes 50.8 KiB, more than this host's 1e\+03 B"
    ):
        run(overlap, {"d": widths(3)}, num_seeds=1000, key=KEY, memory="1GB")


@pytest.mark.integration
def test_moments_are_those_of_the_seeds():
    every = run(overlap, {"d": widths(3, 9)}, num_seeds=130, key=KEY, plan="padded")
    data = run(
        overlap,
        {"d": widths(3, 9)},
        num_seeds=130,
        key=KEY,
        plan="padded",
        reduce="moments",
        chunk=2,
    )
    assert data["gram"].dims == data["gram.min"].dims == ("d", "batch", "gram_dim_0", "gram_dim_1")
    assert data.sizes["batch"] == 64
    assert set(np.unique(data["count"])) == {2, 3}  # 130 seeds in 64 batches of nearly equal size
    total = sweep.total(data)
    assert (total["count"] == 130).all()
    for name in ("overlap", "gram", "nested.norm"):
        exact = every[name].astype(float)
        np.testing.assert_allclose(total[name], exact.mean("seed"), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(total[f"{name}.variance"], exact.var("seed", ddof=1), rtol=1e-4)
        np.testing.assert_allclose(total[f"{name}.min"], exact.min("seed"), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(total[f"{name}.max"], exact.max("seed"), rtol=1e-5, atol=1e-6)


@pytest.mark.integration
def test_failed_seeds_are_left_out_of_moments_counted_and_named():
    over = {"d": widths(2, 3), "lr": values(1.0, 2.0)}
    with pytest.warns(FailedSeedsWarning):
        every = run(diverging, over, num_seeds=100, key=KEY)
    bad = every["failed"].sel(lr=2.0).isel(d=0).values
    first = int(np.argmax(bad))
    message = rf"Up to {bad.sum()} of 100 seeds .*first: seed {first} at d=2, lr=2.0"
    with pytest.warns(FailedSeedsWarning, match=message):
        data = run(diverging, over, num_seeds=100, key=KEY, reduce="moments")
    total = sweep.total(data)
    assert total["failed"].sel(lr=2.0).values.tolist() == [bad.sum()] * 2
    assert (total["failed"].sel(lr=1.0) == 0).all()
    assert (total["count"].sel(lr=2.0) == 100 - bad.sum()).all()
    assert json.loads(data.attrs["failed_seeds"])[0] == first
    np.testing.assert_allclose(total["y"].sel(lr=2.0), 2.0)  # the seeds that are left return lr


def test_complex_outputs_have_no_moments():
    def measure(key, d):
        return {"z": jax.lax.complex(jnp.sum(sizes.normal(key, (d,))), 1.0)}

    with pytest.raises(ValueError, match="'z' is complex and has no smallest"):
        run(measure, {"d": widths(2)}, num_seeds=4, key=KEY, reduce="moments")


_PEAK = """
import resource, sys
import jax, jax.numpy as jnp
from specjax import sizes, sweep

def measure(key, d):
    return {"x": sizes.normal(key, (d, 8))[0], "y": jnp.sum(sizes.normal(key, (d,)))}

# The few first: the peak never falls.
for seeds in map(int, sys.argv[1:]):
    over = {"d": sweep.widths(1, 2)}
    data = sweep.run(measure, over, seeds=seeds, key=jax.random.key(0), reduce="moments")
    total = sweep.total(data)
    assert (total["count"] == seeds).all()
    assert abs(total["x"].isel(d=1).values * seeds ** 0.5).max() < 5  # means of standard normals
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
def test_ten_million_seeds_take_the_memory_of_ten_thousand():
    """Kept, they would take 72 bytes each; peak resident memory of a process of its own, in kB."""
    seeds = 10_000_000
    done = subprocess.run(
        [sys.executable, "-c", _PEAK, "10000", str(seeds)],
        capture_output=True,
        text=True,
        check=True,
    )
    few, many = map(int, done.stdout.split())
    assert many - few < 100_000 < 72 * seeds / 1000 / 2
