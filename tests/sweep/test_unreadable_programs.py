"""What specjax cannot read of a program costs an estimate, never a sweep."""

import json
import re
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import sizes, sweep
from specjax.diagnostics import matrix_layout
from specjax.programs import UnreadableProgramError, UnreadableProgramWarning, _loops
from specjax.programs.one_at_a_time import IS_NEEDED
from specjax.sweep._cost_model import cost

OVER = {"d": sweep.widths(3, 4, 6), "rate": sweep.values(0.1, 0.2)}
KEY = jax.random.key(2)


def trained(key, d, rate):
    """Forty steps on a matrix, in a scan."""
    x = sizes.normal(key, (d, 5))
    w, losses = jax.lax.scan(
        lambda w, _: (w - rate * jnp.sin(w), jnp.sum(w**2)), x, None, length=40
    )
    return {"loss": losses[-1], "sum": jnp.sum(w)}


def chaotic(key, d):
    """A logistic map. Padding moves where it begins by one unit of the last place, as rounding may,
    and some steps later all digits.
    """
    nudge = 1 + np.finfo(np.float32).eps * (sizes.padded(d) > 4)
    x = (
        nudge
        * jnp.sum(jnp.abs(sizes.normal(key, (d, 64))))
        / jnp.asarray(128 * sizes.active(d), jnp.float32)
    )
    return {"orbit": jax.lax.scan(lambda x, _: (3.99 * x * (1 - x), x), x, None, length=200)[1]}


NARROW_AND_WIDE = {"d": sweep.widths(4, 7, 16)}


@pytest.fixture(scope="module")
def expected():
    return sweep.run(trained, OVER, num_seeds=5, key=KEY)


@pytest.fixture
def unknown_scan(monkeypatch):
    """A JAX that spells a scan in a new way."""
    monkeypatch.setattr(_loops, "_SPELLINGS", ())


def warned():
    said = (
        r"^This version of specjax cannot read the primitive 'scan' with .* of JAX"
        rf" {re.escape(jax.__version__)}; "
    )
    return pytest.warns(UnreadableProgramWarning, match=said)


@pytest.mark.integration
@pytest.mark.usefixtures("unknown_scan")
def test_a_sweep_with_a_loop_that_is_not_known_runs(expected):
    with warned() as caught:
        found = sweep.run(trained, OVER, num_seeds=5, key=KEY)
    assert len(caught) == 1
    for name in ("loss", "sum"):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-5)


@pytest.mark.integration
@pytest.mark.usefixtures("unknown_scan")
def test_where_xla_has_no_estimate_every_width_is_a_program(monkeypatch, expected):
    monkeypatch.setattr(jax.stages.Lowered, "cost_analysis", lambda _: None)
    with warned():
        found = sweep.run(trained, OVER, num_seeds=5, key=KEY)
    planned, alone = (len(json.loads(data.attrs["buckets"])["d"]) for data in (expected, found))
    assert planned < alone == 3
    np.testing.assert_allclose(found["loss"], expected["loss"], rtol=1e-5)


@pytest.mark.integration
@pytest.mark.usefixtures("unknown_scan")
def test_padding_is_checked_by_running():
    def by_shape(key, d):
        x = sizes.normal(key, (d, 5))
        return {
            "mean": jax.lax.scan(lambda m, _: (m + jnp.mean(x), None), 0.0, None, length=900)[0]
        }

    with warned(), pytest.raises(ValueError, match=r"Padding to d=6 changes what measure returns"):
        sweep.run(by_shape, {"d": sweep.widths(3, 6)}, num_seeds=5, key=KEY, plan="padded")

    # The loop is not entered, but begins at moved bits.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnreadableProgramWarning)
        sweep.run(chaotic, NARROW_AND_WIDE, num_seeds=5, key=KEY, plan="padded")


def test_xla_estimates_the_cost_of_the_trace_without_loops(monkeypatch):
    """Twice the products are twice the cost, by both."""

    def products(number):
        def function(x):
            for _ in range(number):
                x = jnp.sin(x @ x)
            return x

        return jax.jit(function).trace(jax.ShapeDtypeStruct((100, 100), jnp.float32))

    read = [cost(products(number), "cpu") for number in (2, 4)]
    with monkeypatch.context() as patch:
        patch.setattr("specjax.programs._program._JAXPRS", (int,))
        lowered = [cost(products(number), "cpu") for number in (2, 4)]
    assert all("cannot read a program" in each.reason for each in lowered)
    assert all(each.reason is None for each in read)
    for one, other in zip(lowered, read, strict=True):
        assert 0.5 < one.seconds / other.seconds < 1.5
    assert 1.8 < lowered[1].seconds / lowered[0].seconds < 2.2


def test_a_decomposition_is_seen_in_the_lowered_program(monkeypatch):
    def decomposed(x):
        return jax.lax.map(lambda y: jnp.linalg.svd(y)[1], x)

    monkeypatch.setattr("specjax.programs._program._JAXPRS", (int,))
    found = cost(jax.jit(decomposed).trace(jnp.ones((3, 4, 4))), "cpu")
    assert found.decomposes
    assert found.lasts


@pytest.mark.usefixtures("unknown_scan", "unchecked")
def test_a_layout_is_refused_in_a_sentence_with_the_way_out():
    def loss(w, x):
        return jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, w)[0].sum()

    said = (
        r"^This version of specjax cannot read the primitive 'scan' with the parameters .* of JAX"
        rf" {re.escape(jax.__version__)}; update "
        r"specjax, or install an older JAX, or give optim\.muon its labels= and"
        r" muon_weight_dimension_numbers="
        r" yourself\.$"
    )
    with pytest.raises(ValueError, match=said):
        matrix_layout(loss, jnp.ones((3, 4, 4)), jnp.ones((2, 4)))


@pytest.mark.integration
@pytest.mark.parametrize("renamed", ["DebugInfo", "jaxpr_as_fun"])
def test_padding_that_changes_digits_warns_without_a_program(monkeypatch, renamed):
    monkeypatch.delattr(f"specjax.programs._program.core.{renamed}")
    with pytest.warns(
        UnreadableProgramWarning,
        match=r"So it is unknown whether rounding .* 'orbit'; plan='exact'",
    ):
        sweep.run(chaotic, NARROW_AND_WIDE, num_seeds=5, key=KEY, plan="padded")


@pytest.mark.integration
@pytest.mark.skipif(
    IS_NEEDED,
    reason=(
        "On jaxlib 0.10, whose spelling is known, measurements are read to keep decompositions"
        " apart."
    ),
)
@pytest.mark.parametrize("attribute", ["equations", "has_64_bits"])
def test_where_equations_cannot_be_read_a_sweep_runs(monkeypatch, attribute, expected):
    def unreadable(_):
        raise UnreadableProgramError("an equation")

    monkeypatch.setattr(f"specjax.programs._program.Program.{attribute}", property(unreadable))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnreadableProgramWarning)
        found = sweep.run(trained, OVER, num_seeds=5, key=KEY)
    np.testing.assert_allclose(found["loss"], expected["loss"], rtol=1e-5)
