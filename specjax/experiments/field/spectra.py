"""Shumaylov et al. 2026, arXiv 2605.11181: random and inverted singular values inside Muon."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float, Key
from matplotlib.figure import Figure

from specjax import lab, sizes, sweep
from specjax.experiments.field.controls import exchange
from specjax.experiments.field.spectrum import SPECTRA, replaced
from specjax.experiments.field.split_half_tuning import draw_at, tuned
from specjax.experiments.ledgers import ledger
from specjax.lab.drawing import COLORS, MARKERS
from specjax.models import mlp

CLASSES, LAYERS, BATCH, HELD_OUT, BETA, NOISE = 12, 4, 32, 1024, 0.9, 0.7
"""Classes, inputs, layers, samples of batch and final loss, momentum decay, and input noise."""
RATES = 1.5 ** np.arange(-2.5, 5.0)
SCALES = {"gradient": 1.0, "Muon": 1.1, "-1/3": 1.5, "inverse": 6.0, "Kaon": 1.2, "uniform": 1.1}
"""Rates near the best after 100 steps: a number for each spectrum times `UNIT` / (steps √width)."""
UNIT = 24.0
LARGEST = 1e3


class Config(lab.Config):
    """Sizes, lengths and seeds."""

    seed: int = lab.config.root_seed(
        2, help="root of all randomness; bounds and rates were set on other samples"
    )
    widths: tuple[int, ...] = lab.config.sizes(
        16, 48, least=CLASSES, help=f"units between layers of {CLASSES}"
    )
    lengths: tuple[int, ...] = lab.config.sizes(
        40, 120, least=10, most=lab.config.MOST_COUNT, help="steps of a training"
    )
    rates: tuple[float, ...] = lab.config.grid(
        *map(float, RATES), help="rates over those near the best"
    )
    seeds: int = lab.config.seeds(
        24, least=4, help="networks and classes; each half of them chooses the steps of the other"
    )


def batch(key: Key[Array, ""], classes: Float[Array, "c c"], count: int) -> tuple[Array, Array]:
    """Samples: a class, the i-th with frequency ∝ 1/i, and its mean with noise."""
    frequency = -jnp.log(jnp.arange(1.0, CLASSES + 1))
    labels = jax.random.categorical(sizes.stream(key, "labels"), frequency, shape=(count,))
    noise = NOISE * jax.random.normal(sizes.stream(key, "noise"), (count, CLASSES))
    return classes[labels] + noise, jax.nn.one_hot(labels, CLASSES)


def cross_entropy(params: Float[Array, "layers c w"], x: Array, y: Array) -> Array:
    """Cross-entropy of a ReLU network with layers to `w` units and back to `c`."""
    weights = tuple(w if place % 2 else w.T for place, w in enumerate(params))
    return -jnp.mean(jnp.sum(y * jax.nn.log_softmax(mlp.forward(weights, x)), axis=1))


def final(key: Key[Array, ""], width: int, kind: Array, rate: Array, steps: int) -> Array:
    """The log of the final loss, on fresh samples, with rates that fall to zero."""
    classes = sizes.normal(sizes.stream(key, "classes"), (CLASSES, CLASSES))
    drawn = mlp.init(sizes.stream(key, "weights"), (CLASSES, *(width, CLASSES) * (LAYERS // 2)))
    params = jnp.stack([w if place % 2 else w.T for place, w in enumerate(drawn)])
    x, y = batch(sizes.stream(key, "samples"), classes, steps * BATCH)
    random = jax.random.uniform(sizes.stream(key, "spectra"), (steps, LAYERS, CLASSES))
    times = 1 - jnp.arange(float(steps)) / steps

    def step(
        state: tuple[Array, Array], each: tuple[Array, ...]
    ) -> tuple[tuple[Array, Array], None]:
        (params, momentum), (time, x, y, random) = state, each
        gradient = jax.grad(cross_entropy)(params, x, y)
        momentum = BETA * momentum + (1 - BETA) * gradient
        direction, _ = replaced(BETA * momentum + (1 - BETA) * gradient, kind, random)
        return (params - rate * time * direction, momentum), None

    batches = (part.reshape(steps, BATCH, CLASSES) for part in (x, y))
    params, _ = jax.lax.scan(step, (params, 0 * params), (times, *batches, random))[0]
    left = cross_entropy(params, *batch(sizes.stream(key, "held out"), classes, HELD_OUT))
    return jnp.log(jnp.minimum(jnp.nan_to_num(left, nan=LARGEST), LARGEST))


def run(config: Config, key: Key[Array, ""]) -> xr.Dataset:
    """Losses of every spectrum by rate, width and length."""
    scales = jnp.asarray([SCALES[name] for name in SPECTRA])

    def measure(key: Key[Array, ""], width: int, kind: Array, rate: Array) -> dict[str, Array]:
        unit = UNIT * scales[kind] * rate / width**0.5
        return {
            "loss": jnp.stack(
                [final(key, width, kind, unit / steps, steps) for steps in config.lengths]
            )
        }

    over: Any = {"width": sweep.widths(*config.widths), "kind": sweep.values(*range(len(SPECTRA)))}
    over |= {"rate": sweep.values(*config.rates)}
    found = lab.seeded_sweep(key, "trainings", measure, config.seeds, **over)
    return sweep.labelled(found, "step", step=list(config.lengths)).assign_coords(
        kind=list(SPECTRA)
    )


states = lab.Statements()


def moved(kind: str, start: str = "", left: float = 0.4) -> dict[str, Callable[[Any, Any], Any]]:
    """A control in which a spectrum has a part of its gain over the gradient's, or of another's."""

    def changed(data: xr.Dataset) -> xr.Dataset:
        data = lab.controls.at_labels(data, "kind", {kind: start or kind})
        return lab.controls.toward(data, "kind", {kind: "gradient"}, 1 - left)

    return {f"{left:g} of the gain of {start or kind}": lab.controls.changing(changed)}


def keeps(
    name: str,
    cites: str,
    says: str,
    kind: str,
    share: float,
    instead: str,
    *,
    moves: Mapping[str, Any] = MappingProxyType({}),
    **options: Any,
) -> None:
    """State that a spectrum has more than a share of Muon's gain, each at its best rate.

    A control leaves two fifths of its own gain, or the part of another's that `moves` says.
    """

    def relation(config: Config, data: xr.Dataset) -> lab.Relation:
        kinds = [kind, "gradient", "Muon"]
        (loss, gradient, muon), places = zip(
            *(tuned(data["loss"].sel(kind=k, drop=True)) for k in kinds), strict=True
        )
        allowed = (gradient - share * (gradient - muon)).rename("log loss allowed")
        every = xr.concat(places, xr.DataArray(kinds, dims="of", name="of"))
        return lab.within_grid(
            lab.ahead(allowed, loss.rename(f"log loss, {kind}"), least=0), every, len(config.rates)
        )

    controls = exchange("kind", kind, instead) | moved(kind, **moves)
    states(cites, says, name=name, controls=controls, along="step", **options)(relation)


HALF = (
    "In a pilot 4/5 of the gain was asked of random spectra, which some dozens of networks do not"
    " decide. "
)
WIDER = (
    "After 500 steps the gradient's best rate was the last of the grid; two were added. Judged on"
    " fresh samples."
)
GAIN = (
    "more than half of what Muon gains over the gradient's own singular values, each with its best"
    " steps"
)
OPEN: Any = {"post_hoc": HALF + WIDER, "holds": None}
keeps("kaon", "random-spectra", f"Kaon has {GAIN}.", "Kaon", 0.5, "gradient", **OPEN)
keeps(
    "uniform-noise",
    "random-spectra",
    f"Uniform noise has {GAIN}.",
    "uniform",
    0.5,
    "gradient",
    **OPEN,
)
keeps("third", "inverted", f"The power -1/3 has {GAIN}.", "-1/3", 0.5, "gradient", **OPEN)
keeps(
    "inverse",
    "inverse",
    f"The power -1 has {GAIN}.",
    "inverse",
    0.5,
    "Muon",
    moves={"start": "Muon", "left": 0.75},
    holds=False,
    post_hoc=WIDER,
)
BELOW = "The power -1/3 ends below Muon."
keeps("third-is-ahead", "quasi-norm", BELOW, "-1/3", 1.0, "gradient", holds=None, post_hoc=WIDER)


def figure(config: Config, data: xr.Dataset) -> Figure:
    """Plot the losses of all spectra at their best rates by length, for each width."""
    down = -(-len(config.widths) // 2)
    drawn = Figure(figsize=(9.5, 3.8 * down), layout="constrained")
    panels = drawn.subplots(down, 2, squeeze=False, sharey=True)
    for axes in panels.flat[len(config.widths) :]:
        axes.remove()
    for axes, width in zip(panels.flat, config.widths, strict=False):
        for steps, color, marker in zip(config.lengths, COLORS, MARKERS, strict=False):
            loss = data["loss"].sel(width=width, step=steps)
            losses = [tuned(loss.sel(kind=kind))[0] for kind in SPECTRA]
            draw_at(axes, list(SPECTRA), losses, label=f"{steps} steps", color=color, marker=marker)
            axes.axhline(
                float(xr.ufuncs.exp(losses[1].mean())), color=color, linewidth=0.7, linestyle="--"
            )
        axes.set(title=f"matrices of {CLASSES} × {width}", xlabel="singular values of a step")
    for row in panels:
        row[0].set_ylabel("loss on fresh samples (dashed: Muon's)")
    named = panels[0, 0].get_legend_handles_labels()
    drawn.legend(*named, loc="outside lower center", ncols=len(config.lengths), fontsize="small")
    return drawn


EXPERIMENT = lab.Experiment(
    "field-spectra",
    ledger("field"),
    title="Random singular values end near Muon's, within a few per cent; the inverse ends far off",
    summary=(
        "Trained ReLU networks of matrices of 12 × 16 to 12 × 128, each spectrum at its best rate."
        " Kaon's chaotic singular values and uniform noise end within 7 % of Muon at every width"
        " and after 50, 150 and 500 steps; that they have half of its gain over the gradient's own"
        " is not decided after 500, where the gain is small. The inverse ends above the gradient's"
        " own singular values. Which power is best is not decided at this size."
    ),
    config=Config,
    measure=run,
    statements=states,
    scales={
        "quick": {"seeds": 18, "rates": tuple(map(float, RATES[:6]))},
        "smoke": {"widths": (12,), "lengths": (10,), "seeds": 4},
        "paper": {"widths": (16, 32, 64, 128), "lengths": (50, 150, 500), "seeds": 48},
    },
    figure=figure,
)
