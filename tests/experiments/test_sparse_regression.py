"""Sparse regression: what it counts of made-up runs, its problem, what it refuses; that padding
changes nothing at initialization.
"""

import jax
import numpy as np
import pytest
import xarray as xr

from specjax import sweep
from specjax.experiments.spectral_criterion import sparse_regression as experiment
from specjax.experiments.spectral_criterion.sparse_training import (
    Config,
    draw,
    labelled,
    ranks,
    records,
)

CONFIG = Config(
    lengths=(10, 20), gated_lengths=(10, 20), seeds=16, gated_seeds=16, fragile_seeds=16
)
DRAWS, DIVERGED = 16, 3


def made(name, points=2):
    """Two runs of which SpecGD has a tenth of GD's loss and diverges in the last samples after the
    first record; ranks 8 and 2.
    """
    dims, shape = ("run", "seed"), (points, DRAWS, 2, 3)
    loss = np.zeros(shape)
    loss[:, :, 1] = -1
    ranks = {"stable_rank": np.full((*shape, 4), 2.0), "nuclear_rank": np.full((*shape, 4), 8.0)}
    loss[:, -DIVERGED:, 1, 1:] = 3
    for values in ranks.values():
        values[:, -DIVERGED:, 1, 1:] = 0
    data = {"loss": ((*dims, "loss_dim_0", "loss_dim_1"), loss)}
    data |= {
        rank: ((*dims, *(f"{rank}_dim_{i}" for i in range(3))), values)
        for rank, values in ranks.items()
    }
    # The second point has fewer samples.
    counts = [DRAWS, DRAWS - 2, DRAWS][:points]
    found = xr.Dataset(data, coords={"seeds": ("run", counts)})
    return {name: labelled(found, (10, 20))}


def test_a_diverged_run_counts_as_the_worst_there_is():
    found = experiment.select_point(made("relu"), "relu", 0, (10, 20))
    lead = experiment.lead(found)
    assert dict(lead.sizes) == {"seed": DRAWS, "length": 2}
    assert int((lead == 1).sum()) == 2 * (DRAWS - DIVERGED)
    assert int((lead == -3).sum()) == 2 * DIVERGED
    rule = experiment.rule(found, [2, 3]).sel(optimizer="spectral")
    assert set(np.unique(rule)) == {-experiment.WORST, 2.0}
    assert int((rule < 0).sum()) == 2 * 2 * DIVERGED
    change = experiment.change(CONFIG, made("gated", points=3), [2])
    assert set(np.unique(change.sel(optimizer="spectral"))) == {0.0, experiment.WORST}
    assert not change.sel(optimizer="gd").any()


def test_points_have_their_own_seeds_and_divergence_is_counted():
    data = made("relu")
    assert experiment.select_point(data, "relu", 1).sizes["seed"] == DRAWS - 2
    fragile = {s.name: s for s in experiment.EXPERIMENT.statements}["large-step-diverges"]
    found = fragile.find(CONFIG, data)
    assert found.deciding.estimate == pytest.approx((DIVERGED - 2) / (DRAWS - 2))
    assert found.deciding.compared == 0.05


def test_a_training_is_observed_from_start_to_last_length():
    assert list(records((100, 200))) == list(range(0, 201, 10))
    assert list(records((4, 6))) == [0, 2, 4, 6]


@pytest.mark.slow
def test_padding_changes_no_rank_at_initialization():
    """Of squared ReLU networks at two sizes in one program, and of SwiGLU networks at two batch
    sizes.
    """
    sizes = sweep.zipped(d=sweep.widths(4, 6), h=sweep.widths(16, 24))

    def relu(key, d, h):
        return ranks(draw(key, "relu_squared", h, d, h), "relu_squared")

    def gated(key, n):
        return ranks(draw(key, "swiglu", n, 4, 8), "swiglu")

    for measure, over in ((relu, {"d": sizes}), (gated, {"n": sweep.widths(8, 24)})):
        padded, exact = (
            sweep.run(
                measure, over, num_seeds=3, key=jax.random.key(0), plan=plan, check_padding=False
            )
            for plan in ("padded", "exact")
        )
        for rank in ("stable_rank", "nuclear_rank"):
            np.testing.assert_allclose(padded[rank], exact[rank], rtol=1e-4)


@pytest.mark.integration
def test_the_problem_is_that_described():
    """Weights U(-1, 1)/√fan_in, of twice the rows where they are gated, and targets x_1 x_2 x_3."""
    params, (x, y) = draw(jax.random.key(0), "swiglu", 40, 5, 30)
    assert [w.shape for w in params] == [(60, 5), (60, 30), (60, 30), (1, 30)]
    for w in params:
        scaled = np.abs(np.asarray(w)) * np.sqrt(w.shape[1])
        assert 0.8 < scaled.max() <= 1
        assert abs(scaled.mean() - 0.5) < 4 * np.sqrt(1 / 12 / w.size)
    np.testing.assert_allclose(y[:, 0], x[:, 0] * x[:, 1] * x[:, 2], rtol=1e-6)
