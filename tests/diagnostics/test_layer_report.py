"""The report on models whose linear maps are known: what is found, that the numbers are the exact
ones, what it recommends.
"""

from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from specjax import optim, spectral
from specjax.diagnostics import activation_stable_ranks, layer_report, matrix_layout
from specjax.models import mlp
from tests.diagnostics.draws import drawn
from tests.reference.ranks import nuclear_rank, stable_rank

ROUNDING = 2e-4
"""Of stable ranks by way of A Aᵀ in float32."""


def weights(*dims):
    """Of an MLP, N(0, 1/fan-in)."""
    shapes = [(m, k) for k, m in pairwise(dims)]
    return tuple(jnp.asarray(w / np.float32(np.sqrt(w.shape[1]))) for w in drawn(*shapes, seed=1))


@pytest.fixture(scope="module")
def network():
    """An MLP, a batch for which nr/st is below 1 in its first layers and above in its last, and its
    report with curvatures.
    """
    params = weights(12, 16, 16, 5)
    x, y = map(jnp.asarray, drawn((100, 12), (100, 5)))

    def model(params, batch):
        return mlp.loss(params, batch, "tanh")

    return model, params, (x, y), layer_report(model, params, (x, y), curvature=True)


@pytest.mark.integration
@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
@pytest.mark.usefixtures("x64")
def test_other_floats_are_told_the_ranks_of_their_matrices(dtype):
    @jax.jit
    def found(params, x):
        params, x = jax.tree.map(lambda z: z.astype(dtype), (params, x))
        ranks = activation_stable_ranks(lambda w, x: jnp.sum(mlp.forward(w, x) ** 2), params, x)
        return ranks, mlp.layer_inputs(params, x)

    for rank, inputs in zip(*found(weights(6, 8, 3), *drawn((20, 6))), strict=True):
        assert float(rank) == pytest.approx(stable_rank(inputs), rel=1e-2)


@pytest.mark.integration
def test_every_row_has_the_exact_ranks(network):
    model, params, (x, y), report = network
    gradients, inputs = jax.jit(
        lambda p: (jax.grad(model)(p, (x, y)), mlp.layer_inputs(p, x, "tanh"))
    )(params)
    assert [row.name for row in report.rows] == ["0", "1", "2"]
    assert [row.shape for row in report.rows] == [(16, 12), (16, 16), (5, 16)]
    for row, gradient, a in zip(report.rows, gradients, inputs, strict=True):
        assert row.stable_rank[0] == pytest.approx(stable_rank(a), rel=ROUNDING)
        assert row.nuclear_rank[0] == pytest.approx(nuclear_rank(gradient), rel=ROUNDING)
        assert row.ratio == pytest.approx(row.nuclear_rank[0] / row.stable_rank[0], rel=1e-9)
    assert report.others == ()
    assert str(report).splitlines()[0].split()[:2] == ["layer", "map"]


@pytest.mark.integration
def test_maps_of_one_shape_keep_their_places():
    """Ranks are computed for all matrices of a shape at once, whatever other shapes come between
    them.
    """
    params = weights(6, 6, 7, 6, 6)
    x, y = map(jnp.asarray, drawn((5, 6), (5, 6)))

    def loss(params, batch):
        return mlp.loss(params, batch, "tanh")

    gradients, inputs = jax.jit(
        lambda p: (jax.grad(loss)(p, (x, y)), mlp.layer_inputs(p, x, "tanh"))
    )(params)
    rows = layer_report(loss, params, (x, y)).rows
    assert [row.shape for row in rows] == [(6, 6), (7, 6), (6, 7), (6, 6)]
    for row, gradient, a in zip(rows, gradients, inputs, strict=True):
        assert row.stable_rank[0] == pytest.approx(stable_rank(a), rel=ROUNDING)
        assert row.nuclear_rank[0] == pytest.approx(nuclear_rank(gradient), rel=ROUNDING)


