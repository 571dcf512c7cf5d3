"""Layerwise training against a plain numpy twin, with a diverging run beside a good one, and with
padded samples.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.models import layerwise_descent, mlp
from specjax.models.layerwise_descent import CRITERION, EUCLIDEAN, SPECTRAL
from specjax.sizes import Size

pytestmark = pytest.mark.integration

LIMIT = 50.0
RECORDS, EVERY = 2, 3
GD, MIXED = (EUCLIDEAN,) * 3, (EUCLIDEAN, SPECTRAL, EUCLIDEAN)
TRACED = (GD, (SPECTRAL,) * 3, (CRITERION,) * 3, (EUCLIDEAN, 1.05, EUCLIDEAN))
"""Thresholds in arrays. With the last two, the first and the second block take both steps within
the run.
"""


@pytest.fixture(scope="module")
def problem():
    """Weights, inputs with a dominant direction, targets."""
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(0), 3)
        x = jax.random.normal(keys[0], (9, 4)) * jnp.asarray([[2.0, 1.0, 1.0, 0.5]])
        y = jax.random.normal(keys[1], (9, 1))
        return mlp.init(keys[2], (4, 6, 6, 1), "relu_squared", distribution="uniform"), (x, y)


@pytest.fixture(scope="module")
def trained(problem):
    """By static thresholds, runs with a good and a far too large rate in one call, and the same on
    padded samples. And the traced ones.
    """
    params, (x, y) = problem

    @jax.jit
    def both(rates):
        padded = tuple(jnp.pad(a, ((0, 3), (0, 0))) for a in (x, y))

        def descend(rate, batch, samples, thresholds):
            return layerwise_descent.descend(
                params,
                batch,
                "relu_squared",
                rate,
                thresholds=thresholds,
                records=RECORDS,
                every=EVERY,
                limit=LIMIT,
                samples=samples,
            )

        static = {
            thresholds: (
                jax.vmap(
                    lambda rate, thresholds=thresholds: descend(rate, (x, y), None, thresholds)
                )(rates),
                descend(rates[0], padded, Size(12, 9), thresholds),
            )
            for thresholds in (GD, MIXED)
        }
        return static, jax.vmap(lambda thresholds: descend(rates[0], (x, y), None, thresholds))(
            jnp.asarray(TRACED)
        )

    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, both(jnp.asarray([0.05, 1e6])))


def twin(params, x, y, rate, thresholds, iterations):
    """The same steps with decompositions, in numpy: losses, st(A_{ℓ-1}), nr(G_ℓ) and which steps
    are spectral, at every iteration.
    """
    weights, found = [np.asarray(w) for w in params], []
    for _ in range(iterations):
        inputs, pre = [np.asarray(x)], []
        for w in weights:
            pre.append(inputs[-1] @ w.T)
            inputs.append(np.maximum(pre[-1], 0) ** 2)
        residual = pre[-1] - np.asarray(y)
        delta, gradients = 2 * residual / len(x), [None] * len(weights)
        for layer in reversed(range(len(weights))):
            gradients[layer] = delta.T @ inputs[layer]
            if layer:
                delta = (delta @ weights[layer]) * 2 * np.maximum(pre[layer - 1], 0)
        spectra = [np.linalg.svd(a, compute_uv=False) for a in inputs[:-1]]
        factors = [np.linalg.svd(g, full_matrices=False) for g in gradients]
        stable = np.asarray([np.sum(s**2) / s[0] ** 2 for s in spectra])
        nuclear = np.asarray([np.sum(s) ** 2 / np.sum(s**2) for _, s, _ in factors])
        took = nuclear >= np.asarray(thresholds) * stable
        found.append((np.sum(residual**2) / len(x), stable, nuclear, took))
        for layer, (s, (u, values, v)) in enumerate(zip(spectra, factors, strict=True)):
            if took[layer]:
                weights[layer] = (
                    weights[layer] - rate * len(x) / np.sum(s**2) * np.sum(values) * u @ v
                )
            else:
                weights[layer] = weights[layer] - rate * len(x) / s[0] ** 2 * gradients[layer]
    return (np.asarray(column) for column in zip(*found, strict=True))


def agrees_with_twin(found, problem, thresholds):
    """Compares the run, and returns the twin's losses and choices."""
    params, (x, y) = problem
    losses, stable, nuclear, took = twin(params, x, y, 0.05, thresholds, RECORDS * EVERY)
    # The norm by squaring is that of a decomposition to (λ_2/λ_1)^64.
    np.testing.assert_allclose(found.loss, losses, rtol=1e-6)
    np.testing.assert_allclose(found.stable_rank, stable[::EVERY], rtol=1e-6)
    np.testing.assert_allclose(found.nuclear_rank, nuclear[::EVERY], rtol=1e-6)
    np.testing.assert_array_equal(found.took_spectral, took)
    assert found.lasted == RECORDS * EVERY
    assert losses[-1] < 0.99 * losses[0]
    return losses, took


