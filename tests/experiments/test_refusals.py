"""Errors of experiments, in Python and on the command line: one sentence, before anything is
compiled or written.
"""

import ast
import math
import re

import jax.numpy as jnp
import numpy as np
import pytest

from specjax import experiments
from specjax.cli import main
from specjax.experiments.target_files import load_target

SEED = "seed must be from 0 to 2^32 - 1"


def refuses(name, changed, sentence):
    """A configuration is refused in one line that begins with the sentence."""
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}") as refusal:
        experiments.load(name).at("quick", **changed)
    assert re.fullmatch(r"[^\n]+\.", str(refusal.value))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", experiments.names())
def test_every_field_refuses_a_value_of_no_use_by_its_name(name):
    wrong = {bool: "yes", str: 3, int: -1, float: math.nan, tuple: (math.nan,)}
    for field, default in vars(experiments.load(name).at("quick")).items():
        refuses(name, {field: wrong[type(default)]}, f"{field} ")
    for seed in (-1, 2**32):
        refuses(name, {"seed": seed}, f"{SEED}, got {seed}.")


def rows(table):
    """The experiment, the field and its value of each entry."""
    lines = (line.split(": ") for line in table.strip().split("\n"))
    fields = [(name, eval(f"dict({given})", {"inf": math.inf})) for name, given in lines]
    return [(name, *item) for name, given in fields for item in given.items()]


