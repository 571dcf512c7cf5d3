"""The experiment `polar-signal`: what the polar factor keeps of a signal in noise, and what
momentum before it keeps more than momentum after it (docs/beyond/polar-signal.md).

`specjax.theory.polar_signal` predicts all numbers; nothing is fitted.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from specjax import fits, lab
from specjax.experiments.beyond import noisy_polar
from specjax.experiments.beyond.noisy_polar import BETA, SEVERAL, THETAS, WIDE
from specjax.lab.drawing import draw_predicted
from specjax.theory import polar_signal

claim = lab.read_claim(__file__)
LESS_NOISE = ((1 + BETA) / (1 - BETA)) ** 0.5
"""The noise of one gradient over that of the average."""
Data = dict[str, xr.Dataset]


class Config(lab.Config):
    """Sizes and samples."""

    seed: int = lab.config.root_seed(3, help="root of all randomness")
    ns: tuple[int, ...] = lab.config.sizes(8, 24, least=8, points=2, help="rows n")
    seeds: int = lab.config.seeds(6000, least=100, help="samples of the noise")
    momentum_size: int = lab.config.integer(16, least=8, help="rows and columns with momentum")
    momentum_seeds: int = lab.config.seeds(500, least=100, help="samples of sixty gradients")


def square_share(theta: xr.DataArray) -> xr.DataArray:
    """f(θ) of square matrices."""
    return lab.closed_form(polar_signal.square_kept_share, theta)


def wide_share(theta: xr.DataArray) -> xr.DataArray:
    """f of wide matrices; θ is in units of the long side."""
    share = partial(polar_signal.kept_share, m=1.0, n=float(WIDE))
    return lab.closed_form(share, theta * WIDE**0.5)


def vectors_alone(theta: xr.DataArray) -> xr.DataArray:
    """What the largest singular vectors alone would keep."""
    return (1 - theta**-2).clip(min=0)


def gain(theta: xr.DataArray) -> xr.DataArray:
    """f of the average of gradients over f of one, of square matrices."""
    return lab.closed_form(lambda theta: polar_signal.momentum_gain(theta, 1.0, 1.0, BETA), theta)


def at_thetas(form: Callable[[xr.DataArray], xr.DataArray]) -> Callable[[Any, Any], xr.DataArray]:
    """A rival that is a function of θ."""
    return lambda config, data: form(data["square"].theta)


def ratio_of_means(data: Data, first: str, second: str, power: float = 0.0) -> xr.DataArray:
    """What momentum in one order keeps over what it does in the other, each over a power of its
    squared norm; pseudo-values of a jackknife of means over seeds.
    """

    def ratio(mean: xr.DataArray) -> xr.DataArray:
        number = mean.sel(part="kept", drop=True) / mean.sel(part="squares", drop=True) ** power
        return number.sel(order=first, drop=True) / number.sel(order=second, drop=True)

    return fits.jackknife(data["momentum"].to_dataarray("order"), ratio)


FIRST_ORDER = {"to first order": at_thetas(lambda theta: 8 * theta / (3 * np.pi))}
OF_SQUARE = FIRST_ORDER | {
    "√2 times the noise": at_thetas(lambda theta: square_share(theta / 2**0.5)),
    "the largest singular vectors alone": at_thetas(vectors_alone),
    "θ/√(1 + θ²)": at_thetas(lambda theta: theta / (1 + theta**2) ** 0.5),
}
OF_WIDE = {"f of square matrices": at_thetas(square_share)} | FIRST_ORDER
OF_GAIN = {
    "the weak-signal limit, √((1 + β)/(1 - β))": LESS_NOISE,
    "none": 1.0,
    "β for (1 + β)/2": at_thetas(
        lambda theta: square_share(theta / (1 - BETA) ** 0.5) / square_share(theta)
    ),
}
replacing_kept = partial(lab.controls.replacing, "kept", of="several")
OF_SEVERAL = {
    "only the largest is seen": replacing_kept(
        lambda data: data["kept"].where(data.theta == max(SEVERAL), 0)
    ),
    "6 % less": replacing_kept(lambda data: 0.94 * data["kept"]),
}
THE_SAME = {"both the same": lab.controls.replacing("after", "before", of="momentum")}


@claim.judges("kept-of-square", rivals=OF_SQUARE)
def kept_of_square(config: Config, data: Data) -> lab.Relation:
    found = data["square"]["kept"].isel(n=-1, drop=True)
    return lab.near(found, square_share(found.theta), 0.015, "0.015")


@claim.judges("kept-of-wide", rivals=OF_WIDE)
def kept_of_wide(config: Config, data: Data) -> lab.Relation:
    found = data["wide"]["kept"].isel(n=-1, drop=True)
    return lab.near(found, wide_share(found.theta), 0.015, "0.015")


@claim.judges("each-by-itself", controls=OF_SEVERAL)
def each_by_itself(config: Config, data: Data) -> lab.Relation:
    found = data["several"]["kept"]
    return lab.near(found, square_share(found.theta), 0.03, "0.03")


@claim.judges("gain-of-before", rivals=OF_GAIN)
def gain_of_before(config: Config, data: Data) -> lab.Relation:
    kept = ratio_of_means(data, "before", "after")
    form = gain(kept.theta)
    return lab.near(kept.rename("gain"), form, 0.06 * form, "6 % of the prediction")


@claim.judges("cosine-of-after", controls=THE_SAME)
def cosine_of_after(config: Config, data: Data) -> lab.Relation:
    found, n = ratio_of_means(data, "after", "before", power=0.5), config.momentum_size
    # ‖Σ w_i O_i‖_F² of independent factors with the mean f(θ) u vᵀ and the squared norm n.
    weight = (1 - BETA) / (1 + BETA)
    squares = weight * n + (1 - weight) * square_share(found.theta) ** 2
    predicted = n**0.5 / (gain(found.theta) * squares**0.5)
    within = predicted * xr.where(predicted.theta < 0.5, 0.06, 0.04)
    called = "4 % of the prediction, 6 % below θ = 1/2"
    return lab.near(found.rename("after / before"), predicted, within, called)


def figure(config: Config, data: Data) -> Figure:
    """Plot what is kept over θ, of square and of wide matrices, and both momenta."""
    drawn = Figure(figsize=(11, 4.2), layout="constrained")
    left, right = drawn.subplots(1, 2, sharey=True)
    fine = np.geomspace(THETAS[0] / 1.5, 1.5 * THETAS[-1], 80)
    theta = xr.DataArray(fine, {"theta": fine}, "theta")
    left.plot(
        fine, vectors_alone(theta), "k--", linewidth=1, label="largest singular vectors alone"
    )
    shapes = {shape: data[shape]["kept"].isel(n=-1) for shape in ("square", "wide")}
    momenta = {order: data["momentum"][order].sel(part="kept") for order in ("before", "after")}
    f, averaged = square_share(theta), square_share(theta * LESS_NOISE)
    for axes, *both in (
        (left, shapes, {"square": f, "wide": wide_share(theta)}),
        (right, momenta, {"before": averaged, "after": f}),
    ):
        found, lines = (xr.Dataset(each).to_dataarray("of") for each in both)
        draw_predicted(axes, found, lines, "theta", "of", str)
        axes.set(xlabel="strength of the signal, θ", ylim=(0, 1.02))
    left.set(ylabel="share of the signal that is kept", title="lines: f, without fitted numbers")
    right.set_title(f"momentum before and after the polar factor, β = {BETA:g}")
    return drawn


EXPERIMENT = claim.experiment(
    Config,
    {
        "square": partial(noisy_polar.run_one, shape="square"),
        "wide": partial(noisy_polar.run_one, shape="wide"),
        "several": noisy_polar.run_several,
        "momentum": noisy_polar.run_momentum,
    },
    paired="square and wide matrices share seeds as one sweep would; their noise differs by name",
    headlines=("kept-of-square", "gain-of-before"),
    headlines_read=("square", "momentum"),
    figure=figure,
)
