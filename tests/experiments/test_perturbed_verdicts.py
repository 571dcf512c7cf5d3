"""scripts/maintain/perturbed_verdicts.py: it moves samples by their last bits, and says which
verdicts differ; and room where some once did.
"""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import sweep
from specjax.experiments.spectral_criterion.activations import BATCH
from tests.scripts import load_script


@pytest.fixture(scope="module")
def script():
    return load_script("perturbed_verdicts")


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("bits", [1, -1])
def test_draws_move_by_one_or_two_last_bits(script, dtype, bits):
    key = jax.random.key(0)
    draws, moved = (
        np.asarray(f(key, (1000,), dtype), float)
        for f in (jax.random.normal, moved_normal(script, bits))
    )
    spacing = float(jnp.finfo(dtype).eps) * 2.0 ** np.floor(np.log2(np.abs(draws)))
    assert set(np.round(np.abs(moved - draws) / spacing, 6)) <= {0.5, 1.0, 2.0}
    assert (np.sign(np.abs(moved) - np.abs(draws)) == bits).all()


def moved_normal(script, bits):
    return script.moved(jax.random.normal, bits)


def test_what_differs_is_a_verdict_and_not_a_number(script, tmp_path):
    results = {
        "baseline": {
            "a": ["confirmed", 1.0, [0.5, 1.5]],
            "b": ["refuted", 2.0, None],
            "(run)": ["failed", 0.0, None],
        },
        "threads": {
            "a": ["confirmed", 1.1, [0.6, 1.6]],
            "b": ["inconclusive", 2.5, None],
            "c": ["confirmed", 3.0, None],
        },
    }
    for label, checks in results.items():
        script.result_path(tmp_path, label).write_text(
            json.dumps({"experiment": "e", "checks": checks}) + "\n"
        )
    assert script.differences({label: script.found(tmp_path, label) for label in results}) == [
        "e: (run): failed in the baseline",
        "e: b: refuted at 2; with threads inconclusive at 2.5",
        "e: (run): failed at 0; with threads absent at nan",
        "e: c: absent at nan; with threads confirmed at 3",
    ]


@pytest.mark.slow
def test_means_of_odd_activations_have_the_spread_of_their_draws(smoke_data):
    moments = smoke_data("activations")["moments"]["moment"].sel(activation="tanh")
    mean, stderr = sweep.mean_and_stderr(moments.sel(of="mean"))
    second, _ = sweep.mean_and_stderr(moments.sel(of="second"))
    batches = moments.sizes["seed"]
    np.testing.assert_allclose(
        stderr, np.sqrt((second - mean**2) / (batches * BATCH)), rtol=4 / np.sqrt(2 * batches)
    )
