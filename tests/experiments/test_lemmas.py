"""The printed formulas of the outer-product paper's lemmas against exact averages: a grid of three
points for each normal number, whose moments it has, and an integral over the angle.
"""

import numpy as np
import pytest
import xarray as xr

from specjax.experiments.outer_product import lemma_forms as forms
from specjax.experiments.outer_product.lemma_samples import PATTERNS, SYMMETRIC, factors
from tests.reference.moments import gaussian_average

D2 = 2


def test_lemma_25_is_the_integral_over_the_angle_of_the_input():
    u, v, steps = np.array([2.0, 1.0]), np.array([-0.5, 1.5]), 200_000
    angle = 2 * np.pi * (np.arange(steps) + 0.5) / steps
    x = np.stack([np.cos(angle), np.sin(angle)], 1)
    # The mean of the squared length of x is 2.
    exact = 2 * np.mean(((x @ u > 0) * np.maximum(x @ v, 0))[:, None] * x, axis=0)
    theta = np.arccos(u @ v / np.sqrt((u @ u) * (v @ v)))
    found = {
        name: form(u, v, np.sqrt((v @ v) / (u @ u)), theta) for name, form in forms.KINK.items()
    }
    # The mask jumps at an angle, which costs a step of the sum.
    np.testing.assert_allclose(found.pop("(49)"), exact, rtol=0, atol=1e-4)
    assert min(np.abs(wrong - exact).max() for wrong in found.values()) > 0.01


def test_lemma_26_is_the_average_over_a_grid():
    def products(w):
        p = w.T @ w
        return np.array([p[a, k] * p[c, e] for a, k, c, e in (map(int, each) for each in PATTERNS)])

    exact = gaussian_average(products, [(D2, 4)], degree=4)
    data = xr.Dataset(
        {"products": (("d2", "indices"), exact[None])}, {"d2": [D2], "indices": list(PATTERNS)}
    )
    np.testing.assert_allclose(forms.pairings({"products": data})[0], exact, atol=1e-10)


@pytest.mark.parametrize("m", [2, 3])
def test_lemmas_10_and_11_are_averages_over_a_grid(m):
    matrix = SYMMETRIC[:2, :2]

    def means(x):
        p = x @ matrix @ x.T
        return np.array([*(p @ p)[:2, :2].ravel(), np.trace(p) ** 2])

    exact = gaussian_average(means, [(m, 2)], degree=4)
    data = {"forms": xr.Dataset({"matrix": (("p", "q"), matrix)}, {"m": [m]})}
    found = [*np.ravel(forms.form_of_squares(data)), float(forms.form_of_trace(data)[0])]
    np.testing.assert_allclose(found, exact, atol=1e-10)


def test_lemma_12_is_an_average_over_a_grid_of_one_layer():
    rng = np.random.default_rng(0)
    first, last = rng.normal(size=(2, 3)), rng.normal(size=(2, 2))
    product = factors([first, np.zeros((2, 2)), last], np.eye(3), np.eye(2))
    a, b = product["A_2"], product["B_2"]

    def outer_product(w):
        g = last.T @ (last @ w @ first - forms.TARGET) @ first.T
        return g @ g.T

    exact = gaussian_average(outer_product, [(2, 2)], degree=2)
    found = {name: form(a, b) for name, form in forms.CONDITIONAL.items()}
    np.testing.assert_allclose(found.pop("(31)"), exact, rtol=1e-10)
    assert min(np.abs(wrong / exact - 1).max() for wrong in found.values()) > 0.01
