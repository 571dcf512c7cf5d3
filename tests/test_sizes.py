import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specjax import sizes
from specjax.sizes import Size

DRAWS = [sizes.normal, sizes.uniform, sizes.rademacher]
SEEDS = st.integers(0, 2**32 - 1)
each_draw = pytest.mark.parametrize("draw", DRAWS)


def embedded(block, shape):
    """`block` in the leading corner of zeros of the given shape."""
    out = np.zeros(shape, np.asarray(block).dtype)
    out[tuple(slice(n) for n in np.shape(block))] = block
    return out


@pytest.mark.integration
@each_draw
@given(seed=SEEDS, rows=st.integers(1, 5), columns=st.sampled_from([1, 3, 6]))
def test_padding_changes_no_bit_of_a_draw(draw, seed, rows, columns):
    key = jax.random.key(seed)
    full = np.asarray(draw(key, (5, 6)))
    for shape in ((5, 6), (7, 6), (8, 16)):
        padded = draw(key, (Size(shape[0], rows), Size(shape[1], columns)))
        np.testing.assert_array_equal(padded, embedded(full[:rows, :columns], shape))


@each_draw
@pytest.mark.parametrize("shape", [(1,), (5,), (3, 5), (1, 4), (2, 3, 5)])
def test_a_narrow_draw_is_the_leading_block_of_a_wide_one(draw, shape):
    key = jax.random.key(7)
    wide = draw(key, tuple(2 * n for n in shape))
    np.testing.assert_array_equal(draw(key, shape), wide[tuple(slice(n) for n in shape)])


@each_draw
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_each_axis_can_be_padded_alone(draw, axis):
    key, shape = jax.random.key(3), (2, 3, 4)
    plain = draw(key, shape)
    wanted = tuple(Size(2 * n, n) if i == axis else n for i, n in enumerate(shape))
    padded = tuple(2 * n if i == axis else n for i, n in enumerate(shape))
    np.testing.assert_array_equal(draw(key, wanted), embedded(plain, padded))


@pytest.mark.integration
@each_draw
def test_active_sizes_can_be_traced_mapped_and_used_in_keys(draw):
    keys = jax.random.split(jax.random.key(5), 3)
    active = jnp.arange(1, 5)

    def one(key, n):
        return draw(key, (Size(4, n), Size(6, n)))

    mapped = jax.jit(jax.vmap(jax.vmap(one, (None, 0)), (0, None)))(keys, active)
    for i, key in enumerate(keys):
        for j, n in enumerate(range(1, 5)):
            # The bits of the key are the same. Compiled for another shape, the normal quantile may
            # round its last bit another way.
            np.testing.assert_array_max_ulp(
                mapped[i, j], embedded(draw(key, (n, n)), (4, 6)), maxulp=2
            )


def test_one_program_serves_all_active_sizes_at_static_padding():
    traced = []

    @jax.jit
    def total(size):
        traced.append(size.padded)
        return jnp.sum(sizes.normal(jax.random.key(0), (size,)))

    values = [float(total(Size(8, jnp.asarray(n)))) for n in (2, 5, 8)]
    assert len(set(values)) == 3
    assert traced == [8]
    total(Size(16, jnp.asarray(2)))
    assert traced == [8, 16]
    leaves, structure = jax.tree.flatten(Size(8, 3))
    assert leaves == [3]
    assert structure == jax.tree.structure(Size(8, 5))
    assert structure != jax.tree.structure(Size(9, 3))


def test_masks_mark_the_active_entries():
    np.testing.assert_array_equal(sizes.mask(3), [True, True, True])
    np.testing.assert_array_equal(sizes.mask(Size(4, 1)), [True, False, False, False])
    expected = np.zeros((2, 3, 4), bool)
    expected[:, :2, :3] = True
    np.testing.assert_array_equal(sizes.block_mask((2, Size(3, 2), Size(4, 3))), expected)
    assert (sizes.padded(5), sizes.active(5)) == (5, 5)
    assert (sizes.padded(Size(5, 2)), sizes.active(Size(5, 2))) == (5, 2)


