import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specjax.spectral.dominance import off_diagonal_energy
from specjax.theory.dominance import off_diagonal_energy_bound
from tests.reference.spectra import matrix_with, orthogonal

both = jax.jit(lambda p, rank: (off_diagonal_energy(p), off_diagonal_energy_bound(p, rank)))


@pytest.mark.parametrize(("m", "rank"), [(4, 1), (5, 2), (5, 5), (8, 3)])
@given(values=st.lists(st.floats(0.01, 1), min_size=8, max_size=8), seed=st.integers(0, 2**31))
@pytest.mark.usefixtures("x64")
def test_a_low_rank_gram_matrix_has_least_off_diagonal_energy(m, rank, values, seed):
    g = matrix_with(values[:rank], (m, m), seed)
    energy, bound = map(float, both(g @ g.T, rank))
    assert bound <= energy + 1e-12
    # Equality exactly for a flat spectrum, on any basis.
    flat = matrix_with([0.7] * rank, (m, m), seed)
    energy, bound = map(float, both(flat @ flat.T, rank))
    assert bound == pytest.approx(energy, abs=1e-11)


@pytest.mark.parametrize(("m", "rank"), [(4, 1), (4, 2), (8, 2)])
@pytest.mark.usefixtures("x64")
def test_a_flat_diagonal_gives_one_minus_rank_over_extent(m, rank):
    # Columns of a Hadamard matrix: a projection with diagonal rank/m.
    h = np.array([[1.0]])
    while len(h) < m:
        h = np.block([[h, h], [h, -h]])
    p = jnp.asarray(h[:, :rank] @ h[:, :rank].T / m)
    assert off_diagonal_energy_bound(p, rank) == pytest.approx(1 - rank / m, rel=1e-13)
    assert off_diagonal_energy(p) == pytest.approx(1 - rank / m, rel=1e-13)


@pytest.mark.usefixtures("x64")
def test_leading_axes_are_batch_axes_and_ranks_may_be_arrays():
    q = orthogonal(3, 0)
    p = jnp.asarray([q @ np.diag(v) @ q.T for v in ([1, 0, 0], [2, 1, 0.0])])
    batch = off_diagonal_energy_bound(p, jnp.asarray([1, 2]))
    for i in (0, 1):
        assert batch[i] == pytest.approx(float(off_diagonal_energy_bound(p[i], i + 1)), rel=1e-13)
