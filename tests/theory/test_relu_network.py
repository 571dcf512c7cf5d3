import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import gammaln

from specjax.models import relu_network as model
from specjax.theory import relu_network as theory
from tests.reference import angles as reference
from tests.reference.moments import simulate


def g(t):
    return (np.sin(t) + (np.pi - t) * np.cos(t)) / (2 * np.pi)


@pytest.mark.parametrize("d0", [1, 2, 3, 10, 25, 100, 1000])
@pytest.mark.usefixtures("x64")
def test_the_overlap_of_two_units_is_d0_over_four_pi(d0):
    """The paper's own integral (C.6) for T_3/d_2 = E[F(u, v)·F(v, u)], done by scipy: another route
    than the docstring's.
    """
    norms = 2 * np.exp(2 * (gammaln((d0 + 1) / 2) - gammaln(d0 / 2)))
    overlap = norms * reference.angle_mean(
        lambda t: (
            (np.cos(t) * (np.sin(t) ** 2 + (np.pi - t) ** 2) + 2 * np.sin(t) * (np.pi - t))
            / (4 * np.pi**2)
        ),
        d0,
    )
    assert theory.off_diagonal_1(d0, 1) == pytest.approx(overlap, rel=1e-12)
    assert abs(theory.off_diagonal_1_as_printed(d0, 1) / overlap - 1) > 0.4 / d0


@pytest.mark.parametrize("d0", [1, 2, 3, 25, 1000])
@pytest.mark.usefixtures("x64")
def test_the_constants_are_the_integrals_of_the_paper(d0):
    kappa_1 = reference.angle_mean(
        lambda t: (
            (np.sin(t) ** 2 + (np.pi - t) ** 2) / (4 * np.pi**2)
            + np.sin(t) * np.cos(t) * (np.pi - t) / (2 * np.pi**2)
        ),
        d0,
    )
    kappa_2 = reference.angle_mean(lambda t: np.sin(t) * (np.pi - t) / (2 * np.pi**2), d0)
    square = reference.angle_mean(lambda t: g(t) ** 2, d0)
    assert theory.kappa_1(d0) == pytest.approx(kappa_1, rel=1e-12)
    assert theory.kappa_2(d0) == pytest.approx(kappa_2, rel=1e-12)
    assert theory.alpha(d0, 7) == pytest.approx(
        7 * d0 * (d0 + 2) / 4 + 42 * d0**2 * square, rel=1e-12
    )
    assert theory.off_diagonal_1_as_printed(d0, 3) == pytest.approx(3 * d0 * kappa_2, rel=1e-12)


@pytest.mark.usefixtures("x64")
def test_one_input_by_hand():
    """d_0 = 1: the angle is 0 or π, H_ab = |w_a||w_b|/2 or 0, and F(u, v) = v/2 or 0."""
    assert theory.kappa_1(1) == pytest.approx(1 / 8, rel=1e-14)
    assert theory.kappa_2(1) == 0
    assert theory.alpha(1, 5) == pytest.approx(5 * 3 / 4 + 20 / 8, rel=1e-14)
    # E|u||v|/4 · P(same sign) = (2/π)/8
    assert theory.off_diagonal_1(1, 1) == pytest.approx(1 / (4 * np.pi), rel=1e-14)


@pytest.mark.usefixtures("x64")
def test_the_constants_tend_to_their_limits():
    for limit, kappa in (
        (1 / (4 * np.pi**2) + 1 / 16, theory.kappa_1),
        (1 / (4 * np.pi), theory.kappa_2),
    ):
        gaps = np.array([float(kappa(d)) - limit for d in (1e4, 1e6)])
        assert abs(gaps[1]) < 1e-6
        # The corrections are of order 1/d.
        assert gaps[0] / gaps[1] == pytest.approx(100, rel=1e-2)


def blocks(d0, d1, d2):
    """For one key and target: mean diagonal and off-diagonal entry of G_1 G_1ᵀ, then the upper
    triangle of G_2 G_2ᵀ.
    """

    def measure(key, target):
        g1, g2 = model.gradient(model.init(key, d0, d1, d2), target)
        p1, p2 = g1 @ g1.T, g2 @ g2.T
        off = (jnp.sum(p1) - jnp.trace(p1)) / (d1 * (d1 - 1))
        return jnp.concatenate([jnp.stack([jnp.trace(p1) / d1, off]), p2[jnp.triu_indices(d2)]])

    return measure


