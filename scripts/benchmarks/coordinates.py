"""The coordinate check beside that of PyPI's `mup`: the same network, weights, batch, widths and
optimizers, size by size.

A perceptron of three layers without biases, in standard parametrization and in μP, by gradient
descent and Adam. Each side writes the parametrization in its own way: `mup` by `MuReadout`,
`set_base_shapes`, `MuSGD` and `MuAdam`, specjax by the model's own numbers and optax. Both start
from the same weights, so that what each measures of a layer's output after some steps, its RMS, is
the same number up to rounding; this is asserted at every width and seed, before exponents are
fitted to either side's.

    pip install -e '.[bench]'
    python scripts/benchmarks/coordinates.py [--smoke]
"""

import argparse
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch
import xarray as xr
from jax import Array
from mup import MuReadout, set_base_shapes
from mup.coord_check import get_coord_data
from timing import machine, table

from specjax import fits, scaling
from specjax.sizes import stream

INPUTS, CLASSES, SAMPLES = 16, 10, 64
LAYERS = ("first", "hidden", "last")
RATES = {"sgd": 0.1, "adam": 1e-3}
KEY = jax.random.key(0)
AGREEING = 1e-4
"""Relative: rounding of two libraries, through Adam's division by small gradients."""

Params = dict[str, Array]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, seconds in all")
    parser.add_argument(
        "--widths", type=int, nargs="*", default=(64, 128, 256, 512), help="from the base width up"
    )
    parser.add_argument("--seeds", type=int, default=10, help="initializations")
    parser.add_argument("--steps", type=int, default=3, help="steps of training")
    options = parser.parse_args()
    if options.smoke:
        options.widths, options.steps = (8, 16, 32, 64), 1
    return options


def standard(key: Array, width: int) -> Params:
    """The three layers with torch's own initialization, U(±1/√fan_in); weights are (outputs,
    inputs).
    """
    shapes = dict(zip(LAYERS, ((width, INPUTS), (width, width), (CLASSES, width)), strict=True))
    return {
        name: (
            jax.random.uniform(jax.random.fold_in(key, place), shape, minval=-1.0, maxval=1.0)
            / np.sqrt(shape[1])
        )
        for place, (name, shape) in enumerate(shapes.items())
    }


def batch() -> tuple[Array, Array]:
    """Gaussian inputs, and the class of each by a linear teacher."""
    x, teacher = (
        jax.random.normal(jax.random.fold_in(KEY, 10 + i), (n, INPUTS))
        for i, n in enumerate((SAMPLES, CLASSES))
    )
    return x, jnp.argmax(x @ teacher.T, axis=1)


def cross_entropy(params: Params, batch: tuple[Array, Array], after: float = 1.0) -> Array:
    """The loss of the network whose outputs are multiplied by `after`."""
    x, classes = batch
    h = jax.nn.relu(jax.nn.relu(x @ params["first"].T) @ params["hidden"].T)
    return jnp.mean(
        optax.softmax_cross_entropy_with_integer_labels(after * (h @ params["last"].T), classes)
    )


class OfSpecjax:
    """What `scaling.coordinate_check` takes, in each parametrization: table 8 of Yang et al. 2022,
    which has an output multiplier.
    """

    def __init__(self, parametrization: str, optimizer: str, base: int) -> None:
        self.mup, self.base = parametrization == "μP", base
        self.made = {"sgd": optax.sgd, "adam": optax.adam}[optimizer]
        self.adam = optimizer == "adam"

    def build(self, key: Array, width: int) -> Params:
        """In μP the last layer's variance does not depend on the width."""
        params = standard(key, width)
        return (
            params | {"last": params["last"] * np.sqrt(width / self.base)} if self.mup else params
        )

    def loss(self, params: Params, batch: tuple[Array, Array]) -> Array:
        """In μP the output is divided by the width over the base width."""
        return cross_entropy(
            params, batch, self.base / params["hidden"].shape[0] if self.mup else 1.0
        )

    def optimizer(self, rate: Array, width: int) -> optax.GradientTransformation:
        """In μP layers have rates of their own."""
        times = width / self.base if self.mup else 1.0
        factors = (1.0, 1 / times, 1.0) if self.adam else (times, 1.0, times)
        rates = {
            name: self.made(rate * factor) for name, factor in zip(LAYERS, factors, strict=True)
        }
        return optax.partition(rates, {name: name for name in LAYERS})