# The smallest integer of a field, or how many sizes or numbers it needs and the smallest of them.
LIMITS = """
what-decides: classes=2, seeds=20, lengths=(2, 1)
best-filter-training: items=2, recall_width=1, recall_steps=(2, 1), recall_seeds=2, gpt_seeds=2, \
choosing=1, gpt_steps=(2, 1)
claims-momentum: samples=1000, searches=1000
claims-expectation: samples=1000
claims-bias: gradients=500
claims-limits: gradients=500, matrices=20
claims-polar: matrices=20
claims-integrability: matrices=20
claims-newton: matrices=20
claims-curvature: matrices=20
claims-reparametrization: matrices=20, gradients=100, columns=(5, 4)
table-c7: inits=2, sampled_inits=2, samples=2
figure-2: d0s=(5, 1), d1s=(5, 2), d2s=(5, 2), seeds=2, sampled_seeds=2
matrix-factorization: d=2, rank=1, ks=(5, 1), small_ks=(1, 1), seeds=2, small_seeds=2
deep-linear: small_widths=(1, 2), widths=(5, 2), growing_widths=(5, 2), d_in=1, d_out=2, seeds=2, \
small_seeds=2
relu-off-diagonal: d0s=(1, 2), d1=2, angle_d0s=(5, 2), angle_seeds=2, activation_seeds=2, \
samples=1, seeds=2
target: ks=(5, 6), narrow_ks=(1, 6), d1s=(5, 1), seeds=2, relu_seeds=2
dominance: widths=(5, 2), linear_widths=(2, 2), linear_seeds=2, seeds=2
row-normalization: widths=(5, 2), noise_widths=(5, 2), seeds=2, noise_seeds=2, steps=1
after-initialization: widths=(3, 4), seeds=2, choosing=1, stretches=2, steps=1, batch=1
figure-1: widths=(5, 4), seeds=2, metric_seeds=2, drawn_width=2
outer-product-lemmas: sizes=(1, 2), seeds=64, drawn=2
preconditioning-lemmas: dims=(1, 2), pairs=2, seeds=64, least_seeds=64, drawn=2
outer-product-identities: sizes=(1, 2), d0s=(5, 2), seeds=64, drawn=2
spectral-lemmas: ks=(1, 2), ds=(3, 2), seeds=64
preconditioning-bounds: dims=(1, 4), seeds=64, starts=2
memory-bounds: dims=(3, 4), batches=(3, 1), seeds=10, averaged=64
memory-lemmas: dims=(3, 16), wide_dims=(3, 16), seeds=10, small=(1, 2), averaged=64, drawn=2
orthogonalizer-error: widths=(4, 2), seeds=2
field-grid: n=2, seeds=2
field-momentum: widths=(2, 4)
field-margin: steps=500
field-balance: steps=(2, 1)
field-modes: depths=(1, 2)
field-phases: widths=(1, 24), seeds=8
field-exponents: widths=(5, 8)
field-exponent-numbers: seeds=2
field-exponent-muon: widths=(4, 4), seeds=8
field-spectra: widths=(1, 12), lengths=(1, 10), seeds=4
field-line-search: widths=(2, 4), lengths=(1, 20), seeds=4
field-edge: rates=(3, 0.5), every=2
field-edge-fixed: rates=(3, 0.001), seeds=2
update-exponents: widths=(2, 2), seeds=10
rate-transfer: widths=(2, 2), below=1, above=1, steps=1, seeds=16
rate-drift: widths=(2, 16), below=1, above=1, steps=1, seeds=16
memory-one-step: n=2, seeds=10, dims=(2, 4), descent_seeds=50, far_seeds=2
memory-multi-step: n=2, seeds=10, dims=(2, 4), many_steps=10
memory-thresholded: n=2, seeds=10, dims=(2, 4)
memory-minibatch: n=2, seeds=10, dims=(2, 4), batches=(4, 1)
memory-minibatch-steps: n=2, seeds=10, d=4, batches=(2, 1), steps=4
memory-anisotropy: n=2, seeds=10, dims=(2, 4)
memory-lambda: n=2, seeds=10, dims=(2, 4), points=2
memory-logits: n=60, seeds=10, dims=(3, 4), items=(1, 0)
condition-number: kappas=(2, 1.0), cubic_kappas=(5, 1.0), limit=1, context_d=2, seeds=20
muon-convergence: ks=(1, 1), kappas=(1, 1.0), seeds=24
decoupling: steps=60
scalar-sequences: seeds=100
sign-gradient-lower-bounds: kappas=(4, 1.0), trials=10, seeds=10
convergence-curves: ks=(2, 1)
preconditioner-maps: times=(2, 1)
gpt-ablation: cooldown=1
gpt-telemetry: records=2, seeds=2
sparse-regression: inputs=3, starts=(5, 3), seeds=16
rank-switch: inputs=3, lengths=(2, 1), seeds=16
recall-transformer: dims=(2, 2), batches=(2, 1), iterations=(2, 1), evaluation=1, seeds=2, \
choosing=1, items=2
field-quantiles: widths=(2, 4), lengths=(2, 1), seeds=2
stable-ranks: ns=(1, 64)
activations: widths=(5, 4), seeds=2
decoder-block: d=8, lengths=(5, 8)
layered-hessian: width=2, samples=(5, 2)
one-step-comparison: seeds=500, smooth_seeds=20
relu-features: row_seeds=260, ds=(5, 8)
gradient-rank-window: large_ds=(2, 64), ds=(5, 10)
figures-14-and-15: points=2, ks=(5, 8)
mean-strength: k=4
figures-3-and-11: k=4, width_seeds=10
"""


@pytest.mark.parametrize(("name", "field", "limit"), rows(LIMITS))
def test_values_below_the_limit_of_a_field_are_refused(name, field, limit):
    if isinstance(limit, int):
        refuses(name, {field: limit - 1}, f"{field} must be at least {limit}, got {limit - 1}.")
        return
    points, least = limit
    called = "sizes" if isinstance(least, int) else "numbers"
    number = f"{points} or more " if points > 1 else ""
    order = f"needs {number}different {called} in ascending order, each at least {least:g}"
    values = tuple(least + i for i in range(points))
    for wrong in (values[1:], (least - 1, *values[1:])):
        refuses(name, {field: wrong}, f"{field} {order}, got {wrong}.")


