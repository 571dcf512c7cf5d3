"""On jaxlib 0.10 no decomposition of specjax is cut into tasks that XLA's threads could wait for,
on a CPU; nothing else changes.
"""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from specjax import optim, spectral
from specjax.models import factorization_spectra, random_features
from specjax.models.associative_memory.newton_step import HessianAtZero, newton_step
from specjax.programs.one_at_a_time import IS_NEEDED, one_at_a_time
from specjax.spectral import QDWH, SVD, Newton, NewtonSchulz
from specjax.theory import geometry, layered, one_step, second_moment
from specjax.theory.preconditioning import perturbation

pytestmark = pytest.mark.skipif(
    not IS_NEEDED, reason="From 0.11.1 on jaxlib takes the matrices of a batch one by one itself."
)

X = jnp.asarray(np.random.default_rng(0).normal(size=(3, 2, 4, 6)), jnp.float32)


def by_eigh(x):
    """A method as a user writes it."""
    values, vectors = jnp.linalg.eigh(x @ x.T)
    return (vectors / jnp.sqrt(values)[None, :]) @ vectors.T @ x


def twice(function):
    return jax.vmap(jax.vmap(function))


def lapack_calls(function, *args):
    """The types of operands and results of every call of LAPACK on a CPU."""
    text = jax.jit(function).trace(*args).lower(lowering_platforms=("cpu",)).as_text()
    return [line for line in text.splitlines() if "@lapack_" in line]


def optimizer(transform):
    leaves = {"a": X[0], "b": X[:, :, :3], "c": X[0, 0]}
    extra = {"stable_ranks": dict.fromkeys(leaves, jnp.float32(2))}
    return lambda scale: transform.update(
        jax.tree.map(lambda x: scale * x, leaves), transform.init(leaves), leaves, **extra
    )[0]


def squares(x):
    return x @ x.mT + jnp.eye(4).reshape((1,) * (x.ndim - 2) + (4, 4))


DECOMPOSING = {
    "polar-svd": lambda x: spectral.polar(x, SVD()),
    "polar-newton": lambda x: spectral.polar(x, Newton()),
    "polar-qdwh": lambda x: spectral.polar(x, QDWH()),
    "polar-own": lambda x: spectral.polar(x, by_eigh),
    "derivative-exact": jax.grad(lambda x: jnp.sum(spectral.polar(x, SVD())[..., 0])),
    "derivative-own": jax.grad(lambda x: jnp.sum(spectral.polar(x, by_eigh)[..., 0])),
    "method_error": lambda x: spectral.polar_error.method_error(x, by_eigh),
    "nuclear_norm": spectral.nuclear_norm,
    "stabilized_sign": lambda x: spectral.stabilized_sign(x, 0.1),
    "row_metric": twice(spectral.row_metric),
    "estimate_ranks": twice(lambda x: spectral.estimate_ranks(x, jax.random.key(0))),
    "theory.compare": lambda x: one_step.compare(x.mT, squares(x)),
    "theory.smooth_rates": lambda x: one_step.smooth_rates(x, 1.0),
    "theory.distance": lambda x: geometry.affine_invariant_distance(squares(x), 2 * squares(x)),
    "theory.karcher_mean": lambda x: geometry.karcher_mean(squares(x[:, 0])),
    "theory.symmetric_power": twice(lambda x: second_moment.symmetric_power(squares(x), 0.5)),
    "theory.euclidean_decrease": twice(lambda x: layered.euclidean_decrease(x, 1.0, 1.0)),
    "theory.complements": twice(lambda x: perturbation.matched_complements(x[:, :2], x[:, 1:3])),
    "theory.approximation_bound": twice(lambda x: perturbation.approximation_bound(x, 2 * x, 2)),
    "models.gd_step": twice(lambda x: random_features.gd_step(x[:2, :4], squares(x), x[:2, :4])),
    "models.trajectory": twice(
        lambda x: random_features.trajectory(squares(x), squares(x), squares(x))
    ),
    "models.newton_step": twice(
        lambda x: newton_step(x[:, :4], HessianAtZero(squares(x), squares(x)))
    ),
    "models.orthonormal": jax.vmap(
        lambda x: x[0, 0, 0] * factorization_spectra.orthonormal(jax.random.key(0), 4, 3)
    ),
}
OPTIMIZERS = {
    "orthogonalize": lambda: optim.orthogonalize(by_eigh),
    "spectral_descent": lambda: optim.spectral_descent(2.0),
    "rank_switch": lambda: optim.rank_switch(optim.spectral_descent(2.0), optax.identity()),
    "orthogonalize-svd": lambda: optim.orthogonalize(SVD()),
    "scale_by_factor_gram": lambda: optim.scale_by_factor_gram(0.5),
}