@pytest.mark.integration
def test_the_curvatures_are_those_of_the_explicit_hessian(network):
    model, params, batch, report = network
    layer = 1

    def loss(w):
        return model((params[0], w, params[2]), batch)

    block, g = map(
        np.asarray, jax.jit(lambda w: (jax.hessian(loss)(w), jax.grad(loss)(w)))(params[layer])
    )
    block = block.reshape(256, 256)
    u, s, vt = np.linalg.svd(g)
    p = u @ vt
    along = {name: float(d.ravel() @ block @ d.ravel()) for name, d in (("g", g), ("p", p))}
    expected = float(np.sum(s)) ** 2 / along["p"] / (float(np.sum(s**2)) ** 2 / along["g"])
    found = report.rows[layer].curvature
    assert found.decrease_ratio == pytest.approx(expected, rel=1e-3)
    a = np.tanh(np.asarray(batch[0]) @ np.asarray(params[0]).T)
    for d, name, number in ((g, "g", found.euclidean_feature), (p, "p", found.spectral_feature)):
        assert number == pytest.approx(along[name] / float(np.sum((a @ d.T) ** 2)), rel=1e-3)


@pytest.mark.integration
def test_the_decrease_ratio_is_exact_on_a_quadratic_problem():
    """L = ½n⁻¹‖W A - Y‖²: the ratio at the best steps is nr(G)/st with tr(PBPᵀ)/tr(GBGᵀ)/‖G‖² in
    place of the norms of A, B = AAᵀ/n.
    """
    w, x, y = drawn((6, 4), (20, 4), (20, 6))
    (row,) = layer_report(lambda w, b: mlp.loss((w,), b), w, (x, y), curvature=True).rows
    g, b = (x @ w.T - y).T @ x / 20, x.T @ x / 20
    u, s, vt = np.linalg.svd(g, full_matrices=False)
    p = u @ vt
    ratio = np.sum(s) ** 2 / np.trace(p @ b @ p.T) * np.trace(g @ b @ g.T) / np.sum(g**2) ** 2
    assert row.curvature.decrease_ratio == pytest.approx(ratio, rel=1e-3)
    assert row.curvature.spectral_feature == pytest.approx(1 / 20, rel=1e-3)
    assert row.curvature.euclidean_feature == pytest.approx(1 / 20, rel=1e-3)


@pytest.mark.integration
def test_heads_have_the_curvatures_of_separate_matrices():
    """Of one parameter for two heads, which the loss couples, each is moved alone."""
    w, x, y = drawn((2, 4, 3), (10, 2, 3), (10, 2, 4))

    def loss(heads):
        return jnp.mean((jnp.tanh(heads) - y) ** 2) + jnp.mean(heads[:, 0] * heads[:, 1])

    def together(w, x):
        return loss(jnp.einsum("hmk,bhk->bhm", w, x))

    def apart(parts, x):
        return loss(jnp.stack([x[:, head] @ part.T for head, part in enumerate(parts)], axis=1))

    found, expected = (
        [row.curvature for row in layer_report(model, params, x, curvature=True).rows]
        for model, params in ((together, w), (apart, tuple(w)))
    )
    assert len(found) == len(expected) == 2
    np.testing.assert_allclose(found, expected, rtol=1e-3)


@pytest.mark.integration
@pytest.mark.parametrize("scale", [1e-24, 1e20])
def test_curvature_scales_with_the_loss_for_tiny_or_huge_factors(scale):
    x, w = drawn((20, 4), (6, 4))

    def curvature(factor):
        return (
            layer_report(lambda w, x: factor * jnp.mean((x @ w.T) ** 2), w, x, curvature=True)
            .rows[0]
            .curvature
        )

    found, expected = curvature(scale), curvature(1.0)
    assert found.decrease_ratio == pytest.approx(expected.decrease_ratio, rel=1e-5)
    assert found.euclidean_feature == pytest.approx(scale * expected.euclidean_feature, rel=1e-5)
    assert found.spectral_feature == pytest.approx(scale * expected.spectral_feature, rel=1e-5)


@pytest.mark.integration
def test_a_zero_beside_a_nan_decides_nothing():
    def no_gradient(w, x):
        return jnp.sum(jax.lax.stop_gradient(x @ w))

    (row,) = layer_report(no_gradient, jnp.ones((3, 2)), jnp.full((4, 3), jnp.nan)).rows
    assert row.nuclear_rank[0] == 0
    assert row.recommendation == "undecided"
    # The slope of the root at zero is infinite.
    (row,) = layer_report(
        lambda w, x: jnp.sum(jnp.sqrt(x @ w)), jnp.ones((3, 2)), jnp.zeros((4, 3))
    ).rows
    assert row.stable_rank[0] == 0
    assert row.recommendation == "undecided"
    (row,) = layer_report(lambda w, x: jnp.sum(x @ w), jnp.ones((3, 2)), jnp.zeros((4, 3))).rows
    assert row.recommendation == "no gradient"


