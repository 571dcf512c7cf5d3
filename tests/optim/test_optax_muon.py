"""optax's own test of its Muon, as its wheel has it, on ours: the adapter has optax's names and
arguments, nothing else.
"""

from types import SimpleNamespace

import jax
import optax
import pytest
from optax.contrib import MuonDimensionNumbers, _muon

from specjax import optim
from specjax.optim.matrices import matrices_of
from specjax.spectral import MUON, NewtonSchulz
from specjax.spectral.polynomial_design import Quintic

pytestmark = [
    pytest.mark.integration,
    pytest.mark.usefixtures("optax_promotion", "adapted", "unchecked"),
    # Leaves of three axes under the rule of two, as optax's test means it.
    pytest.mark.filterwarnings("ignore:muon by two axes"),
]
theirs = pytest.importorskip("optax.contrib._muon_test")

SCALINGS = {
    "frobenius": "frobenius",
    "spectral": "spectral",
    "aol": "aol",
    "schatten": "schatten-4",
}


def muon(
    learning_rate,
    ns_coeffs=MUON,
    *,
    weight_decay=0.0,
    nesterov=True,
    adaptive=False,
    preconditioning="frobenius",
    muon_weight_dimension_numbers=optim.IN_OUT,
):
    """Ours, with its momentum where optax's test looks for it: state[0]["muon"][0][0][1]."""
    coefficients = (
        tuple(Quintic(*c) for c in _muon._NS_COEFFS_PRESET_DICT[ns_coeffs])
        if ns_coeffs == "dion"
        else ns_coeffs
    )
    inner = optim.muon(
        learning_rate,
        nesterov=nesterov,
        bias_correction=True,
        method=NewtonSchulz(5, coefficients, scaling=SCALINGS[preconditioning]),
        adaptive=adaptive,
        weight_decay=weight_decay,
        dimension_numbers=muon_weight_dimension_numbers,
        other=optax.adamw(learning_rate, weight_decay=0.0, nesterov=nesterov),
    )

    def shown(state):
        moment = state.inner_states["matrix"].inner_state[0].moment
        return {"muon": (((None, moment),),)}, state

    def update(updates, state, params=None):
        updates, new = inner.update(updates, state[1], params)
        return updates, shown(new)

    return optax.GradientTransformation(lambda params: shown(inner.init(params)), update)


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
        "muon": muon,
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
