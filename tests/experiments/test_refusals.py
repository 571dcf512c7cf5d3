"""What an experiment refuses, in Python and on the command line: one sentence, before anything is
compiled or written.
"""

import re
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from specjax import experiments
from specjax.cli import main
from specjax.experiments.target_files import load_target

FIVE = "needs 5 or more different sizes in ascending order, each at least"
FINITE = "must be a finite number between 0 and"

# Per experiment: the fields that are changed, and how the sentence begins. The papers that have a
# test file of their own (preconditioning, the spectral criterion, associative memory) have their
# tables there.
BAD_CONFIGS = [
    ("what-decides", {"classes": 7}, "classes must be at most 6, got 7."),
    ("what-decides", {"classes": 0}, "classes must be at least 1, got 0."),
    ("what-decides", {"seeds": 19}, "seeds must be at least 20, got 19."),
    ("what-decides", {"seed": -1}, "seed must be from 0 to 2^32 - 1, got -1."),
    (
        "what-decides",
        {"lengths": (10,)},
        "lengths needs 2 or more different sizes in ascending order, each at least 1, got (10,).",
    ),
    ("best-filter-training", {"seed": -1}, "seed must be from 0 to 2^32 - 1, got -1."),
    ("best-filter-training", {"items": 1}, "items must be at least 2, got 1."),
    ("best-filter-training", {"recall_width": 0}, "recall_width must be at least 1, got 0."),
    (
        "best-filter-training",
        {"recall_steps": (10,)},
        (
            "recall_steps needs 2 or more different sizes in ascending order, each at least 1, got"
            " (10,)."
        ),
    ),
    ("best-filter-training", {"recall_seeds": 1}, "recall_seeds must be at least 2, got 1."),
    ("best-filter-training", {"gpt_seeds": 1}, "gpt_seeds must be at least 2, got 1."),
    ("best-filter-training", {"choosing": 0}, "choosing must be at least 1, got 0."),
    ("best-filter-training", {"gpt_width": 23}, "gpt_width must be even, for two heads, got 23."),
    (
        "best-filter-training",
        {"gpt_rates": (0.01, 0.1)},
        "gpt_rates needs 3 or more rates in ascending order, got (0.01, 0.1).",
    ),
    (
        "best-filter-training",
        {"recall_rates": (0.1, 0.01, 0.2)},
        "recall_rates needs 3 or more rates in ascending order, got (0.1, 0.01, 0.2).",
    ),
    (
        "best-filter-training",
        {"gpt_steps": (100,)},
        (
            "gpt_steps needs 2 or more different sizes in ascending order, each at least 1, got"
            " (100,)."
        ),
    ),
    ("claims-momentum", {"samples": 999}, "samples must be at least 1000, got 999."),
    ("claims-momentum", {"searches": 0}, "searches must be at least 1000, got 0."),
    ("claims-expectation", {"samples": 0}, "samples must be at least 1000, got 0."),
    ("claims-bias", {"gradients": -1}, "gradients must be at least 500, got -1."),
    ("claims-limits", {"gradients": 499}, "gradients must be at least 500, got 499."),
    ("claims-limits", {"matrices": 19}, "matrices must be at least 20, got 19."),
    ("claims-polar", {"matrices": 19}, "matrices must be at least 20, got 19."),
    ("claims-polar", {"seed": -1}, "seed must be from 0 to 2^32 - 1, got -1."),
    ("claims-integrability", {"matrices": 19}, "matrices must be at least 20, got 19."),
    ("claims-newton", {"matrices": 19}, "matrices must be at least 20, got 19."),
    ("claims-curvature", {"matrices": 19}, "matrices must be at least 20, got 19."),
    ("claims-reparametrization", {"matrices": 19}, "matrices must be at least 20, got 19."),
    ("claims-reparametrization", {"gradients": 99}, "gradients must be at least 100, got 99."),
    (
        "claims-reparametrization",
        {"columns": (2, 4, 8, 16, 32)},
        (
            "columns needs 5 or more different sizes in ascending order, each at least 4, got (2,"
            " 4, 8, 16, 32)."
        ),
    ),
    ("claims-expectation", {"seed": -1}, "seed must be from 0 to 2^32 - 1, got -1."),
    ("claims-curvature", {"seed": -1}, "seed must be from 0 to 2^32 - 1, got -1."),
    ("claims-integrability", {"seed": -1}, "seed must be from 0 to 2^32 - 1, got -1."),
    ("claims-bias", {"seed": -1}, "seed must be from 0 to 2^32 - 1, got -1."),
    ("claims-limits", {"seed": -1}, "seed must be from 0 to 2^32 - 1, got -1."),
    ("claims-momentum", {"seed": -1}, "seed must be from 0 to 2^32 - 1, got -1."),
    ("claims-newton", {"seed": -1}, "seed must be from 0 to 2^32 - 1, got -1."),
    ("claims-reparametrization", {"seed": -1}, "seed must be from 0 to 2^32 - 1, got -1."),
    ("table-c7", {"inits": 1}, "inits must be at least 2, got 1."),
    ("table-c7", {"sampled_inits": 1}, "sampled_inits must be at least 2, got 1."),
    ("table-c7", {"samples": 3}, "samples must be even, for two half batches, got 3."),
    ("table-c7", {"samples": 0}, "samples must be at least 2, got 0."),
    ("table-c7", {"seed": -1}, "seed must be from 0 to 2^32 - 1, got -1."),
    ("figure-2", {"d0s": ()}, f"d0s {FIVE} 1, got ()."),
    ("figure-2", {"d0s": (0, 2, 4, 8, 16)}, f"d0s {FIVE} 1, got (0, 2, 4, 8, 16)."),
    ("figure-2", {"d1s": (1, 2, 4, 8, 16)}, f"d1s {FIVE} 2, got (1, 2, 4, 8, 16)."),
    ("figure-2", {"d2s": (4, 8, 8, 16, 32)}, f"d2s {FIVE} 2, got (4, 8, 8, 16, 32)."),
    ("figure-2", {"d2s": (4, 8, 16, 32)}, f"d2s {FIVE} 2, got (4, 8, 16, 32)."),
    ("figure-2", {"d1s": (160, 80, 40, 20, 10)}, f"d1s {FIVE} 2, got (160, 80, 40, 20, 10)."),
    ("figure-2", {"seeds": 0}, "seeds must be at least 2, got 0."),
    ("figure-2", {"sampled_seeds": 1}, "sampled_seeds must be at least 2, got 1."),
    ("figure-2", {"samples": 5}, "samples must be even, for two half batches, got 5."),
    ("figure-2", {"seed": -1}, "seed must be from 0 to 2^32 - 1, got -1."),
    ("matrix-factorization", {"d": 1}, "d must be at least 2, got 1."),
    ("matrix-factorization", {"rank": 0}, "rank must be at least 1, got 0."),
    ("matrix-factorization", {"rank": 7}, "rank must be from 1 to d=6, got 7."),
    ("matrix-factorization", {"ks": (8, 16, 32)}, f"ks {FIVE} 1, got (8, 16, 32)."),
    (
        "matrix-factorization",
        {"ks": (-8, 16, 32, 64, 128)},
        f"ks {FIVE} 1, got (-8, 16, 32, 64, 128).",
    ),
    (
        "matrix-factorization",
        {"small_ks": ()},
        "small_ks needs different sizes in ascending order, each at least 1, got",
    ),
    (
        "matrix-factorization",
        {"small_ks": (3, 3)},
        "small_ks needs different sizes in ascending order",
    ),
    ("matrix-factorization", {"seeds": 1}, "seeds must be at least 2, got 1."),
    ("matrix-factorization", {"small_seeds": 0}, "small_seeds must be at least 2, got 0."),
    (
        "matrix-factorization",
        {"target_factor": 0.0},
        "target_factor must be a finite number between 0 and inf, ends excluded, got 0.0.",
    ),
    (
        "matrix-factorization",
        {"target_factor": float("inf")},
        "target_factor must be a finite number between 0",
    ),
    ("matrix-factorization", {"seed": 2**70}, f"seed must be from 0 to 2^32 - 1, got {2**70}."),
    (
        "deep-linear",
        {"small_widths": ()},
        "small_widths needs different sizes in ascending order, each at least 2, got ().",
    ),
    (
        "deep-linear",
        {"small_widths": (6, 3)},
        "small_widths needs different sizes in ascending order, each at least 2",
    ),
    ("deep-linear", {"widths": (1, 2, 4, 8, 16)}, f"widths {FIVE} 2, got (1, 2, 4, 8, 16)."),
    ("deep-linear", {"widths": (8, 16, 32, 64)}, f"widths {FIVE} 2, got (8, 16, 32, 64)."),
    (
        "deep-linear",
        {"growing_widths": (4, 8, 16, 32)},
        f"growing_widths {FIVE} 2, got (4, 8, 16, 32).",
    ),
    ("deep-linear", {"d_in": 0}, "d_in must be at least 1, got 0."),
    ("deep-linear", {"d_out": 1}, "d_out must be at least 2, got 1."),
    ("deep-linear", {"seeds": -5}, "seeds must be at least 2, got -5."),
    ("deep-linear", {"small_seeds": 1}, "small_seeds must be at least 2, got 1."),
    (
        "deep-linear",
        {"target_scale": 0.0},
        "target_scale must be a finite number between 0 and inf, ends excluded, got 0.0.",
    ),
    ("deep-linear", {"seed": -1}, "seed must be from 0 to 2^32 - 1, got -1."),
    (
        "relu-off-diagonal",
        {"d0s": ()},
        "d0s needs different sizes in ascending order, each at least 2, got ().",
    ),
    (
        "relu-off-diagonal",
        {"d0s": (3, 2)},
        "d0s needs different sizes in ascending order, each at least 2, got (3, 2).",
    ),
    ("relu-off-diagonal", {"d1": 1}, "d1 must be at least 2, got 1."),
    ("relu-off-diagonal", {"angle_d0s": (2, 4, 8, 16)}, f"angle_d0s {FIVE} 2, got (2, 4, 8, 16)."),
    ("relu-off-diagonal", {"angle_seeds": 1}, "angle_seeds must be at least 2, got 1."),
    ("relu-off-diagonal", {"activation_seeds": 0}, "activation_seeds must be at least 2, got 0."),
    ("relu-off-diagonal", {"samples": 0}, "samples must be at least 1, got 0."),
    ("relu-off-diagonal", {"seeds": 1}, "seeds must be at least 2, got 1."),
    ("relu-off-diagonal", {"seed": -1}, "seed must be from 0 to 2^32 - 1, got -1."),
    ("target", {"ks": (4, 8, 16, 32, 64)}, f"ks {FIVE} 6, got (4, 8, 16, 32, 64)."),
    (
        "target",
        {"narrow_ks": ()},
        "narrow_ks needs different sizes in ascending order, each at least 6, got ().",
    ),
    ("target", {"d1s": (10, 20, 40, 80)}, f"d1s {FIVE} 1, got (10, 20, 40, 80)."),
    ("target", {"seeds": 1}, "seeds must be at least 2, got 1."),
    ("target", {"relu_seeds": 0}, "relu_seeds must be at least 2, got 0."),
    ("target", {"seed": -1}, "seed must be from 0 to 2^32 - 1, got -1."),
    ("dominance", {"widths": (1, 2, 4, 8, 16)}, f"widths {FIVE} 2, got (1, 2, 4, 8, 16)."),
    (
        "dominance",
        {"widths": (16, 16, 32, 64, 128)},
        f"widths {FIVE} 2, got (16, 16, 32, 64, 128).",
    ),
    (
        "dominance",
        {"linear_widths": (256,)},
        "linear_widths needs 2 or more different sizes in ascending order, each at least 2",
    ),
    ("dominance", {"linear_seeds": 1}, "linear_seeds must be at least 2, got 1."),
    ("dominance", {"seeds": 0}, "seeds must be at least 2, got 0."),
    ("dominance", {"seed": -1}, "seed must be from 0 to 2^32 - 1, got -1."),
    ("row-normalization", {"widths": (16,)}, f"widths {FIVE} 2, got (16,)."),
    ("row-normalization", {"noise_widths": (16,)}, f"noise_widths {FIVE} 2, got (16,)."),
    ("row-normalization", {"seeds": 1}, "seeds must be at least 2, got 1."),
    ("row-normalization", {"noise_seeds": 1}, "noise_seeds must be at least 2, got 1."),
    ("row-normalization", {"steps": 0}, "steps must be at least 1, got 0."),
    (
        "after-initialization",
        {"widths": (8, 16)},
        "widths needs 3 or more different sizes in ascending order, each at least 4, got (8, 16).",
    ),
    (
        "after-initialization",
        {"widths": (8, 16, 33)},
        "widths must be even, since half of the units are inputs, got 33.",
    ),
    ("after-initialization", {"seeds": 1}, "seeds must be at least 2, got 1."),
    ("after-initialization", {"seed": -1}, "seed must be from 0 to 2^32 - 1, got -1."),
    ("after-initialization", {"choosing": 0}, "choosing must be at least 1, got 0."),
    ("after-initialization", {"stretches": 1}, "stretches must be at least 2, got 1."),
    ("after-initialization", {"steps": 0}, "steps must be at least 1, got 0."),
    ("after-initialization", {"batch": 0}, "batch must be at least 1, got 0."),
    (
        "after-initialization",
        {"momentum": 1.0},
        "momentum must be a finite number between 0 and 1, ends excluded, got 1.0.",
    ),
    (
        "after-initialization",
        {"factors": (1.0, 2.0)},
        (
            "factors needs 3 or more positive numbers in ascending order, so that one lies inside,"
            " got (1.0, 2.0)."
        ),
    ),
    (
        "after-initialization",
        {"factors": (2.0, 1.0, 4.0)},
        (
            "factors needs 3 or more positive numbers in ascending order, so that one lies inside,"
            " got (2.0, 1.0, 4.0)."
        ),
    ),
    (
        "after-initialization",
        {"factors": (0.0, 1.0, 2.0)},
        (
            "factors needs 3 or more positive numbers in ascending order, so that one lies inside,"
            " got (0.0, 1.0, 2.0)."
        ),
    ),
    ("row-normalization", {"momentum": 1.0}, f"momentum {FINITE} 1, ends excluded, got 1.0."),
    ("row-normalization", {"momentum": -0.1}, f"momentum {FINITE} 1, ends excluded, got -0.1."),
    (
        "row-normalization",
        {"momentum": float("nan")},
        f"momentum {FINITE} 1, ends excluded, got nan.",
    ),
    ("row-normalization", {"rate": 0.0}, f"rate {FINITE} inf, ends excluded, got 0.0."),
    ("row-normalization", {"rate": float("inf")}, f"rate {FINITE} inf, ends excluded, got inf."),
    ("row-normalization", {"seed": -1}, "seed must be from 0 to 2^32 - 1, got -1."),
    ("figure-1", {"widths": (2, 4, 8, 16, 32)}, f"widths {FIVE} 4, got (2, 4, 8, 16, 32)."),
    ("figure-1", {"seeds": 1}, "seeds must be at least 2, got 1."),
    ("figure-1", {"metric_seeds": 0}, "metric_seeds must be at least 2, got 0."),
    ("figure-1", {"drawn_width": 1}, "drawn_width must be at least 2, got 1."),
    ("figure-1", {"seed": -1}, "seed must be from 0 to 2^32 - 1, got -1."),
    (
        "orthogonalizer-error",
        {"widths": (1, 2, 4, 8)},
        (
            "widths needs 4 or more different sizes in ascending order, each at least 2, got (1, 2,"
            " 4, 8)."
        ),
    ),
    ("orthogonalizer-error", {"seeds": 1}, "seeds must be at least 2, got 1."),
    ("orthogonalizer-error", {"seed": -1}, "seed must be from 0 to 2^32 - 1, got -1."),
]