def attention_model(params, tokens):
    """Everything that a program does to its parameters: look-up, scan, remat, heads, a scaled and a
    sliced matrix, a shared one.
    """

    def layer(h, block):
        a = h * block["gain"][None, None]
        heads = jnp.einsum("btd,dhk->bthk", a, block["up"])
        return (
            h
            + 0.3 * jnp.einsum("bthk,hkd->btd", jax.nn.gelu(heads), block["down"] / jnp.sqrt(3.0)),
            None,
        )

    h, _ = jax.lax.scan(jax.checkpoint(layer), params["table"][tokens], params["blocks"])
    left, right = jnp.split(params["fused"].T, 2, axis=1)
    h = h + jnp.tanh(jax.jit(lambda h: h @ left)(h)) * (h @ right)
    experts = jnp.einsum("bte,eij->btij", h[..., :2], params["experts"])
    mixed = jnp.einsum("gbk,gkj->gbj", jnp.stack([h[:, 0], h[:, 1]]), params["grouped"])
    logits = h @ params["table"].T
    return (
        -jnp.mean(jax.nn.log_softmax(logits)[..., 0])
        + 0.01 * jnp.mean(experts**2)
        + 0.01 * jnp.mean(mixed**2)
    )


@pytest.fixture(scope="module")
def attention():
    d, vocabulary = 8, 11
    shapes = (3, 2, 4, d), (3, d, 2, 4), (2, 3, 3), (2 * d, d), (2, d, 5), (vocabulary, d)
    down, up, experts, fused, grouped, table = drawn(*shapes)
    params = {
        "blocks": {"down": down, "gain": jnp.ones((3, d)), "up": up},
        "experts": experts,
        "fused": fused,
        "grouped": grouped,
        "table": table,
    }
    tokens = jnp.asarray(np.random.default_rng(1).integers(0, vocabulary, (4, 6), np.int32))
    return params, tokens, layer_report(attention_model, params, tokens)


@pytest.mark.integration
def test_maps_are_found_through_scans_jit_slices_and_heads(attention):
    params, tokens, report = attention
    rows = {row.name: row for row in report.rows}
    shapes = {name: (row.kind, row.shape) for name, row in rows.items()}
    assert shapes == {
        "table (use 1)": ("lookup", (8, 11)),
        **{f"blocks.up[{i}]": ("linear", (8, 8)) for i in range(3)},
        **{f"blocks.down[{i}]": ("linear", (8, 8)) for i in range(3)},
        "fused (use 1)": ("linear", (8, 8)),
        "fused (use 2)": ("linear", (8, 8)),
        "experts": ("linear", (9, 2)),
        **{f"grouped (map {i})": ("linear", (5, 8)) for i in range(2)},
        "table (use 2)": ("linear", (11, 8)),
    }
    assert report.others == ("blocks.gain",)
    counts = np.bincount(np.asarray(tokens).ravel(), minlength=11)
    assert rows["table (use 1)"].stable_rank[0] == pytest.approx(24 / counts.max())
    gradient = jax.jit(jax.grad(attention_model))(params, tokens)
    assert rows["table (use 1)"].nuclear_rank[0] == pytest.approx(
        nuclear_rank(gradient["table"]), rel=ROUNDING
    )
    halves = np.split(np.asarray(gradient["fused"]), 2)
    for i, half in enumerate(halves):
        assert rows[f"fused (use {i + 1})"].nuclear_rank[0] == pytest.approx(
            nuclear_rank(half), rel=ROUNDING
        )
        assert rows[f"grouped (map {i})"].nuclear_rank[0] == pytest.approx(
            nuclear_rank(gradient["grouped"][i]), rel=ROUNDING
        )
    up = np.asarray(gradient["blocks"]["up"][1]).reshape(8, 8)
    assert rows["blocks.up[1]"].nuclear_rank[0] == pytest.approx(nuclear_rank(up), rel=ROUNDING)
    # The first layer's input is the embedding itself, 24 columns of it.
    inputs = np.asarray(params["table"])[np.asarray(tokens).ravel()]
    assert rows["blocks.up[0]"].stable_rank[0] == pytest.approx(stable_rank(inputs), rel=ROUNDING)


