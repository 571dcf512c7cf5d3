"""Steepest descent in three norms and the sharpness in them, against enumeration, a grid, closed
forms and NumPy.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from jax.flatten_util import ravel_pytree

from specjax import sizes
from specjax.experiments.field import edge_of_stability, steepest

BALLS = (steepest.euclidean, steepest.spectral_norm, steepest.largest_entry)


def quadratic(seed, p, least):
    """A symmetric matrix of which `least` eigenvalues are negative."""
    rng = np.random.default_rng(seed)
    q = np.linalg.qr(rng.normal(size=(p, p)))[0]
    return (q * (rng.uniform(0.2, 1, p) * np.where(np.arange(p) < least, -1, 1))) @ q.T


def ascended(hessian, ball, shapes, starts=24):
    template = tuple(jnp.zeros(shape) for shape in shapes)
    flat, unravel = ravel_pytree(template)
    first = jax.random.normal(jax.random.key(0), (starts, flat.size))
    return steepest.ascend(
        jnp.asarray(hessian), lambda d: ravel_pytree(ball(unravel(d)))[0], first, 60
    )


def largest_in_the_box(h):
    """max dᵀHd over |dᵢ| <= 1: on every face the best signs, and the stationary point of what is
    free.
    """
    p, best = len(h), 0.0
    for face in itertools.product((-1, 0, 1), repeat=p):
        d = np.array(face, float)
        free = np.flatnonzero(d == 0)
        if free.size:
            d[free] = np.linalg.solve(
                h[np.ix_(free, free)], -h[np.ix_(free, np.flatnonzero(d))] @ d[d != 0]
            )
        if np.abs(d).max() <= 1:
            best = max(best, d @ h @ d)
    return best


def largest_on_a_grid(h, points):
    """max of the form over pairs of orthogonal 2×2 matrices, on a grid of angles: a little too
    small.
    """
    angles = np.linspace(0, 2 * np.pi, points, endpoint=False)
    c, s = np.cos(angles), np.sin(angles)
    orthogonal = np.concatenate([np.stack([c, -s, s, c], -1), np.stack([c, s, s, -c], -1)])
    alone = [
        np.einsum("ai,ij,aj->a", orthogonal, h[part, part], orthogonal)
        for part in (slice(0, 4), slice(4, 8))
    ]
    return (alone[0][:, None] + alone[1] + 2 * orthogonal @ h[:4, 4:] @ orthogonal.T).max()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("negative", [0, 3])
def test_the_best_ascent_in_a_box_is_the_largest_of_all_faces(seed, negative):
    with jax.enable_x64(True):
        h = quadratic(seed, 6, negative)
        largest = largest_in_the_box(h)
        found = ascended(h, steepest.largest_entry, [(2, 3)], starts=400)
        np.testing.assert_allclose(jnp.max(found), largest, rtol=1e-6)
        # No start exceeds it: a search with few starts may miss it, from below alone.
        assert float(jnp.max(found)) <= largest * (1 + 1e-9)


@pytest.mark.integration
@pytest.mark.parametrize("seed", range(4))
def test_in_the_spectral_ball_of_two_layers_it_is_that_of_a_grid(seed):
    with jax.enable_x64(True):
        h = quadratic(seed, 8, 0)
        found = float(jnp.max(ascended(h, steepest.spectral_norm, [(2, 2), (2, 2)])))
        grid = largest_on_a_grid(h, 720)
        assert grid - 1e-9 <= found <= grid * (1 + 1e-4)


def test_the_ascent_needs_line_search_for_an_indefinite_form():
    """diag(-1, 3): the corners of the box have 2, the middle of an edge 3."""
    with jax.enable_x64(True):
        h = np.diag([-1.0, 3.0])
        np.testing.assert_allclose(
            jnp.max(ascended(h, steepest.largest_entry, [(1, 2)])), 3.0, rtol=1e-12
        )


@pytest.mark.slow
@pytest.mark.parametrize("ball", BALLS)
def test_an_ascent_never_leaves_the_ball_and_never_falls(ball):
    with jax.enable_x64(True):
        h = quadratic(0, 12, 5)
        unravel = ravel_pytree((jnp.zeros((2, 3)), jnp.zeros((3, 2))))[1]
        first = jax.random.normal(jax.random.key(1), (5, 12))
        values = jnp.stack(
            [
                steepest.ascend(
                    jnp.asarray(h), lambda d: ravel_pytree(ball(unravel(d)))[0], first, n
                )
                for n in range(8)
            ]
        )
        assert (np.diff(values, axis=0) >= -1e-12).all()


@pytest.mark.integration
def test_dual_norms_are_frobenius_nuclear_and_sum_of_entries():
    with jax.enable_x64(True):
        rng = np.random.default_rng(0)
        g = tuple(jnp.asarray(rng.normal(size=shape)) for shape in ((4, 3), (2, 4)))
        expected = (
            np.sqrt(sum((np.asarray(x) ** 2).sum() for x in g)),
            sum(np.linalg.svd(x, compute_uv=False).sum() for x in g),
            sum(np.abs(x).sum() for x in g),
        )
        for ball, dual in zip(BALLS, expected, strict=True):
            np.testing.assert_allclose(steepest.inner(g, ball(g)), dual, rtol=1e-12)
            np.testing.assert_array_equal(
                ball(jax.tree.map(jnp.zeros_like, g))[0], np.zeros((4, 3))
            )


def by_hand(x, y, w, ball, rate, fixed, steps):
    """Losses of a linear model, and nuclear or other dual norms, in NumPy."""
    losses, duals = [], []
    for _ in range(steps + 1):
        rest = x @ w.T - y
        g = rest.T @ x / len(x)
        if ball is steepest.spectral_norm:
            u, s, vt = np.linalg.svd(g, full_matrices=False)
            d, dual = u @ vt, s.sum()
        elif ball is steepest.largest_entry:
            d, dual = np.sign(g), np.abs(g).sum()
        else:
            dual = np.linalg.norm(g)
            d = g / dual
        losses.append((rest**2).sum() / (2 * len(x)))
        duals.append(dual)
        w = w - rate * (1 if fixed else dual) * d
    return losses, duals


@pytest.mark.integration
@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("ball", BALLS)
def test_a_linear_model_has_known_steps_and_sharpness(ball, fixed):
    key, rate = jax.random.key(3), 0.02
    with jax.enable_x64(True):
        found = steepest.train(
            key,
            steepest.LINEAR,
            ball,
            jnp.asarray(rate),
            fixed=fixed,
            records=3,
            every=2,
            starts=12,
            iterations=300,
        )
        x = np.asarray(
            jax.random.normal(sizes.stream(key, "inputs"), (steepest.SAMPLES, steepest.INPUTS))
        )
        start = np.asarray(
            steepest.mlp.init(sizes.stream(key, "weights"), steepest.LINEAR, "tanh")[0]
        )
    y = 2.0 * (np.arange(steepest.SAMPLES)[:, None] % 3 == np.arange(3)) - 1
    losses, duals = by_hand(x, y, start, ball, rate, fixed, 4)
    np.testing.assert_allclose(found.loss, losses[::2], rtol=1e-10)
    np.testing.assert_allclose(found.dual, duals[::2], rtol=1e-10)
    covariance = x.T @ x / len(x)
    eigenvalues = np.linalg.eigvalsh(covariance)
    signs = np.array(list(itertools.product((-1, 1), repeat=steepest.INPUTS)))
    np.testing.assert_allclose(found.eigenvalue, 3 * [eigenvalues[-1]], rtol=1e-6)
    if ball is steepest.largest_entry:
        # Every row has local maxima of its own; the search in the box is compared with enumeration
        # above.
        assert (eigenvalues[-1] < np.asarray(found.sharpness)).all()
        largest = 3 * np.einsum("si,ij,sj->s", signs, covariance, signs).max()
        assert (np.asarray(found.sharpness) <= largest * (1 + 1e-9)).all()
    else:
        sharpness = eigenvalues[-3:].sum() if ball is steepest.spectral_norm else eigenvalues[-1]
        np.testing.assert_allclose(found.sharpness, 3 * [sharpness], rtol=1e-6)


@pytest.mark.integration
def test_an_ascent_from_the_maximum_stays_there():
    """There a line is rounding, of either sign: a step of its best length would leave the ball."""
    with jax.enable_x64(True):
        for seed in range(20):
            values, vectors = np.linalg.eigh(quadratic(seed, 12, 6))
            h = jnp.asarray(vectors * values) @ vectors.T
            found = steepest.ascend(
                h, lambda d: d / jnp.linalg.norm(d), jnp.asarray(vectors[:, -1:].T), 25
            )
            np.testing.assert_allclose(found, values[-1:], rtol=1e-12)


def test_quarters_are_averages_named_by_their_last_step():
    values = xr.DataArray(np.arange(12.0), dims="step", coords={"step": 5 * np.arange(12)})
    found = edge_of_stability.quarters(values)
    assert found.values.tolist() == [4, 7, 10]
    assert found["step"].values.tolist() == [25, 40, 55]
