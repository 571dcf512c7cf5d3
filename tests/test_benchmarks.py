"""The benchmarks run at their smallest sizes; that their sides agree is asserted inside them,
before anything is timed.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from specjax.jaxlib import is_known

pytestmark = pytest.mark.integration

BENCHMARKS = Path(__file__).parents[1] / "scripts" / "benchmarks"
REFERENCES = {"outer_product.py": "specjax, exact in x and W₂", "sweep.py": "one call of sweep.run"}


def smoke(script, warnings="error"):
    """What a benchmark prints at its smallest sizes."""
    command = [sys.executable, "-W", warnings, str(BENCHMARKS / script), "--smoke"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("script", REFERENCES)
def test_a_benchmark_prints_agreement_and_ratios_to_a_reference(script):
    printed = smoke(script)
    agreements = [
        line
        for line in printed.splitlines()
        if re.match(r"  .*: (largest difference|the four means)", line)
    ]
    assert len(agreements) >= 3
    header, _, reference, *others = printed.split("\n\n")[-1].splitlines()
    assert " ratio" in header
    assert reference.startswith(REFERENCES[script])
    assert reference.split().count("1.00") >= 2
    assert len(others) >= 3


def test_every_benchmark_is_tested():
    scripts = {path.name for path in BENCHMARKS.glob("*.py") if "__main__" in path.read_text()}
    assert scripts == {
        *REFERENCES,
        # In tests/optim/test_sharding.py.
        "collectives.py",
        "compilation.py",
        "coordinates.py",
        "dion_stream.py",
        "grids.py",
        "growth.py",
        "int8_momentum.py",
        "moments.py",
        "optimizers.py",
        "polar.py",
        "polynomials.py",
        "recovery.py",
        "reproduce.py",
        "roofline.py",
        "verdicts.py",
        "scaling.py",
        "update_log.py",
        "small_gpt.py",
        "small_network.py",
        "warm_start.py",
    }


@pytest.mark.slow
def test_the_log_of_updates_keeps_their_bits_before_it_is_timed():
    printed = smoke("update_log.py")
    assert printed.count("the same bits after ten updates") == 3
    header, _, without, *others = printed.split("\n\n")[-1].splitlines()
    assert header.split()[-1] == "ratio"
    assert without.split()[-1] == "1.000"
    assert len(others) == 2


@pytest.mark.slow
def test_the_growth_benchmark_has_a_row_for_each_kind_of_axis():
    rows = smoke("growth.py").split("\n\n")[-1].splitlines()[2:]
    assert [row.split()[0] for row in rows] == ["values", "seeds", "widths", "depths"]


@pytest.mark.slow
def test_whole_optimizers_agree_before_their_updates_are_timed():
    printed = smoke("optimizers.py")
    assert printed.count("agreement before timing") == 3
    assert len(re.findall(r"e-\d\d from float64$", printed, re.MULTILINE)) >= 3 * 4
    timed = re.findall(r"^-{20,}\n(optax\.contrib\.muon .*(?:\n.+)*)", printed, re.MULTILINE)
    trees = [rows_of(each, 5) for each in timed]
    assert [len(rows) for rows in trees] == [4, 4, 4]
    for rows in trees:
        assert rows["optax.contrib.muon"][1] == 1
        assert all(row[0] > 0 for row in rows.values())
    assert ("torch.optim.Muon" in timed[0]) != ("torch is not installed" in printed)


@pytest.mark.slow
def test_the_polar_factor_benchmark_agrees_before_it_times():
    """Its tables have several references; that float32 sides agree with float64 is asserted in the
    script.
    """
    printed = smoke("polar.py")
    assert (
        len(re.findall(r"^  .*: specjax \d.*, optax \d.*, specjax, bf16 \d", printed, re.MULTILINE))
        == 10
    )
    tables = re.findall(r"^-{20,}$", printed, re.MULTILINE)
    assert len(tables) == 5
    assert ("torch, bf16" in printed.split("squares")[0]) != ("torch is not installed" in printed)


@pytest.mark.slow
def test_the_recovery_benchmark_counts_equal_items_both_ways():
    """That the items are the same is asserted in the script, of all N² logits against the staged
    test.
    """
    printed = smoke("recovery.py")
    counts = re.findall(r"d = (\d+): identical, (\d+) items, of which (\d+) in a row", printed)
    assert [int(d) for d, _, _ in counts] == [16, 32]
    assert all(0 < int(row) <= int(count) for _, count, row in counts)
    assert len(printed.split("fraction")[1].split("load")[0].split()) == 1 + 2 * 7


@pytest.mark.slow
def test_the_roofline_times_every_part():
    printed = smoke("roofline.py")
    assert len(re.findall(r"^.* \d\.\d{4} +\d+\.\d$", printed, re.MULTILINE)) == 9


@pytest.mark.slow
def test_the_benchmark_of_compilation_agrees_with_all_efforts():
    """Asserted in the script, before anything is timed."""
    printed = smoke("compilation.py")
    assert len(re.findall(r"^  .*: largest difference", printed, re.MULTILINE)) == 5
    rows = re.findall(r", level [013](?:, in one piece|, older emitters)? +\d", printed)
    # JAX 0.12 has no older emitters.
    assert len(rows) == 5 * (6 if is_known("xla_cpu_use_fusion_emitters", False) else 4)


def test_the_benchmark_of_moments_finds_the_same_polynomials():
    """That they are the same is asserted in the script, of every word that is enumerated."""
    printed = smoke("moments.py")
    assert [
        int(n)
        for n in re.findall(
            r"^tr.* layers? +\d+ +(\d+) +\d+\.\d+ +\d+\.\d+ ", printed, re.MULTILINE
        )
    ] == [3, 15, 105, 9, 27]
    # Of these the first is short enough to be expanded in entries.
    assert re.search(r"^tr\(P Pᵀ\)\^2, 1 layer +4 +3( +\d+\.\d+){3} ", printed, re.MULTILINE)


@pytest.mark.slow
def test_the_grid_benchmark_agrees_and_divides_the_time_of_calls():
    """That the values agree is asserted in the script, before anything is timed."""
    printed = smoke("grids.py")
    assert len(re.findall(r"^  .*: largest difference", printed, re.MULTILINE)) == 2
    tables = printed.split("another call of sweep.run")
    # The smallest and the largest bound are in brackets.
    tables = [re.sub(r" \(\d+\.\d+ to \d+\.\d+\)", "", table) for table in tables]
    rows = [
        re.findall(r"^(?:training|decompositions), 4 to 6((?: +\d+\.\d+)+)$", table, re.MULTILINE)
        for table in tables
    ]
    assert [[len(row.split()) for row in found] for found in rows] == [[11, 11], [5, 5]]


@pytest.mark.slow
def test_the_benchmark_of_scaling_trains_the_same_four_ways():
    """That the losses agree is asserted in the script, before anything is timed."""
    printed = smoke("scaling.py")
    assert len(re.findall(r"^  .*(?:loop|job).*: largest difference", printed, re.MULTILINE)) == 3
    assert re.search(r"^one call of scaling\.transfer +2 +\d+\.\d +1\.00$", printed, re.MULTILINE)
    assert re.search(
        r"^a job for each point +1 \(scaled\) +\d+\.\d +\d+\.\d\d$", printed, re.MULTILINE
    )


def test_the_coordinate_check_measures_what_that_of_mup_does():
    """At every width and seed, which the script asserts."""
    pytest.importorskip("mup")
    printed = smoke("coordinates.py", warnings="default")
    assert (
        len(
            re.findall(
                r"^(?:sgd|adam), (?:standard|μP), (?:first|hidden|last) ", printed, re.MULTILINE
            )
        )
        == 12
    )


@pytest.mark.slow
def test_the_verdicts_of_laws_confirm_nothing_false():
    printed = smoke("verdicts.py")
    shares = [
        line for line in printed.splitlines() if re.match(r"(true|false): .* confirmed", line)
    ]
    assert len(shares) == 11
    for line in shares:
        if line.startswith("false"):
            assert all(count == "0" for count in re.findall(r"(\d+) of \d+ confirmed", line)), line


@pytest.mark.slow
def test_the_profile_of_reproduce_has_every_part():
    """The parts of each experiment are all of its seconds, which the script adds up."""
    printed = smoke("reproduce.py")
    header, _, *rows = printed.split("\n\n")[-1].splitlines()
    assert header.split()[1:] == [
        *("import", "trace", "lower", "compile", "rest", "judge", "draw", "sum", "CPU"),
        "programs",
    ]
    assert [row.split()[0] for row in rows] == ["field-rate", "scalar-sequences", "all"]
    for row in rows:
        *parts, total, _, programs = map(float, row.split()[1:])
        assert min(parts) >= 0
        assert abs(sum(parts) - total) < 0.5
        assert programs > 0


def rows_of(printed, columns):
    """Every line that ends with so many numbers, by its name."""
    number = r"\s+(?:[-+]?\d\S*(?: ± \S+)?|inf|nan)"
    found = re.findall(rf"^(\S.*?)((?:{number}){{{columns}}})$", printed, re.MULTILINE)
    return {name: [float(x.split()[0]) for x in re.findall(number, cells)] for name, cells in found}


@pytest.mark.slow
def test_polynomials_are_compared_on_every_spectrum():
    """On these matrices, none of which is flat, Polar Express has the smaller error."""
    _, in_float32, in_bfloat16, times = smoke("polynomials.py").split("\n\n")
    for printed in (in_float32, in_bfloat16):
        rows = rows_of(printed, 9)
        assert len(rows) == 12
        assert all(row[4] < row[3] for row in rows.values())
    assert len(rows_of(times, 4)) == 2


@pytest.mark.slow
def test_a_small_gpt_has_the_losses_of_optax():
    rows = rows_of(smoke("small_gpt.py"), 5)
    assert rows["optax.contrib.muon"][0] == 1
    assert abs(rows["optim.muon"][2]) < 1e-3 < abs(rows["alternate(5), signs between"][2])
    assert all(row[1] < 5.4 for row in rows.values())  # log 256 is 5.55
    assert max(row[4] for row in rows.values()) == 40


@pytest.mark.slow
def test_a_small_network_learns_with_every_optimizer():
    tables = smoke("small_network.py").split("\n\n")[1:]
    rows = [rows_of(each, 3) for each in tables[:3]]
    assert [len(each) for each in rows] == [4, 4, 4]
    assert all(0 < row[0] < 2 for each in rows for row in each.values())
    numbers = rows_of(tables[3], 1)
    assert [round(numbers[f"Dion, share {share}"][0], 1) for share in (1.0, 0.25)] == [2.0, 1.3]


@pytest.mark.slow
def test_the_momentum_in_eight_bits_is_measured():
    _, network, stream = smoke("int8_momentum.py").split("\n\n")
    random, nearest, half = (row[0] for row in rows_of(network, 4).values())
    assert half < nearest < random < 0.05
    shares = rows_of(stream, 5)
    # One of 0.01 beside 1 is below half of 1/127 in each step.
    assert (shares["β = 0.9, int8, nearest"][3], shares["β = 0.9, int8"][3] > 0.8) == (0, True)


@pytest.mark.slow
def test_warm_starts_are_measured_beside_cold_ones():
    rows = rows_of(smoke("warm_start.py"), 4)
    # The singular values of M P₀ᵀ are those of M.
    warm, cold = rows["PolarExpress(5) on M P₀ᵀ"], rows["PolarExpress(5)"]
    assert warm[1:] == pytest.approx(cold[1:], rel=0.02)
    assert warm[0] == cold[0] + 2
    assert rows["P₀"][0] == 0


@pytest.mark.slow
def test_dion_is_aligned_with_a_signal_of_its_rank():
    rows = rows_of(smoke("dion_stream.py"), 2)
    assert rows["Dion, rank 2"][0] > 0.95 > 0.7 > rows["Dion, rank 8"][0]
