import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import spectral
from specjax.sizes import Size
from tests.reference import dominance as reference

NAMES = ("diagonal_mean", "off_diagonal_mean", "dominance_ratio", "off_diagonal_energy")
SIZED = NAMES[:3]
EVERY = (*NAMES, "row_dominance", "off_diagonal")


@jax.jit
def measured(p):
    """All of `EVERY` by name, in one program for a shape."""
    return {name: getattr(spectral.dominance, name)(p) for name in EVERY}


def gram(m, seed=0):
    g = np.random.default_rng(seed).standard_normal((m, 3))
    return g @ g.T


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("m", [1, 2, 5])
@pytest.mark.usefixtures("x64")
def test_measures_are_their_definitions(name, m):
    p = gram(m)
    assert measured(p)[name] == pytest.approx(reference.measures(p)[name], rel=1e-13, abs=1e-15)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("x64")
def test_padding_is_not_part_of_the_matrix(name):
    p = gram(4)
    padded = np.pad(p, ((0, 3), (0, 3)))
    f = getattr(spectral.dominance, name)
    values = [measured(padded)[name]]
    if name in SIZED:
        traced = Size(7, jnp.asarray(4))
        values, unsized = (
            jax.jit(lambda p, size: [f(p, n) for n in (4, Size(7, 4), size)])(padded, traced),
            values[0],
        )
        assert unsized != pytest.approx(float(values[0]), rel=1e-2)
    for value in values:
        assert value == pytest.approx(reference.measures(p)[name], rel=1e-13)


def test_a_single_active_row_has_no_off_diagonal():
    functions = (
        spectral.dominance_ratio,
        spectral.dominance.diagonal_mean,
        spectral.dominance.off_diagonal_mean,
    )
    found = jax.jit(lambda p: [f(p, Size(3, 1)) for f in functions])(np.diag(np.float32([2, 0, 0])))
    np.testing.assert_array_equal(found, [0, 2, 0])


def test_a_diagonal_matrix_is_perfectly_dominant():
    found = measured(np.diag(np.float32([1, 2, 3])))
    assert found["dominance_ratio"] == 0
    assert found["off_diagonal_energy"] == 0
    np.testing.assert_array_equal(found["row_dominance"], [0, 0, 0])
    np.testing.assert_array_equal(found["off_diagonal"], np.zeros((3, 3)))


@pytest.mark.integration
@pytest.mark.usefixtures("x64")
def test_row_dominance_compares_each_row_with_its_diagonal_entry():
    p = gram(4, 2)
    np.testing.assert_allclose(measured(p)["row_dominance"], reference.row_dominance(p), rtol=1e-13)
    padded = measured(np.pad(p, ((0, 2), (0, 2))))["row_dominance"]
    np.testing.assert_allclose(padded, [*reference.row_dominance(p), 0, 0], rtol=1e-13)


@pytest.mark.usefixtures("x64")
def test_the_off_diagonal_coefficient_is_the_least_squares_one():
    p, r = gram(4, 3), gram(4, 4)
    off = ~np.eye(4, dtype=bool)
    (expected,), *_ = np.linalg.lstsq(r[off][:, None], p[off], rcond=None)
    coefficient = jax.jit(spectral.dominance.off_diagonal_coefficient)
    # The diagonals are ignored: moving them changes nothing.
    for shift in (0.0, 10.0):
        assert coefficient(p + shift * np.eye(4), r - shift * np.eye(4)) == pytest.approx(
            expected, rel=1e-12
        )
    assert coefficient(2.5 * r, r) == pytest.approx(2.5, rel=1e-13)


@pytest.mark.parametrize("name", EVERY)
def test_leading_axes_are_batch_axes(name):
    x = np.float32([[gram(3, 2 * i + j) for j in range(2)] for i in range(3)])
    batched = np.asarray(measured(x)[name])
    for i in np.ndindex(3, 2):
        np.testing.assert_allclose(batched[i], measured(x[i])[name], rtol=1e-5, atol=1e-6)


@pytest.mark.integration
@pytest.mark.usefixtures("x64")
def test_off_block_energy_is_the_least_over_all_divisions():
    found = []
    for p in (gram(4), gram(4, seed=1)):
        shares = [
            sum(p[i, j] ** 2 for i in range(4) for j in range(4) if (i in first) != (j in first))
            / np.sum(p**2)
            for first in ({0}, {1}, {2}, {3}, {0, 1}, {0, 2}, {0, 3})
        ]
        found.append(min(shares))
    energy = jax.jit(spectral.dominance.off_block_energy)
    np.testing.assert_allclose(energy(np.stack([gram(4), gram(4, seed=1)])), found, rtol=1e-12)
    # Blocks of columns that are not neighbours are blocks too.
    blocks = np.zeros((4, 4))
    blocks[np.ix_([0, 2], [0, 2])] = blocks[np.ix_([1, 3], [1, 3])] = gram(2)
    assert energy(blocks) == 0 < min(found)
    assert energy(np.zeros((3, 3))) == 0
    with pytest.raises(ValueError, match="Two blocks need two columns or more, got shape"):
        spectral.dominance.off_block_energy(jnp.ones((1, 1)))


@pytest.mark.usefixtures("x64")
def test_the_traceless_cosine_sees_patterns_alone():
    p, other = gram(4), gram(4, seed=1)
    moved = np.stack([3 * p + 2 * np.eye(4), np.eye(4) - p, other])
    without = [x - np.trace(x) / 4 * np.eye(4) for x in (p, other)]
    expected = (
        np.sum(without[0] * without[1]) / np.linalg.norm(without[0]) / np.linalg.norm(without[1])
    )
    found = jax.jit(spectral.dominance.traceless_cosine)(np.stack([p] * 3), moved)
    np.testing.assert_allclose(found, [1, -1, expected], rtol=1e-12)
