"""Networks that learn x_1 x_2 x_3, by gradient descent and with spectral steps on the internal blocks: the runs of Figures 1, 4 and 18.

Four layers without biases, R^d → R^h → R^h → R^h → R, all samples in every iteration. Three sweeps. "starts" has the ranks at
initialization by size. "training" runs squared ReLU networks (Figures 1 and 4) and "gated" SwiGLU networks of two batch sizes (Figure 18),
the smaller also with the step sizes of the figure; every draw by both methods. A run that diverges stops alone; it is counted, and left
out of means.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float

from specjax import sizes, spectral, sweep
from specjax.experiments.contract import Data
from specjax.experiments.validation import check_root_seed, check_sizes
from specjax.models import layerwise_descent, mlp
from specjax.models.layerwise_descent import EUCLIDEAN, SPECTRAL
from specjax.sizes import AnySize
from specjax.spectral.squaring import stable_rank_above

METHODS = {"gd": "GD", "spectral": "SpecGD"}
QUANTITIES = ("loss", "lasted", "stable_rank", "nuclear_rank")
"""What is kept of a `Descent`."""
INTERNAL = (2, 3)
"""The blocks between the first and the last, of which SpecGD takes spectral steps."""
GD, SPEC_GD = (EUCLIDEAN,) * 4, (EUCLIDEAN, SPECTRAL, SPECTRAL, EUCLIDEAN)
LIMIT = 1e3
"""A run has diverged where its loss is above this; the targets have variance 1."""
CAP = float(np.log10(2))
"""A draw counts for no more than a factor 2 of the losses where it is asked which method is ahead: a few draws lead by far more."""
LEAST_ITERATIONS = 10


@dataclass(frozen=True)
class Config:
    """Sizes, step sizes and draws.

    Of squared ReLU the first rates are those of the curves and the last are the figures'. Of SwiGLU the first ones are the figure's, with
    which divergence is counted at the smaller batch, and the others are those of the curves at both batches.
    """

    inputs: int = field(default=24, metadata={"help": "inputs d"})
    samples: int = field(default=96, metadata={"help": "samples n of the squared ReLU networks"})
    width: int = field(default=96, metadata={"help": "hidden units h"})
    gd_rates: tuple[float, ...] = field(default=(0.04, 0.081), metadata={"help": "step sizes of GD"})
    spectral_rates: tuple[float, ...] = field(default=(0.025, 0.1), metadata={"help": "step sizes of SpecGD, as many"})
    iterations: int = field(default=120, metadata={"help": "iterations of the squared ReLU networks"})
    records: int = field(default=10, metadata={"help": "iterations at which ranks are computed"})
    seeds: int = field(default=20, metadata={"help": "draws of data and weights"})
    gated_samples: tuple[int, ...] = field(default=(96, 1536), metadata={"help": "two batch sizes of SwiGLU networks"})
    gated_gd_rates: tuple[float, ...] = field(
        default=(0.01, 0.005, 0.005),
        metadata={"help": "step sizes of GD: the figure's at the smaller batch, and those of the curves"},
    )
    gated_spectral_rates: tuple[float, ...] = field(
        default=(0.025, 0.006, 0.006), metadata={"help": "of SpecGD, as many"}
    )
    gated_iterations: int = field(default=50, metadata={"help": "iterations of the SwiGLU networks"})
    gated_seeds: tuple[int, ...] = field(default=(20, 20), metadata={"help": "draws at each batch size"})
    starts: tuple[int, ...] = field(
        default=(8, 16, 32, 64), metadata={"help": "inputs d of the ranks at initialization; n = h = 4d"}
    )
    start_seeds: int = field(default=16, metadata={"help": "draws of each"})
    seed: int = field(default=0, metadata={"help": "seed of all draws"})

    def __post_init__(self) -> None:
        if min(self.inputs, *self.starts, 3) < 3 or min(self.samples, self.width) < 8:
            raise ValueError(
                "x_1 x_2 x_3 needs inputs and starts of at least 3, and networks samples and width of at least 8, got "
                f"{self.inputs}, {self.starts}, {self.samples} and {self.width}."
            )
        check_sizes("starts", self.starts, least=3, points=2)
        check_sizes("gated_samples", self.gated_samples, least=8, points=2)
        if len(self.gated_samples) != 2 or len(self.gated_seeds) != 2:
            raise ValueError(
                f"gated_samples and gated_seeds are two numbers each, got {self.gated_samples} and {self.gated_seeds}."
            )
        _check_rates(self, "gd_rates", "spectral_rates", max(len(self.gd_rates), 2))
        _check_rates(self, "gated_gd_rates", "gated_spectral_rates", 3)
        for name in ("iterations", "gated_iterations"):
            steps = getattr(self, name)
            if self.records < 2 or steps < LEAST_ITERATIONS or steps % self.records:
                raise ValueError(
                    f"{name} must be a multiple of records >= 2, and at least {LEAST_ITERATIONS}, got {steps} and {self.records}."
                )
        for name in ("seeds", "gated_seeds", "start_seeds"):
            if np.min(getattr(self, name)) < 3:
                raise ValueError(f"{name} must be at least 3, for the runs that last, got {getattr(self, name)}.")
        check_root_seed(self.seed)


def _check_rates(config: Config, gd: str, spectral_name: str, count: int) -> None:
    rates = getattr(config, gd), getattr(config, spectral_name)
    if any(len(one) != count or not all(0 < rate < np.inf for rate in one) for one in rates):
        raise ValueError(
            f"{gd} and {spectral_name} need {count} positive step sizes each, got {rates[0]} and {rates[1]}."
        )


def draw(
    key: Array, activation: str, n: AnySize, d: AnySize, h: AnySize
) -> tuple[mlp.Params, tuple[Float[Array, "n d"], Float[Array, "n 1"]]]:
    """Weights of torch's default distribution, Gaussian inputs and their targets x_1 x_2 x_3; zero on padding."""
    weight_key, x_key = jax.random.split(key)
    x = sizes.normal(x_key, (n, d))
    params = mlp.init(weight_key, (d, h, h, h, 1), activation, distribution="uniform")
    return params, (x, jnp.prod(x[:, :3], axis=1, keepdims=True))