# The ends of an interval in which a number, or each of several, is.
INTERVALS = """
matrix-factorization: target_factor=(0, inf)
deep-linear: target_scale=(0, inf)
after-initialization: momentum=(0, 1)
row-normalization: momentum=(0, 1), rate=(0, inf)
field-grid: rates=(0, inf)
field-momentum: strengths=(0, inf)
field-rate: small=(0, 0.3)
field-stability: over=(1, inf)
field-schedule: conditions=(1, inf)
field-batch: alphas=(0, inf)
field-modes: starts=(0, 0.5)
memory-one-step: alphas=(1, inf)
memory-minibatch: alpha=(1, inf)
memory-minibatch-steps: rate=(0, inf)
memory-anisotropy: ridge=(0, inf)
condition-number: accuracy=(1e-13, 1)
muon-convergence: accuracy=(1e-13, 1)
gpt-telemetry: muon_rate=(0, inf)
sparse-regression: spectral_rates=(0, inf)
recall-transformer: output_exponent=(0, inf), trigger_exponent=(0, inf), muon_rates=(0, inf)
field-quantiles: rate=(0, inf)
mean-strength: strength=(0, inf)
"""


@pytest.mark.parametrize(("name", "field", "ends"), rows(INTERVALS))
def test_numbers_outside_the_interval_of_a_field_are_refused(name, field, ends):
    low, high = map(float, ends)
    several = isinstance(getattr(experiments.load(name).at("quick"), field), tuple)
    rule = "needs one or more different finite numbers" if several else "must be a finite number"
    excluded = "" if several else ", ends excluded"
    for number in (low - 0.1, low, high, math.nan):
        wrong = (number,) if several else number
        sentence = f"{field} {rule} between {low:g} and {high:g}{excluded}, got {wrong}."
        refuses(name, {field: wrong}, sentence)


