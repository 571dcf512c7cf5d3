"""What a user sees who calls the library or the command line wrongly: one sentence, with what came
and what would be right.

The tables have what no test of a module has: those of `sweep.run` and of axes are in tests/sweep,
configurations of experiments in tests/experiments, results folders in tests/report, keys and sizes
in tests/test_sizes.py, flags of the command line in tests/test_cli.py.
"""

# The table of calls uses names in its text.
# ruff: noqa: F401
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
import pytest
import xarray as xr
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from specjax import diagnostics, experiments, fits, models, optim, sizes, spectral, sweep
from specjax.cli import main
from specjax.lab.flags import flags, override
from tests.wrong_calls import wrong_calls

KEY = jax.random.key(0)
WIDE, SQUARE, VECTOR = jnp.ones((2, 3)), jnp.eye(3), jnp.ones(3)
OVER = {"width": sweep.widths(2, 4)}
DATA = xr.DataArray(
    np.ones((3, 4)), {"width": [2, 4, 8], "seed": range(4)}, ("width", "seed"), name="loss"
)


def measure(key, width):
    return {"loss": jnp.sum(sizes.normal(key, (width,)))}


WRONG_CALLS = """
spectral.polar(VECTOR)
    polar needs matrices in the last two axes, got shape (3,); add an axis with x[None, :].
spectral.polar(SQUARE.astype(int))
    polar needs a floating or complex dtype, got int32; convert with x.astype(float).
spectral.polar(WIDE, "sdv")
    polar needs a method such as SVD(), one of the names cubic5, newton, newton_schulz,
    polar_express, qdwh, svd, or a callable array -> array, got 'sdv'.
spectral.polar(WIDE, spectral.SVD)
    polar needs a method such as SVD(), one of the names cubic5, newton, newton_schulz,
    polar_express, qdwh, svd, or a callable array -> array, got <class
    'specjax.spectral.methods._svd.SVD'>.
spectral.polar(WIDE, lambda x: x[:1])
    A polar method keeps shape and dtype; this one took float32[2, 3] to float32[1, 3]; return an
    array like its argument.
spectral.polar(WIDE.astype(complex), spectral.NewtonSchulz(operands=jnp.bfloat16))
    operands=bfloat16 is for real matrices, got complex64; leave it out.
spectral.SVD(rtol=1.0)
    SVD needs 0 <= rtol < 1, got rtol=1.0.
spectral.SVD(rtol=-1e-3)
    SVD needs 0 <= rtol < 1, got rtol=-0.001.
spectral.SVD(rtol=float("nan"))
    SVD needs 0 <= rtol < 1, got rtol=nan.
spectral.QDWH(rtol=0.0)
    QDWH needs 0 < rtol < 1, got rtol=0.0.
spectral.QDWH(rtol=2.0)
    QDWH needs 0 < rtol < 1, got rtol=2.0.
spectral.Newton(steps=0)
    Newton needs steps >= 1, got steps=0.
spectral.polynomials.best_quintic(1.0, 0.5)
    best_quintic needs 0 < lower <= upper, got lower=1.0 and upper=0.5.
spectral.polynomials.best_quintic(1e100, 1e101)
    best_quintic needs an interval that ends between 1e-60 and 1e60, got upper=1e+101; scale it, as
    p(s / upper) is for upper=1.
spectral.polynomials.best_quintic(1e-200, 1e-199)
    best_quintic needs an interval that ends between 1e-60 and 1e60, got upper=1e-199; scale it, as
    p(s / upper) is for upper=1.
spectral.NewtonSchulz(0)
    NewtonSchulz needs steps >= 1, got steps=0.
spectral.NewtonSchulz(3, (spectral.polynomials.MUON, spectral.polynomials.CUBIC))
    NewtonSchulz needs one polynomial or one for each of its 3 steps, got 2; set steps=2.
spectral.NewtonSchulz(restart=0)
    restart needs at least one step between Gram matrices, got 0; None lets the method choose.
spectral.PolarExpress(restart=0)
    restart needs at least one step between Gram matrices, got 0; None lets the method choose.
spectral.PolarExpress(operands=jnp.float32)
    operands must be jnp.bfloat16, jnp.float16 or None (the dtype of x), got float32.
spectral.NewtonSchulz(operands=jnp.float32)
    operands must be jnp.bfloat16, jnp.float16 or None (the dtype of x), got float32.
spectral.NewtonSchulz(scaling="row")
    Unknown scaling 'row'; choose one of frobenius, schatten-4, aol, spectral.
spectral.PolarExpress(0)
    PolarExpress needs steps >= 1, got steps=0.
spectral.PolarExpress(5, lower=0.0)
    PolarExpress needs 0 < lower < 1, got lower=0.0.
spectral.PolarExpress(5, lower=1.0)
    PolarExpress needs 0 < lower < 1, got lower=1.0.
spectral.PolarExpress(5, safety=0.5)
    PolarExpress needs safety >= 1, got safety=0.5; 1 means none.
spectral.PolarExpress(5, cushion=1.0)
    PolarExpress needs 0 <= cushion < 1, got cushion=1.0; 0 means none.
spectral.schatten_norm(WIDE, 0)
    schatten_norm needs a number in (0, inf] as p, got 0.
spectral.estimate_ranks(VECTOR, KEY)
    estimate_ranks needs one matrix, got shape (3,); take jax.vmap for several.
spectral.polynomials.band((spectral.polynomials.MUON,), -1.0)
    band needs 0 <= lower <= upper, got lower=-1.0 and upper=1.0.
optim.muon(0.02, beta=1.0)
    momentum needs a number in [0, 1) as beta, got 1.0.
optim.jordan_muon(0.02, scale="spectral")
    Unknown scale 'spectral'; choose one of none, sqrt_max_1_out_over_in, sqrt_out_over_in,
    point_two_sqrt_max, or pass a function of (fan_in, fan_out).
optim.jordan_muon(0.02, convention="nesterov")
    muon needs one of 'ema', 'sgd' as convention, got 'nesterov'.
optim.orthogonalize("sdv")
    orthogonalize needs a method such as SVD(), one of the names cubic5, newton, newton_schulz,
    polar_express, qdwh, svd, or a callable array -> array, got 'sdv'.
optim.spectral_descent(-1.0)
    spectral_descent needs a number in (0, inf) as curvature, got -1.0.
optim.normalize_rows().update({"b": VECTOR}, optax.EmptyState())
    normalize_rows needs matrices, the leaf b has shape (3,); route it to another transformation
    with optax.partition or optax.masked.
optim.jordan_muon(0.02, mu_dtype="bfloat16")
    momentum in bfloat16 needs a key, since rounding to the nearest number makes it stand still;
    pass key=jax.random.key(0).
optim.hyperball(0.1).update({"w": WIDE}, optim.hyperball(0.1).init({"w": WIDE}))
    hyperball needs the parameters: update(updates, state, params).
optim.scale_by_neuron_moment().init({"b": VECTOR})
    scale_by_neuron_moment needs matrices, the leaf b has shape (3,); route it to another
    transformation with optax.partition or optax.masked.
optim.jordan_muon(0.02, sharding="data")
    sharding must be NamedSharding(mesh, PartitionSpec(mesh.axis_names)) for the stack axis, or the
    shardings of the parameters, got 'data'.
optim.jordan_muon(0.02, labels={"w": "matrix", "b": "matrix"}).init({"w": WIDE, "b": VECTOR})
    orthogonalize needs matrices, the leaf b has shape (3,); route it to another transformation with
    optax.partition or optax.masked.
optim.jordan_muon(0.02, splits={"qkv": (1, 1)}).init({"block": {"qkv": WIDE}})
    The splits of the leaf block.qkv must be widths that add up to its 3 outputs, got (1, 1).
optim.jordan_muon(0.02, splits={"qkv": optim.Interleaved((1, 1), 2)}).init({"block": {"qkv": WIDE}})
    The splits of the leaf block.qkv must be widths that add up to its 3 outputs, got
    Interleaved(widths=(1, 1), times=2).
optim.lift_to_floor(0.0)
    lift_to_floor needs a number in (0, inf) as floor, got 0.0.
optim.lift_to_floor(0.3, "row")
    lift_to_floor needs one of 'output', 'matrix' as per, got 'row'.
optim.lift_to_floor(0.3).update({"w": WIDE}, optax.EmptyState())
    lift_to_floor needs the parameters: update(updates, state, params).
optim.jordan_muon(0.02, splits={"kv": (1, 2)}).init({"block": {"qkv": WIDE}})
    splits name the leaf 'kv', but no matrix has this name; the matrices are block.qkv.
optim.jordan_muon(0.02, muon_weight_dimension_numbers=optax.contrib.MuonDimensionNumbers(1,
-1)).init({"w": WIDE})
    The dimension numbers of the leaf w need different axes below 2 (its shape is (2, 3)), got
    reduction_axis=1 and output_axis=-1.
diagnostics.matrix_layout(lambda p, x: jnp.sum(x @ p["w"]), {"w": WIDE, "layer": {"spare": VECTOR}},
SQUARE[:,
:2])
    The loss does not use the leaf layer.spare of shape (3,), so its role is unknown; leave it out
    of the parameters.
diagnostics.matrix_layout(lambda w, x: x @ w, WIDE, SQUARE[:, :2])
    The loss must be one number, or (number, anything), got ShapeDtypeStruct(shape=(3, 3),
    dtype=float32).
diagnostics.matrix_layout(lambda w, x: jnp.sum(x @ w), WIDE, SQUARE[:, :2]).labelled(tables="other")
    Unknown kind of leaves 'tables'; choose one of readout, linear, convolution, lookup, gain, bias,
    other.
sweep.widths("16")
    widths takes positive ints, got '16'; write e.g. widths(16, 32).
sweep.values(None)
    values takes finite numbers, got None; write e.g. values(0.1, 0.2).
sweep.values(10**400)
    values takes finite numbers, got an object of type int; write e.g. values(0.1, 0.2).
sweep.values(1j)
    values takes finite numbers, got 1j; write e.g. values(0.1, 0.2).
sweep.run(3, OVER, num_seeds=2, key=KEY)
    measure needs to be a function measure(key, **point), got 3.
sweep.run(measure, {3: sweep.widths(2)}, num_seeds=2, key=KEY)
    The names in over are strings, the names of arguments of measure, got 3; quote it.
sweep.run(measure, {"width": sweep.widths}, num_seeds=2, key=KEY)
    over['width'] needs an axis, got a function; write widths(16, 32), values(0.1, 0.2) or
    choices(2, 4).
sweep.run(measure, OVER, num_seeds="many", key=KEY)
    num_seeds needs to be a positive int, got 'many'.
sweep.open_store("/missing/folder/store")
    /missing/folder/store holds no finished block of a sweep; give the folder of run(...,
    store=FOLDER).
fits.fit_power_law(DATA.to_dataset(), "width")
    A fit needs one quantity, such as data['loss'], got a Dataset; pass a DataArray.
fits.fit_offset(DATA.values, "width")
    A fit needs one quantity, such as data['loss'], got a ndarray; pass a DataArray.
fits.fit_power_law(DATA, "depth")
    A fit over 'depth' needs exactly the dimensions ('depth', 'seed') or ('depth', 'batch'), got
    ('width', 'seed'); select or average the others first.
sweep.explain(DATA.to_dataset())
    explain needs the attribute 'bucket_table' that run adds, got []; pass run's dataset.
sweep.without_failed(DATA)
    without_failed needs the variable 'failed' that run adds, got a DataArray; pass run's dataset.
models.relu_network.init(KEY, 2, 0, 3)
    Every size must be at least 1, got 0.
models.matrix_factorization.init(KEY, 3, -1)
    Every size must be at least 1, got -1.
sizes.normal(KEY, (2, 10**30))
    Every size must be below 2**31, the range of int32, got 1000000000000000000000000000000.
models.targets.low_rank_target(KEY, 3, 0)
    Every size must be at least 1, got 0.
diagnostics.activation_stable_ranks(lambda w, x: w @ x, WIDE, SQUARE)
    The model must return one number, its loss, got ShapeDtypeStruct(shape=(2, 3), dtype=float32).
override(experiments.load("dominance").at("smoke"), {"seeds": "many"})
    --seeds takes an integer, not 'many'.
spectral.schatten_norm(VECTOR, 2)
    Norms and ranks need matrices in the last two axes, got shape (3,); add an axis with x[None, :].
spectral.dominance.off_diagonal_coefficient(SQUARE, WIDE)
    Diagonal dominance is one of square matrices, got shape (2, 3); pass g @ g.T, for instance.
"""


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("call", "sentence"), wrong_calls(WRONG_CALLS))
def test_a_wrong_call_is_answered_by_one_sentence(call, sentence):
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        eval(call)
    assert str(refused.value) == sentence
    assert sentence.endswith(".")


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("names", "x", "sentence"),
    [
        (
            "spectral_norm nuclear_norm stable_rank nuclear_rank effective_rank entropy_rank",
            VECTOR,
            "Norms and ranks need matrices in the last two axes, got shape (3,); add an axis with"
            " x[None, :].",
        ),
        (
            "normalize_rows normalize_columns",
            VECTOR,
            "Rows and columns are those of matrices in the last two axes, got shape (3,); add an"
            " axis with x[None, :].",
        ),
        (
            "diagonal_mean off_diagonal off_diagonal_mean dominance_ratio row_dominance"
            " off_diagonal_energy",
            WIDE,
            "Diagonal dominance is one of square matrices, got shape (2, 3); pass g @ g.T, for"
            " instance.",
        ),
    ],
)
def test_functions_of_one_domain_share_their_error(names, x, sentence):
    for name in names.split():
        function = getattr(spectral, name, None) or getattr(spectral.dominance, name)
        with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
            function(x)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    "wrong",
    [
        lambda key, width: {"loss": jnp.sum(jax.random.normal(key, (width,)))},
        lambda key, width: {"loss": width * jnp.sum(sizes.normal(key, (width,)))},
    ],
)
def test_who_takes_a_padded_size_for_an_int_is_told_what_it_is(wrong):
    with pytest.raises(TypeError) as raised:
        sweep.run(wrong, OVER, num_seeds=2, key=KEY, plan="padded")
    # JAX adds a note of its own.
    assert (
        raised.value.__notes__[0]
        == "In this program width is a padded Size, not an int: draw with specjax.sizes.normal(key,"
        " (rows, columns)), write sizes.active(width) in formulas, or take plan='exact', which"
        " passes ints."
    )


