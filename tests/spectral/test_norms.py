import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specjax import spectral
from specjax.spectral.scaling import at_least_float32
from tests.reference.spectra import SHAPES, matrix_with

stable_rank, nuclear_rank, effective_rank, entropy_rank = (
    jax.jit(f) for f in (spectral.stable_rank, spectral.nuclear_rank, spectral.effective_rank, spectral.entropy_rank)
)
RANKS = (stable_rank, nuclear_rank, effective_rank, entropy_rank)
every_rank = pytest.mark.parametrize("rank", RANKS, ids=["stable", "nuclear", "effective", "entropy"])


@every_rank
@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.usefixtures("x64")
def test_a_flat_spectrum_counts_its_singular_values(rank, n):
    assert rank(3 * jnp.eye(n)) == pytest.approx(n, rel=1e-13)
    assert rank(jnp.asarray(matrix_with([0.3] * n, (7, 5), 2))) == pytest.approx(n, rel=1e-12)


@every_rank
@pytest.mark.usefixtures("x64")
def test_a_rank_one_matrix_has_rank_one_and_a_zero_matrix_zero(rank):
    assert rank(jnp.outer(jnp.arange(1.0, 4.0), jnp.arange(-2.0, 3.0))) == pytest.approx(1, rel=1e-13)
    assert rank(jnp.zeros((2, 3))) == 0


@pytest.mark.usefixtures("x64")
def test_spectrum_two_one_by_hand():
    x = jnp.asarray(matrix_with([2.0, 1.0], (3, 4), 1))
    assert stable_rank(x) == pytest.approx(5 / 4, rel=1e-13)
    assert nuclear_rank(x) == pytest.approx(9 / 5, rel=1e-13)
    assert effective_rank(x) == pytest.approx(3 / 2, rel=1e-13)
    # p = (2/3, 1/3): exp(-2/3 log 2/3 - 1/3 log 1/3) = 3 / 2^(2/3).
    assert entropy_rank(x) == pytest.approx(3 / 2 ** (2 / 3), rel=1e-13)
    assert spectral.spectral_norm(x) == pytest.approx(2, rel=1e-13)
    assert spectral.nuclear_norm(x) == pytest.approx(3, rel=1e-13)


@pytest.mark.integration
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@given(values=st.lists(st.floats(0, 1), min_size=4, max_size=4), seed=st.integers(0, 2**31))
@pytest.mark.usefixtures("x64")
def test_ranks_are_ordered_and_ignore_scale_transposition_and_padding(shape, values, seed):
    values = [1.0, *values][: min(shape)]
    x = jnp.asarray(matrix_with(values, shape, seed))
    st_, nr, er, en = (float(rank(x)) for rank in RANKS)
    count = sum(v > 0 for v in values)
    assert 1 - 1e-12 <= st_ <= nr + 1e-12
    assert nr <= count + 1e-12
    assert st_ - 1e-12 <= er <= nr + 1e-12
    assert nr - 1e-12 <= en <= count + 1e-12
    for rank in RANKS:
        for other in (x * 1e-30, x * -3e30, x.T, jnp.pad(x, ((0, 3), (0, 1)))):
            assert rank(other) == pytest.approx(float(rank(x)), rel=1e-12)


@every_rank
@pytest.mark.parametrize("scale", [1e-30, 1e30, 1e38])
def test_squares_leave_the_range_of_float32_without_harm(rank, scale):
    x = jnp.asarray(matrix_with([2.0, 1.0], (3, 4), 1), jnp.float32)
    assert rank(x / jnp.max(jnp.abs(x)) * jnp.float32(scale)) == pytest.approx(float(rank(x)), rel=1e-5)


@pytest.mark.usefixtures("x64")
def test_the_stable_rank_of_data_is_the_effective_rank_of_its_covariance():
    z = jnp.asarray(np.random.default_rng(0).standard_normal((4, 9)))
    assert stable_rank(z) == pytest.approx(float(effective_rank(z @ z.T / 9)), rel=1e-12)


@pytest.mark.parametrize("f", [*RANKS, spectral.spectral_norm, spectral.nuclear_norm])
def test_leading_axes_are_batch_axes(f):
    x = jnp.asarray(np.random.default_rng(1).standard_normal((2, 3, 4, 5)), jnp.float32).at[1, 2].set(0)
    batched = f(x)
    assert batched.shape == (2, 3)
    for i in np.ndindex(2, 3):
        assert batched[i] == pytest.approx(float(f(x[i])), rel=1e-5)


@pytest.mark.filterwarnings("error")
@pytest.mark.usefixtures("unchecked")
def test_whole_numbers_are_measured_in_the_default_float():
    x = jnp.asarray([[3, 0], [0, 4]])
    assert spectral.stable_rank(x).dtype == "float32"
    assert spectral.stable_rank(x) == pytest.approx(25 / 16, rel=1e-6)
    with jax.enable_x64(True):
        assert spectral.nuclear_norm(x).dtype == "float64"
        assert at_least_float32(jnp.ones(2, "bfloat16")).dtype == "float32"