# An experiment, a field with its value, and how the sentence begins.
SENTENCES = """
spectral-race | d=16 | The limit needs d³ of at least 400 times the smallest of warm; got d = 16,
what-decides | classes=7 | classes must be at most 6, got 7.
best-filter-training | gpt_width=23 | gpt_width must be even, for two heads, got 23.
best-filter-training | gpt_rates=(0.01, 0.1) | gpt_rates needs 3 or more rates in ascending order,
best-filter-training | recall_rates=(0.1, 0.01, 0.2) | recall_rates needs 3 or more rates in \
ascending order, got (0.1, 0.01, 0.2).
table-c7 | samples=3 | samples must be even, for two half batches, got 3.
figure-2 | samples=5 | samples must be even, for two half batches, got 5.
matrix-factorization | rank=7 | rank must be from 1 to d=6, got 7.
after-initialization | widths=(8, 16, 33) | widths must be even, since half of the units are inputs,
after-initialization | factors=(1.0, 2.0) | factors needs 3 or more positive numbers in ascending
after-initialization | factors=(2.0, 1.0, 4.0) | factors needs 3 or more positive numbers in
after-initialization | factors=(0.0, 1.0, 2.0) | factors needs 3 or more positive numbers in
field-grid | rates=(0.02, 0.03, 0.04) | rates needs 3 or more lengths, the largest at least 0.08,
field-batch | widths=(32, 40) | widths needs multiples of 16, got (32, 40).
field-exponents | widths=(16, 32, 64, 128, 513) | widths must be at most 512, half of the inputs,
rate-transfer | seeds=18 | seeds needs to be a multiple of 4, got 18.
rate-drift | widths=(16, 20) | widths needs to be multiples of 8, the size of a block, got 20.
rate-drift | widths=(16, 136) | widths must be at most 128, half of a batch, since stable ranks grow
rate-drift | seeds=18 | seeds needs to be a multiple of 4, got 18.
memory-one-step | n=100 | n must exceed the largest of dims=(64, 128, 192), since the
memory-one-step | fit_from=192 | dims from fit_from=192 on need to be 2 or more, for a slope, got
memory-one-step | descent_n=96 | n must exceed the largest of dims=(48, 96), since the Hessian needs
memory-minibatch | batches=(512, 1024, 2048, 4096) | batches needs one of fewer than d/4 = 32 \
distinct items, got (512, 1024, 2048, 4096).
memory-minibatch-steps | batches=(4, 100, 250) | The largest of batches=(4, 100, 250) must be the \
one before it times a number up to steps=12.
memory-minibatch-steps | batches=(64, 128) | The smallest of batches=(64, 128) needs to hold fewer \
than d/2 = 32 items in steps=12 steps
memory-lambda | factors=(0.1, 1.0) | factors needs 0 as its first number, got (0.1, 1.0).
memory-lambda | factors=(0.0, 10.0) | factors needs 1, the λ of Theorem 3.1, got (0.0, 10.0).
memory-lambda | spectrum_n=96 | n must exceed the largest of dims=(32, 64, 96), since the
memory-logits | items=(5000,) | items must be from 0 to n - 1 = 1499, got (5000,).
memory-logits | spikes=(1.0, 2.0, 3.0) | spikes needs 0 as its first number, got (1.0, 2.0, 3.0).
memory-multi-step | n=200 | n=200 must exceed 256, to have rare items.
memory-multi-step | newton_n=24 | n must exceed the largest of dims=(12, 24), since the Hessian
memory-thresholded | n=1000 | n must exceed 1672, the last threshold and d = 192, got 1000.
memory-thresholded | descent_n=300 | descent_n must exceed 466, the last threshold and d = 128, got
memory-anisotropy | kappas=(0.5, 1.0) | kappas needs 0 as its first number, got (0.5, 1.0).
condition-number | d=2 | A target of shape (2, 2) has a rank from 1 to 2, got r=3.
condition-number | slow_kappas=(2.0, 10.0, 20.0) | slow_kappas needs 1 as its first number, got
condition-number | rho=0.5 | The decay rho must be in [0.6667, 1) for the theorem to hold, got 0.5;
muon-convergence | ks=(8,) | ks must be below d=8, as in Theorem 1(b), got (8,); wide is for the
muon-convergence | ks=(2,) | A factor with k=2 columns cannot reach a target of rank r=3; take k of
muon-convergence | wide=7 | wide must be at least d=8, for Theorem 1(a), got 7.
decoupling | k=7 | A factor with k=7 columns cannot reach a target of rank r=8; take k of at least 8
decoupling | kappa=0.0 | kappa must be a finite number of at least 1, got 0.0.
convergence-curves | ks=(1, 2) | A factor with k=1 columns cannot reach a target of rank r=2; take k
convergence-curves | fixed_kappa=0.5 | fixed_kappa must be a finite number of at least 1, got 0.5.
preconditioner-maps | r=1 | r must be at least 2 and at most 12, got 1.
gpt-ablation | adamw_rates=(0.1, 0.2) | adamw_rates needs 3 positive numbers in ascending order, so
gpt-ablation | muon_rates=(0.2, 0.1, 0.3) | muon_rates needs 3 positive numbers in ascending order,
gpt-ablation | adamw_rates=(0.1, 0.2, 0.3, 0.4) | adamw_rates needs 3 positive numbers in ascending
gpt-telemetry | heads=3 | The heads must divide the width, got heads=3 and width=64.
gpt-telemetry | records=7 | records must divide the steps, got 7 and 300.
gpt-snapshot | blocks=3 | Skips join the blocks in pairs, got 3 blocks; make them even.
sparse-regression | gd_rates=(0.1,) | gd_rates needs 2 numbers, got (0.1,).
sparse-regression | gated_gd_rates=(0.1, 0.2) | gated_gd_rates needs 3 numbers, got (0.1, 0.2).
sparse-regression | gated_samples=(96, 192, 384) | gated_samples needs 2 different sizes in \
ascending order, each at least 8, got
rank-switch | rates=(0.1, 0.2) | rates needs 3 or more positive numbers in ascending order, so that
rank-switch | rates=(0.1, 0.4, 0.2) | rates needs 3 or more positive numbers in ascending order, so
recall-transformer | sgd_rates=(0.1, 0.3) | The three optimizers need as many learning rates each,
recall-transformer | length=7 | A sequence of 2 triggers, each 2 times with its output, needs a \
length of at least 8, got 7.
"""


