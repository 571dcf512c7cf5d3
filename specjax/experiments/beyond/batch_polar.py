"""The experiment `batch-polar`: how much of a population's gradient Muon's step along a batch's
keeps, in the networks of the outer-product paper (docs/beyond/batch-polar.md);
`theory.batch_polar` predicts it from three second moments without a fit.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float, Key
from matplotlib.figure import Figure

from specjax import lab, sizes, spectral, sweep
from specjax.lab.drawing import COLORS
from specjax.models import deep_linear, relu_network
from specjax.theory import batch_polar, polar_signal

MODELS = {"linear": deep_linear, "relu": relu_network}
LAYERS = {"linear": 3, "relu": 2}
MOMENTS = ("signal", "left", "right")
"""Names of M, S_δ and S_h in the data, before the number of a layer."""
WITHIN, MORE, TARGET, LENGTH = 0.01, 1.2, 3.0, 0.5
"""The error that is allowed, a rival's factor of the examples, the standard deviation of the
target's entries (outer-product, Table C.7), and the length of the first of Muon's falling steps.
"""
Data = dict[str, xr.Dataset]
Layer = tuple[Float[Array, "m N"], Float[Array, "n N"]]


class Config(lab.Config):
    """Sizes and samples."""

    seed: int = lab.config.root_seed(24, help="root of all randomness")
    unit: int = lab.config.integer(16, least=4, help="d₀, d₁ and d₂ are 5, 4 and 3 times as many")
    examples: tuple[int, ...] = lab.config.sizes(24, 64, 256, least=2, points=3, help="of a batch")
    steps: int = lab.config.integer(40, least=1, help="steps of Muon on the population's loss")
    inputs: int = lab.config.integer(20000, least=1000, help="inputs of a ReLU network's moments")
    seeds: int = lab.config.seeds(500, least=50, help="batches of each size")


def networks(config: Config, key: Key[Array, ""], kind: str) -> tuple[Any, Any, Array]:
    """Weights at the start and after Muon's steps on the loss of the population, its gradients
    there, and the target.
    """
    d0, d1, d2 = (times * config.unit for times in (5, 4, 3))
    target = TARGET * sizes.normal(sizes.stream(key, "target"), (d2, d0))
    start = (
        deep_linear.init(key, (d0, d1, d1, d2))
        if kind == "linear"
        else relu_network.init(key, d0, d1, d2)
    )
    gradient = partial(MODELS[kind].gradient, target=target)

    def step(params: Any, length: Array) -> tuple[Any, None]:
        factors = jax.tree.map(partial(spectral.polar, method=spectral.SVD()), gradient(params))
        return jax.tree.map(lambda w, factor: w - length * factor, params, factors), None

    lengths = LENGTH * (1 - jnp.arange(config.steps) / config.steps)
    end = jax.lax.scan(step, start, lengths)[0]
    params = jax.tree.map(lambda *both: jnp.stack(both), start, end)
    return tuple(params), tuple(jax.vmap(gradient)(params)), target


def layers(kind: str, params: Any, target: Array, x: Float[Array, "d0 N"]) -> list[Layer]:
    """(δ, h) of each layer, a column for each example."""
    into, slopes = [x], []
    for weight in params[:-1]:
        before = weight @ into[-1]
        slopes.append(jnp.where(before > 0, 1.0, 0.0) if kind == "relu" else jnp.ones_like(before))
        into.append(slopes[-1] * before)
    back = [params[-1] @ into[-1] - target @ x]
    for weight, slope in zip(params[:0:-1], slopes[::-1], strict=True):
        back.append(slope * (weight.T @ back[-1]))
    return list(zip(back[::-1], into, strict=True))


def run(config: Config, key: Key[Array, ""], kind: str) -> xr.Dataset:
    """⟨polar(G), M⟩/‖M‖_* of batches, by layer and examples, and the moments of each layer."""
    params, signals, target = networks(config, sizes.stream(key, kind), kind)
    d0 = target.shape[1]
    # Of a linear map of x with E[x xᵀ] = I the columns of I have the moments of the population.
    # Near a minimum the gradient of sampled inputs is not that of the population, which is exact.
    many = sizes.normal(sizes.stream(key, "inputs"), (d0, config.inputs))
    inputs = jnp.eye(d0) if kind == "linear" else many / config.inputs**0.5

    def moments(own: Any) -> list[tuple[Array, Array]]:
        return [(back @ back.T, into @ into.T) for back, into in layers(kind, own, target, inputs)]

    of_layers = jax.vmap(moments)(params)

    def measure(key: Array, trained: Array) -> dict[str, Array]:
        own = jax.tree.map(lambda w: w[trained], params)
        own_signals = [signal[trained] for signal in signals]

        def kept(examples: int) -> Array:
            x = sizes.normal(sizes.stream(key, f"batch of {examples}"), (d0, examples))
            steps = [
                spectral.polar(back @ into.T, method=spectral.SVD())
                for back, into in layers(kind, own, target, x)
            ]
            return jnp.stack(
                [
                    jnp.sum(a * b) / spectral.nuclear_norm(b)
                    for a, b in zip(steps, own_signals, strict=True)
                ]
            )

        return {"kept": jnp.stack([kept(examples) for examples in config.examples], axis=1)}

    over = {"trained": sweep.values(0, 1)}
    data = lab.seeded_sweep(key, f"{kind} batches", measure, config.seeds, **over)
    data = sweep.labelled(data, "layer", "examples", examples=list(config.examples))
    for layer, (signal, (left, right)) in enumerate(zip(signals, of_layers, strict=True)):
        for name, matrix in zip(MOMENTS, (signal, left, right), strict=True):
            axes = ("trained", f"{name} row {layer}", f"{name} column {layer}")
            data[f"{name} {layer}"] = axes, np.asarray(matrix)
    return data


def by_layer(data: Data, kind: str, share: Callable[..., Any]) -> xr.DataArray:
    """A share of three moments, M, S_δ and S_h, for each layer of a kind of networks."""
    found, kept = data[kind], data[kind]["kept"].isel(seed=0, drop=True)
    shares = [
        share(*(np.asarray(found[f"{name} {layer}"], float) for name in MOMENTS))
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

    def share(signal: Any, left: Any, right: Any) -> Any:
        signal, left, right = (each[:, None] for each in (signal, left, right))
        return batch_polar.kept_share(signal, moments * left, moments * right, batch)

    return by_layer(data, kind, share)


def of_white_noise(config: Config, data: Data, kind: str) -> xr.DataArray:
    """`theory.polar_signal`'s share, for independent noise of the same strength in all entries."""

    def share(signal: Any, left: Any, right: Any) -> Any:
        values = np.linalg.svd(signal, compute_uv=False)[:, None]
        strength = np.trace(left, axis1=1, axis2=2) * np.trace(right, axis1=1, axis2=2)
        m, n = signal.shape[1:]
        sigma = np.sqrt(strength[:, None] / (m * n * np.asarray(config.examples)))
        values = np.broadcast_to(values, (*sigma.shape, min(m, n)))
        kept = np.asarray(polar_signal.kept_shares(values, m, n, sigma))
        return np.sum(kept * values, axis=-1) / np.sum(values, axis=-1)

    return by_layer(data, kind, share)


