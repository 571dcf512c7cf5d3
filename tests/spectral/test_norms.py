import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specjax import spectral
from specjax.programs import shape_of, trace
from specjax.spectral.float_range import at_least_float32
from tests.reference.spectra import SHAPES, matrix_with

RANKS = ("stable_rank", "nuclear_rank", "effective_rank", "entropy_rank")
MEASURES = (*RANKS, "spectral_norm", "nuclear_norm")
every_rank = pytest.mark.parametrize("rank", RANKS)


@jax.jit
def measured(x):
    """All of `MEASURES` by name, in one program for a shape."""
    return {name: getattr(spectral, name)(x) for name in MEASURES}


@every_rank
@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.usefixtures("x64")
def test_a_flat_spectrum_counts_its_singular_values(rank, n):
    assert measured(3 * np.eye(n))[rank] == pytest.approx(n, rel=1e-13)
    assert measured(matrix_with([0.3] * n, (7, 5), 2))[rank] == pytest.approx(n, rel=1e-12)


@pytest.mark.parametrize("name", [*MEASURES, "schatten_norm"])
def test_a_norm_is_one_program_and_checks_its_matrix_once(name):
    """Its operations one by one, or a second check that a matrix is finite, take as long as the
    decomposition of a small matrix.
    """
    arguments = (1.5,) if name == "schatten_norm" else ()
    program, _ = trace(lambda x: getattr(spectral, name)(x, *arguments), jnp.ones((6, 8)))
    assert len(program.equations) == 1
    # The largest entry is checked, and not each of them.
    checks = [shape_of(e.outputs[0]) for e in _inside(program) if e.name == "is_finite"]
    assert checks
    assert (6, 8) not in checks


def _inside(program):
    for equation in program.equations:
        yield equation
        for body in equation.bodies:
            yield from _inside(body)


@every_rank
@pytest.mark.usefixtures("x64")
def test_a_rank_one_matrix_has_rank_one_and_a_zero_matrix_zero(rank):
    x = np.outer(np.arange(1.0, 4.0), np.arange(-2.0, 3.0))
    assert measured(x)[rank] == pytest.approx(1, rel=1e-13)
    assert measured(0 * x)[rank] == 0


@pytest.mark.usefixtures("x64")
def test_spectrum_two_one_by_hand():
    found = measured(matrix_with([2.0, 1.0], (3, 4), 1))
    assert found["stable_rank"] == pytest.approx(5 / 4, rel=1e-13)
    assert found["nuclear_rank"] == pytest.approx(9 / 5, rel=1e-13)
    assert found["effective_rank"] == pytest.approx(3 / 2, rel=1e-13)
    # p = (2/3, 1/3): exp(-2/3 log 2/3 - 1/3 log 1/3) = 3 / 2^(2/3).
    assert found["entropy_rank"] == pytest.approx(3 / 2 ** (2 / 3), rel=1e-13)
    assert found["spectral_norm"] == pytest.approx(2, rel=1e-13)
    assert found["nuclear_norm"] == pytest.approx(3, rel=1e-13)


@pytest.mark.integration
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@given(values=st.lists(st.floats(0, 1), min_size=4, max_size=4), seed=st.integers(0, 2**31))
@pytest.mark.usefixtures("x64")
def test_ranks_are_ordered_and_ignore_scale_layout_and_padding(shape, values, seed):
    values = [1.0, *values][: min(shape)]
    x = matrix_with(values, shape, seed)
    ranks = [float(measured(x)[rank]) for rank in RANKS]
    st_, nr, er, en = ranks
    count = sum(v > 0 for v in values)
    assert 1 - 1e-12 <= st_ <= nr + 1e-12
    assert nr <= count + 1e-12
    assert st_ - 1e-12 <= er <= nr + 1e-12
    assert nr - 1e-12 <= en <= count + 1e-12
    for other in (x * 1e-30, x * -3e30, x.T, np.pad(x, ((0, 3), (0, 1)))):
        found = measured(other)
        assert [float(found[rank]) for rank in RANKS] == pytest.approx(ranks, rel=1e-12)


@pytest.mark.usefixtures("x64")
def test_the_stable_rank_of_data_is_their_covariances_rank():
    z = np.random.default_rng(0).standard_normal((4, 9))
    covariance = measured(z @ z.T / 9)
    assert measured(z)["stable_rank"] == pytest.approx(
        float(covariance["effective_rank"]), rel=1e-12
    )


@pytest.mark.parametrize("name", MEASURES)
def test_leading_axes_are_batch_axes(name):
    x = np.random.default_rng(1).standard_normal((2, 3, 4, 5)).astype(np.float32)
    x[1, 2] = 0
    batched = np.asarray(measured(x)[name])
    assert batched.shape == (2, 3)
    for i in np.ndindex(2, 3):
        assert batched[i] == pytest.approx(float(measured(x[i])[name]), rel=1e-5)


@pytest.mark.filterwarnings("error")
@pytest.mark.usefixtures("unchecked")
def test_whole_numbers_are_measured_in_the_default_float():
    x = jnp.asarray([[3, 0], [0, 4]])
    rank = measured(x)["stable_rank"]
    assert rank.dtype == "float32"
    assert rank == pytest.approx(25 / 16, rel=1e-6)
    with jax.enable_x64(True):
        assert measured(x)["nuclear_norm"].dtype == "float64"
        assert at_least_float32(jnp.ones(2, "bfloat16")).dtype == "float32"
