"""The dataset of a sweep does not depend on how it was computed, and says what it holds."""

# ruff: noqa: ARG001 (a measurement is called by its argument names, whether it uses them or not)

import json
import math
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from measures import bits, overlap, scaled_product

from specjax import sizes
from specjax.sweep import explain, run, values, widths
from specjax.sweep._measurement import in_groups

KEY = jax.random.key(7)


@pytest.fixture(autouse=True)
def _float32():
    with jax.enable_x64(False):
        yield


@cache
def _all_at_once():
    return run(
        overlap, {"d": widths(5, 9, 2, 4, 7, 64)}, num_seeds=7, key=KEY, plan="exact", chunk=7
    )


@pytest.mark.integration
@pytest.mark.parametrize(
    ("plan", "chunk"), [("exact", 3), ("padded", 1), ("padded", 3), ("padded", 100), ("auto", 4)]
)
def test_plans_and_chunks_give_the_same_dataset(plan, chunk, monkeypatch):
    # Compilation so cheap that "auto" pads some widths and not others.
    monkeypatch.setattr("specjax.sweep._cost_model._RATES", {"cpu": (2e11, 1.6e12, 5e-9)})
    data = run(
        overlap, {"d": widths(5, 9, 2, 4, 7, 64)}, num_seeds=7, key=KEY, plan=plan, chunk=chunk
    )
    if plan == "auto":
        assert 1 < len(json.loads(data.attrs["buckets"])["d"]) < 6
    for name, expected in _all_at_once().data_vars.items():
        rms = np.sqrt(np.mean(np.square(expected.values, dtype=float)))
        np.testing.assert_allclose(data[name], expected, rtol=0, atol=1e-5 * rms)
        assert data[name].dtype == expected.dtype


@pytest.mark.integration
def test_a_measurement_of_ints_alone_is_not_padded(caplog):
    def rank(key, d):
        return {"y": jnp.trace(jnp.eye(d)) + sizes.normal(key, (d,))[0]}

    def cut(measure):
        return run(measure, {"d": widths(5, 2)}, num_seeds=3, key=KEY, check_padding=False)

    assert json.loads(cut(overlap).attrs["buckets"]) == {"d": [[2, 5]]}
    with caplog.at_level("INFO", logger="specjax.sweep"):
        data = cut(rank)
    assert json.loads(data.attrs["buckets"]) == {"d": [[2], [5]]}
    assert "every width alone, since measure takes no padded Size" in caplog.text
    for width in (5, 2):
        first = [sizes.normal(jax.random.fold_in(KEY, seed), (width,))[0] for seed in range(3)]
        np.testing.assert_allclose(data["y"].sel(d=width), width + np.array(first), rtol=1e-6)