@pytest.mark.integration
@pytest.mark.parametrize("thresholds", [GD, MIXED])
def test_losses_and_ranks_are_those_of_the_twin(thresholds, problem, trained):
    agrees_with_twin(jax.tree.map(lambda a: a[0], trained[0][thresholds][0]), problem, thresholds)


@pytest.mark.integration
def test_traced_thresholds_decide_as_the_twin_does(problem, trained):
    found = [
        agrees_with_twin(jax.tree.map(lambda a, i=i: a[i], trained[1]), problem, thresholds)
        for i, thresholds in enumerate(TRACED)
    ]
    losses, (euclidean, spectral, criterion, changing) = (
        [loss for loss, _ in found],
        [took for _, took in found],
    )
    assert not euclidean.any()
    assert spectral.all()
    assert len({loss[-1] for loss in losses}) == len(TRACED)
    # The rule is asked of every block anew in every iteration.
    for choices in (criterion[:, 0], changing[:, 1]):
        assert 0 < choices.sum() < len(choices)


def test_the_two_methods_differ(trained):
    euclidean, mixed = (trained[0][thresholds][0].loss[0] for thresholds in (GD, MIXED))
    np.testing.assert_allclose(euclidean[0], mixed[0], rtol=1e-12)
    # Far above the tolerance with which either is compared with its twin.
    assert abs(euclidean[-1] / mixed[-1] - 1) > 5e-5


@pytest.mark.parametrize("thresholds", [GD, MIXED])
def test_a_diverged_run_stops_alone(thresholds, trained):
    diverged = jax.tree.map(lambda a: a[1], trained[0][thresholds][0])
    assert diverged.lasted == 1
    assert diverged.loss[0] < LIMIT
    np.testing.assert_array_equal(diverged.loss[1:], LIMIT)
    np.testing.assert_array_equal(diverged.stable_rank[1:], 0)
    np.testing.assert_array_equal(diverged.nuclear_rank[1:], 0)
    np.testing.assert_array_equal(
        diverged.took_spectral, [[level == SPECTRAL for level in thresholds]] + [[False] * 3] * 5
    )


@pytest.mark.parametrize("thresholds", [GD, MIXED])
def test_padded_samples_change_nothing(thresholds, trained):
    batch, padded = trained[0][thresholds]
    for field in batch._fields:
        np.testing.assert_allclose(
            getattr(padded, field), getattr(batch, field)[0], rtol=1e-9, err_msg=field
        )


@pytest.mark.usefixtures("unchecked")
def test_what_is_refused(problem):
    params, batch = problem
    for changes, sentence in (
        ({"thresholds": (SPECTRAL,) * 4}, r"Each of the 3 blocks needs a threshold, got 4\."),
        ({"records": 0}, r"A run needs records >= 1 and every >= 1, got 0 and 2\."),
    ):
        arguments = {"thresholds": GD, "records": 1, "every": 2, "limit": 1.0} | changes
        with pytest.raises(ValueError, match=sentence):
            layerwise_descent.descend(params, batch, "relu_squared", jnp.asarray(0.1), **arguments)
