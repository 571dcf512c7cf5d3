"""The gradient at one input, by samples and by an average over masks that the engine's words are
written with.
"""

from math import comb

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import moments
from specjax.models import relu_network as model
from specjax.theory import relu_one_input
from tests.reference.moments import simulate

RNG = np.random.default_rng(11)


def test_the_formulas_are_those_of_their_docstrings():
    d0, d1, d2 = (moments.symbol(f"d{i}") for i in range(3))
    phi = moments.constant("Phi", "d2", "d0")
    length = d0 * (d0 + 2)
    on_identity = moments.identity("d2") * (length * d1 * (d1 + 5) / 4)
    assert relu_one_input.outer_product_2() == on_identity + d1 * (d0 + 2) / 2 * (phi @ phi.T)
    noise = length * (d2 * (d2 + 1) / 2 + d2 * (d1 + 1) / 4)
    assert relu_one_input.diagonal_1() == noise + (d0 + 2) / 2 * moments.trace(phi @ phi.T)
    assert relu_one_input.off_diagonal_1().value == d2 * (d2 + 1) * length / (
        2 * moments.symbol("pi")
    )


def relu_of_one_input(w1, w2, x, target, mask):
    """g gᵀ of both layers at one input, the ReLU as t times a mask."""
    h = mask * (w1 @ x)
    r = w2 @ h - target @ x
    g1 = (mask * (w2.T @ r))[:, None] * x[None]
    g2 = r[:, None] * h[None]
    return jnp.sum(g1**2), g2 @ g2.T


@pytest.mark.integration
@pytest.mark.parametrize(("d0", "d1", "d2"), [(25, 20, 12), (1, 30, 2), (40, 1, 3)])
@pytest.mark.usefixtures("x64")
def test_they_are_averages_over_masks(d0, d1, d2):
    """Over masks of half ones, all of the units as they are; a mask counts by its number of ones
    alone.
    """
    words = moments.express_function(
        relu_of_one_input,
        gaussian={"w1": ("d1", "d0"), "w2": ("d2", "d1"), "x": ("d0",)},
        constant={"target": ("d2", "d0"), "mask": ("d1",)},
    )
    first, second = map(moments.expectation, words)
    sizes = {"d0": d0, "d1": d1, "d2": d2}
    shares = np.array([comb(d1, ones) for ones in range(d1 + 1)]) / 2**d1

    @jax.jit
    def values(target, masks):
        of_masks = jax.vmap(
            lambda mask: [word(**sizes, target=target, mask=mask) for word in (first, second)]
        )(masks)
        return of_masks, [
            form(**sizes, Phi=target)
            for form in (relu_one_input.diagonal_1(), relu_one_input.outer_product_2())
        ]

    by_masks, (diagonal, wanted) = jax.device_get(
        values(RNG.normal(size=(d2, d0)), np.tri(d1 + 1, d1, -1))
    )
    on_diagonal, outputs = (np.tensordot(shares, of_masks, 1) for of_masks in by_masks)
    assert on_diagonal / d1 == pytest.approx(diagonal, rel=1e-12)
    np.testing.assert_allclose(outputs, wanted, rtol=1e-12, atol=1e-12 * np.abs(wanted).max())


@pytest.mark.integration
def test_gradients_at_one_input_need_all_terms_of_their_averages():
    """By autodiff of the loss at single inputs: without a target, and what a large one adds."""
    d0, d1, d2 = 3, 4, 2
    target = jnp.asarray(8 * np.random.default_rng(1).standard_normal((d2, d0)), jnp.float32)

    def measure(key):
        init_key, input_key = jax.random.split(key)
        params, x = model.init(init_key, d0, d1, d2), jax.random.normal(input_key, (1, d0))
        rows = []
        for phi in (target, 0 * target):
            g1, g2 = jax.grad(model.sampled_loss)(params, phi, x)
            p1, p2 = g1 @ g1.T, g2 @ g2.T
            off = (jnp.sum(p1) - jnp.trace(p1)) / (d1 * (d1 - 1))
            rows.append(jnp.stack([jnp.trace(p1) / d1, off, jnp.trace(p2) / d2, p2[0, 1]]))
        return jnp.stack([rows[1], rows[0] - rows[1]])

    def averages(forms):
        rows = []
        for phi in (0 * target, target):
            diagonal, off, p2 = (
                np.asarray(form(d0=d0, d1=d1, d2=d2, pi=np.pi, Phi=phi)) for form in forms
            )
            rows.append(np.array([diagonal, off, np.trace(p2) / d2, p2[0, 1]]))
        return np.stack([rows[0], rows[1] - rows[0]])

    means, errors = simulate(measure, jax.random.key(5), 40)

    def apart(*forms):
        return np.abs(means - averages(forms)) / errors

    forms = [
        relu_one_input.diagonal_1(),
        relu_one_input.off_diagonal_1(),
        relu_one_input.outer_product_2(),
    ]
    assert apart(*forms).max() < 4
    # The smallest monomials are lost in the noise, and no power of a width is.
    for place, (form, along) in enumerate(zip(forms, ("d1", "d2", "d1"), strict=True)):
        for name, wrong in form.dropped(along).items():
            assert apart(*forms[:place], wrong, *forms[place + 1 :]).max() > 4, name