HUGE = "99999999999999999999"


@pytest.mark.parametrize("name", experiments.names())
def test_a_number_too_large_is_refused_by_its_field(name):
    config = experiments.load(name).at("smoke")
    for flag in flags(config):
        if "INT" in flag.metavar:
            typed = HUGE if flag.metavar == "INT" else f"{flag.default},{HUGE}"
            with pytest.raises(
                ValueError, match=rf"^{flag.field} (must be|needs) [^\n]*{HUGE}[^\n]*\.$"
            ):
                override(config, {flag.field: typed})


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            {"num_seeds": 10**30},
            r"num_seeds needs to be at most 2\*\*32, got 10{30}; run the rest with another key\.",
        ),
        (
            {"num_seeds": {"width": (2, 2**33)}},
            r"num_seeds\['width'\] needs to be at most 2\*\*32, got 8589934592; .*",
        ),
        ({"num_seeds": 2**32}, r"The result takes .*, more than this host's .*"),
        ({"chunk": 10**400}, r"chunk needs to be at most 2\*\*32, got an object of type int; .*"),
        ({"memory": 10**30}, r"memory needs to be at most 2\*\*60 bytes, got 10{30}; .*"),
        (
            {"memory": "9" * 400 + "GB"},
            r"memory needs to be at most 2\*\*60 bytes, got an object of type str; .*",
        ),
        (
            {"over": {"width": sweep.widths(10**30)}},
            r"int32 cannot hold the widths of 'width' apart and in range, .*",
        ),
        (
            {"over": {"width": sweep.values(10**30)}},
            r"int32 cannot hold the values of 'width' apart and in range, .*",
        ),
        (
            {
                "measure": lambda *_, **__: {
                    "x": jnp.sum(jnp.ones((2**20, 1)) @ jnp.ones((1, 2**20)))
                }
            },
            (
                r"One matrix of one seed takes 4 TiB, more than the .* of memory; sweep smaller"
                r" sizes\."
            ),
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:measure does not use the key")
def test_a_sweep_that_is_too_large_is_refused_before_compiling(arguments, sentence, monkeypatch):
    monkeypatch.setattr("specjax.sweep._engine.execute", None)
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        sweep.run(**{"measure": measure, "over": OVER, "num_seeds": 2, "key": KEY} | arguments)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (
            MemoryError("Unable to allocate 16.0 GiB"),
            "This configuration needs more memory than there is; take smaller sizes.",
        ),
        (
            RuntimeError("INTERNAL: Out of memory allocating 1 bytes."),
            "This configuration needs more memory than there is;",
        ),
        (
            OverflowError("Python int too large"),
            "This configuration makes numbers beyond int32 or float32: Python int too large",
        ),
    ],
)
def test_what_no_memory_holds_is_one_sentence(error, sentence, tmp_path, monkeypatch, capsys):
    def run(*_):
        raise error

    monkeypatch.setattr("specjax.report.produce", run)
    assert main(["run", "dominance", "--scale", "smoke", "--out", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"specjax: {sentence}")
    assert said.count("\n") == 1