@pytest.mark.integration
def test_matches_a_plain_loop_over_seeds_and_widths():
    data = run(overlap, {"d": widths(4, 3)}, num_seeds=3, key=KEY, plan="padded")
    for width in (4, 3):
        for seed in range(3):
            alone = overlap(jax.random.fold_in(KEY, seed), width)
            here = data.sel(d=width, seed=seed)
            np.testing.assert_allclose(here["overlap"], alone["overlap"], rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(here["gram"], alone["gram"], rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(here["nested.norm"], alone["nested"]["norm"], rtol=1e-5)


@pytest.mark.integration
def test_draws_are_the_same_bit_for_bit(optimized_environment):
    # In a process of its own: what compiles quickly for tests rounds samples otherwise in one
    # program than in another.
    script = Path(__file__).with_name("bit_for_bit.py")
    process = subprocess.run(
        [sys.executable, script],
        env=optimized_environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.stdout.strip() == str(4 * 3 * 5), process.stderr


@pytest.mark.integration
def test_more_seeds_leave_earlier_ones_as_they_were():
    few = run(bits, {"d": widths(3, 8)}, num_seeds=3, key=KEY, chunk=2)
    many = run(bits, {"d": widths(3, 8)}, num_seeds=11, key=KEY, chunk=4)
    np.testing.assert_array_equal(many["bits"].isel(seed=slice(3)), few["bits"])
    assert not np.array_equal(many["bits"].isel(seed=slice(3, 6)), few["bits"])


@pytest.mark.integration
def test_widths_are_coupled():
    """For one seed the narrow draw is a block of the wide one, so their sums of squares are
    ordered; independent ones are not.
    """

    def norm(key, d):
        return {"norm": jnp.sum(sizes.normal(key, (d, 4)) ** 2)}

    data = run(norm, {"d": widths(10, 11, 12)}, num_seeds=50, key=KEY)
    assert (np.diff(data["norm"], axis=0) > 0).all()


@pytest.mark.integration
def test_measure_is_traced_once_per_size_for_all_chunks():
    traces = []

    def counted(key, d):
        traces.append(d)
        return overlap(key, d)

    run(counted, {"d": widths(2, 3, 4)}, num_seeds=9, key=KEY, plan="padded", chunk=2)
    # The largest and the smallest width exactly, to compare their shapes; the latter is compared
    # with the one bucket by its values too.
    assert [d for d in traces if isinstance(d, int)] == [4, 2]
    (padded,) = [d for d in traces if isinstance(d, sizes.Size)]
    assert padded.padded == 4

    traces.clear()
    run(counted, {"d": widths(2, 3, 4)}, num_seeds=9, key=KEY, plan="exact", chunk=2)
    assert traces == [4, 2, 3]


@pytest.mark.integration
def test_product_of_widths_and_values_in_the_order_of_over():
    over = {
        "m": widths(2, 4, 3),
        "lr": values(0.5, 2.0),
        "n": widths(5, 1),
        "power": values(0, 1, 2),
    }
    data = run(scaled_product, over, num_seeds=4, key=KEY, plan="padded")
    assert data["y"].dims == ("m", "lr", "n", "power", "seed")
    assert data["y"].shape == (3, 2, 2, 3, 4)
    assert data["m"].values.tolist() == [2, 4, 3]
    for m, lr, n, power in ((2, 0.5, 5, 0), (4, 2.0, 1, 2), (3, 0.5, 1, 1)):
        total = np.sum(sizes.normal(jax.random.fold_in(KEY, 3), (m, n)), dtype=float)
        np.testing.assert_allclose(
            data["y"].sel(m=m, lr=lr, n=n, power=power, seed=3), lr**power * total, rtol=1e-5
        )


@pytest.mark.filterwarnings("ignore::specjax.sweep.EqualSeedsWarning")
def test_values_arrive_as_scalars_of_the_default_dtypes():
    seen = {}

    def measure(key, steps, lr):
        seen.update(steps=steps, lr=lr)
        return {"y": steps.astype(lr.dtype) * lr}

    data = run(measure, {"steps": values(1, 2), "lr": values(1, 0.25)}, num_seeds=2, key=KEY)
    assert (seen["steps"].dtype, seen["steps"].shape) == (jnp.int32, ())
    assert (seen["lr"].dtype, seen["lr"].shape) == (jnp.float32, ())
    np.testing.assert_array_equal(data["y"].isel(seed=1), [[1, 0.25], [2, 0.5]])


@pytest.mark.integration
def test_x64_scope_gives_float64():
    def third(key, d, lr):
        return {"y": lr / 3 + 0 * jnp.sum(sizes.normal(key, (d,)))}

    over = {"d": widths(2, 3), "lr": values(1.0, 2.0)}
    with jax.enable_x64(True):
        data = run(third, over, num_seeds=2, key=KEY, plan="padded")
    assert data["y"].dtype == np.float64
    assert data.attrs["dtype"] == "float64"
    np.testing.assert_allclose(data["y"].isel(d=1, seed=1), [1 / 3, 2 / 3], rtol=1e-15)
    single = run(third, over, num_seeds=2, key=KEY, plan="padded")
    assert single["y"].dtype == np.float32
    assert single.attrs["dtype"] == "float32"


def test_products_run_at_the_highest_precision():
    precisions = []

    def measure(key, d):
        precisions.append(jax.config.jax_default_matmul_precision)
        return {"y": jnp.sum(sizes.normal(key, (d,)))}

    run(measure, {"d": widths(3)}, num_seeds=1, key=KEY)
    assert precisions[-1] == "highest"


def test_half_precision_outputs_are_stored_as_float32():
    def measure(key, d):
        return {"y": jnp.asarray(1.5, jnp.bfloat16) * sizes.active(d)}

    data = run(measure, {"d": widths(2)}, num_seeds=1, key=KEY)
    assert data["y"].dtype == np.float32
    assert data["y"].item() == 3.0


@pytest.mark.integration
def test_attributes_say_how_the_data_were_made():
    data = run(
        overlap, {"d": widths(8, 2, 4)}, num_seeds=6, key=jax.random.key(3), plan="padded", chunk=4
    )
    attrs = data.attrs
    assert attrs["jax_version"] == jax.__version__
    assert attrs["numpy_version"] == np.__version__
    assert attrs["platform"] == jax.devices()[0].platform
    assert json.loads(attrs["buckets"]) == {"d": [[2, 4, 8]]}
    assert (attrs["seeds"], attrs["plan"], attrs["reduce"]) == (6, "padded", "none")
    (row,) = json.loads(attrs["bucket_table"])
    assert (row["label"], row["points"], row["seeds"]) == ("d=2,4,8", 3, 6)
    assert 1 <= row["chunk"] <= 4
    assert row["bytes"] > 0
    again = jax.random.wrap_key_data(
        jnp.asarray(json.loads(attrs["key"]), jnp.uint32), impl=attrs["key_impl"]
    )
    assert jnp.array_equal(jax.random.bits(again), jax.random.bits(jax.random.key(3)))
    assert attrs["compile_seconds"] > 0
    assert attrs["run_seconds"] > 0
    assert math.isfinite(attrs["compile_seconds"] + attrs["run_seconds"])


@pytest.mark.integration
def test_netcdf_round_trip(tmp_path):
    over = {"d": widths(2, 5)}
    data = run(overlap, over, num_seeds=3, key=KEY)
    data.to_netcdf(tmp_path / "data.nc", engine="h5netcdf")
    with xr.open_dataset(tmp_path / "data.nc", engine="h5netcdf") as stored:
        xr.testing.assert_equal(stored.load(), data)
        assert dict(stored.attrs) == data.attrs
        assert stored["failed"].dtype == bool


@pytest.mark.integration
def test_progress_is_silent_or_in_lines_off_a_terminal(capfd):
    run(overlap, {"d": widths(2)}, num_seeds=5, key=KEY, chunk=2)
    assert capfd.readouterr().err == ""
    run(overlap, {"d": widths(2)}, num_seeds=5, key=KEY, chunk=2, progress=True)
    shown = capfd.readouterr().err
    assert "compiled in" in shown
    assert "seeds/s" in shown.splitlines()[-1]
    assert "\r" not in shown


@pytest.mark.parametrize(("size", "groups"), [(1, 5), (4, 0), (4, 1), (4, 3), (12, 1)])
def test_groups_of_seeds_give_what_each_seed_gives(size, groups):
    seeds = jnp.arange(7, 7 + 12, dtype=jnp.uint32)
    number = jnp.asarray(groups, jnp.int32)
    found = in_groups(
        lambda by, s: {"a": by * s * jnp.arange(3, dtype=s.dtype)},
        (np.uint32(2),),
        seeds,
        size,
        number,
    )
    expected = 2 * np.arange(7, 7 + 12)[:, None] * np.arange(3)
    np.testing.assert_array_equal(found["a"][: size * groups], expected[: size * groups])
    assert (found["a"][size * groups :] == 0).all()


# Factors of a padded matrix lie outside of it, so that padding changes these numbers.
_DECOMPOSITIONS = """
import jax, jax.numpy as jnp
from specjax import sizes, sweep

def measure(key, n):
    results = {}
    for layer in range(5):
        x = sizes.normal(jax.random.fold_in(key, layer), (6, n))
        u, s, vt = jnp.linalg.svd(x, full_matrices=False)
        w, v = jnp.linalg.eigh(x.T @ x)
        results[str(layer)] = jnp.sum(u @ vt) + jnp.sum((v * w) @ v.T)
    return results

over = {"n": sweep.widths(4, 8, 16, 32, 64)}
key = jax.random.key(0)
sweep.run(measure, over, num_seeds=50, key=key, plan="padded", check_padding=False)
print("done")
"""


def users(**settings):
    """The environment of a user's process, without what these tests set to keep decompositions
    apart.
    """
    return {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "PJRT_NPROC")} | settings


@pytest.mark.integration
def test_several_decompositions_in_one_program_do_not_deadlock():
    # In a process of its own, so that the deadlock of jaxlib 0.10.1 would cost this test and not
    # the run.
    process = subprocess.run(
        [sys.executable, "-c", _DECOMPOSITIONS],
        env=users(),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert process.stdout.strip() == "done", process.stderr


def one_block(key, n):
    return {"sum": jnp.sum(sizes.normal(key, (n, n)))}


@pytest.mark.integration
@pytest.mark.parametrize(
    ("plan", "buckets"), [("exact", ["n=3", "n=5", "n=40"]), ("padded", ["n=3,5,40"])]
)
def test_explain_has_a_row_for_every_program(plan, buckets):
    data = run(
        one_block, {"n": widths(3, 5, 40)}, num_seeds=7, key=KEY, plan=plan, chunk=4, progress=False
    )
    title, header, *rows, total = explain(data).splitlines()
    assert title.startswith(f"plan {plan!r} on 1 cpu device(s), memory ")
    found = [
        dict(zip(re.split(r"\s{2,}", header), re.split(r"\s{2,}", row), strict=True))
        for row in rows
    ]
    assert [row["bucket"] for row in found] == buckets
    assert [(row["points"], row["seeds"], row["chunk"]) for row in found] == [
        (str(3 // len(rows)), "7", "4")
    ] * len(rows)
    for verb, column in (("compiled", "compile s"), ("ran", "run s")):
        seconds = float(re.search(rf"{verb} in ([\d.]+) s", total)[1])
        # Each number is rounded to 0.01.
        assert (
            abs(seconds - sum(float(row[column]) for row in found))
            <= 0.005 * (len(rows) + 1) + 1e-9
        )