@pytest.mark.slow
@pytest.mark.integration
def test_estimates_have_intervals_around_the_exact_ranks(attention):
    params, tokens, report = attention
    estimated = layer_report(attention_model, params, tokens, exact_up_to=1)
    for exact, row in zip(report.rows, estimated.rows, strict=True):
        for name in ("stable_rank", "nuclear_rank"):
            value, lower, upper = getattr(row, name)
            assert lower * 0.999 <= getattr(exact, name)[0] <= upper * 1.001
            assert lower <= value <= upper


@pytest.mark.integration
def test_the_stable_ranks_feed_the_switch(network):
    model, params, batch, report = network

    @jax.jit
    def step(params, state):
        ranks = activation_stable_ranks(model, params, batch)
        _, state = transform.update(
            jax.grad(model)(params, batch), state, params, stable_ranks=ranks
        )
        return ranks, state

    transform = optim.rank_switch(
        optim.orthogonalize(spectral.NewtonSchulz(20)),
        optax.identity(),
        spectral.NewtonSchulz(30, spectral.polynomials.CUBIC),
    )
    ranks, state = step(params, transform.init(params))
    assert {bool(took) for took in state.took_spectral} == {True, False}
    for rank, took, row in zip(ranks, state.took_spectral, report.rows, strict=True):
        assert rank == pytest.approx(row.stable_rank[0], rel=1e-3)
        assert bool(took) == (row.ratio >= 1)


@pytest.mark.integration
def test_stacked_parameters_have_a_stable_rank_for_each_layer(attention):
    params, tokens, report = attention
    ranks = jax.jit(lambda p: activation_stable_ranks(attention_model, p, tokens, steps=200))(
        params
    )
    rows = {row.name: row.stable_rank[0] for row in report.rows}
    assert ranks["blocks"]["gain"] is None
    for name in ("up", "down"):
        np.testing.assert_allclose(
            ranks["blocks"][name], [rows[f"blocks.{name}[{i}]"] for i in range(3)], rtol=1e-3
        )
    np.testing.assert_allclose(
        ranks["grouped"], [rows[f"grouped (map {i})"] for i in range(2)], rtol=1e-3
    )
    # Used twice: the larger of the two.
    assert ranks["table"] == pytest.approx(
        max(rows["table (use 1)"], rows["table (use 2)"]), rel=1e-3
    )


@pytest.mark.integration
def test_equinox_modules_and_their_other_leaves():
    module = eqx.filter_jit(eqx.nn.MLP)(6, 3, 8, 1, key=jax.random.key(0))
    (x,) = drawn((9, 6))
    report = layer_report(lambda m, x: jnp.mean(jax.vmap(m)(x) ** 2), module, x)
    assert [row.name for row in report.rows] == ["layers.0.weight", "layers.1.weight"]
    assert report.others == ("layers.0.bias", "layers.1.bias")
    assert report.rows[0].stable_rank[0] == pytest.approx(stable_rank(x), rel=ROUNDING)


@pytest.mark.parametrize(
    ("spectrum", "inputs", "expected"),
    [
        ([1.0, 1.0, 1.0, 1.0], [1.0, 0.1, 0.1, 0.1], "spectral"),
        ([1.0, 1.0, 1.0, 0.0], [1.0, 0.9, 0.7, 0.0], "leans spectral"),
        ([1.0, 0.3, 0.0, 0.0], [1.0, 1.0, 0.5, 0.0], "leans Euclidean"),
        ([1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0], "Euclidean"),
        ([0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0], "no gradient"),
    ],
)
def test_what_is_recommended(spectrum, inputs, expected):
    """A linear loss ⟨C, W A⟩ has the gradient C Aᵀ: diagonal matrices give any pair of ranks."""
    a = np.diag(np.float32(inputs))
    c = np.diag(np.float32(np.where(np.greater(inputs, 0), spectrum / np.maximum(inputs, 0.1), 0)))
    (row,) = layer_report(lambda w, a: jnp.sum(c * (w @ a)), np.eye(4, dtype=np.float32), a).rows
    assert row.recommendation == expected


