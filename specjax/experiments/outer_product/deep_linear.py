"""Theorem 2 and Corollary 2: E[G_i G_iᵀ] = V_i s_i I + T_i in every layer of deep linear networks, and the orders of V_i s_i.

The closed form is judged at inner widths w, 2w, 3w that no two layers share, and with a target that grows with the depth, so that V_i s_i
and T_i are of one size in every layer. Orders are those of V_i s_i alone, that is of Φ = 0, in a common inner width: with input and
output sizes fixed, as the paper has it, and with all sizes in proportion, where its printed orders are right.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial, reduce
from operator import add

import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Key

from specjax import lab, moments, sizes, spectral, sweep
from specjax.experiments.ledgers import ledger
from specjax.experiments.outer_product.statistics import gram
from specjax.models import deep_linear
from specjax.models.targets import check_off_diagonal, sign_target
from specjax.theory import deep_linear as theory

DEPTHS = (2, 3, 4)
LAYERS = tuple((layer, depth) for depth in DEPTHS for layer in range(1, depth + 1))
FIRST = tuple((layer, depth) for layer, depth in LAYERS if layer == 1)
BETWEEN = tuple((layer, depth) for layer, depth in LAYERS if 1 < layer < depth)
OUTPUT = tuple((layer, depth) for layer, depth in LAYERS if layer == depth)
HIDDEN = tuple((layer, depth) for layer, depth in LAYERS if layer < depth)

SIZES_CHOSEN = "The widths were chosen after runs at the smoke scale, by the bias of the fit; another seed judges them."

Data = Mapping[str, xr.Dataset]
Layer = tuple[int, int]


class Config(lab.Config):
    """Widths, the fixed sizes of input and output, and the target."""

    small_widths: tuple[int, ...] = lab.sizes(3, 6, least=2, help="w of the inner widths w, 2w, 3w of the closed forms")
    widths: tuple[int, ...] = lab.sizes(
        16, 32, 64, 128, 256, least=2, points=5, help="common inner widths of the orders"
    )
    growing_widths: tuple[int, ...] = lab.sizes(
        4, 8, 16, 32, 64, least=2, points=5, help="widths of the orders with all sizes in proportion"
    )
    d_in: int = lab.integer(3, least=1, help="input dimension d_0")
    d_out: int = lab.integer(2, least=2, help="output dimension d_L")
    small_seeds: int = lab.seeds(50_000, help="initializations at each of small_widths")
    seeds: int = lab.seeds(1000, help="initializations at each of widths")
    target_scale: float = lab.number(3.0, above=0, help="the entries of Φ are ± this to the power L - 1")

    def inner(self, depth: int, width: sizes.AnySize) -> tuple[sizes.AnySize, ...]:
        """(d_0, …, d_L) of the closed forms."""
        return (self.d_in, *(sizes.times(width, factor) for factor in range(1, depth)), self.d_out)

    def norm_squared(self, depth: int) -> float:
        """‖Φ‖² of the closed forms."""
        return self.d_in * self.d_out * self.target_scale ** (2 * (depth - 1))


def run(config: Config, key: Key[Array, ""]) -> dict[str, xr.Dataset]:
    """Averages of every G_i G_iᵀ per width and seed, for the closed forms and for the orders."""
    signs = sign_target(sizes.stream(key, "target"), config.d_out, config.d_in)
    check_off_diagonal(gram(signs), "ΦΦᵀ of the drawn target", "choose another seed or an odd d_in")

    def closed(depth: int) -> Callable[[Key[Array, ""], sizes.AnySize], dict[str, Array]]:
        target = config.target_scale ** (depth - 1) * signs

        def measure(key: Key[Array, ""], width: sizes.AnySize) -> dict[str, Array]:
            dims = config.inner(depth, width)
            params = deep_linear.init(key, dims)
            p = [gram(g) for g in deep_linear.gradient(params, target)]
            # Weights without the symmetry under W_i → D W_i, W_{i+1} → W_{i+1} D that makes the off-diagonal zero.
            positive = [gram(g) for g in deep_linear.gradient(tuple(jnp.abs(w) for w in params), target)]
            return {
                "diagonal": _each(spectral.diagonal_mean, p, dims),
                "off_diagonal": _each(spectral.off_diagonal_mean, p[:-1], dims),
                "positive_off_diagonal": _each(spectral.off_diagonal_mean, positive[:-1], dims),
                "coefficient": spectral.off_diagonal_coefficient(p[-1], gram(target))[None],
            }

        return measure

    def order(depth: int, ends: tuple[int, int] | None) -> Callable[[Key[Array, ""], sizes.AnySize], dict[str, Array]]:
        def measure(key: Key[Array, ""], width: sizes.AnySize) -> dict[str, Array]:
            first, last = (width, width) if ends is None else ends
            dims = (first, *(width,) * (depth - 1), last)
            nothing = jnp.zeros((sizes.padded(last), sizes.padded(first)))
            gradient = deep_linear.gradient(deep_linear.init(key, dims), nothing)
            return {"noise": _each(_mean_squared_row, gradient, dims)}

        return measure

    def swept(name: str, measure: Callable[[int], Callable], widths: tuple[int, ...], seeds: int) -> xr.Dataset:
        runs = {
            depth: sweep.run(
                measure(depth),
                {"width": sweep.widths(*widths)},
                seeds=seeds,
                key=sizes.stream(key, f"weights of {name} at depth {depth}"),
                chunk=10_000,
            )
            for depth in DEPTHS
        }
        quantities = [str(name) for name, values in runs[DEPTHS[0]].items() if f"{name}_dim_0" in values.dims]
        return xr.Dataset({quantity: _joined(runs, quantity) for quantity in quantities})

    ends = (config.d_in, config.d_out)
    return {
        "closed": swept("the closed forms", closed, config.small_widths, config.small_seeds),
        "fixed": swept("the orders with fixed ends", lambda depth: order(depth, ends), config.widths, config.seeds),
        "growing": swept(
            "the orders in proportion", lambda depth: order(depth, None), config.growing_widths, config.seeds
        ),
    }


def _each(mean: Callable[..., Array], matrices: Sequence[Array], dims: tuple[sizes.AnySize, ...]) -> Array:
    return jnp.stack([mean(matrix, rows) for matrix, rows in zip(matrices, dims[1:], strict=False)])


def _mean_squared_row(g: Array, rows: sizes.AnySize) -> Array:
    """The mean diagonal of G Gᵀ, without that product."""
    return jnp.sum(g * g) / jnp.asarray(sizes.active(rows), g.dtype)


_KINDS = {"off_diagonal": HIDDEN, "positive_off_diagonal": HIDDEN, "coefficient": OUTPUT}


def _joined(runs: Mapping[int, xr.Dataset], quantity: str) -> xr.DataArray:
    """One quantity of all depths, along the layers that have it; layers of different kinds are different dimensions."""
    layers = _KINDS.get(quantity, LAYERS)
    dim = {HIDDEN: "hidden_layer", OUTPUT: "output_layer"}.get(layers, "layer")
    joined = xr.concat([run[quantity].rename({f"{quantity}_dim_0": dim}) for run in runs.values()], dim)
    return joined.assign_coords({dim: _labels(layers)})


def _labels(layers: tuple[Layer, ...]) -> list[str]:
    return [f"{layer} of {depth}" for layer, depth in layers]


def at_layers(layers: tuple[Layer, ...], dim: str, form: Callable[[int, int], xr.DataArray | int]) -> xr.DataArray:
    """`form` of layer and depth along a dimension of the data."""
    parts = [xr.DataArray(form(layer, depth)) for layer, depth in layers]
    return xr.concat(parts, dim).assign_coords({dim: _labels(layers)})


def noise(config: Config, data: Data) -> xr.DataArray:
    """V_i s_i of the closed forms."""
    return at_layers(LAYERS, "layer", lambda i, depth: _form(theory.noise_coefficient, config, data, i, depth))


def signal(config: Config, data: Data) -> xr.DataArray:
    """The diagonal of T_i: a multiple of ‖Φ‖² before the last layer and of the mean of (ΦΦᵀ)_aa in it."""

    def diagonal(i: int, depth: int) -> xr.DataArray:
        share = config.norm_squared(depth) / (config.d_out if i == depth else 1)
        return share * _form(theory.target_coefficient, config, data, i, depth)

    return at_layers(LAYERS, "layer", diagonal)


TERMS = ("the leading order of V_i s_i", "the next order of V_i s_i", "T_i")
"""What rivals leave out at one depth. The orders of V_i s_i below these are lost in the noise."""


@cache
def terms(layer: int, depth: int) -> dict[str, moments.Polynomial]:
    """What the mean diagonal of E[G_i G_iᵀ] is the sum of, by the engine: in w of the inner widths w, 2w, 3w, the ends d, and ‖Φ‖²."""
    weights = [moments.gaussian(f"W{i}", f"d{i}", f"d{i - 1}") for i in range(1, depth + 1)]
    before = reduce(lambda product, w: w @ product, weights[: layer - 1], moments.identity("d0"))
    after = reduce(lambda product, w: w @ product, weights[layer:], moments.identity(f"d{layer}"))
    residual = after @ weights[layer - 1] @ before - moments.constant("Phi", f"d{depth}", "d0")
    gradient = after.T @ residual @ before.T
    mean = moments.expectation(moments.squared_norm(gradient)) / moments.symbol(f"d{layer}")
    w, norm_squared = moments.symbol("w"), moments.symbol("norm_squared")
    grown = moments.orders(mean, "w", **{f"d{i}": i * w for i in range(1, depth)})
    noise, signal = reduce(add, (w**power * part for power, part in grown.parts)).parts(along=())
    leading, following, *rest = (w**power * part.value for power, part in moments.orders(noise, "w").parts)
    (coefficient,) = signal.terms.values()
    found = dict(zip(TERMS, (leading, following, norm_squared * coefficient), strict=True))
    return {**found, "the orders below": sum(rest, start=0 * w)}


def exact(config: Config, data: Data, *, dropped: tuple[int, str] | None = None) -> xr.DataArray:
    """The diagonals by the engine, Theorem 2, or without one of the terms at one depth."""

    def diagonal(i: int, depth: int) -> xr.DataArray:
        kept = [term for name, term in terms(i, depth).items() if dropped != (depth, name)]
        fixed = {"d0": config.d_in, f"d{depth}": config.d_out, "norm_squared": config.norm_squared(depth)}
        return lab.closed_form(lambda w: 0 * w + reduce(add, kept).evaluate({"w": w, **fixed}), data["closed"].width)

    return at_layers(LAYERS, "layer", diagonal)


def from_the_output(config: Config, data: Data) -> xr.DataArray:
    """The diagonals with V_i s_i of the layers numbered from the output."""
    turned = at_layers(
        LAYERS, "layer", lambda i, depth: _form(theory.noise_coefficient, config, data, depth + 1 - i, depth)
    )
    return turned + signal(config, data)


def own_width_too(config: Config, data: Data) -> xr.DataArray:
    """The diagonals with all inner widths in T_i, also that of the layer itself."""
    own = at_layers(
        LAYERS, "layer", lambda i, depth: data["closed"].width * i if i < depth else xr.ones_like(data["closed"].width)
    )
    return noise(config, data) + own * signal(config, data)


@lab.statement(
    ("theorem-2", "corollary-2", "section-4-table-hidden", "section-4-table-output"),
    "The diagonal of E[G_i G_iᵀ] is that of V_i s_i I + T_i in every layer at depth 2, 3 and 4.",
    rivals={
        **{
            f"at depth {depth} without {term}": partial(exact, dropped=(depth, term))
            for depth in DEPTHS
            for term in TERMS
        },
        "T_i with the width of layer i in its product": own_width_too,
        "V_i s_i with the layers numbered from the output": from_the_output,
    },
)
def diagonals(config: Config, data: Data) -> lab.Relation:
    """By the engine, whose terms are dropped one at a time."""
    return lab.equals(data["closed"]["diagonal"], exact(config, data))


def hidden_share(config: Config, data: Data) -> xr.DataArray:
    """The mean off-diagonal of hidden layers over the diagonal that it has in expectation."""
    form = (noise(config, data) + signal(config, data)).rename(layer="hidden_layer")
    return (data["closed"]["off_diagonal"] / form.sel(hidden_layer=_labels(HIDDEN))).rename("off-diagonal / diagonal")


def over_own_width(config: Config, data: Data) -> xr.DataArray:
    """1/d_i in the hidden layers."""
    return at_layers(HIDDEN, "hidden_layer", lambda i, depth: 1 / (i * data["closed"].width))


@lab.statement(
    (
        "theorem-2",
        "corollary-2-off-diagonal-hidden",
        "section-4-table-hidden",
        "section-4-expectation",
        "appendix-c8-symmetry",
    ),
    "The off-diagonal of E[G_i G_iᵀ] is zero in every hidden layer.",
    rivals={"the diagonal over d_i, as in ReLU networks": over_own_width},
    controls={
        "weights |N(0, 1)|, without the symmetry in signs": lambda config, data: {
            **data,
            "closed": data["closed"].assign(off_diagonal=data["closed"]["positive_off_diagonal"]),
        }
    },
)
def hidden_off_diagonal(config: Config, data: Data) -> lab.Relation:
    """Signed, so that it averages out."""
    share = hidden_share(config, data)
    return lab.equals(share, xr.zeros_like(share.isel(seed=0, drop=True)))


def product(data: Data, less: int = 0) -> xr.DataArray:
    """∏_{j<L} d_j of every depth, without the last `less` widths."""
    width = data["closed"].width

    def widths(_: int, depth: int) -> xr.DataArray:
        return math.factorial(depth - 1 - less) * width ** (depth - 1 - less)

    return at_layers(OUTPUT, "output_layer", widths)


@lab.statement(
    ("theorem-2", "corollary-2-off-diagonal-output", "section-4-table-output", "section-4-output-ratio"),
    "The off-diagonal of E[G_L G_Lᵀ] is that of (∏_{j<L} d_j) Φ Φᵀ.",
    rivals={
        "none, as in hidden layers": 0.0,
        "that without d_{L-1}": lambda config, data: product(data, less=1),
        "that with d_0": lambda config, data: config.d_in * product(data),
    },
)
def output_off_diagonal(config: Config, data: Data) -> lab.Relation:
    """Its coefficient on the off-diagonal of ΦΦᵀ."""
    return lab.equals(data["closed"]["coefficient"], product(data))


def exponents(layers: tuple[Layer, ...], exponent: Callable[[int, int], int], more: int = 0) -> xr.DataArray:
    """One for each layer, and `more`."""
    return at_layers(layers, "layer", lambda i, depth: exponent(depth, i) + more)


def power(data: Data, layers: tuple[Layer, ...], exponent: xr.DataArray, ends: str = "fixed") -> lab.Relation:
    """V_i s_i of some layers as powers of the width."""
    return lab.scales_as(data[ends]["noise"].sel(layer=_labels(layers)), "width", exponent)


def orders(
    row: str, layers: tuple[Layer, ...], where: str, true: str, printed: str
) -> tuple[lab.Statement, lab.Statement]:
    """That V_i s_i of some layers has the exponent of the recursions, and that it has the printed one."""
    right, wrong = exponents(layers, theory.noise_exponent), exponents(layers, theory.noise_exponent_as_printed)
    cites = (row, "theorem-2-order") if layers == OUTPUT else row
    with_ends = f"With d_0 and d_L fixed, V_i s_i of {where} is of the order"
    return (
        lab.statement(
            cites,
            f"{with_ends} w^({true}) in a common inner width w.",
            name=f"{row.removeprefix('corollary-2-')}",
            corrected=True,
            rivals={f"the printed {printed}": wrong, "one power more": exponents(layers, theory.noise_exponent, 1)},
            post_hoc=SIZES_CHOSEN,
        )(lambda config, data: power(data, layers, right)),
        lab.statement(
            cites,
            f"{with_ends} w^({printed}) in a common inner width w, as printed.",
            name=f"{row.removeprefix('corollary-2-')}-printed",
            holds=False,
            rivals={true: right},
            post_hoc=SIZES_CHOSEN,
        )(lambda config, data: power(data, layers, wrong)),
    )


@lab.statement(
    ("corollary-2-order-first", "corollary-2-order-hidden", "corollary-2-order-output", "theorem-2-order"),
    "Where all sizes d_0 to d_L grow in proportion, V_i s_i is of the printed order in every layer, w^(2L-1).",
    corrected=True,
    rivals={
        "one power less": exponents(LAYERS, lambda depth, i: 2 * depth - 2),
        "one power more": exponents(LAYERS, lambda depth, i: 2 * depth),
    },
    post_hoc=SIZES_CHOSEN,
)
def order_in_proportion(config: Config, data: Data) -> lab.Relation:
    """The condition under which the printed orders are right."""
    return power(data, LAYERS, exponents(LAYERS, lambda depth, i: 2 * depth - 1), "growing")


@lab.statement(
    ("section-4-output-ratio", "section-4-expectation"),
    "V_L s_L over the ∏_{j<L} d_j of the off-diagonal grows as w^(L-1) in a common inner width w.",
    rivals={
        "w^(L-2), by the printed order": exponents(OUTPUT, lambda depth, i: depth - 2),
        "w^L": exponents(OUTPUT, lambda depth, i: depth),
    },
    post_hoc=SIZES_CHOSEN,
)
def output_ratio(config: Config, data: Data) -> lab.Relation:
    """So it diverges at every depth; by the printed order it would not at L = 2."""
    noise = data["fixed"]["noise"].sel(layer=_labels(OUTPUT))
    ratio = noise / at_layers(OUTPUT, "layer", lambda _, depth: data["fixed"].width ** (depth - 1))
    return lab.scales_as(ratio.rename("V_L s_L / ∏ d_j"), "width", exponents(OUTPUT, lambda depth, i: depth - 1))


def _form(form: Callable[..., Array], config: Config, data: Data, i: int, depth: int) -> xr.DataArray:
    return lab.closed_form(
        lambda widths: np.array([form(config.inner(depth, int(width)), i) for width in widths]), data["closed"].width
    )


EXPERIMENT = lab.Experiment(
    "deep-linear",
    ledger("outer-product"),
    title="E[G_i G_iᵀ] of deep linear networks",
    summary="The closed form holds in every layer, and hidden layers are diagonal in expectation. The printed orders of V_i s_i are those "
    "of sizes that all grow in proportion; with d_0 and d_L fixed they are too small, by one power of the width in the first and in the "
    "last layer and by two between. At L = 2 the printed order of the output would leave the ratio of diagonal to off-diagonal constant; "
    "the right one makes it grow with the width.",
    config=Config,
    measure=run,
    statements=(
        diagonals,
        hidden_off_diagonal,
        output_off_diagonal,
        *orders("corollary-2-order-first", FIRST, "the first layer", "2L-3", "2L-4"),
        *orders("corollary-2-order-hidden", BETWEEN, "the layers between", "2L-3", "2L-5"),
        *orders("corollary-2-order-output", OUTPUT, "the last layer", "2L-2", "2L-3"),
        order_in_proportion,
        output_ratio,
    ),
    scales={
        "quick": {"seed": 1},
        "smoke": {
            "small_widths": (3,),
            "widths": (4, 6, 8, 12, 16),
            "growing_widths": (3, 4, 6, 8, 12),
            "small_seeds": 4000,
            "seeds": 200,
        },
        "paper": {"widths": (16, 32, 64, 128, 256, 512), "small_seeds": 2_000_000, "seeds": 40_000},
    },
)
