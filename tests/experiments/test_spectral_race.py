"""The races of `spectral-race` against the same trainings in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import sizes
from specjax.experiments.beyond.spectral_race import races
from specjax.experiments.beyond.spectral_race.races import linear, two_blocks
from specjax.theory import spectral_race

KEY, D, COUNT = jax.random.key(5), 5, 6
pytestmark = pytest.mark.integration


def lifted(g):
    u, values, vt = np.linalg.svd(g, full_matrices=False)
    return values.sum() * u @ vt


def losses(step, state, loss, count=COUNT):
    found = [loss(state)]
    for _ in range(count):
        state = step(state)
        found.append(loss(state))
    return np.array(found[1:]) / found[0]


def normal(key, *shape):
    return np.asarray(sizes.normal(key, shape), float)


@pytest.mark.parametrize("part", ["tall", "noise", "square", "wide"])
def test_a_race_is_that_of_whole_matrices(part):
    found = linear(KEY, jnp.float32(2), jnp.float32(8), part, D, COUNT)
    b = np.arange(1.0, D + 1) ** -2
    shape = (int(races.LINEAR[part] * D), D)
    w = normal(KEY, *shape) * (1 - b) ** 8
    if part == "noise":
        w = w + 1e-3 * normal(sizes.stream(KEY, "noise"), *shape)

    def loss(w):
        return np.sum(b * w**2)

    spectral = [
        losses(lambda w, c=c: w - c * lifted(w * b) / b.sum(), w, loss)
        for c in spectral_race.SPECTRAL_LENGTHS
    ]
    gradient = [
        losses(lambda w, c=c: w - c * w * b, w, loss) for c in spectral_race.GRADIENT_LENGTHS
    ]
    np.testing.assert_allclose(found["spectral"], np.min(spectral, axis=0), rtol=2e-3)
    np.testing.assert_allclose(found["gradient"], np.min(gradient, axis=0), rtol=2e-3)
    np.testing.assert_allclose(found["spectral at 1"], spectral[4], rtol=2e-3)
    np.testing.assert_allclose(found["gradient at 1"], gradient[4], rtol=2e-3)
    values = np.linalg.svd(w * b, compute_uv=False)
    ratio = values.sum() ** 2 / (values**2).sum() / b.sum()
    assert float(found["nr over st"]) == pytest.approx(ratio, rel=1e-4)


def test_two_blocks_step_at_once():
    found = two_blocks(KEY, jnp.float32(2), jnp.float32(3), D, COUNT)
    b = np.arange(1.0, D + 1) ** -2
    target, second, first = (
        normal(sizes.stream(KEY, name), rows, D) / D**0.5
        for name, rows in (("target", 2 * D), ("second", 2 * D), ("first", D))
    )

    def step(w, length, spectral):
        lower, upper = w
        g = (upper @ lower - target) * b
        outside, inner = np.linalg.norm(upper, 2) ** 2, (lower * b) @ lower.T
        if spectral:
            return (
                lower - length * lifted(upper.T @ g) / (outside * b.sum()),
                upper - length * lifted(g @ lower.T) / np.trace(inner),
            )
        return (
            lower - length * upper.T @ g / outside,
            upper - length * g @ lower.T / np.linalg.norm(inner, 2),
        )

    def loss(w):
        return np.sum(b * (w[1] @ w[0] - target) ** 2)

    start = (first, second)
    for _ in range(3):
        start = step(start, 0.5, False)
    for name, spectral in (("gradient", False), ("spectral", True)):
        expected = losses(lambda w, spectral=spectral: step(w, 1.0, spectral), start, loss)
        np.testing.assert_allclose(found[f"{name} at 1"], expected, rtol=2e-3)
