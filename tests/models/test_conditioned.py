"""Problems of a condition number: where they have their minimum, and the loops that count the steps
of an optimizer to it.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from specjax import optim, sizes, spectral
from specjax.models import conditioned

pytestmark = pytest.mark.usefixtures("x64")


def line(start):
    """One number x, whose gradient and whose error it is."""
    return conditioned.Problem(
        start=jnp.full((1, 1), start),
        gradient=lambda x: x,
        loss=lambda x: jnp.sum(x**2),
        residual=lambda x: x,
        length=jnp.ones(()),
        curvature=jnp.ones(()),
    )


def test_runs_that_arrive_early_do_not_stop_the_others():
    # x ← x/2 from 2^n arrives below 1 after n + 1 steps; one that diverges to NaN stops with its
    # error.
    def steps(start):
        return conditioned.steps_to(line(start), optax.scale(-0.5), 0.99, 50)

    found = jax.jit(jax.vmap(steps))(2.0 ** jnp.asarray([0.0, 3.0, 20.0, 80.0]))
    np.testing.assert_array_equal(found.steps, [1, 4, 21, 50])
    np.testing.assert_allclose(found.error[:3], 0.5)
    lost = jax.jit(steps)(jnp.asarray(jnp.nan))
    assert int(lost.steps) == 0
    assert np.isnan(lost.error)


def test_a_run_that_no_longer_moves_stops_where_it_stands():
    # Halved three times from 8; then the steps are 0, and the fourth finds out.
    def still(start):
        transform = optax.scale_by_schedule(lambda count: -0.5 * (count < 3).astype(float))
        return conditioned.steps_to(line(start), transform, 0.1, 50)

    found = jax.jit(still)(jnp.asarray(8.0))
    assert (int(found.steps), float(found.error)) == (4, 1.0)


@pytest.mark.integration
def test_padding_the_columns_changes_no_curve():
    def errors(k, name):
        problem = conditioned.wide_factorization(jax.random.key(0), 10.0, 4, 2, k, 0.1)
        return conditioned.along(
            problem, optax.chain(*directions[name], optax.scale(-0.2)), 30, problem.error
        )

    directions = {
        "muon": [optim.orthogonalize(spectral.SVD())],
        "gradient descent": [],
        "sign": [optax.scale_by_sign()],
    }
    for name in directions:
        plain, padded = jax.jit(
            lambda name=name: [errors(k, name) for k in (3, sizes.Size(6, 3))]
        )()
        np.testing.assert_allclose(padded, plain, rtol=1e-6, err_msg=name)


@pytest.mark.integration
def test_problems_have_minimum_and_curvature_at_zero_error():
    def at(problem, minimum):
        return (
            problem.error(minimum),
            problem.loss(minimum),
            jnp.max(jnp.abs(problem.gradient(minimum))),
        )

    key, kappa = jax.random.key(2), jnp.asarray(7.0)
    context = conditioned.in_context(key, kappa, 4)
    zero = context.residual(jnp.zeros((4, 4))) * -kappa
    np.testing.assert_allclose(at(context, zero), 0, atol=1e-12)
    assert float(context.error(context.start)) == pytest.approx(np.linalg.norm(zero) / 7)
    regression = conditioned.regression(key, kappa, 3, 4)
    best = -regression.residual(regression.start) * regression.length
    np.testing.assert_allclose(at(regression, best), 0, atol=1e-12)
    assert float(regression.error(regression.start)) == pytest.approx(1)
    diagonal = np.asarray(conditioned.in_context(key, kappa, 4, rotated=False).gradient(jnp.eye(4)))
    np.testing.assert_array_equal(diagonal, np.diag(np.diagonal(diagonal)))


@pytest.mark.integration
def test_gradients_and_curvatures_are_those_of_the_losses():
    key, kappa = jax.random.key(4), 5.0

    def slopes(problem):
        x = jax.random.normal(jax.random.key(5), problem.start.shape)
        return problem.gradient(x), jax.grad(problem.loss)(x)

    def curvatures(problem):
        return (
            jax.hessian(problem.loss)(problem.start).reshape([problem.start.size] * 2),
            problem.curvature,
        )

    @jax.jit
    def measured():
        factor = conditioned.factorization(key, kappa, 4, 2, 2, 0.5)
        quadratic = [
            conditioned.in_context(key, kappa, 3),
            conditioned.regression(key, kappa, 2, 3),
        ]
        return [slopes(problem) for problem in (factor, *quadratic)], [
            curvatures(problem) for problem in quadratic
        ]

    gradients, hessians = measured()
    for ours, derived in gradients:
        np.testing.assert_allclose(ours, derived, atol=1e-12)
    for hessian, curvature in hessians:
        assert np.linalg.eigvalsh(hessian)[-1] == pytest.approx(float(curvature))


@pytest.mark.integration
def test_a_plain_optimizer_arrives_as_its_contraction_says():
    # One step takes the error of Q from one eigenvalue of S to its (1 - λ³)-fold: 64 for λ = 1/4.
    problem = conditioned.in_context(jax.random.key(0), 4.0, 2)
    found = conditioned.steps_to(problem, optax.sgd(1.0), 1e-3, 2000)
    assert abs(int(found.steps) - np.log(1e-3) / np.log1p(-1 / 64)) < 1
    assert float(found.error) <= 1e-3


@pytest.mark.parametrize(
    ("pose", "sentence"),
    [
        (
            lambda key: conditioned.factorization(key, 10.0, 4, 3, 2, 0.1),
            "A factor with k=2 columns cannot reach",
        ),
        (
            lambda key: conditioned.factorization(key, 0.5, 4, 2, 2, 0.1),
            "A condition number is the largest eigenvalue",
        ),
        (
            lambda key: conditioned.in_context(key, 0.5, 4),
            "A condition number is the largest eigenvalue",
        ),
        (
            lambda key: conditioned.regression(key, 0.5, 4, 4),
            "A condition number is the largest eigenvalue",
        ),
    ],
)
def test_what_has_no_solution_is_refused(pose, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}"):
        pose(jax.random.key(0))