def rivals(kind: str) -> dict[str, Any]:
    """The nearest wrong numbers."""
    return {
        "Gaussian noise of the same covariance": partial(predicted, kind=kind, moments=1e3),
        "white noise of the same strength": partial(of_white_noise, kind=kind),
        "a fifth more examples": partial(predicted, kind=kind, more=MORE),
    }


states = lab.Statements()


@states("linear", rivals=rivals("linear"))
def linear_networks(config: Config, data: Data) -> lab.Relation:
    """In every layer of a linear network of three, at the start and after Muon's steps, batches
    keep the predicted share, to 0.01.
    """
    return lab.near(data["linear"]["kept"], predicted(config, data, "linear"), WITHIN, f"{WITHIN}")


@states("relu", rivals=rivals("relu"))
def relu_networks(config: Config, data: Data) -> lab.Relation:
    """In both layers of a ReLU network, at the start and after Muon's steps, batches keep the
    predicted share, to 0.01.
    """
    return lab.near(data["relu"]["kept"], predicted(config, data, "relu"), WITHIN, f"{WITHIN}")


def figure(config: Config, data: Data) -> Figure:
    """Plot the share that is kept against the examples of a batch, by layer."""
    drawn = Figure(figsize=(11, 4.2), layout="constrained")
    for axes, (kind, count) in zip(drawn.subplots(1, 2, sharey=True), LAYERS.items(), strict=True):
        lines = predicted(config, data, kind)
        for layer, color in zip(range(count), COLORS, strict=False):
            for trained, style in ((0, "-"), (1, "--")):
                place = {"layer": layer, "trained": trained}
                found = data[kind]["kept"].isel(place)
                label = f"layer {layer + 1}, {'after' if trained else 'before'} Muon's steps"
                mean, error = sweep.mean_and_stderr(found)
                axes.errorbar(found.examples, mean, yerr=4 * error, fmt="o", color=color, ms=4)
                axes.plot(config.examples, lines.isel(place), style, color=color, label=label)
        axes.set(
            xlabel="examples of a batch, B",
            title=f"{kind.replace('relu', 'ReLU')} network; lines through what is predicted",
            ylim=(0, 1.02),
        )
        axes.set_xscale("log", base=2)
        axes.legend(fontsize="small", loc="lower right" if kind == "linear" else "upper left")
    drawn.axes[0].set_ylabel("share of the descent that is kept")
    return drawn


EXPERIMENT = lab.Experiment(
    "batch-polar",
    lab.ledger.Ledger.from_conjectures(
        "batch-polar",
        linear="What Muon's step keeps of a population's gradient follows from three moments.",
        relu="So it does in a ReLU network, whose activations are not Gaussian.",
    ),
    title="What Muon's step keeps of the gradient in a batch",
    summary=(
        "Three second moments of a layer say how much of the population's descent Muon's step"
        " along a batch's gradient keeps, for any batch size."
    ),
    config=Config,
    measure={kind: partial(run, kind=kind) for kind in LAYERS},
    statements=states,
    headlines=("relu-networks",),
    headlines_read=("relu",),
    figure=figure,
    scales={
        "smoke": {"unit": 4, "seeds": 50, "inputs": 2000, "steps": 4},
        "paper": {
            "seed": 23,
            "seeds": 1000,
            "examples": (16, 64, 256),
            "inputs": 50000,
        },
    },
)
