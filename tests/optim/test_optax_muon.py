"""optax's own tests of its Muon, as its wheel has them, on `optim.muon` as it is.

optax also tests two helpers of its module; for these stand functions with optax's arguments.
"""

import inspect
import subprocess
import sys
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from optax.contrib import MuonDimensionNumbers

from specjax import optim
from specjax.optim.matrices import matrices_of
from specjax.spectral import NewtonSchulz
from specjax.spectral.polynomials import Quintic

pytestmark = [
    pytest.mark.integration,
    pytest.mark.usefixtures("adapted", "unchecked"),
    # Leaves of three axes under the rule of two, as optax's test means it.
    pytest.mark.filterwarnings("ignore:muon without a layout"),
]
theirs = pytest.importorskip("optax.contrib._muon_test")

SCALINGS = {
    "frobenius": "frobenius",
    "spectral": "spectral",
    "aol": "aol",
    "schatten": "schatten-4",
}


def orthogonalize(
    x, ns_coeffs, ns_steps=5, preconditioning="frobenius", eps=0.0, dimension_numbers=optim.IN_OUT
):
    del eps
    method = NewtonSchulz(
        ns_steps, Quintic(*(float(c) for c in ns_coeffs)), scaling=SCALINGS[preconditioning]
    )
    return optim.orthogonalize(method, dimension_numbers=dimension_numbers).update(
        x, optax.EmptyState()
    )[0]


def reshape(x, dimension_numbers):
    (view,) = matrices_of(x, dimension_numbers, "reshape").views
    return view.matrices, view.leaf


@pytest.fixture
def adapted(monkeypatch):
    names = {
        "muon": optim.muon,
        "orthogonalize_via_newton_schulz": orthogonalize,
        "_compute_muon_reshape": reshape,
        "MuonDimensionNumbers": MuonDimensionNumbers,
    }
    monkeypatch.setattr(theirs, "_muon", SimpleNamespace(**names))
    # What the test itself computes adds arrays of unequal ranks.
    with jax.numpy_rank_promotion("allow"):
        yield


class TestOptaxMuon(theirs.MuonTest):
    """All of optax's test."""


def train(make, params, gradients):
    """The parameters after some steps, with `learning_rate` a number or a schedule."""
    optimizer = make()
    state, step = optimizer.init(params), jax.jit(optimizer.update)
    for g in gradients:
        updates, state = step(g, state, params)
        params = optax.apply_updates(params, updates)
    return jax.tree.map(np.asarray, params)


SCHEDULE = optax.linear_schedule(0.1, 0.01, 4)


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((), {}),
        ((), {"learning_rate": SCHEDULE}),
        ((0.1, (3.0, -3.2, 1.2), 4, 0.8, 1e-6, 0.1, {"w": True, "b": False}, "float32"), {}),
        ((), {"ns_coeffs": "standard"}),
        ((), {"ns_steps": 3}),
        ((), {"ns_coeffs": "dion"}),
        ((), {"ns_coeffs": ((3.4, -4.7, 2.0), (1.5, -0.5, 0.0), (1.9, -1.3, 0.4))}),
        ((), {"beta": 0.5, "nesterov": False}),
        ((), {"adaptive": True}),
        *(((), {"preconditioning": p}) for p in SCALINGS),
        ((), {"adam_b1": 0.5, "adam_b2": 0.6, "adam_eps_root": 1e-3}),
        ((), {"adam_weight_decay": 0.3, "adam_learning_rate": 0.5}),
        ((), {"adam_learning_rate": SCHEDULE}),
        ((), {"muon_weight_dimension_numbers": None}),
        ((), {"muon_weight_dimension_numbers": {"w": MuonDimensionNumbers(1, 0), "b": None}}),
        ((), {"consistent_rms": 0.2, "weight_decay": 0.1}),
    ],
)
@pytest.mark.usefixtures("standard_promotion")
def test_each_argument_of_optax_has_its_meaning(args, kwargs):
    """In float64, so that rounding is not seen; each argument moves a parameter by 1e-3."""
    kwargs = kwargs if args else {"learning_rate": 0.1, **kwargs}
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(0), 5)
        data = [{"w": jax.random.normal(k, (6, 9)), "b": jax.random.normal(k, (9,))} for k in keys]
        ours, theirs = (
            train(lambda make=make: make(*args, **kwargs), data[0], data[1:])
            for make in (optim.muon, optax.contrib.muon)
        )
        plain = train(lambda: optax.contrib.muon(0.1), data[0], data[1:])
    for name in ours:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=0, atol=1e-7)
    moves = max(float(abs(ours[name] - plain[name]).max()) for name in ours)
    defaults = ("standard", "frobenius", None, 0.1)
    assert (moves > 1e-3) != (not args and all(v in defaults for v in kwargs.values()))


