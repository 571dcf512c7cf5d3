"""Networks that learn x_1 x_2 x_3 by GD and SpecGD: the runs of Figures 1, 4 and 18.

Four layers without biases, all samples in every iteration. A diverging run stops no other.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import gcd
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float, Key

from specjax import lab, sizes, spectral, sweep
from specjax.models import layerwise_descent, mlp
from specjax.models.layerwise_descent import EUCLIDEAN, SPECTRAL
from specjax.sizes import AnySize
from specjax.spectral.gram_power_norm import stable_rank_above

OPTIMIZERS = {"gd": (EUCLIDEAN,) * 4, "spectral": (EUCLIDEAN, SPECTRAL, SPECTRAL, EUCLIDEAN)}
"""GD, and SpecGD with spectral steps on the blocks between the first and the last."""
BLOCKS = [1, 2, 3, 4]
INTERNAL = [2, 3]
LIMIT = 1e3
"""A run has diverged if its loss is above this; the targets have variance 1."""
WORST = 10.0
"""Value of a diverged run among logarithms of ratios, beyond all finite ones."""
CURVES, FIGURES, LARGE = 0, 1, 2
"""Points of the sweeps: step sizes of the curves, of the figures, and of the larger batch."""

Problem = tuple[mlp.Params, tuple[Float[Array, "n d"], Float[Array, "n m"]]]
"""Weights, inputs and targets, samples in rows."""
Data = dict[str, xr.Dataset]


class Config(lab.Config):
    """The second step sizes, and SwiGLU's third, are the figures'; few diverge with the first."""

    inputs: int = lab.config.integer(16, least=3, help="inputs d")
    samples: int = lab.config.integer(
        64, least=8, most=lab.config.MOST_COUNT, help="samples n of the squared ReLU networks"
    )
    width: int = lab.config.integer(64, least=8, help="hidden units h")
    gd_rates: tuple[float, ...] = lab.config.numbers(
        0.03, 0.081, above=0, count=2, help="two step sizes of GD"
    )
    spectral_rates: tuple[float, ...] = lab.config.numbers(
        0.037, 0.1, above=0, count=2, help="two of SpecGD"
    )
    lengths: tuple[int, ...] = lab.config.sizes(
        100,
        200,
        points=2,
        most=lab.config.MOST_COUNT,
        help="iterations of the squared ReLU networks",
    )
    seeds: int = lab.config.seeds(
        64, least=16, help="samples of squared ReLU networks; fewer have no interval of the median"
    )
    gated_samples: tuple[int, ...] = lab.config.sizes(
        64,
        256,
        least=8,
        count=2,
        most=lab.config.MOST_COUNT,
        help="two batch sizes of SwiGLU networks",
    )
    gated_gd_rates: tuple[float, ...] = lab.config.numbers(
        0.0025, 0.01, 0.0035, above=0, count=3, help="of GD for SwiGLU"
    )
    gated_spectral_rates: tuple[float, ...] = lab.config.numbers(
        0.00625, 0.025, 0.0015, above=0, count=3, help="of SpecGD"
    )
    gated_lengths: tuple[int, ...] = lab.config.sizes(
        60, 100, points=2, most=lab.config.MOST_COUNT, help="iterations of the SwiGLU networks"
    )
    gated_seeds: int = lab.config.seeds(48, least=16, help="samples of SwiGLU networks")
    fragile_seeds: int = lab.config.seeds(
        16, least=16, help="samples of either with the larger step sizes, which may diverge"
    )
    starts: tuple[int, ...] = lab.config.sizes(
        8, 16, 24, 32, 48, least=3, points=5, help="inputs d at initialization"
    )
    start_inputs: int = lab.config.integer(
        32, least=3, help="inputs d of SwiGLU networks at initialization; h = 4d"
    )
    start_samples: tuple[int, ...] = lab.config.sizes(
        128, 2048, least=8, count=2, most=lab.config.MOST_COUNT, help="their two batch sizes"
    )
    start_seeds: int = lab.config.seeds(48, least=16, help="samples of each")
    seed: int = lab.config.root_seed(
        4, help="root of all randomness; others than this one's samples settled the sizes"
    )


def run(config: Config, key: Key[Array, ""]) -> Data:
    def starts(key: Key[Array, ""], d: AnySize, h: AnySize) -> dict[str, Array]:
        return ranks(draw(key, "relu_squared", h, d, h), "relu_squared")

    def batches(key: Key[Array, ""], n: AnySize) -> dict[str, Array]:
        return ranks(draw(key, "swiglu", n, config.start_inputs, 4 * config.start_inputs), "swiglu")

    def trained(
        activation: str,
        lengths: Sequence[int],
        key: Key[Array, ""],
        gd: Array,
        spectral: Array,
        n: AnySize,
    ) -> dict[str, Array]:
        """log10 of losses, and ranks, of both methods at `records`; LIMIT and 0 once diverged."""
        params, batch = draw(key, activation, n, config.inputs, config.width)
        at, methods = records(lengths), zip((gd, spectral), OPTIMIZERS.values(), strict=True)
        descend = partial(
            layerwise_descent.descend, params, batch, activation, limit=LIMIT, samples=n
        )
        runs = [
            descend(rate, thresholds=steps, records=len(at), every=at.step)
            for rate, steps in methods
        ]
        both = jax.tree.map(lambda *values: jnp.stack(values), *runs)
        loss = jnp.log10(both.loss[:, :: at.step])
        return {"loss": loss, "stable_rank": both.stable_rank, "nuclear_rank": both.nuclear_rank}

    def run_sweep(
        name: str,
        measure: Callable[..., Any],
        seeds: int | Mapping[str, Sequence[int]],
        **over: sweep.axes.Axis,
    ) -> xr.Dataset:
        # Hundreds of steps magnify rounding; a test checks on a few steps that padding changes
        # nothing.
        return sweep.run(
            measure, over, num_seeds=seeds, key=sizes.stream(key, name), check_padding=False
        )

    def runs(
        samples: Sequence[int], gd: Sequence[float], spectral: Sequence[float]
    ) -> sweep.axes.Axis:
        return sweep.zipped(
            n=sweep.widths(*samples), gd=sweep.values(*gd), spectral=sweep.values(*spectral)
        )

    small, large = config.gated_samples
    few, many, counts = (
        config.fragile_seeds,
        config.gated_seeds,
        sweep.widths(*config.start_samples),
    )
    relu_runs = runs((config.samples,) * 2, config.gd_rates, config.spectral_rates)
    gated_runs = runs((small, small, large), config.gated_gd_rates, config.gated_spectral_rates)
    widths = sweep.zipped(
        d=sweep.widths(*config.starts), h=sweep.widths(*(4 * d for d in config.starts))
    )
    relu = run_sweep(
        "relu",
        partial(trained, "relu_squared", config.lengths),
        {"run": (config.seeds, few)},
        run=relu_runs,
    )
    gated = run_sweep(
        "gated",
        partial(trained, "swiglu", config.gated_lengths),
        {"run": (many, few, many)},
        run=gated_runs,
    )
    return {
        "relu": labelled(relu, config.lengths),
        "gated": labelled(gated, config.gated_lengths),
        "starts": sweep.labelled(
            run_sweep("starts", starts, config.start_seeds, d=widths), "block", block=BLOCKS
        ),
        "batches": sweep.labelled(
            run_sweep("batches", batches, config.start_seeds, n=counts), "block", block=BLOCKS
        ),
    }


def draw(key: Key[Array, ""], activation: str, n: AnySize, d: AnySize, h: AnySize) -> Problem:
    """Torch's default weights, Gaussian inputs and targets x_1 x_2 x_3, zero on padding."""
    x = sizes.normal(sizes.stream(key, "inputs"), (n, d))
    params = mlp.init(
        sizes.stream(key, "weights"), (d, h, h, h, 1), activation, distribution="uniform"
    )
    return params, (x, jnp.prod(x[:, :3], axis=1, keepdims=True))


