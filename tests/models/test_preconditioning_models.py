"""Targets with a given spectrum, in-context regression as prompts and as a quadratic, and matrix
regression.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.models import (
    factorization_spectra,
    in_context_regression,
    matrix_factorization,
    matrix_regression,
)
from tests.wrong_calls import wrong_calls

pytestmark = pytest.mark.usefixtures("x64")

D, N = 4, 9


@pytest.fixture(name="case")
def _case():
    rng = np.random.default_rng(3)
    return rng.standard_normal((D, N)), rng.standard_normal((D, D)), rng.standard_normal((50, D))


def test_the_spectrum_is_logarithmic_between_its_ends():
    np.testing.assert_allclose(factorization_spectra.logarithmic_spectrum(3, 4.0, 2.0), [2, 1, 0.5])
    np.testing.assert_allclose(factorization_spectra.logarithmic_spectrum(1, 4.0), [1])
    traced = jax.jit(lambda kappa: factorization_spectra.logarithmic_spectrum(3, kappa))(
        jnp.asarray(100.0)
    )
    np.testing.assert_allclose(traced, [1, 0.1, 0.01])


def test_a_target_has_its_spectrum_and_its_rank():
    spectrum = jnp.asarray([3.0, 1.0])
    at = factorization_spectra.target(jax.random.key(0), 5, spectrum)
    np.testing.assert_array_equal(at.matrix, at.matrix.T)
    np.testing.assert_allclose(np.linalg.eigvalsh(at.matrix)[::-1], [3, 1, 0, 0, 0], atol=1e-14)
    np.testing.assert_allclose(at.matrix @ at.basis, at.basis * spectrum[None, :], atol=1e-14)


@pytest.mark.integration
def test_haar_frames_are_orthonormal_with_entries_of_either_sign():
    draw = jax.jit(jax.vmap(lambda key: factorization_spectra.orthonormal(key, 4, 2)))
    frames = np.asarray(draw(jax.random.split(jax.random.key(1), 2000)))
    np.testing.assert_allclose(
        frames.transpose(0, 2, 1) @ frames, np.broadcast_to(np.eye(2), (2000, 2, 2)), atol=1e-13
    )
    # A sign convention of LAPACK would show as a diagonal of one sign. E[v_i²] is 1/4, with a
    # variance below 1/10.
    assert np.all(np.abs(np.mean(frames, axis=0)) < 4 * 0.5 / np.sqrt(2000))
    assert np.all(np.abs(np.mean(frames**2, axis=0) - 1 / 4) < 4 * np.sqrt(0.1 / 2000))
    wide = factorization_spectra.orthonormal(jax.random.key(2), 2, 4)
    np.testing.assert_allclose(wide @ wide.T, np.eye(2), atol=1e-14)


@pytest.mark.integration
def test_starts_are_orthonormal_or_aligned():
    x = matrix_factorization.orthonormal_init(jax.random.key(0), 3, 5, 0.5)
    np.testing.assert_allclose(x @ x.T, 0.25 * np.eye(3), atol=1e-14)
    tall = matrix_factorization.orthonormal_init(jax.random.key(0), 5, 3, 0.5)
    np.testing.assert_allclose(tall.T @ tall, 0.25 * np.eye(3), atol=1e-14)
    at = factorization_spectra.target(jax.random.key(1), 5, jnp.asarray([3.0, 1.0]))
    start = factorization_spectra.aligned_start(jax.random.key(2), at, 4, 0.5)
    np.testing.assert_allclose(
        start.matrix @ start.matrix.T, 0.25 * at.basis @ at.basis.T, atol=1e-14
    )
    several = factorization_spectra.composed(
        at.basis, jnp.stack([start.values, 2 * start.values]), start.frame
    )
    np.testing.assert_allclose(several[1], 2 * start.matrix, atol=1e-14)


@pytest.mark.integration
def test_the_prompt_model_predicts_what_the_closed_form_says(case):
    inputs, q, tasks = (jnp.asarray(x) for x in case)
    s = in_context_regression.covariance(inputs)
    query = inputs[:, 2]
    tokens = in_context_regression.prompt(inputs, tasks[0] @ inputs, query)
    assert tokens.shape == (D + 1, N + 1)
    # The weights of eq. 175 again, by numpy.
    value, key_query = np.zeros((D + 1, D + 1)), np.zeros((D + 1, D + 1))
    value[D, D], key_query[:D, :D] = 1, np.asarray(q)
    e = np.asarray(tokens)
    np.testing.assert_allclose(
        in_context_regression.linear_attention(tokens, q),
        value @ e @ (e.T @ key_query @ e) / N,
        atol=1e-12,
    )
    assert float(in_context_regression.prediction(tokens, q)) == pytest.approx(
        float(tasks[0] @ s @ q @ query)
    )


@pytest.mark.integration
def test_the_risk_of_the_prompts_is_the_quadratic_objective(case):
    inputs, q, tasks = (jnp.asarray(x) for x in case)
    s = in_context_regression.covariance(inputs)
    q = 0.3 * q

    # Prompt by prompt, every query and every task, on the very attention model.
    def squared(w, index):
        labels = w @ inputs
        tokens = in_context_regression.prompt(inputs, labels, inputs[:, index])
        return (in_context_regression.prediction(tokens, q) - labels[index]) ** 2

    @jax.jit
    def losses():
        prompts = jax.vmap(jax.vmap(squared, (None, 0)), (0, None))(tasks, jnp.arange(N))
        # With tasks that are √d e_i, i = 1, ..., d, which have covariance I exactly, there is no
        # sampling error.
        exact = in_context_regression.sampled_loss(q, inputs, jnp.asarray(np.sqrt(D) * np.eye(D)))
        drawn = in_context_regression.draw_tasks(jax.random.key(0), 4000, D)
        each = jax.vmap(lambda w: in_context_regression.sampled_loss(q, inputs, w[None]))(drawn)
        of_tasks = in_context_regression.sampled_loss(q, inputs, tasks)
        return prompts, of_tasks, exact, in_context_regression.loss(q, s), each

    prompts, of_tasks, exact, quadratic, each = map(np.asarray, losses())
    assert float(of_tasks) == pytest.approx(float(np.mean(prompts)) / 2)
    assert float(quadratic) == pytest.approx(float(exact))
    residual = np.asarray(s) @ np.asarray(q) - np.eye(D)
    values, vectors = np.linalg.eigh(s)
    root = vectors * np.sqrt(values) @ vectors.T
    assert float(exact) == pytest.approx(np.linalg.norm(residual @ root) ** 2 / 2)
    assert abs(float(np.mean(each) - exact)) < 4 * float(np.std(each)) / np.sqrt(4000)


@pytest.mark.integration
def test_gradient_is_that_of_the_loss_and_condition_is_cubed(case):
    inputs, q, _ = (jnp.asarray(x) for x in case)
    s = in_context_regression.covariance(inputs)
    inverse = jnp.asarray(np.linalg.inv(s))

    @jax.jit
    def derivatives(q):
        loss, gradient = in_context_regression.loss, in_context_regression.gradient
        return gradient(q, s), jax.grad(loss)(q, s), gradient(inverse, s), jax.hessian(loss)(q, s)

    gradient, expected, at_inverse, hessian = map(np.asarray, derivatives(q))
    np.testing.assert_allclose(gradient, expected, atol=1e-10)
    np.testing.assert_allclose(at_inverse, np.zeros((D, D)), atol=1e-10)
    assert np.linalg.cond(hessian.reshape(D * D, D * D)) == pytest.approx(
        np.linalg.cond(s) ** 3, rel=1e-8
    )
    assert not np.asarray(in_context_regression.init(D)).any()


@pytest.mark.integration
def test_matrix_regression_has_its_gradient_and_condition():
    inputs = matrix_regression.conditioned_inputs(jax.random.key(0), 4, 6, 25.0)
    assert np.linalg.cond(inputs @ inputs.T) == pytest.approx(25)
    outputs = matrix_regression.linear_outputs(jax.random.key(1), inputs, 3)
    w = np.random.default_rng(0).standard_normal((3, 4))
    # One column each, which is all of the loss.
    columns = jnp.asarray(np.linspace(0.5, 5.5, 6) / 6)

    @jax.jit
    def found(w):
        at = w, inputs, outputs
        gradients = matrix_regression.gradient(*at), jax.grad(matrix_regression.loss)(*at)
        sampled = [matrix_regression.sampled_loss(*at, some) for some in (columns, columns[:1])]
        start = matrix_regression.loss(matrix_regression.init(3, 4), inputs, outputs)
        return gradients, matrix_regression.loss(*at), sampled, start

    (gradient, expected), loss, (sampled, few), start = found(w)
    np.testing.assert_allclose(gradient, expected, atol=1e-12)
    assert float(sampled) == pytest.approx(float(loss))
    inputs, outputs = np.asarray(inputs), np.asarray(outputs)
    assert float(few) == pytest.approx(3 * np.sum((w @ inputs[:, 0] - outputs[:, 0]) ** 2))
    assert float(start) == pytest.approx(np.sum(outputs**2) / 2)


WRONG_CALLS = """
factorization_spectra.logarithmic_spectrum(3, 0.5)
    at least 1, got 0.5
