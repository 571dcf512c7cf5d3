"""Transformers trained for their momenta, against the same trainings by the library's own
optimizer, and spectra against NumPy.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from specjax import optim, sizes, spectral, training
from specjax.experiments.field import language, momentum_spectra
from specjax.models import transformer
from specjax.models.transformer import Sequences
from specjax.training import text

WIDTH, RATE, STEPS = 4, 0.05, 3


@pytest.mark.slow
def test_every_method_trains_as_muon_with_it_does():
    methods = (spectral.NewtonSchulz(), spectral.NewtonSchulz(2, spectral.polynomials.CUBIC))
    data, key = jnp.asarray(text.load().train), jax.random.key(0)

    def batch(t):
        drawn = jax.random.fold_in(sizes.stream(key, "batches"), t)
        return Sequences(text.sample_batch(data, drawn, language.BATCH, language.CONTEXT))

    optimizers = [
        optim.jordan_muon(
            RATE,
            nesterov=False,
            method=method,
            muon_weight_dimension_numbers=optim.OUT_IN,
            labels=transformer.labels,
            fallback=optax.adam(language.TABLE_RATE, b2=0.95),
        )
        for method in methods
    ]
    start = jax.jit(
        lambda: transformer.init(sizes.stream(key, "weights"), language.architecture(WIDTH))
    )()
    expected, _ = jax.jit(
        lambda: training.train_many(
            transformer.loss, start, batch, optimizers, (STEPS,), lambda models: models
        )
    )()
    found, momenta = jax.jit(
        lambda: language.train(key, WIDTH, data, methods, RATE, (1, STEPS), lambda *both: both)
    )()
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one[-1], other[-1], rtol=1e-4, atol=1e-5)
    gradient = jax.jit(lambda model: jax.grad(transformer.loss)(model, batch(0)))(start)
    for kind in language.KINDS:
        expected = np.broadcast_to(0.05 * getattr(gradient.blocks, kind), momenta[kind][0].shape)
        np.testing.assert_allclose(momenta[kind][0], expected, rtol=1e-4, atol=1e-8)


def test_spectra_are_divided_by_the_frobenius_norm():
    rng = np.random.default_rng(0)
    shapes = {"up": (12, 3), "down": (3, 12)}
    matrices = {kind: rng.normal(size=(2, *shapes.get(kind, (3, 3)))) for kind in language.KINDS}
    found = momentum_spectra.spectra(
        {kind: jnp.asarray(m, jnp.float32) for kind, m in matrices.items()}
    )
    for row, kind in zip(found, language.KINDS, strict=True):
        for values, matrix in zip(row, matrices[kind], strict=True):
            expected = np.linalg.svd(matrix / np.linalg.norm(matrix), compute_uv=False)
            np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("q", "width", "expected"), [(0.1, 8, 0), (0.5, 8, 3), (0.5, 7, 3), (0.75, 8, 5), (0.9, 32, 28)]
)
def test_a_quantile_is_counted_from_the_largest_singular_value(q, width, expected):
    assert momentum_spectra.place(q, width) == expected