# examples/contrib/muon.ipynb of optax, August 2026: what it builds, and where it prints that each
# leaf has gone.
NOTEBOOK_LEAVES = {
    "layer1": {"w": (128, 64), "b": (64,)},
    "layer2": {"w": (64, 32)},
    "layer3_conv": {"w": (4, 3, 3, 16)},
}


@pytest.mark.parametrize(
    ("layer1", "conv", "kwargs", "muon"),
    [
        (None, None, {}, {("layer1", "w"), ("layer2", "w")}),
        (MuonDimensionNumbers(), None, None, {("layer1", "w")}),
        (
            MuonDimensionNumbers((0,), (1,)),
            MuonDimensionNumbers(reduction_axis=(0, 1, 2), output_axis=(3,)),
            None,
            {("layer1", "w"), ("layer3_conv", "w")},
        ),
    ],
)
@pytest.mark.usefixtures("standard_promotion")
def test_the_notebook_of_optax_prints_the_same(layer1, conv, kwargs, muon):
    """Its states, read by the names that it reads them by, and three of its steps."""
    if kwargs is None:
        tree = {"layer1": {"w": layer1, "b": None}, "layer2": {"w": None}}
        kwargs = {"muon_weight_dimension_numbers": tree | {"layer3_conv": {"w": conv}}}
    with jax.enable_x64(True):
        params = jax.tree.map(
            lambda shape: jax.random.normal(jax.random.key(sum(shape)), shape),
            NOTEBOOK_LEAVES,
            is_leaf=lambda x: isinstance(x, tuple),
        )
        state = optim.muon(learning_rate=1e-3, **kwargs).init(params)
        gradients = [jax.tree.map(lambda x, k=k: k * x, params) for k in (2.0, -1.0, 3.0)]
        ours, theirs = (
            train(lambda make=make: make(learning_rate=1e-3, **kwargs), params, gradients)
            for make in (optim.muon, optax.contrib.muon)
        )
    for optimizer, moments in (("muon", {"mu"}), ("adam", {"mu", "nu"})):
        leaves = jax.tree.leaves_with_path(state.inner_states[optimizer])
        printed = {tuple(map(str, path)) for path, leaf in leaves if leaf.ndim > 0}
        everywhere = {(layer, name) for layer, has in NOTEBOOK_LEAVES.items() for name in has}
        names = muon if optimizer == "muon" else everywhere - muon
        assert printed == {
            (".inner_state", "[0]", f".{moment}", f"[{layer!r}]", f"[{name!r}]")
            for moment in moments
            for layer, name in names
        }
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-7), ours, theirs)


def test_eps_is_that_of_adamw_alone():
    """optax adds it to the norm of a matrix too, so that its steps depend on the gradient's
    scale.
    """
    data = [{"w": jnp.full((6, 9), 2.0), "b": jnp.arange(9.0)}] * 3
    ours, plain = (
        train(lambda eps=eps: optim.muon(0.1, eps=eps), *(data[0], data)) for eps in (1, 1e-8)
    )
    theirs = train(lambda: optax.contrib.muon(0.1, eps=1), data[0], data)
    np.testing.assert_allclose(ours["b"], theirs["b"], rtol=1e-5)
    np.testing.assert_array_equal(ours["w"], plain["w"])
    assert float(abs(ours["b"] - plain["b"]).max()) > 1e-2