@each_draw
@pytest.mark.usefixtures("x64")
def test_the_dtype_is_the_default_float(draw):
    assert draw(jax.random.key(0), (2, 2)).dtype == jnp.float64
    with jax.enable_x64(False):
        assert draw(jax.random.key(0), (2, 2)).dtype == jnp.float32
        assert draw(jax.random.key(0), (2, Size(3, 2))).dtype == jnp.float32


@pytest.mark.parametrize(
    ("draw", "moments"),
    [
        (sizes.normal, (0, 1, 0, 3, 0, 15, 0, 105)),
        (sizes.uniform, tuple(1 / (p + 1) for p in range(1, 9))),
        (sizes.rademacher, (0, 1, 0, 1, 0, 1, 0, 1)),
    ],
)
def test_entries_have_the_moments_of_their_distribution(draw, moments):
    x = np.asarray(draw(jax.random.key(11), (600, 800)), np.float64)
    for power in (1, 2, 3, 4):
        variance = moments[2 * power - 1] - moments[power - 1] ** 2
        error = np.sqrt(variance / x.size)
        assert abs(np.mean(x**power) - moments[power - 1]) <= 4 * error + 1e-12


def test_rows_columns_and_keys_are_uncorrelated():
    keys = jax.random.split(jax.random.key(12), 2)
    x, y = (np.asarray(sizes.normal(key, (500, 400)), np.float64) for key in keys)
    pairs = {
        "rows": (x[:-1], x[1:]),
        "columns": (x[:, :-1], x[:, 1:]),
        "diagonals": (x[:-1, :-1], x[1:, 1:]),
        "transposed": (x[:400][np.triu_indices(400, 1)], x[:400].T[np.triu_indices(400, 1)]),
        "keys": (x, y),
        "squares of rows": ((x[:-1] ** 2 - 1) / np.sqrt(2), (x[1:] ** 2 - 1) / np.sqrt(2)),
    }
    for name, (a, b) in pairs.items():
        # The product of two independent standardized entries has mean 0 and variance 1.
        assert abs(np.mean(a * b)) * np.sqrt(a.size) < 4, name


@pytest.mark.integration
def test_matrices_drawn_together_have_the_bits_of_each_alone():
    keys = jax.random.split(jax.random.key(3), 3)
    for columns in (4, Size(6, 4)):
        rows = (Size(5, 3), 2, 4)
        together = sizes.normals(keys, rows, columns)
        for key, n, found in zip(keys, rows, together, strict=True):
            np.testing.assert_array_equal(found, sizes.normal(key, (n, columns)))
    with pytest.raises(ValueError, match="threefry"):
        sizes.normals(jax.random.split(jax.random.key(0, impl="rbg"), 1), (2,), 3)


def test_signs_are_signs_and_padding_is_zero():
    x = np.asarray(sizes.rademacher(jax.random.key(2), (Size(6, 4), Size(5, 3))))
    assert set(np.unique(x[:4, :3])) == {-1, 1}
    assert not x[4:].any()
    assert not x[:, 3:].any()


@each_draw
@pytest.mark.usefixtures("unchecked")
def test_draws_refuse_keys_that_are_not_row_keyed(draw):
    with pytest.raises(
        ValueError, match=r"needs a typed key, got a raw array; make one with jax.random.key"
    ):
        draw(jnp.zeros(2, jnp.uint32), (2, 2))
    with pytest.raises(ValueError, match="need a threefry key, got rbg; make one with"):
        draw(jax.random.key(0, impl="rbg"), (2, 2))
    with pytest.raises(ValueError, match="accepts a single key"):
        draw(jax.random.split(jax.random.key(0)), (2, 2))
    with (
        jax.threefry_partitionable(False),
        pytest.raises(ValueError, match="jax_threefry_partitionable=True"),
    ):
        draw(jax.random.key(0), (2, 2))


@each_draw
def test_draws_refuse_missing_and_empty_sizes(draw):
    with pytest.raises(ValueError, match="at least one size, got none"):
        draw(jax.random.key(0), ())
    for bad in (0, -3):
        with pytest.raises(ValueError, match=f"must be at least 1, got {bad}"):
            draw(jax.random.key(0), (2, bad))


@pytest.mark.parametrize("active", [0, -1, 5])
def test_a_size_refuses_active_counts_outside_its_extent(active):
    with pytest.raises(ValueError, match=f"0 < active <= padded, got active={active} and padded=4"):
        Size(4, active)