def averages(d0, d1, d2, target):
    """The same numbers by the closed forms."""
    second = np.asarray(theory.expected_outer_product_2(target, d1))[np.triu_indices(d2)]
    diagonal = theory.diagonal_1(d0, d1, d2, float(jnp.sum(target**2)))
    return np.array([float(diagonal), float(theory.off_diagonal_1(d0, d2)), *second])


@pytest.mark.integration
@pytest.mark.parametrize(
    ("d0", "d1", "d2", "chunks"), [(1, 3, 2, 20), (2, 4, 2, 20), (4, 3, 3, 20), (25, 20, 12, 3)]
)
def test_simulated_gradients_confirm_every_average(d0, d1, d2, chunks):
    """For a target of order one, and for one that outweighs the noise; both from the same
    networks.
    """
    small = jnp.asarray(np.random.default_rng(d0).standard_normal((d2, d0)), jnp.float32)
    large = 8 * small
    means, errors = simulate(
        lambda key: jax.vmap(blocks(d0, d1, d2), in_axes=(None, 0))(key, jnp.stack([small, large])),
        jax.random.key(3),
        chunks,
    )

    def apart(which, width, target):
        return np.abs(means[which] - averages(d0, width, d2, target)) / errors[which]

    assert (apart(0, d1, small) < 4).all()
    assert (apart(1, d1, large) < 4).all()
    if chunks > 3:
        # One hidden unit more or less: seen by the first layer and by every diagonal entry of the
        # second.
        for width in (d1 - 1, d1 + 1):
            assert apart(0, width, small)[0] > 8
            assert apart(0, width, small)[2] > 8
    # The signal a tenth too large.
    assert apart(1, d1, np.sqrt(1.1) * large)[0] > 4
    assert apart(1, d1, np.sqrt(1.1) * large)[2:].max() > 4


@pytest.mark.integration
def test_simulations_refute_the_printed_off_diagonal_at_two():
    d0, d1, d2 = 2, 4, 1
    measure = blocks(d0, d1, d2)
    mean, error = simulate(
        lambda key: measure(key, jnp.zeros((d2, d0))), jax.random.key(4), chunks=40
    )
    assert abs(mean[1] - float(theory.off_diagonal_1(d0, d2))) < 4 * error[1]
    assert abs(mean[1] - float(theory.off_diagonal_1_as_printed(d0, d2))) > 8 * error[1]


@pytest.mark.slow
def test_simulations_refute_it_at_the_papers_input_size_too():
    """Slow: the quadrature above has this size too, and the simulation above the same gradients at
    two inputs.

    At d_0 = 25 the two formulas are 2% apart. The own-unit part S_aa w_a/2 of each row, S = W_2ᵀ
    W_2, is taken out first: its products with the other row average to zero, since w_c and the
    columns of W_2 have symmetric signs, but carry most noise.
    """
    d0, d1, d2 = 25, 4, 12

    def off_diagonal(key):
        params = model.init(key, d0, d1, d2)
        own = jnp.sum(params.w2**2, axis=0)[:, None] * params.w1 / 2
        rest = model.gradient(params, jnp.zeros((d2, d0))).w1 - own
        p = rest @ rest.T
        return (jnp.sum(p) - jnp.trace(p)) / (d1 * (d1 - 1))

    mean, error = simulate(off_diagonal, jax.random.key(5), chunks=64, size=8192)
    assert abs(mean - float(theory.off_diagonal_1(d0, d2))) < 4 * error
    assert abs(mean - float(theory.off_diagonal_1_as_printed(d0, d2))) > 8 * error


@pytest.mark.integration
@pytest.mark.usefixtures("x64")
def test_sizes_are_vectorized():
    d = np.array([[2, 3], [25, 100]])
    calls = {
        "alpha": lambda n: theory.alpha(n, 5),
        "kappa_1": theory.kappa_1,
        "kappa_2": theory.kappa_2,
        "diagonal": lambda n: theory.diagonal_1(n, 7, 2, 3.0),
        "off-diagonal": lambda n: theory.off_diagonal_1(n, 2),
        "printed": lambda n: theory.off_diagonal_1_as_printed(n, 2),
    }
    for f in calls.values():
        batch = f(d)
        assert batch.shape == (2, 2)
        for i in np.ndindex(2, 2):
            assert batch[i] == pytest.approx(float(f(int(d[i]))), rel=1e-13)
    target = jnp.asarray(np.random.default_rng(0).standard_normal((3, 4)))
    widths = theory.expected_outer_product_2(target, jnp.asarray([5, 9]))
    for i, width in enumerate((5, 9)):
        np.testing.assert_allclose(
            widths[i], theory.expected_outer_product_2(target, width), rtol=1e-13
        )