factorization_spectra.logarithmic_spectrum(0, 2.0)
    at least one eigenvalue, got rank=0
factorization_spectra.logarithmic_spectrum(2, 2.0, -1.0)
    positive finite eigenvalues
factorization_spectra.target(jax.random.key(0), 3, jnp.asarray([1.0, -1.0]))
    positive finite eigenvalues
factorization_spectra.target(jax.random.key(0), 1, jnp.asarray([2.0, 1.0]))
    rank from 1 to 1, got r=2
factorization_spectra.aligned_start(jax.random.key(0),
factorization_spectra.target(jax.random.key(0), 3, jnp.asarray([2.0, 1.0])), 1, 0.1)
    k=1 columns cannot reach a target of rank r=2
matrix_regression.conditioned_inputs(jax.random.key(0), 4, 3, 2.0)
    n=3 inputs in d=4 dimensions
in_context_regression.loss(jnp.zeros((2, 2)), jnp.triu(jnp.ones((2, 2))))
    must be symmetric
matrix_regression.loss(jnp.zeros((2, 2)), jnp.ones((2, 3)), jnp.full((2, 3), jnp.nan))
    must have finite entries
"""


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("call", "sentence"), wrong_calls(WRONG_CALLS))
def test_impossible_problems_are_refused_in_one_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence) as refusal:
        eval(call)
    assert "\n" not in str(refusal.value)
    assert str(refusal.value).endswith(".")