@pytest.mark.parametrize("line", SENTENCES.strip().split("\n"))
def test_a_configuration_that_cannot_be_judged_is_refused(line):
    name, changed, sentence = line.split(" | ")
    field, value = changed.split("=")
    refuses(name, {field: ast.literal_eval(value)}, sentence)


SHAPE = (6, 6)
GOOD = np.arange(36.0).reshape(SHAPE) + np.arange(36.0).reshape(SHAPE).T
BAD_ARRAYS = {
    "shape": (np.ones((6, 5)), r"must have shape \(6, 6\), got \(6, 5\)\."),
    "vector": (np.ones(36), r"must have shape \(6, 6\), got \(36,\)\."),
    "scalar": (np.float64(3), r"must have shape \(6, 6\), got \(\)\."),
    "nan": (
        np.where(np.eye(6), np.nan, GOOD),
        r"must have finite entries, got NaN or infinity in it\.",
    ),
    "inf": (
        np.where(np.eye(6), -np.inf, GOOD),
        r"must have finite entries, got NaN or infinity in it\.",
    ),
    # Finite in the file and infinite in float32, in which the experiment computes.
    "too large": (1e300 * GOOD, r"must have finite entries, got NaN or infinity in it\."),
    "complex": (GOOD + 1j, r"holds no array of real numbers; write one with numpy\.save\."),
    "text": (GOOD.astype(str), r"holds no array of real numbers; write one with numpy\.save\."),
    "truth": (GOOD > 3, r"holds no array of real numbers; write one with numpy\.save\."),
    "objects": (GOOD.astype(object), r"holds no array; write it with numpy\.save\."),
}


@pytest.mark.parametrize("case", BAD_ARRAYS)
def test_an_array_that_is_no_target_is_refused(case, tmp_path):
    array, sentence = BAD_ARRAYS[case]
    path = str(tmp_path / "target.npy")
    np.save(path, array, allow_pickle=True)
    with pytest.raises(ValueError, match=sentence) as refusal:
        load_target(path, SHAPE)
    assert repr(path) in str(refusal.value)


@pytest.mark.parametrize("content", [b"", b"1 2 3\n", b"PK\x03\x04 and no more", b"\x93NUMPY"])
def test_a_file_that_is_no_array_is_refused(content, tmp_path):
    path = tmp_path / "target.npy"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"holds no array; write it with numpy\.save\.$"):
        load_target(str(path), SHAPE)


def test_an_archive_of_arrays_is_refused(tmp_path):
    np.savez(tmp_path / "target.npz", GOOD)
    with pytest.raises(ValueError, match=r"holds no array of real numbers"):
        load_target(str(tmp_path / "target.npz"), SHAPE)


@pytest.mark.parametrize("path", ["missing.npy", ".", ""])
def test_a_missing_file_is_refused(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        ValueError, match=r"^There is no target file '[^\n]*'; write the target with numpy\.save\.$"
    ):
        load_target(path, SHAPE)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int64, np.uint8])
def test_real_numbers_of_any_type_are_a_target(dtype, tmp_path):
    np.save(tmp_path / "target.npy", GOOD.astype(dtype))
    loaded = load_target(str(tmp_path / "target.npy"), SHAPE)
    assert loaded.dtype == jnp.float32
    np.testing.assert_array_equal(loaded, GOOD)


