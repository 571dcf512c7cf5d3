"""The number of steps after which spectral ones pass, in the report on one linear map, against
NumPy's trainings of its matrix.
"""

import re

import jax.numpy as jnp
import numpy as np
import pytest

from specjax.diagnostics import LayerReport, layer_report

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("x64")]
D, ROWS, SAMPLES = 8, 64, 200


def loss(params, batch):
    return jnp.mean(jnp.sum((batch[0] @ params["w"].T - batch[1]) ** 2, axis=1))


def data(seed=0):
    """Inputs with a power law in a rotated basis, and the targets of a random matrix."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((D, D)))[0]
    x = rng.standard_normal((SAMPLES, D)) / np.arange(1, D + 1) @ basis
    return x, x @ rng.standard_normal((D, ROWS))


def after(k, x, y):
    """The matrix after k gradient steps of the guaranteed length from zero, in NumPy."""
    w, b = np.zeros((ROWS, D)), x.T @ x / SAMPLES
    for _ in range(k):
        w = w - (w @ b - y.T @ x / SAMPLES) / np.linalg.eigvalsh(b)[-1]
    return w


def passing(w, x, y, steps=12):
    """The first number of steps after which spectral ones have left less, each method at the best
    of many lengths.
    """
    b, target = x.T @ x / SAMPLES, y.T @ x / SAMPLES

    def spectral(g):
        u, values, vt = np.linalg.svd(g, full_matrices=False)
        return values.sum() / np.trace(b) * u @ vt

    def best(step, lengths):
        found = []
        for c in lengths:
            v, losses = w, []
            for _ in range(steps):
                v = v - c * step(v @ b - target)
                losses.append(np.sum((x @ v.T - y) ** 2))
            found.append(losses)
        return np.min(found, axis=0)

    gradient = best(lambda g: g / np.linalg.eigvalsh(b)[-1], 2 ** np.arange(-1, 6, 0.25))
    return 1 + np.flatnonzero(best(spectral, 2 ** np.arange(-1, 1.3, 0.25)) < gradient)[0]


def reported(w, x, y):
    return layer_report(loss, {"w": jnp.asarray(w)}, (jnp.asarray(x), jnp.asarray(y)))


@pytest.mark.parametrize("k", [0, 4, 16, 32])
def test_a_linear_map_has_the_steps_of_its_training(k):
    x, y = data()
    w = after(k, x, y)
    found = reported(w, x, y)
    # Between whole numbers, and of columns that are only nearly orthogonal.
    expected = passing(w, x, y)
    assert expected - 1.1 < found.steps_to_pass < expected + 0.1
    assert (found.steps_to_pass == 1) == (k == 0)


def test_the_report_says_it_in_words():
    x, y = data()
    text = str(reported(after(16, x, y), x, y))
    steps = float(re.fullmatch(r".*spectral steps are ahead after (\S+) steps", text, re.S)[1])
    assert steps == pytest.approx(reported(after(16, x, y), x, y).steps_to_pass, abs=0.05)
    assert str(reported(after(0, x, y), x, y)).endswith("are ahead from the first on")
    assert str(LayerReport((), (), np.inf)).endswith("gradient steps stay ahead for 100 steps")


def test_columns_that_are_not_orthogonal_have_no_number():
    x, y = data()
    narrow = jnp.asarray(y[:, :2])
    found = layer_report(loss, {"w": jnp.zeros((2, D))}, (jnp.asarray(x), narrow))
    assert found.steps_to_pass is None
    assert "best step sizes" not in str(found)


def test_other_models_have_no_number():
    x, y = (jnp.asarray(each) for each in data())
    two = {"v": jnp.eye(D), "w": jnp.zeros((ROWS, D))}
    found = layer_report(lambda p, b: loss({"w": p["w"] @ p["v"]}, b), two, (x, y))
    at_target = layer_report(lambda p, b: 0 * loss(p, b), {"w": jnp.zeros((ROWS, D))}, (x, y))
    large = layer_report(loss, {"w": jnp.zeros((ROWS, D))}, (x, y), exact_up_to=D - 1)
    assert (found.steps_to_pass, at_target.steps_to_pass, large.steps_to_pass) == (None,) * 3


def test_few_samples_count_the_directions_that_they_show():
    x, y = data()
    w, few = after(16, x, y), slice(0, 5)
    found = reported(w, x[few], y[few]).steps_to_pass
    basis = np.linalg.svd(x[few], full_matrices=False)[2]
    shown = reported(w @ basis.T, x[few] @ basis.T, y[few]).steps_to_pass
    assert found == pytest.approx(shown, rel=1e-6)