def run(config: Config) -> Data:
    """Ranks at initialization, and both methods on every draw, all of a sweep in one program or one for each batch size."""

    def starts(key: Array, d: AnySize, h: AnySize) -> dict[str, Array]:
        params, batch = draw(key, "relu_squared", h, d, h)
        inputs = mlp.layer_inputs(params, batch[0], "relu_squared")
        gradients = jax.grad(lambda p: mlp.loss(p, batch, "relu_squared"))(params)
        first, *internal, _ = gradients
        nuclear = [spectral.nuclear_rank(first)[None], spectral.nuclear_rank(jnp.stack(internal))]
        return {
            "stable_rank": jnp.stack([stable_rank_above(a) for a in inputs]),
            "nuclear_rank": jnp.concatenate(nuclear),
        }

    def trained(
        key: Array, gd_rate: Array, spectral_rate: Array, activation: str, n: AnySize, iterations: int
    ) -> dict[str, dict[str, Array]]:
        params, batch = draw(key, activation, n, config.inputs, config.width)
        found = {}
        for name, rate, thresholds in (("gd", gd_rate, GD), ("spectral", spectral_rate, SPEC_GD)):
            run = layerwise_descent.descend(
                params,
                batch,
                activation,
                rate,
                thresholds=thresholds,
                records=config.records,
                every=iterations // config.records,
                limit=LIMIT,
                samples=n,
            )
            found[name] = {quantity: getattr(run, quantity) for quantity in QUANTITIES}
        return found

    def training(key: Array, gd_rate: Array, spectral_rate: Array) -> dict[str, dict[str, Array]]:
        return trained(key, gd_rate, spectral_rate, "relu_squared", config.samples, config.iterations)

    def gated(key: Array, gd_rate: Array, spectral_rate: Array, n: AnySize) -> dict[str, dict[str, Array]]:
        return trained(key, gd_rate, spectral_rate, "swiglu", n, config.gated_iterations)

    key = jax.random.key(config.seed)
    rates = sweep.zipped(gd_rate=sweep.values(*config.gd_rates), spectral_rate=sweep.values(*config.spectral_rates))
    widths = sweep.zipped(d=sweep.widths(*config.starts), h=sweep.widths(*(4 * d for d in config.starts)))
    small, large = config.gated_samples
    batches = sweep.zipped(
        n=sweep.widths(small, small, large),
        gd_rate=sweep.values(*config.gated_gd_rates),
        spectral_rate=sweep.values(*config.gated_spectral_rates),
    )
    return {
        "starts": sweep.run(starts, {"d": widths}, seeds=config.start_seeds, key=sizes.stream(key, "starts")),
        "training": sweep.run(training, {"rate": rates}, seeds=config.seeds, key=sizes.stream(key, "training")),
        "gated": sweep.run(
            gated,
            {"n": batches},
            seeds={"n": tuple(config.gated_seeds[i] for i in (0, 0, 1))},
            key=sizes.stream(key, "gated"),
        ),
    }


class Runs(NamedTuple):
    """One batch size or step size: the runs of both methods, by draw, in the units of `Descent`."""

    gd: xr.Dataset
    spectral: xr.Dataset

    def diverged(self, method: str) -> np.ndarray:
        """Which draws diverge."""
        one: xr.Dataset = getattr(self, method)
        return np.asarray(one["lasted"].values < one["loss"].shape[-1])

    def lasting(self) -> np.ndarray:
        """The draws that neither method loses.

        Raises:
            ValueError: if there are fewer than 2, which have no mean with a standard error.

        """
        draws = np.flatnonzero(~self.diverged("gd") & ~self.diverged("spectral"))
        if draws.size < 2:
            raise ValueError(f"Only {draws.size} draws last under both methods; lower the step sizes or add seeds.")
        return draws

    def lead(self, iteration: int) -> np.ndarray:
        """log10 of GD's loss over SpecGD's at one iteration, in the lasting draws."""
        gd, spectral_loss = (one["loss"].values[self.lasting(), iteration] for one in self)
        return np.asarray(np.log10(gd / spectral_loss))

    def ranks(self, method: str, which: str) -> np.ndarray:
        """Ranks in the lasting draws, (draws, records, blocks)."""
        one: xr.Dataset = getattr(self, method)
        return np.asarray(one[which].values[self.lasting()])


def runs_of(dataset: xr.Dataset, dim: str, index: int) -> Runs:
    """The runs at one point of a sweep."""
    point = dataset.isel({dim: index})
    if "seeds" in point.coords:
        point = point.isel(seed=slice(int(point.coords["seeds"])))
    return Runs(
        *(xr.Dataset({q: point[f"{method}.{q}"].transpose("seed", ...) for q in QUANTITIES}) for method in METHODS)
    )