# The line, with a file for the target where it names one, and the sentence.
REFUSED = {
    "run figure-3": (
        r"There is no experiment 'figure-3'; did you mean figure-\d or figure-\d or"
        r" figures-3-and-11\?"
    ),
    "run deep-linear --widths=": (
        r"--widths takes comma-separated integers, as in --widths INT,INT,\.\.\., not ''\."
    ),
    "run dominance --widths 8,8,16,32,64": (
        r"widths needs 5 or more different sizes .*, got \(8, 8, 16, 32, 64\)\."
    ),
    "run matrix-factorization --target missing.npy": (
        r"There is no target file 'missing\.npy'; write the target with numpy\.save\."
    ),
    "run matrix-factorization --target nan.npy": (
        r"The target in 'nan\.npy' must have finite entries, got NaN or infinity in it\."
    ),
    "run matrix-factorization --target text.npy": (
        r"The target file 'text\.npy' holds no array of real numbers; .*\."
    ),
    "run matrix-factorization --target shape.npy": (
        r"The target in 'shape\.npy' must have shape \(6, 6\), got \(2, 3\)\."
    ),
    "run matrix-factorization --target askew.npy": (
        r"The target in 'askew\.npy' must be symmetric, .*\."
    ),
    "run matrix-factorization --target diagonal.npy": (
        r"The target in 'diagonal\.npy' must have an entry off the diagonal .*\."
    ),
    # The first target of two orthogonal rows.
    "run deep-linear --d-in 2 --d-out 2 --seed 0": (
        r"ΦΦᵀ of the drawn target must have an entry off the diagonal .*\."
    ),
    "run condition-number --kappas 0.5,10": (
        r"kappas needs 2 or more different numbers in ascending order, each at least 1, .*\."
    ),
    "run condition-number --rho 0.5": r"The decay rho must be in \[0\.6667, 1\) .*\.",
    "run sign-gradient-lower-bounds --kappas=-10,20,40,50": (
        r"kappas needs 4 or more different numbers in ascending order, each at least 1, .*\."
    ),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with targets, where compiling is a failure and not a refusal."""
    monkeypatch.chdir(tmp_path)

    def compile_program(*_, **__):
        raise AssertionError("compiled before it was refused")

    monkeypatch.setattr("specjax.sweep._executor.compile_program", compile_program)
    table = np.random.default_rng(0).standard_normal(SHAPE)
    np.save("nan.npy", np.where(table > table.mean(), np.nan, table))
    np.save("shape.npy", np.ones((2, 3)))
    np.save("text.npy", table.astype(str))
    np.save("askew.npy", np.triu(np.ones((6, 6))))
    np.save("diagonal.npy", np.diag(np.arange(6.0)))
    return tmp_path


@pytest.mark.parametrize("line", REFUSED)
def test_the_command_refuses_in_one_sentence_and_writes_nothing(line, folder, capsys):
    before = sorted(path.name for path in folder.rglob("*"))
    assert main(line.split()) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert re.fullmatch(f"specjax: {REFUSED[line]}\n", output.err)
    assert sorted(path.name for path in folder.rglob("*")) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    sorted(
        {line.split()[1] for line in REFUSED if line.startswith("run ")} & set(experiments.names())
    ),
)
def test_a_good_request_does_get_to_the_compiler(name, folder):
    # Otherwise the tests above could pass because nothing ever compiles.
    with pytest.raises(AssertionError, match="compiled before it was refused"):
        main(["run", name, "--scale", "smoke"])
    assert not (folder / "results" / name).exists()


@pytest.mark.integration
@pytest.mark.usefixtures("folder")
def test_a_good_target_does_get_to_the_compiler():
    np.save("m.npy", np.ones(SHAPE))
    with pytest.raises(AssertionError, match="compiled before it was refused"):
        main(["run", "matrix-factorization", "--scale", "smoke", "--target", "m.npy"])
