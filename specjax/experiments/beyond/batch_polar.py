"""The experiment `batch-polar`: how much of a population's gradient Muon's step along a batch's
keeps, in the networks of the outer-product paper (docs/beyond/batch-polar.md);
`theory.batch_polar` predicts it from three second moments without a fit.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from specjax import lab
from specjax.experiments.beyond.batch_gradients import LAYERS, MOMENTS, run
from specjax.lab.drawing import draw_predicted
from specjax.theory import batch_polar, polar_signal

claim = lab.read_claim(__file__)
WITHIN, MORE = 0.01, 1.2
"""The error that is allowed, and a rival's factor of the examples."""
Data = dict[str, xr.Dataset]


class Config(lab.Config):
    """Sizes and samples."""

    seed: int = lab.config.root_seed(24, help="root of all randomness")
    unit: int = lab.config.integer(16, least=4, help="d₀, d₁ and d₂ are 5, 4 and 3 times as many")
    examples: tuple[int, ...] = lab.config.sizes(24, 64, 256, least=2, points=3, help="of a batch")
    steps: int = lab.config.integer(40, least=1, help="steps of Muon on the population's loss")
    inputs: int = lab.config.integer(20000, least=1000, help="inputs of a ReLU network's moments")
    seeds: int = lab.config.seeds(500, least=50, help="batches of each size")


def by_layer(data: Data, kind: str, share: Callable[..., Any]) -> xr.DataArray:
    """A share of three moments, M, S_δ and S_h, for each layer of a kind of networks."""
    found, kept = data[kind], data[kind]["kept"].isel(seed=0, drop=True)
    shares = [
        share(*(np.asarray(found[f"{name} {layer}"], float)[:, None] for name in MOMENTS))
        for layer in range(LAYERS[kind])
    ]
    return kept.transpose("layer", "trained", "examples").copy(data=np.stack(shares))


def predicted(
    config: Config, data: Data, kind: str, more: float = 1.0, moments: float = 1.0
) -> xr.DataArray:
    """What the moments say for each layer; larger moments of as many more examples have Gaussian
    noise of the same covariance.
    """
    batch = more * moments**2 * np.asarray(config.examples, float)
    return by_layer(
        data,
        kind,
        lambda signal, left, right: batch_polar.kept_share(
            signal, moments * left, moments * right, batch
        ),
    )


def of_white_noise(config: Config, data: Data, kind: str) -> xr.DataArray:
    """`theory.polar_signal`'s share, for independent noise of the same strength in all entries."""

    def share(signal: Any, left: Any, right: Any) -> Any:
        values, (m, n) = np.linalg.svd(signal, compute_uv=False), signal.shape[-2:]
        strength = np.trace(left, axis1=-2, axis2=-1) * np.trace(right, axis1=-2, axis2=-1)
        sigma = np.sqrt(strength / (m * n * np.asarray(config.examples)))
        values = np.broadcast_to(values, (*sigma.shape, min(m, n)))
        kept = np.asarray(polar_signal.kept_shares(values, m, n, sigma))
        return np.sum(kept * values, axis=-1) / np.sum(values, axis=-1)

    return by_layer(data, kind, share)


def near_predicted(config: Config, data: Data, kind: str) -> lab.Relation:
    """The share that batches keep."""
    return lab.near(data[kind]["kept"], predicted(config, data, kind), WITHIN, f"{WITHIN}")


for kind in LAYERS:
    nearest = {
        "Gaussian noise of the same covariance": partial(predicted, kind=kind, moments=1e3),
        "white noise of the same strength": partial(of_white_noise, kind=kind),
        "a fifth more examples": partial(predicted, kind=kind, more=MORE),
    }
    claim.judges(f"{kind}-networks", rivals=nearest)(partial(near_predicted, kind=kind))


def figure(config: Config, data: Data) -> Figure:
    """Plot the share that is kept against the examples of a batch, by layer."""
    drawn = Figure(figsize=(11, 4.2), layout="constrained")
    for axes, kind in zip(drawn.subplots(1, 2, sharey=True), LAYERS, strict=True):
        both = data[kind]["kept"], predicted(config, data, kind)
        found, lines = (each.stack(curve=("trained", "layer")) for each in both)
        draw_predicted(axes, found, lines, "examples", "curve", named)
        axes.set(xlabel="examples of a batch, B", ylabel="share of the descent that is kept")
        axes.set(
            title=f"{kind.replace('relu', 'ReLU')} network; lines through what is predicted",
            ylim=(0, 1.02),
        )
    return drawn


def named(curve: tuple[int, int]) -> str:
    """A layer at the start, or after the steps."""
    trained, layer = curve
    return f"layer {layer + 1}, {'after' if trained else 'before'} Muon's steps"


EXPERIMENT = claim.experiment(
    Config,
    {kind: partial(run, kind=kind) for kind in LAYERS},
    figure=figure,
    headlines=("relu-networks",),
    headlines_read=("relu",),
)