def ranks(problem: Problem, activation: str) -> dict[str, Float[Array, "4"]]:
    """st(A_(ℓ-1)) and nr(G_ℓ) of every block."""
    params, batch = problem
    first, *internal, last = jax.grad(lambda p: mlp.loss(p, batch, activation))(params)
    nuclear = [
        spectral.nuclear_rank(each) for each in (first[None], jnp.stack(internal), last[None])
    ]
    stable = [stable_rank_above(a) for a in mlp.layer_inputs(params, batch[0], activation)]
    return {"stable_rank": jnp.stack(stable), "nuclear_rank": jnp.concatenate(nuclear)}


def records(lengths: Sequence[int]) -> range:
    """Recorded iterations of a training judged at `lengths`, from 0 to the last."""
    # At least every tenth, so that figures have curves.
    return range(0, lengths[-1] + 1, gcd(10, *lengths))


def labelled(found: xr.Dataset, lengths: Sequence[int]) -> xr.Dataset:
    """Name the axes of a sweep of `train`, and add `lasts`: whether each run has not diverged."""
    dims: dict[str, Any] = {
        "optimizer": list(OPTIMIZERS),
        "length": list(records(lengths)),
        "block": BLOCKS,
    }
    named = sweep.labelled(found, *dims, **dims)
    # Slightly below the limit, for the logarithm's rounding.
    return named.assign(lasts=named["loss"] < np.log10(LIMIT) - 1e-3)


def select_point(
    data: Data, network: str, place: int, lengths: Sequence[int] | None = None
) -> xr.Dataset:
    """One point of a sweep of trainings, at these lengths."""
    found = data[network].isel(run=place)
    found = found.isel(seed=slice(int(found["seeds"]))).reset_coords(drop=True)
    return found if lengths is None else found.sel(length=list(lengths))


def lead(found: xr.Dataset) -> xr.DataArray:
    """log10 of GD's loss over SpecGD's; a diverged run has the loss `LIMIT`."""
    gd, spectral = (found["loss"].sel(optimizer=optimizer, drop=True) for optimizer in OPTIMIZERS)
    return (gd - spectral).rename("log₁₀ of GD's loss over SpecGD's")


def rule(found: xr.Dataset, blocks: list[int]) -> xr.DataArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = xr.ufuncs.log2(
            found["nuclear_rank"].sel(block=blocks) / found["stable_rank"].sel(block=blocks)
        )
    return (ratio.where(found["lasts"], -WORST) if "lasts" in found else ratio).rename(
        "log₂ nr(G)/st(A)"
    )


def change(config: Config, data: Data, blocks: list[int]) -> xr.DataArray:
    """log2 of st(A_(ℓ-1)) over its initial value, at both batch sizes of SwiGLU."""
    found = []
    for every in (select_point(data, "gated", place) for place in (CURVES, LARGE)):
        with np.errstate(divide="ignore"):
            ranks = xr.ufuncs.log2(every["stable_rank"].sel(block=blocks))
        found.append((ranks - ranks.sel(length=0, drop=True)).where(every["lasts"], WORST))
    named = xr.DataArray(list(config.gated_samples), dims="n", name="n")
    return (
        xr.concat(found, named)
        .sel(length=list(config.gated_lengths))
        .rename("log₂ st(A) over the first")
    )
