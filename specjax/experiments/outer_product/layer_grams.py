"""Averages of G_i G_iᵀ of deep linear networks at initialization."""

from collections.abc import Callable, Sequence
from functools import partial

import jax.numpy as jnp
import xarray as xr
from jaxtyping import Array, Key

from specjax import lab, sizes, spectral, sweep
from specjax.experiments.outer_product.statistics import gram
from specjax.models import deep_linear
from specjax.models.targets import check_off_diagonal, sign_target

DEPTHS = (2, 3, 4)
LAYERS = [(layer, depth) for depth in DEPTHS for layer in range(1, depth + 1)]
HIDDEN = [(layer, depth) for layer, depth in LAYERS if layer < depth]
OUTPUT = [(depth, depth) for depth in DEPTHS]
Data = dict[str, xr.Dataset]
Layers = list[tuple[int, int]]


class Config(lab.Config):
    """Widths, the fixed sizes of input and output, and the target."""

    small_widths: tuple[int, ...] = lab.config.sizes(
        3, 6, least=2, help="w of the inner widths w, 2w, 3w of the closed forms"
    )
    widths: tuple[int, ...] = lab.config.sizes(
        16, 32, 64, 128, 256, least=2, points=5, help="inner widths of the orders"
    )
    growing_widths: tuple[int, ...] = lab.config.sizes(
        4, 8, 16, 32, 64, least=2, points=5, help="widths of all in proportion"
    )
    d_in: int = lab.config.integer(3, least=1, help="input dimension d_0")
    d_out: int = lab.config.integer(2, least=2, help="output dimension d_L")
    small_seeds: int = lab.config.seeds(50_000, help="initializations at each of small_widths")
    seeds: int = lab.config.seeds(1000, help="initializations at each of widths")
    target_scale: float = lab.config.number(
        3.0, above=0, help="the entries of Φ are ± this to the power L - 1"
    )

    def inner(self, depth: int, width: sizes.AnySize) -> tuple[sizes.AnySize, ...]:
        """The sizes (d_0, …, d_L) of the closed forms."""
        return (self.d_in, *(sizes.times(width, factor) for factor in range(1, depth)), self.d_out)


def run(config: Config, key: Key[Array, ""]) -> Data:
    """Averages of every G_i G_iᵀ by width and seed, for the closed forms and for the orders."""
    signs = sign_target(sizes.stream(key, "target"), config.d_out, config.d_in)
    check_off_diagonal(gram(signs), "ΦΦᵀ of the drawn target", "choose another seed or an odd d_in")

    def closed(key: Key[Array, ""], width: sizes.AnySize, depth: int) -> dict[str, dict]:
        target, dims = config.target_scale ** (depth - 1) * signs, config.inner(depth, width)
        params = deep_linear.init(key, dims)
        p = [gram(g) for g in deep_linear.gradient(params, target)]
        # Weights without the symmetry W_i → D W_i, W_{i+1} → W_{i+1} D, which makes the
        # off-diagonal zero.
        positive = [
            gram(g) for g in deep_linear.gradient(tuple(jnp.abs(w) for w in params), target)
        ]
        return {
            "diagonal": _each(spectral.dominance.diagonal_mean, p, dims),
            "off_diagonal": _each(spectral.dominance.off_diagonal_mean, p[:-1], dims),
            "positive": {
                "off_diagonal": _each(spectral.dominance.off_diagonal_mean, positive[:-1], dims)
            },
            "coefficient": {
                f"{depth} of {depth}": spectral.dominance.off_diagonal_coefficient(
                    p[-1], gram(target)
                )
            },
        }

    def orders(
        key: Key[Array, ""], width: sizes.AnySize, depth: int, ends: tuple[int, ...]
    ) -> dict[str, dict]:
        first, last = ends or (width, width)
        dims = (first, *(width,) * (depth - 1), last)
        nothing = jnp.zeros((sizes.padded(last), sizes.padded(first)))
        return {
            "noise": _each(
                _mean_squared_row, deep_linear.gradient(deep_linear.init(key, dims), nothing), dims
            )
        }

    def run_sweep(
        name: str, measure: Callable[..., dict], widths: tuple[int, ...], seeds: int
    ) -> xr.Dataset:
        def sweep_depth(depth: int) -> xr.Dataset:
            over, weights = (
                {"width": sweep.widths(*widths)},
                sizes.stream(key, f"weights of {name} at depth {depth}"),
            )
            return sweep.run(
                partial(measure, depth=depth), over, num_seeds=seeds, key=weights
            ).drop_vars("failed", errors="ignore")

        return xr.merge(map(sweep_depth, DEPTHS), combine_attrs="drop")

    fixed, growing = (partial(orders, ends=ends) for ends in ((config.d_in, config.d_out), ()))
    return {
        "closed": run_sweep("the closed forms", closed, config.small_widths, config.small_seeds),
        "fixed": run_sweep("the orders with fixed ends", fixed, config.widths, config.seeds),
        "growing": run_sweep(
            "the orders in proportion", growing, config.growing_widths, config.seeds
        ),
    }


def _each(
    mean: Callable[..., Array], matrices: Sequence[Array], dims: tuple[sizes.AnySize, ...]
) -> dict[str, Array]:
    return {
        f"{i} of {len(dims) - 1}": mean(matrix, dims[i])
        for i, matrix in enumerate(matrices, start=1)
    }


def _mean_squared_row(g: Array, rows: sizes.AnySize) -> Array:
    """The mean diagonal of G Gᵀ without forming the product."""
    return jnp.sum(g * g) / jnp.asarray(sizes.active(rows), g.dtype)