@pytest.mark.parametrize(
    ("name", "changes", "sentence"), BAD_CONFIGS, ids=lambda value: str(value)[:40]
)
def test_a_configuration_that_cannot_be_judged_is_refused(name, changes, sentence):
    make = type(experiments.load(name).at("quick"))
    make()
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}") as refusal:
        make(**changes)
    assert re.fullmatch(r"[^\n]+\.", str(refusal.value))


def test_every_field_that_could_be_wrong_is_in_the_table():
    tried = {(name, field) for name, changes, _ in BAD_CONFIGS for field in changes}
    # Files are tried below.
    free = {("matrix-factorization", "target")}
    names = {name for name, _, _ in BAD_CONFIGS}
    fields = {(name, field) for name in names for field in vars(experiments.load(name).at("quick"))}
    assert fields == tried | free


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
    "run deep-linear --scale medium": (
        r"There is no scale 'medium'; there are smoke, quick, paper\."
    ),
    "run deep-linear --width 8,16": r"There is no flag '--width'; did you mean --widths\?",
    "run deep-linear --widths=": (
        r"--widths takes comma-separated integers, as in --widths INT,INT,\.\.\., not ''\."
    ),
    "run deep-linear --widths 8,16,32.5,64,128": (
        r"--widths takes comma-separated integers, .* not '8,16,32\.5,64,128'\."
    ),
    "run deep-linear --widths 0,8,16,32,64": (
        r"widths needs 5 or more different sizes .*, got \(0, 8, 16, 32, 64\)\."
    ),
    "run deep-linear --widths=-8,8,16,32,64": (
        r"widths needs 5 or more different sizes .*, got \(-8, 8, 16, 32, 64\)\."
    ),
    "run dominance --widths 8,8,16,32,64": (
        r"widths needs 5 or more different sizes .*, got \(8, 8, 16, 32, 64\)\."
    ),
    "run figure-2 --d2s 3,6": r"d2s needs 5 or more different sizes .*, got \(3, 6\)\.",
    "run figure-1 --widths 4": r"widths needs 5 or more different sizes .*, got \(4,\)\.",
    "run relu-off-diagonal --d0s=": r"--d0s takes comma-separated integers, .*, not ''\.",
    "run row-normalization --seeds 0": r"seeds must be at least 2, got 0\.",
    "run matrix-factorization --small_seeds=0": r"small_seeds must be at least 2, got 0\.",
    "run table-c7 --inits 0": r"inits must be at least 2, got 0\.",
    "run table-c7 --seed 123456789012345678901": (
        r"seed must be from 0 to 2\^32 - 1, got 123456789012345678901\."
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
    "run dominance --out occupied": (
        r"Results cannot be written to occupied, because \S*occupied is not a folder; .*\."
    ),
    "run dominance --out /proc/specjax": (
        r"Results cannot be written to /proc/specjax \(.+\); choose another --out\."
    ),
    "reproduce --only figure-3": (
        r"--only 'figure-3' matches no experiment; `specjax list` shows the names\."
    ),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with targets, where compiling is a failure and not a refusal."""
    monkeypatch.chdir(tmp_path)

    def compile_program(*_, **__):
        raise AssertionError("compiled before it was refused")

    monkeypatch.setattr("specjax.sweep.executor.compile_program", compile_program)
    Path("occupied").write_text("mine")
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