class OfMup(torch.nn.Module):
    """The same network of torch; with `readout=MuReadout` and base shapes it is μP's."""

    def __init__(self, width: int, readout: type[torch.nn.Linear]) -> None:
        super().__init__()
        self.first = torch.nn.Linear(INPUTS, width, bias=False)
        self.hidden = torch.nn.Linear(width, width, bias=False)
        self.last = readout(width, CLASSES, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The outputs, samples in rows."""
        return self.last(torch.relu(self.hidden(torch.relu(self.first(x)))))


def factory(width: int, mup: bool, base: int, seeds: int) -> Callable[[], OfMup]:
    """Makes the network of one seed after the other; `mup` scales its weights, as `set_base_shapes`
    does with torch's own.
    """

    def made() -> Iterator[OfMup]:
        for seed in range(seeds):
            model = OfMup(width, MuReadout if mup else torch.nn.Linear)
            start = standard(stream(jax.random.fold_in(KEY, seed), "weights"), width)
            with torch.no_grad():
                for name in LAYERS:
                    getattr(model, name).weight.copy_(torch.from_numpy(np.array(start[name])))
            if mup:
                set_base_shapes(model, OfMup(base, MuReadout), delta=OfMup(2 * base, MuReadout))
            yield model

    models = made()
    return lambda: next(models)


def by_mup(parametrization: str, optimizer: str, options: argparse.Namespace) -> xr.Dataset:
    """What `mup` records: the mean size "l1" of each layer's output before every step, and its
    RMS.
    """
    mup, base = parametrization == "μP", min(options.widths)
    x, classes = (torch.from_numpy(np.array(part)) for part in batch())
    found = get_coord_data(
        {width: factory(width, mup, base, options.seeds) for width in options.widths},
        [(x, classes.long())],
        optimizer=optimizer,
        lr=RATES[optimizer],
        mup=mup,
        nsteps=options.steps + 1,
        nseeds=options.seeds,
        output_fdict={"l1": "l1", "rms": "l2"},
        cuda=False,
        show_progress=False,
    )
    # It counts steps from 1, and records before each.
    last = found[found["t"] == options.steps + 1]
    coords = {"width": list(options.widths), "layer": list(LAYERS), "seed": range(options.seeds)}

    def values(quantity: str) -> list[list[Any]]:
        chosen = (
            (last["module"] == layer, last["width"] == width)
            for width in options.widths
            for layer in LAYERS
        )
        flat = [last[of_layer & of_width][quantity].to_numpy() for of_layer, of_width in chosen]
        return np.reshape(flat, [len(each) for each in coords.values()])

    return xr.Dataset(
        {quantity: (tuple(coords), values(quantity)) for quantity in ("l1", "rms")}, coords
    )


def shown(draws: xr.DataArray) -> str:
    fit = fits.fit_power_law(draws, "width")
    return f"{fit.exponent:.3f} ({fit.interval[0]:.2f} to {fit.interval[1]:.2f})"


def rows(
    parametrization: str, optimizer: str, options: argparse.Namespace
) -> list[tuple[str, ...]]:
    """A row for each layer, after all sizes were found equal."""
    ours = OfSpecjax(parametrization, optimizer, min(options.widths))
    check = scaling.coordinate_check(
        ours.build,
        ours.loss,
        ours.optimizer,
        rate=RATES[optimizer],
        widths=options.widths,
        batch=batch(),
        steps=options.steps,
        num_seeds=options.seeds,
        key=KEY,
        progress=False,
    )
    theirs = by_mup(parametrization, optimizer, options)
    output = check.data["output"].sel(step=options.steps, drop=True)
    off = abs(theirs["rms"] / output - 1)
    assert float(off.max()) < AGREEING, f"The sizes differ by {float(off.max()):.1e} of themselves."
    verdicts = {(row.layer, row.quantity): row for row in check.rows}
    return [
        (
            f"{optimizer}, {parametrization}, {layer}",
            shown(theirs["l1"].sel(layer=layer)),
            shown(theirs["rms"].sel(layer=layer)),
            shown(output.sel(layer=layer)),
            f"{float(off.sel(layer=layer).max()):.0e}",
            verdicts[layer, "output"].verdict,
            (
                f"{verdicts[layer, 'update_output'].exponent:.2f},"
                f" {verdicts[layer, 'update_output'].verdict}"
            ),
        )
        for layer in LAYERS
    ]


HEADER = (
    "layer",
    "mup, mean |W x|",
    "mup, RMS",
    "specjax, RMS",
    "difference",
    "specjax says",
    "of the update alone",
)


def main() -> None:
    options = arguments()
    print(machine("specjax", "jax", "optax", "torch", "mup"))
    print(
        f"exponents in the width {', '.join(map(str, options.widths))} after {options.steps} steps,"
        f" {options.seeds} seeds, 95 %\n"
    )
    settings = [
        (parametrization, optimizer)
        for optimizer in RATES
        for parametrization in ("standard", "μP")
    ]
    print(table((HEADER, *(row for setting in settings for row in rows(*setting, options)))))
    print("difference: the largest of one seed at one width, relative, between the two RMS")


if __name__ == "__main__":
    main()