def test_no_argument_of_optax_is_missing():
    theirs, ours = (inspect.signature(f).parameters for f in (optax.contrib.muon, optim.muon))
    assert [*theirs] == [*ours][: len(theirs)]
    for name in theirs.keys() - {"ns_coeffs", "muon_weight_dimension_numbers"}:
        assert (theirs[name].default, theirs[name].kind) == (ours[name].default, ours[name].kind)
    assert ours["ns_coeffs"].default == theirs["ns_coeffs"].default


@pytest.mark.parametrize(
    ("kwargs", "match"),
    [
        ({"method": NewtonSchulz(), "ns_steps": 3}, "method= or ns_steps=, not both"),
        ({"scale": "none", "consistent_rms": 0.2}, "consistent_rms= or scale=, not both"),
        ({"fallback": optax.sgd(0.1), "adam_b1": 0.5}, "fallback= or adam_b1=, not both"),
        ({"preconditioning": "none"}, "one of aol, frobenius, schatten, spectral as precond"),
        ({"ns_coeffs": "muon"}, r"ns_coeffs=\(a, b, c\), .* got 'muon'"),
        ({"ns_coeffs": ((3.0, -3.2, 1.2),) * 3, "ns_steps": 2}, "each of the 3 steps of ns_coeffs"),
        ({"mu_dtype": "bfloat16"}, r"bfloat16 needs a key, .* pass key=jax.random.key\(0\)"),
        ({"mu_dtype": "float16"}, "int8, bfloat16, float32 or float64, got mu_dtype='float16'"),
        ({"ns_steps": 0}, "whole number of at least 1 as ns_steps"),
    ],
)
def test_arguments_that_exclude_each_other_are_refused(kwargs, match):
    with pytest.raises(ValueError, match=match):
        optim.muon(0.1, **kwargs)


DEPTH = """
import sys, jax.numpy as jnp
from specjax import optim
optimizer, params = optim.muon(0.1), {"w": jnp.ones((6, 9)), "b": jnp.ones(9)}
state = optimizer.init(params)
optimizer.update(params, state, params)  # fills caches
deepest = 0
def count(frame, event, _):
    global deepest
    own = 0
    while frame and event == "call":
        code = frame.f_code  # a comprehension has a frame until Python 3.12
        own += "/specjax/" in code.co_filename and not code.co_name.endswith("comp>")
        frame = frame.f_back
    deepest = max(deepest, own)
sys.setprofile(count)
optimizer.update(params, state, params)
sys.setprofile(None)
print(deepest)
"""


@pytest.mark.integration
def test_a_gradient_passes_at_most_eight_frames():
    """optax has five in one file; 21 of ours were too many to follow."""
    found = subprocess.run(
        [sys.executable, "-c", DEPTH], capture_output=True, text=True, check=True
    )
    assert 6 <= int(found.stdout) <= 8


@pytest.mark.parametrize("kwargs", [{}, {"preconditioning": "aol"}, {"fallback": optax.sgd(0.1)}])
def test_optax_may_inject_its_hyperparameters(kwargs):
    """It makes arrays of all numbers, also of the number of steps."""
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(0), 5)
        data = [{"w": jax.random.normal(k, (6, 9)), "b": jax.random.normal(k, (9,))} for k in keys]
        plain = train(lambda: optim.muon(0.1, **kwargs), data[0], data[1:])
        injected = optax.inject_hyperparams(optim.muon)
        found = train(lambda: injected(learning_rate=0.1, **kwargs), data[0], data[1:])
    for name in plain:
        np.testing.assert_allclose(found[name], plain[name], rtol=0, atol=1e-6)