def assert_single(calls):
    assert calls
    # A tensor with three extents or more would be a batch of matrices.
    assert not [call for call in calls if re.search(r"tensor<(\d+x){3,}[a-z]", call)]


@pytest.mark.parametrize("name", DECOMPOSING)
def test_every_call_of_lapack_gets_one_matrix(name):
    assert_single(lapack_calls(DECOMPOSING[name], X))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_lapack_call_of_an_update_gets_one_matrix(name):
    update = optimizer(OPTIMIZERS[name]())
    assert_single(lapack_calls(update, jnp.float32(2)))
    assert_single(lapack_calls(jax.vmap(update), jnp.ones(3)))


@pytest.mark.parametrize("batch_axes", [1, 2])
def test_elsewhere_than_on_a_cpu_a_batch_stays_a_batch(batch_axes):
    x = X if batch_axes == 2 else X[0]
    lowered = (
        jax.jit(lambda x: spectral.polar(x, by_eigh))
        .trace(x)
        .lower(lowering_platforms=("tpu",))
        .as_text()
    )
    plain = jax.jit(twice(by_eigh) if batch_axes == 2 else jax.vmap(by_eigh)).trace(x)
    assert lowered.count("stablehlo.while") == plain.lower(
        lowering_platforms=("tpu",)
    ).as_text().count("stablehlo.while")


def test_a_method_without_decompositions_stays_one_batch():
    text = jax.jit(lambda x: spectral.polar(x, NewtonSchulz())).lower(X).as_text()
    assert "stablehlo.while" not in text


@pytest.mark.slow
def test_values_and_derivatives_are_those_of_the_function():
    guarded = twice(lambda x: one_at_a_time(by_eigh, x))
    dx = jnp.sin(X + 1)
    np.testing.assert_allclose(guarded(X), twice(by_eigh)(X), rtol=0, atol=1e-6)

    def loss(function):
        return lambda x: jnp.sum(jnp.sin(3 * function(x)))

    for derivative in (
        lambda f: jax.jvp(f, (X,), (dx,))[1],
        lambda f: jax.grad(loss(f))(X),
        lambda f: jax.jvp(jax.grad(loss(f)), (X,), (dx,))[1],
        lambda f: jax.grad(lambda x: jnp.sum(jax.grad(loss(f))(x) ** 2))(X),
    ):
        found, expected = (derivative(f) for f in (guarded, twice(by_eigh)))
        np.testing.assert_allclose(
            found, expected, rtol=2e-5, atol=2e-5 * float(jnp.max(jnp.abs(expected)))
        )


def test_a_function_may_close_over_traced_values():
    def total(scales, apply):
        rows = jax.vmap(lambda c, x: apply(lambda x: c * by_eigh(c * x), x))(scales, X[:, 0])
        return jnp.sum(rows**3)

    scales = jnp.array([1.0, 2.0, -3.0])
    found, expected = (
        jax.jit(jax.value_and_grad(lambda s: total(s, apply)))(scales)  # noqa: B023
        for apply in (one_at_a_time, lambda f, x: f(x))
    )
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-5)
