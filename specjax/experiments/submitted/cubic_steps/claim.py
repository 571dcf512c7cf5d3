"""Huang 2026, arXiv 2606.00371: how accurate Muon's polar factor has to be."""

import xarray as xr
from jaxtyping import Array, Float, Key

from specjax import lab, sizes, spectral, sweep
from specjax.experiments.submitted.student_training import (
    Rule,
    StudentConfig,
    inside,
    log_losses_at_best_rates,
    power,
)
from specjax.spectral.polar_error import factor_error
from specjax.spectral.polynomials import CUBIC5

claim = lab.read_claim(__file__)
METHODS = {
    "exact": spectral.SVD(),
    "Muon's five quintic": spectral.NewtonSchulz(5),
    "five cubic": spectral.NewtonSchulz(5, CUBIC5),
    "Polar Express": spectral.PolarExpress(5),
}
APPROXIMATE = tuple(METHODS)[1:]


class Config(StudentConfig):
    """Lengths, width and seeds."""

    width: int = lab.config.integer(32, least=8, help="inputs and hidden units")
    lengths: tuple[int, ...] = lab.config.sizes(50, 150, help="steps of a training")
    seeds: int = lab.config.seeds(16)


def rule_of(method: spectral.methods.AbstractPolar) -> Rule:
    """The polar factor by a method."""
    return lambda momentum, _: spectral.polar(momentum, method)


def run(config: Config, key: Key[Array, ""]) -> xr.Dataset:
    """Logarithms of test losses over those with the exact factor, and distances from it."""
    losses, place = log_losses_at_best_rates(
        {name: rule_of(method) for name, method in METHODS.items()} | {"root": power(0.5)},
        config,
        key,
    )
    behind = losses - losses.sel(rule="exact", drop=True)

    def measure(key: Key[Array, ""], width: int) -> dict[str, Float[Array, ""]]:
        x = sizes.normal(key, (width, width))
        exact = spectral.polar(x)
        return {
            name: factor_error(spectral.polar(x, METHODS[name]), exact).distance
            for name in APPROXIMATE
        }

    distances = sweep.run(
        measure,
        {"width": sweep.choices(config.width)},
        num_seeds=config.seeds,
        key=sizes.stream(key, "distance"),
    )
    return xr.Dataset(
        {
            "behind": behind.sel(rule=list(APPROXIMATE)),
            "root": behind.sel(rule="root", drop=True),
            "distance": distances[list(APPROXIMATE)].to_dataarray("rule"),
            "place": place.rename(rule="tuned"),
        }
    )


@claim.judges(
    "losses-agree",
    controls={
        "singular values to the power 1/2": lab.controls.replacing(
            "behind", lambda data: data["behind"] * 0 + data["root"]
        ),
        "losses that grow with the error of the factor": lab.controls.replacing(
            "behind", lambda data: data["behind"] + data["distance"] / 2
        ),
    },
)
def losses_agree(config: Config, data: xr.Dataset) -> lab.Relation:
    """In natural logarithms of the test loss."""
    return inside(lab.near(data["behind"], 0.0, 0.05, "5 % of the loss"), config.rates, data)


@claim.judges(
    "factors-differ",
    controls={
        "a third of the distances": lab.controls.replacing(
            "distance", lambda data: data["distance"] / 3
        ),
        "Polar Express": lab.controls.replacing(
            "distance",
            lambda data: data["distance"] * 0 + data["distance"].sel(rule="Polar Express"),
        ),
    },
)
def factors_differ(_: Config, data: xr.Dataset) -> lab.Relation:
    """The Frobenius distance from the polar factor over its norm."""
    return lab.above(data["distance"].sel(rule=list(APPROXIMATE[:2])), 0.1, "a tenth")


EXPERIMENT = claim.experiment(Config, run)
