"""Trainings that recall in context: with padding, and where one of three optimizers diverges."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import optim
from specjax.models.recall import Recall
from specjax.models.transformer import Architecture, Blocks
from specjax.sizes import Size
from specjax.training import icl_task


def train(width):
    """Two runs of three steps by three optimizers, SGD diverging in the second."""

    def runs(rates):
        return icl_task.train_to_recall(
            jax.random.key(0),
            Recall(4, 10),
            Architecture(8, width, 10, activation=None, project=False),
            icl_task.paper_optimizers(rates, width),
            Size(4, 3),
            exponents=(jnp.asarray(0.5), jnp.asarray(1.0)),
            iterations=(3, 6),
            evaluation=8,
        )

    rates = jnp.array([[0.03, 0.01, 0.1], [0.03, 0.01, jnp.inf]])
    return jax.tree.map(np.asarray, jax.jit(jax.vmap(runs))(rates))


@pytest.fixture(scope="module")
def trained():
    return train(5)


@pytest.mark.slow
@pytest.mark.integration
def test_a_run_that_diverges_stops_alone(trained):
    for values in trained.values():
        np.testing.assert_array_equal(values[1, :, :2], values[0, :, :2])
    assert not trained["diverged"][0].any()
    np.testing.assert_array_equal(
        trained["diverged"][1], [[False] * 3, *[[False, False, True]] * 2]
    )
    # One start for all; then the three go ways of their own, but for the one that has stopped.
    for values in (trained[name] for name in icl_task.RECORDED[:-1]):
        np.testing.assert_array_equal(values[:, 0], values[:1, 0, :1].repeat(2, 0).repeat(3, 1))


@pytest.mark.slow
def test_padding_changes_no_run(trained):
    for name, values in train(Size(8, 5)).items():
        np.testing.assert_allclose(values, trained[name], rtol=2e-4, err_msg=name)


@pytest.mark.integration
def test_muon_scales_by_the_active_extents():
    rng = np.random.default_rng(0)

    def blocks(pad):
        square, up, down = (
            jnp.pad(
                jnp.asarray(one, jnp.float32), [(0, 0), *((0, n // 5 * pad) for n in one.shape[1:])]
            )
            for one in (drawn[:, :5], drawn, drawn.swapaxes(1, 2))
        )
        return Blocks(square, square, square, output=None, up=up, gate=None, down=down)

    drawn = rng.standard_normal((2, 20, 5))

    @jax.jit
    def steps(small, large):
        found = []
        for gradient, width in ((small, 5), (large, Size(8, 5))):
            fans = icl_task._fans(gradient, width)
            step = optim.orthogonalize(
                scale="point_two_sqrt_max", dimension_numbers=optim.OUT_IN, sizes=fans
            )
            found.append(step.update(gradient, step.init(gradient))[0])
        return found

    plain, padded = steps(blocks(0), blocks(3))
    for name in ("query", "up", "down"):
        expected, found = np.asarray(getattr(plain, name)), np.asarray(getattr(padded, name))
        np.testing.assert_allclose(
            found[:, : expected.shape[1], : expected.shape[2]],
            expected,
            rtol=1e-3,
            atol=1e-4,
            err_msg=name,
        )
        # As long as AdamW's step: a root mean square of 0.2, up to the spread of five Newton-Schulz
        # steps.
        assert 0.68 < np.sqrt(np.mean(expected**2)) / 0.2 < 1.21
        assert np.sum(found**2) == pytest.approx(np.sum(expected**2), rel=1e-4)