@pytest.mark.parametrize(
    "active",
    [
        np.int64(9),
        np.int64(0),
        np.asarray(5),
        np.asarray([1, 5]),
        2.5,
        np.float32(2),
        jnp.asarray(9),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_a_size_refuses_arrays_and_numbers_that_are_no_counts(active):
    with pytest.raises(
        ValueError,
        match=r"Size needs an int active with 0 < active <= padded, got active=.* and padded=4\.",
    ):
        Size(4, active)


@pytest.mark.usefixtures("unchecked")
def test_a_size_refuses_concrete_and_traced_float_arrays():
    with pytest.raises(
        ValueError, match="an int active, got an array of dtype float32; sweep it with widths"
    ):
        jax.jit(lambda n: sizes.mask(Size(4, n)))(2.0)


@pytest.mark.parametrize("wrong", [2.5, np.float32(2), True, None, "3"])
@pytest.mark.usefixtures("unchecked")
def test_what_is_no_int_is_refused_wherever_a_size_is_taken(wrong):
    for call in (
        Size,
        lambda size, _: sizes.mask(size),
        lambda size, _: sizes.block_mask((2, size)),
    ):
        with pytest.raises(ValueError, match="Every size must be an int, got "):
            call(wrong, 1)
    with pytest.raises(ValueError, match="Every size must be an int, got "):
        sizes.normal(jax.random.key(0), (2, wrong))
    with pytest.raises(ValueError, match="times needs a positive int factor, got "):
        sizes.times(3, wrong)


@pytest.mark.usefixtures("unchecked")
def test_numpy_ints_are_sizes_and_trees_of_sizes_are_rebuilt():
    for active in (np.int64(3), np.asarray(3), jnp.asarray(3), 3):
        np.testing.assert_array_equal(
            sizes.mask(Size(np.int64(4), active)), [True, True, True, False]
        )
    many = jax.vmap(sizes.mask)(Size(4, np.arange(1, 5)))
    np.testing.assert_array_equal(many, np.tri(4, dtype=bool))
    assert jax.tree.map(lambda _: None, Size(4, 3)).active is None
    assert jax.tree.map(lambda _: np.ones(2, bool), Size(4, 3)).active.all()
    sized = Size(8, jnp.int32(4))
    for arrays, others in (
        eqx.partition(sized, eqx.is_array),
        (eqx.filter(sized, True), eqx.filter(sized, False)),
    ):
        assert eqx.combine(arrays, others).active == 4
    np.testing.assert_array_equal(eqx.filter_jit(sizes.mask)(sized), np.arange(8) < 4)
    total = jax.grad(
        lambda tree: jnp.sum(jnp.where(sizes.mask(tree[1]), tree[0], 0.0)), allow_int=True
    )
    np.testing.assert_array_equal(total((jnp.ones(4), Size(4, 3)))[0], [1, 1, 1, 0])


@pytest.mark.integration
def test_a_following_size_is_a_multiple_of_both_extents():
    assert sizes.times(5, 4) == 20
    assert sizes.times(Size(8, 5), 4) == Size(32, 20)
    drawn = sizes.normal(jax.random.key(0), (sizes.times(Size(4, 3), 2), 2))
    np.testing.assert_array_equal(drawn[:6], sizes.normal(jax.random.key(0), (6, 2)))


@pytest.mark.integration
def test_streams_are_keys_of_their_own():
    key = jax.random.key(0)
    names = ["weights", "targets", "inputs", "weight", ""]
    made = {
        name: tuple(jax.random.key_data(sizes.stream(key, name)).tolist()) for name in names[:-1]
    }
    made |= {
        f"split {i}": tuple(k.tolist())
        for i, k in enumerate(jax.random.key_data(jax.random.split(key, 1000)))
    }
    assert len(set(made.values())) == len(made)
    assert (
        tuple(jax.random.key_data(sizes.stream(jax.random.key(1), "weights")).tolist())
        != made["weights"]
    )
    together = jax.random.key_data(sizes.streams(key, names[:-1])).tolist()
    assert [tuple(words) for words in together] == [made[name] for name in names[:-1]]
    with pytest.raises(ValueError, match="needs a name"):
        sizes.stream(key, "")