@pytest.mark.parametrize("samples", [3, 20], ids=["columns", "gram"])
def test_stable_rank_holds_at_every_magnitude_and_is_nan_if_bad(samples):
    x = np.random.default_rng(0).standard_normal((samples, 6)).astype(np.float32)

    @jax.jit
    def rank(x):
        return activation_stable_ranks(lambda w, x: jnp.sum(x @ w), jnp.ones((6, 2)), x)

    for size in (1e-35, 1e-20, 1.0, 1e19, 1e37):
        assert rank(np.float32(size) * x) == pytest.approx(stable_rank(x), rel=1e-4)
    for bad in (np.nan, np.inf):
        assert np.isnan(rank(np.where(np.eye(samples, 6) > 0, np.float32(bad), x)))
    assert rank(0 * x) == 0


@pytest.mark.integration
@pytest.mark.parametrize("exact_up_to", [512, 1], ids=["exact", "estimated"])
def test_nan_is_not_taken_for_no_gradient(exact_up_to):
    """⟨C, W A⟩ with a NaN in C alone, or in A, which spoils both."""
    w, a, c = (
        np.eye(4, dtype=np.float32),
        np.eye(4, 5, dtype=np.float32),
        np.ones((4, 5), np.float32),
    )
    c[0, 0] = np.nan
    (row,) = layer_report(lambda w, a: jnp.sum(c * (w @ a)), w, a, exact_up_to=exact_up_to).rows
    assert np.isnan(row.nuclear_rank).all()
    assert not np.isnan(row.stable_rank).any()
    assert row.recommendation == "undecided"
    a[0, 0] = np.nan
    (row,) = layer_report(lambda w, a: jnp.sum(w @ a), w, a, exact_up_to=exact_up_to).rows
    assert np.isnan(row.stable_rank + row.nuclear_rank).all()
    assert row.recommendation == "undecided"


@pytest.mark.usefixtures("unchecked")
def test_what_is_refused():
    with pytest.raises(ValueError, match="one number"):
        layer_report(lambda w, x: w @ x, jnp.eye(2), jnp.ones(2))
    with pytest.raises(ValueError, match="No parameter enters a matrix product"):
        layer_report(lambda w, x: jnp.sum(w * x), jnp.ones(2), jnp.ones(2))


@pytest.mark.integration
def test_matrices_side_by_side_have_a_row_each():
    """The parts of a fused matrix have the ranks of the parts of its gradient; a loss may come with
    anything beside it.
    """
    x, y, ab = drawn((20, 4), (20, 3), (4, 8))

    def model(params, batch):
        a, b = jnp.split(batch[0] @ params["block"]["ab"], [5], axis=1)
        return jnp.mean((jnp.tanh(a) @ params["out"] + b - batch[1]) ** 2), {"seen": a}

    params = {"block": {"ab": ab}, "out": jnp.ones((5, 3))}
    report = layer_report(model, params, (x, y), splits={"ab": (5, 3)})
    assert [(row.name, row.shape) for row in report.rows] == [
        ("block.ab (part 1 of 2)", (5, 4)),
        ("block.ab (part 2 of 2)", (3, 4)),
        ("out", (3, 5)),
    ]
    gradient = jax.jit(jax.grad(lambda p: model(p, (x, y))[0]))(params)["block"]["ab"]
    for row, part in zip(report.rows, (gradient[:, :5], gradient[:, 5:]), strict=False):
        assert row.nuclear_rank[0] == pytest.approx(nuclear_rank(part), rel=ROUNDING)
        assert row.stable_rank[0] == pytest.approx(stable_rank(x), rel=ROUNDING)
    layout = matrix_layout(model, params, (x, y))
    assert layer_report(model, params, (x, y), layout=layout) == report
    with pytest.raises(ValueError, match="takes layout= or splits=, not both"):
        layer_report(model, params, (x, y), layout=layout, splits={"ab": (5, 3)})
    with pytest.raises(ValueError, match="splits name the leaf 'qkv'"):
        layer_report(model, params, (x, y), splits={"qkv": (5, 3)})
