"""The maps of layers that are more than a product of a parameter with activations, against
gradients and inputs made by hand in NumPy.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from specjax import optim
from specjax.diagnostics import layer_report
from specjax.diagnostics.linear_maps import linear_maps
from specjax.training import measure_ranks
from tests.diagnostics.draws import drawn
from tests.reference.ranks import nuclear_rank, stable_rank

ROUNDING = 2e-4
"""Of stable ranks by way of A Aᵀ in float32."""


def check(report, expected):
    """The rows of a report against {name: (inputs (k, n), gradient (m, k))}."""
    assert {row.name for row in report.rows} == set(expected)
    for row in report.rows:
        inputs, gradient = expected[row.name]
        assert row.shape == gradient.shape
        assert row.stable_rank[0] == pytest.approx(stable_rank(inputs), rel=ROUNDING), row.name
        assert row.nuclear_rank[0] == pytest.approx(nuclear_rank(gradient), rel=ROUNDING), row.name


def patches(image, window, stride, padding, spread, dilation):
    """The windows (c · window, n · positions) of images (n, c, h, w), by loops: entry (c, i, j) of
    a window is row (c·I + i)·J + j.
    """
    n, c, *extent = image.shape
    # Zeros between the entries of the image, and around it.
    wide = np.zeros((n, c, *((e - 1) * s + 1 for e, s in zip(extent, spread, strict=True))))
    wide[:, :, :: spread[0], :: spread[1]] = image
    wide = np.pad(wide, ((0, 0), (0, 0), *padding))
    reach = [(k - 1) * d + 1 for k, d in zip(window, dilation, strict=True)]
    places = [range(0, w - r + 1, s) for w, r, s in zip(wide.shape[2:], reach, stride, strict=True)]
    columns = []
    for example, y, x in itertools.product(range(n), *places):
        entries = [
            wide[example, channel, y + i * dilation[0], x + j * dilation[1]]
            for channel, i, j in itertools.product(range(c), *map(range, window))
        ]
        columns.append(entries)
    return np.array(columns).T


LAYOUTS = {
    "NHWC": ("NHWC", "HWIO", "NHWC", (0, 3, 1, 2), (3, 2, 0, 1)),
    "NCHW": ("NCHW", "OIHW", "NCHW", (0, 1, 2, 3), (0, 1, 2, 3)),
    "CWNH": ("CWNH", "HOWI", "HNWC", (2, 0, 3, 1), (1, 3, 0, 2)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("groups", "stride", "padding", "spread", "dilation"),
    [
        (1, (1, 1), ((0, 0), (0, 0)), (1, 1), (1, 1)),
        (2, (2, 1), ((1, 0), (2, 1)), (1, 1), (1, 2)),
        (1, (1, 2), ((1, 1), (0, 1)), (2, 1), (2, 1)),
    ],
    ids=["plain", "groups", "dilated"],
)
def test_a_convolution_acts_on_the_patches_of_its_image(
    layout, groups, stride, padding, spread, dilation
):
    spec, inputs, outputs, window = LAYOUTS[layout], 4, 6, (2, 3)
    image, kernel = drawn((3, inputs, 5, 6), (outputs, inputs // groups, *window))
    # What goes into the convolution has its own layout: the transpositions that undo that to (n, c,
    # h, w) are spelled out above.
    x, w = image.transpose(np.argsort(spec[3])), kernel.transpose(np.argsort(spec[4]))

    def convolved(w, x):
        return lax.conv_general_dilated(
            x,
            w,
            stride,
            padding,
            spread,
            dilation,
            spec[:3],
            feature_group_count=groups,
            precision="highest",
        )

    (weights,) = drawn(jax.eval_shape(convolved, w, x).shape, seed=1)
    report = layer_report(lambda w, x: jnp.sum(weights * convolved(w, x)), w, x)
    # dL/dY as (channels, examples and positions), from the layout of the outputs.
    back = [spec[2].index(axis) for axis in "CNHW"]
    cotangent = weights.transpose(back).reshape(outputs, -1)
    columns = patches(image, window, stride, padding, spread, dilation)
    k, m = columns.shape[0] // groups, outputs // groups
    expected = {}
    for g in range(groups):
        a = columns[g * k : (g + 1) * k]
        expected["the only leaf" + (f" (map {g})" if groups > 1 else "")] = (
            a,
            cotangent[g * m : (g + 1) * m] @ a.T,
        )
    check(report, expected)
    assert all(row.kind == "convolution" for row in report.rows)

    # The matrices are those of the parameter, in the order of the rows of the inputs.
    @jax.jit
    def found(w, x):
        (found,) = linear_maps(lambda leaves: jnp.sum(convolved(*leaves, x)), [w])
        return found.matrices(w).reshape(groups, m, k), found.inputs.reshape(groups, k, -1)

    matrices, rows = found(w, x)
    np.testing.assert_allclose(matrices, kernel.reshape(groups, m, k))
    np.testing.assert_allclose(rows, columns.reshape(groups, k, -1), rtol=1e-6)


@pytest.mark.integration
def test_a_depthwise_kernel_has_no_matrix():
    x, w, head = drawn((2, 7, 4), (3, 1, 4), (4, 2))

    def model(p, x):
        h = lax.conv_general_dilated(
            x, p[0], (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC"), feature_group_count=4
        )
        return jnp.mean(jnp.sin(h @ p[1]))

    report = layer_report(model, (w, head), x)
    assert [row.name for row in report.rows] == ["1"]
    assert report.others == ("0",)


@pytest.mark.integration
def test_an_adapter_is_a_map_after_its_other_half():
    """y = (W + 2 A B)ᵀ x: A acts on x, and B on Aᵀ x."""
    x, w, a, b, y = drawn((20, 5), (5, 4), (5, 2), (2, 4), (20, 4))
    params = {"w": w, "a": a, "b": b}
    report = layer_report(
        lambda p, x: jnp.mean((x @ (p["w"] + 2 * p["a"] @ p["b"]) - y) ** 2), params, x
    )
    x, w, a, b, y = (np.asarray(z, np.float64) for z in (x, w, a, b, y))
    residual = 2 * (x @ (w + 2 * a @ b) - y) / y.size
    expected = {
        "w": (x.T, residual.T @ x),
        "a": (x.T, 2 * (residual @ b.T).T @ x),
        "b": ((x @ a).T, 2 * residual.T @ (x @ a)),
    }
    check(report, expected)


@pytest.mark.integration
def test_an_adapter_is_mapped_in_torch_layout_and_in_experts():
    """y_e = (B_e A) x_e with A shared: what is applied to A are the rows of all experts."""
    x, a, b, weights = drawn((3, 7, 5), (2, 5), (3, 4, 2), (3, 7, 4))
    params = {"a": a, "b": b}

    def model(p, x):
        kernel = jnp.einsum("eor,ri->eoi", p["b"], p["a"], precision="highest")
        return jnp.sum(weights * jnp.einsum("eni,eoi->eno", x, kernel))

    report = layer_report(model, params, x)
    x, a, b, c = (np.asarray(z, np.float64) for z in (x, a, b, weights))
    expected = {f"b (map {e})": (a @ x[e].T, c[e].T @ (x[e] @ a.T)) for e in range(3)}
    expected["a"] = (x.reshape(-1, 5).T, sum((c[e] @ b[e]).T @ x[e] for e in range(3)))
    check(report, expected)


@pytest.mark.integration
@pytest.mark.parametrize("per", ["output", "input"])
def test_a_weight_norm_gain_scales_the_input_of_its_matrix(per):
    """V diag(g) / ‖V‖: a gain of outputs stands behind the map, a gain of inputs before it."""
    x, v, g, weights = drawn((20, 5), (5, 4), (4,) if per == "output" else (5,), (20, 4))
    axis = 0 if per == "output" else 1

    def normalized(v, g):
        return v * jnp.expand_dims(g, axis) / jnp.linalg.norm(v, axis=axis, keepdims=True)

    report = layer_report(lambda p, x: jnp.sum(weights * (x @ normalized(*p))), (v, g), x)
    x, v, g, c = (np.asarray(z, np.float64) for z in (x, v, g, weights))
    norm = np.linalg.norm(v, axis=axis, keepdims=True)
    unit, outer = v / norm, x.T @ c
    # dL/dV = g/‖V‖ (I - V Vᵀ/‖V‖²) XᵀC, in each column, or row, of V.
    scale = np.expand_dims(g, axis) / norm
    gradient = scale * (outer - unit * np.sum(unit * outer, axis=axis, keepdims=True))
    check(report, {"0": (x.T if per == "output" else scale * x.T, gradient.T)})
    assert report.others == ("1",)


@pytest.mark.integration
def test_parameters_side_by_side_have_a_row_each():
    """[Q, K] and [U; V]: those of outputs share the inputs, those of inputs have each a part of
    them.
    """
    x, q, k, u, v, c1, c2 = drawn((20, 5), (5, 3), (5, 2), (2, 4), (3, 4), (20, 5), (20, 4))

    def model(p, x):
        beside, above = jnp.concatenate([p["q"], p["k"]], axis=1), jnp.concatenate([p["u"], p["v"]])
        return jnp.sum(c1 * (x @ beside)) + jnp.sum(c2 * (x @ above))

    report = layer_report(model, {"q": q, "k": k, "u": u, "v": v}, x)
    x, c1, c2 = (np.asarray(z, np.float64) for z in (x, c1, c2))
    check(
        report,
        {
            "q": (x.T, c1[:, :3].T @ x),
            "k": (x.T, c1[:, 3:].T @ x),
            "u": (x[:, :2].T, c2.T @ x[:, :2]),
            "v": (x[:, 2:].T, c2.T @ x[:, 2:]),
        },
    )


def test_matrices_that_take_turns_have_a_row_each():
    x, w, c = drawn((20, 5), (5, 8), (20, 8))
    report = layer_report(
        lambda p, x: jnp.sum(c * (x @ p["ab"])),
        {"ab": w},
        x,
        splits={"ab": optim.Interleaved((3, 1), 2)},
    )
    gradient = c.T @ x
    check(
        report,
        {
            f"ab (part {i + 1} of 2)": (x.T, gradient[own])
            for i, own in enumerate(([0, 1, 2, 4, 5, 6], [3, 7]))
        },
    )


@pytest.mark.integration
@pytest.mark.parametrize(
    "form", [pytest.param("ragged_dot", marks=pytest.mark.slow), "einsum", "one for each token"]
)
def test_every_expert_has_the_rows_that_it_was_given(form):
    x, w, c = drawn((9, 5), (3, 5, 4), (9, 4))
    sizes, expert = jnp.array([4, 0, 5]), np.repeat(np.arange(3), [4, 0, 5])

    def model(w, x):
        if form == "ragged_dot":
            y = lax.ragged_dot(x, w, sizes)
        elif form == "einsum":
            dispatch = jax.nn.one_hot(expert, 3)[:, :, None] * jnp.eye(9)[:, None]
            y = jnp.einsum(
                "tec,eco->to",
                dispatch,
                jnp.einsum("eci,eio->eco", jnp.einsum("tec,ti->eci", dispatch, x), w),
            )
        else:
            y = jax.vmap(lambda x, e: x @ w[e])(x, jnp.asarray(expert))
        return jnp.sum(c * y)

    report = layer_report(model, w, x)
    ranks = jax.jit(lambda w, x: measure_ranks(model, w, x))(w, x)
    x, c = np.asarray(x, np.float64), np.asarray(c, np.float64)
    assert len(report.rows) == 3
    for e in (0, 2):
        row, own = report.rows[e], expert == e
        assert row.shape == (4, 5)
        assert row.stable_rank[0] == pytest.approx(stable_rank(x[own]), rel=ROUNDING)
        assert row.nuclear_rank[0] == pytest.approx(nuclear_rank(c[own].T @ x[own]), rel=ROUNDING)
        assert ranks.nuclear[e] == pytest.approx(nuclear_rank(c[own].T @ x[own]), rel=1e-3)
    assert report.rows[1].recommendation == "no gradient"


@pytest.mark.integration
def test_experts_that_a_product_sums_over_have_a_matrix_each():
    """Each expert has its share of every token; what they give is summed in the product with their
    second matrices.
    """
    x, gates, up, down, c = drawn((9, 5), (9, 3), (3, 5, 4), (3, 4, 6), (9, 6))

    def model(p, batch):
        x, gates = batch
        h = jnp.sin(jnp.einsum("etd,edh->eth", gates.T[:, :, None] * x[None], p["up"]))
        return jnp.sum(c * jnp.einsum("eth,ehd->td", h, p["down"]))

    report = layer_report(model, {"up": up, "down": down}, (x, gates))
    x, gates, up, down, c = (np.asarray(z, np.float64) for z in (x, gates, up, down, c))
    expected = {}
    for e in range(3):
        share = gates[:, e : e + 1] * x
        back = (c @ down[e].T) * np.cos(share @ up[e])
        expected[f"up (map {e})"] = (share.T, back.T @ share)
        expected[f"down (map {e})"] = (np.sin(share @ up[e]).T, c.T @ np.sin(share @ up[e]))
    check(report, expected)


@pytest.mark.parametrize("taken", [0, 1])
def test_of_branches_the_one_that_is_taken_counts(taken):
    x, w, v = drawn((20, 5), (5, 4), (5, 4))

    def model(p, batch):
        x, index = batch
        y = lax.cond(
            index > 0,
            lambda p: jnp.sin(x @ p["w"]),
            lambda p: jnp.cos(x[:7] @ p["v"]).sum() + 0 * (x @ p["w"]),
            p,
        )
        return jnp.sum(y)

    report = layer_report(model, {"w": w, "v": v}, (x, jnp.asarray(taken)))
    rows = {row.name: row for row in report.rows}
    x, w, v = (np.asarray(z, np.float64) for z in (x, w, v))
    if taken:
        assert rows["w"].stable_rank[0] == pytest.approx(stable_rank(x), rel=ROUNDING)
        assert rows["w"].nuclear_rank[0] == pytest.approx(
            nuclear_rank(np.cos(x @ w).T @ x), rel=ROUNDING
        )
        assert rows["v"].recommendation == "no gradient"
    else:
        assert rows["v"].stable_rank[0] == pytest.approx(stable_rank(x[:7]), rel=ROUNDING)
        assert rows["v"].nuclear_rank[0] == pytest.approx(
            nuclear_rank(np.sin(x[:7] @ v).T @ x[:7]), rel=ROUNDING
        )


def test_a_loss_with_more_beside_it():
    x, w = drawn((20, 5), (5, 4))
    alone = layer_report(lambda w, x: jnp.sum(jnp.sin(x @ w)), w, x)
    assert layer_report(lambda w, x: (jnp.sum(jnp.sin(x @ w)), {"seen": x}), w, x) == alone
