"""The matrices that a leaf holds, refused arguments, and edge cases."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from optax.contrib import MuonDimensionNumbers

from specjax import optim
from specjax.sizes import Size
from specjax.spectral import SVD
from tests.optim.registry import ANY_LEAF, TRANSFORMS, parameters, tree

REFUSING = {name: make for name, make in TRANSFORMS.items() if not name.startswith(ANY_LEAF)}
every_refusing = pytest.mark.parametrize("make", parameters(REFUSING))
ortho = optim.orthogonalize


def compiled(transform, **extra):
    """The first update as a function of the gradient."""
    return jax.jit(lambda g: transform.update(g, transform.init(g), g, **extra)[0])


def update(transform, updates, **extra):
    return compiled(transform, **extra)(updates)


def close(measured, expected, tolerance=1e-5):
    np.testing.assert_allclose(measured, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.integration
@every_refusing
@pytest.mark.parametrize(
    "leaf", [jnp.ones(3), jnp.ones(()), jnp.ones((2, 2), int)], ids=["vector", "scalar", "integer"]
)
@pytest.mark.usefixtures("unchecked")
def test_what_is_no_matrix_is_refused_by_name_before_compilation(make, leaf):
    params = {"layer": {"weight": jnp.ones((2, 2)), "bias": leaf}}
    state = jax.eval_shape(
        make().init, {"layer": {"weight": jnp.ones((2, 2)), "bias": jnp.ones((1, 2))}}
    )
    with pytest.raises(ValueError, match=r"layer\.bias.*optax\.partition"):
        make().init(params)
    with pytest.raises(ValueError, match=r"layer\.bias.*optax\.partition"):
        jax.eval_shape(lambda p, s: make().update(p, s, stable_ranks=1.0), params, state)


def test_none_for_dimension_numbers_is_refused_too():
    with pytest.raises(ValueError, match=r"leaf b, .*None.*optax\.partition"):
        ortho(dimension_numbers={"a": optim.IN_OUT, "b": None}).init(
            {"a": jnp.ones((2, 2)), "b": jnp.ones((2, 2))}
        )


def test_dimension_numbers_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"the only leaf.*below 2.*output_axis=2"):
        ortho(dimension_numbers=MuonDimensionNumbers(0, 2)).init(jnp.ones((2, 2)))
    with pytest.raises(ValueError, match="dimension_numbers must be one entry"):
        ortho(dimension_numbers={"other": optim.IN_OUT}).init({"a": jnp.ones((2, 2))})


@pytest.mark.parametrize(
    ("dims", "inputs", "outputs"),
    [
        (optim.IN_OUT, (2,), (3,)),
        (optim.OUT_IN, (3,), (2,)),
        (MuonDimensionNumbers((0, 1), 3), (0, 1), (3,)),
        (MuonDimensionNumbers(1, (-1, 0)), (1,), (3, 0)),
        (MuonDimensionNumbers((0, 1, 2), 3), (0, 1, 2), (3,)),
        (MuonDimensionNumbers(), (0,), (1,)),
    ],
    ids=str,
)
def test_dimension_numbers_choose_the_matrices(dims, inputs, outputs):
    """Against a loop over the batch in numpy, for a kernel of four axes."""
    kernel = np.asarray(jax.random.normal(jax.random.key(0), (2, 3, 4, 5)))
    measured = update(
        ortho(SVD(), "sqrt_out_over_in", dimension_numbers=dims), {"conv": jnp.asarray(kernel)}
    )["conv"]
    batch = [axis for axis in range(4) if axis not in inputs + outputs]
    order = [*batch, *inputs, *outputs]
    fan_in, fan_out = (int(np.prod([kernel.shape[a] for a in axes])) for axes in (inputs, outputs))
    moved = kernel.transpose(order)
    expected = np.empty_like(moved)
    for index in np.ndindex(*(kernel.shape[a] for a in batch)):
        u, _, vt = np.linalg.svd(moved[index].reshape(fan_in, fan_out), full_matrices=False)
        expected[index] = (fan_out / fan_in) ** 0.5 * (u @ vt).reshape(moved[index].shape)
    close(np.asarray(measured).transpose(order), expected)


@pytest.mark.integration
def test_trees_prefixes_and_functions_of_dimension_numbers_agree():
    params = tree(1)
    each = jax.tree.map(lambda _: optim.OUT_IN, params)
    prefix = {
        "first": optim.OUT_IN,
        "nested": optim.OUT_IN,
        "stack": [optim.OUT_IN],
        "row": optim.OUT_IN,
    }
    scale = "sqrt_out_over_in"
    expected = update(ortho(scale=scale, dimension_numbers=optim.OUT_IN), params)
    for dims in (each, prefix, lambda p: jax.tree.map(lambda _: optim.OUT_IN, p)):
        jax.tree.map(close, update(ortho(scale=scale, dimension_numbers=dims), params), expected)


def test_leaves_of_the_same_shape_share_one_call_of_any_function():
    calls = []

    def counting(x):
        calls.append(x.shape)
        return x

    update(ortho(counting), tree())
    assert sorted(set(calls)) == sorted(calls) == [(1, 6), (3, 5), (4, 6)]


@every_refusing
def test_zero_stays_zero(make):
    zero = jnp.zeros((3, 4))
    close(update(make(), zero, stable_ranks=1.0), zero)


@every_refusing
def test_a_bad_entry_spoils_its_own_matrix_alone(make):
    """The three matrices are one stack in one call."""
    updated = compiled(make(), stable_ranks=1.0)
    clean = jax.random.normal(jax.random.key(0), (3, 4, 5))
    expected = np.asarray(updated(clean))
    for bad in (np.nan, np.inf):
        measured = np.asarray(updated(clean.at[1, 2, 2].set(bad)))
        assert not np.isfinite(measured[1]).all()
        close(measured[[0, 2]], expected[[0, 2]])


@every_refusing
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 2, 3), (2, 0, 3)], ids=str)
def test_empty_leaves_stay_empty(make, shape):
    assert update(make(), jnp.ones(shape), stable_ranks=1.0).shape == shape


@pytest.mark.integration
def test_one_by_one_is_the_sign_and_one_by_n_the_direction():
    x = {"scalar": jnp.array([[-3.0]]), "row": jnp.array([[3.0, 4.0]])}
    close(update(ortho(SVD()), x["scalar"]), [[-1.0]])
    close(update(ortho(SVD()), x["row"]), [[0.6, 0.8]])
    close(update(optim.spectral_descent(2.0), x["row"]), -x["row"] / 2)


def test_masked_nodes_and_none_pass():
    params = {"a": jnp.eye(2), "b": optax.MaskedNode(), "c": None}
    updates = update(ortho(dimension_numbers={"a": optim.IN_OUT, "b": None, "c": None}), params)
    assert jax.tree.structure(updates) == jax.tree.structure(params)


@pytest.mark.integration
def test_normalization_is_of_the_rows_as_stored_by_default():
    x = jax.random.normal(jax.random.key(0), (3, 4))
    close(jnp.linalg.norm(update(optim.normalize_rows(), x), axis=1), jnp.ones(3))
    close(jnp.linalg.norm(update(optim.normalize_columns(), x), axis=0), jnp.ones(4))
    close(
        update(optim.normalize_rows(dimension_numbers=optim.OUT_IN), x),
        update(optim.normalize_columns(), x),
    )


def test_spectral_descent_is_nuclear_norm_times_polar_factor():
    x = jax.random.normal(jax.random.key(0), (3, 4))
    u, s, vt = np.linalg.svd(x, full_matrices=False)
    close(update(optim.spectral_descent(5.0), x), -s.sum() / 5 * u @ vt)
    with pytest.raises(ValueError, match=r"a number in \(0, inf\) as curvature, got 0"):
        optim.spectral_descent(0.0)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("scale", "formula"),
    [
        ("none", lambda *_: 1.0),
        ("sqrt_max_1_out_over_in", lambda i, o: max(1, o / i) ** 0.5),
        ("sqrt_out_over_in", lambda i, o: (o / i) ** 0.5),
        ("point_two_sqrt_max", lambda i, o: 0.2 * max(i, o) ** 0.5),
        (lambda i, o: 3.0 * i + o, lambda i, o: 3.0 * i + o),
    ],
    ids=[*optim.SCALES, "function"],
)
@pytest.mark.parametrize("shape", [(2, 8), (8, 2)], ids=str)
def test_scales_are_their_formulas_in_both_layouts_and_padded(scale, formula, shape):
    x = jax.random.normal(jax.random.key(0), shape)
    rows, columns = shape

    def scaled(x, **options):
        transform = ortho(SVD(), **options)
        return transform.update(x, transform.init(x))[0]

    @jax.jit
    def every(x, active_rows):
        fans = optim.Fans(Size(16, active_rows), Size(16, jnp.int32(columns)))
        padded = {"w": jnp.zeros((16, 16)).at[:rows, :columns].set(x)}
        return (
            scaled(x),
            scaled(x, scale=scale),
            scaled(x, scale=scale, dimension_numbers=optim.OUT_IN),
            scaled(padded, scale=scale, sizes={"w": fans})["w"],
        )

    plain, as_stored, transposed, measured = every(x, jnp.int32(rows))
    close(as_stored, formula(rows, columns) * plain)
    close(transposed, formula(columns, rows) * plain)
    close(measured[:rows, :columns], formula(rows, columns) * plain)
    assert jnp.all(measured.at[:rows, :columns].set(0) == 0)


@pytest.mark.integration
def test_equinox_modules_train():
    model = eqx.nn.MLP(3, 2, 8, 2, key=jax.random.key(0))
    params, static = eqx.partition(model, eqx.is_inexact_array)
    x = jax.random.normal(jax.random.key(1), (32, 3))

    def loss(params):
        return jnp.mean((jax.vmap(eqx.combine(params, static))(x) - jnp.sin(x[:, :2])) ** 2)

    transform = optim.jordan_muon(0.02, muon_weight_dimension_numbers=optim.OUT_IN)

    @eqx.filter_jit
    def step(params, state):
        updates, state = transform.update(jax.grad(loss)(params), state, params)
        return eqx.apply_updates(params, updates), state

    before, state = loss(params), transform.init(params)
    for _ in range(40):
        params, state = step(params, state)
    assert loss(params) < 0.2 * before


@pytest.mark.parametrize(
    "fans", [optim.Fans(-1, 3), optim.Fans("x", 3), optim.Fans(0, 3), optim.Fans(2.5, 3)], ids=str
)
@pytest.mark.usefixtures("unchecked")
def test_fans_are_positive_whole_numbers(fans):
    step, x = optim.orthogonalize(scale="sqrt_out_over_in", sizes=fans), jnp.ones((4, 3))
    with pytest.raises(ValueError, match="Fans needs a whole number of at least 1 as fan_in, got"):
        step.update(x, step.init(x))
