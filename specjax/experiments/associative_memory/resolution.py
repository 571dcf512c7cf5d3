"""Appendix C: capacity by resolution λ, the spectrum that explains it, and the cubic iteration."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float, Key

from specjax import fits, lab, sizes, spectral
from specjax.experiments.associative_memory import item_counts, sampled_items
from specjax.models import associative_memory as memory
from specjax.sizes import AnySize, active, mask
from specjax.theory import capacity

HALF = 0.25  # Half of 1/2, since wrong exponents are off by 1/2.
SHARP = 0.01  # λ over d^(-α-1), the order of the smallest singular value, far below that value.
ITERATES = {
    "cubic": spectral.polynomials.CUBIC,
    "quintic": spectral.polynomials.MUON,
}  # The iterations of Lemma C.4, and Muon's, which do not converge.
ITERATIONS = (1, 2, 4, 8, 64)


class Config(sampled_items.Config):
    """Items, dimensions, α and the resolutions λ = factor · d^-α."""

    n: int = lab.config.integer(4000, least=2, help="items N")
    dims: tuple[int, ...] = lab.config.sizes(32, 48, 64, 96, least=4, points=2, help="dimensions d")
    alpha: float = lab.config.number(1.5, above=1, help="exponent of the frequencies")
    factors: tuple[float, ...] = lab.config.ascending(
        0, 0.1, 0.3, 1, 3, 100, least=0, first=0, help="λ over d^-α"
    )
    seeds: int = lab.config.seeds(30, least=10, help="samples of the embeddings")
    spectrum_n: int = lab.config.integer(
        1000, least=2, help="items N of the many samples of the spectrum"
    )
    spectrum_seeds: int = lab.config.seeds(
        2500, least=10, help="their number: the smallest singular value varies by factors"
    )
    points: int = lab.config.seeds(1000, help="points at which the iterations are compared")

    def __post_init__(self) -> None:
        super().__post_init__()
        if 1.0 not in self.factors:
            raise ValueError(f"factors needs 1, the λ of Theorem 3.1, got {self.factors}.")


def run(config: Config, key: Key[Array, ""]) -> dict[str, xr.Dataset]:
    def counts(key: Array, d: AnySize) -> dict[str, Array]:
        u, v, q = sampled_items.sample(key, config.n, d, config.alpha)
        size = jnp.asarray(active(d), u.dtype)
        # λ = 0 is the polar factor.
        lambdas = (
            jnp.append(jnp.asarray(config.factors, u.dtype), SHARP / size) * size**-config.alpha
        )
        maps = memory.stabilized_steps(u, v, q, lambdas)
        found = sampled_items.capacities(
            u, v, jnp.concatenate([maps, -memory.gradient_at_zero(u, v, q)[None]])
        )["count"]
        return {"count": found[:-2], "sharp": found[-2], "gd": found[-1]}

    def spectrum(key: Array, d: AnySize) -> dict[str, Array]:
        s = memory.gradient_singular_values(
            *sampled_items.sample(key, config.spectrum_n, d, config.alpha)
        )
        inverse_sum = jnp.sum(jnp.where(mask(d), 1 / s, 0))
        return {"s_bulk": s[active(d) // 2], "s_min": s[active(d) - 1], "inverse_sum": inverse_sum}

    of_items, of_spectrum = (sizes.stream(key, name) for name in ("items", "items of lemma c.3"))
    points = np.asarray(jax.random.uniform(sizes.stream(key, "points"), (config.points,)), float)
    return {
        "capacity": sampled_items.run(
            counts, config.dims, config.seeds, of_items, factor=config.factors
        ),
        "spectrum": sampled_items.run(spectrum, config.dims, config.spectrum_seeds, of_spectrum),
        "iterations": _iterations(points),
    }


def iterate(name: str, z: Float[np.ndarray, "..."], steps: int) -> Float[np.ndarray, "..."]:
    for _ in range(steps):
        # Cut off where the quintic map diverges; the cubic one stays below √3.
        z = np.clip(ITERATES[name](z), -2, 2)
    return z


def _iterations(uniform: Float[np.ndarray, " points"]) -> xr.Dataset:
    """h(z)/z at points of (0, √3) and at points up to 5 % larger, and h(z), by step count."""
    z = 0.01 + (np.sqrt(3) - 0.02) * uniform
    larger = np.minimum(1.05 * z, np.sqrt(3) - 0.01)
    values = {
        f"{name}_{which}": (
            ("steps", "seed"),
            np.stack([iterate(name, at, k) / over for k in ITERATIONS]),
        )
        for name in ITERATES
        for which, at, over in (
            ("quotient", z, z),
            ("quotient_larger", larger, larger),
            ("value", z, 1.0),
        )
    }
    return xr.Dataset(values, coords={"steps": list(ITERATIONS)})


def select_factor(data: item_counts.Data, factor: float) -> xr.DataArray:
    return data["capacity"]["count"].sel(factor=factor, drop=True).astype(float)


def divide_by_polar(counts: xr.DataArray, data: item_counts.Data) -> xr.DataArray:
    return (counts / select_factor(data, 0.0)).rename("items / those of the polar factor")


states = lab.Statements()
at_one = partial(item_counts.replace_at, "factor", 1.0, of="capacity")
COARSE = {"the coarsest λ": at_one(lambda count: count.isel(factor=-1, drop=True))}
OF_GD = lab.controls.replacing(
    "count", lambda data: data["count"].where(data.factor != 1.0, data["gd"]), of="capacity"
)
DESCENT = {"gradient descent": OF_GD}
FINER = item_counts.change_values(
    lambda count: lab.controls.at_labels(count, "factor", {count.factor.values[-1]: 1.0}),
    "capacity",
)
MORE = {"√d times as many": at_one(lambda count: count * count.d**0.5)}
LARGER_SUM = {
    "√d times it": item_counts.change_values(
        lambda values: values * values.d**0.5, "spectrum", "inverse_sum"
    )
}
BY_EXPONENT = (
    "It asked for the exponent α + 1 to 1/4, where the lemma has a bound with (log d)²; on fresh"
    " samples."
)
SHARP_CONTROLS = {
    "λ = d^-α": lab.controls.replacing(
        "sharp", lambda data: data["count"].sel(factor=1.0, drop=True), of="capacity"
    ),
    "gradient descent": lab.controls.replacing("sharp", "gd", of="capacity"),
}
QUINTICS = {f"cubic_{of}": f"quintic_{of}" for of in ("quotient", "quotient_larger", "value")}
QUINTIC = lab.controls.changing(
    lambda data: data.assign({to: data[of] for to, of in QUINTICS.items()}), of="iterations"
)


@states("appendix-c-polar", controls=COARSE | DESCENT)
def resolution_as_polar(config: Config, data: item_counts.Data) -> lab.Relation:
    """λ = d^-α and the exact polar factor recover the same number of items up to a factor of 2, at
    every d.
    """
    return item_counts.within_a_factor_of_2(
        item_counts.log(divide_by_polar(select_factor(data, 1.0), data))
    )  # up to logarithms


@states("appendix-c-polar", controls=DESCENT, post_hoc=item_counts.SETTLES)
def resolution_has_the_rate_of_polar(config: Config, data: item_counts.Data) -> lab.Relation:
    """λ = d^-α has the recovery rate of the exact polar factor: the ratio of the counts is d^0, to
    1/4.
    """
    return item_counts.has_exponent(divide_by_polar(select_factor(data, 1.0), data), 0.0, HALF)


@states("appendix-c-polar", controls=SHARP_CONTROLS)
def sharp_resolution_is_polar(config: Config, data: item_counts.Data) -> lab.Relation:
    """λ a hundred times below d^(-α-1) recovers what the exact polar factor does, to 2 %, at every
    d.
    """
    # Singular values are rarely that small, except the smallest one.
    return lab.near(divide_by_polar(data["capacity"]["sharp"], data), 1.0, 0.02, "2 %")


@states("section-3-resolution", controls={"λ = d^-α": FINER})
def coarse_resolution_loses(config: Config, data: item_counts.Data) -> lab.Relation:
    """The largest λ, far above d^-α, loses more than half of the items, at every d."""
    return lab.below(divide_by_polar(select_factor(data, config.factors[-1]), data), 0.5, "half")


@states("appendix-c-optimality", controls=MORE, post_hoc=item_counts.SETTLES)
def no_resolution_has_a_better_rate(config: Config, data: item_counts.Data) -> lab.Relation:
    """The best λ, chosen in every sample, recovers d^0 times as many items as the polar factor
    does, to 1/4.
    """
    # The maps with a λ among the separable maps of Assumption C.2.
    return item_counts.has_exponent(
        divide_by_polar(data["capacity"]["count"].max("factor"), data), 0.0, HALF
    )


@states("lemma-c-4", controls={"Muon's quintic polynomial": QUINTIC})
def quotient_does_not_increase(config: Config, data: item_counts.Data) -> lab.Relation:
    """For the iterates of 3z/2 - z³/2 the quotient h(z)/z does not increase in z on (0, √3), after
    any number of steps.
    """
    found = data["iterations"]  # at pairs of points that differ by up to 5 %
    return lab.inequality(
        found["cubic_quotient_larger"], found["cubic_quotient"], slack=0.02, rounding=1e-12
    )


@states("lemma-c-4", controls={"Muon's quintic polynomial": QUINTIC})
def iterates_tend_to_one(config: Config, data: item_counts.Data) -> lab.Relation:
    """The iterates of 3z/2 - z³/2 tend to 1 for every z in (0, √3)."""
    last = data["iterations"]["cubic_value"].isel(
        steps=-1, drop=True
    )  # from z between 0.01 and √3 - 0.01
    return lab.zero_error(abs(last - 1).rename("|h(z) - 1|"), tolerance=1e-12)


def scale(name: str, key: str, cites: str, says: str) -> None:
    controls = item_counts.shift_exponents(0.5, "spectrum", name, "d^({:+}) times it") | {
        f"{other} in its place": lab.controls.replacing(name, other, of="spectrum")
        for other in ("s_bulk", "s_min", "inverse_sum")
        if other != name
    }

    @states(cites, says, name=name.replace("_", "-"), controls=controls)
    def exponent(config: Config, data: item_counts.Data) -> lab.Relation:
        expected = capacity.singular_value_exponents(config.alpha)[key]
        slope = fits.log_slopes(xr.ufuncs.log(data["spectrum"][name].astype(float)), "d")
        return lab.near(
            slope, expected, HALF, "1/4, half of the 1/2 by which a wrong exponent is off"
        )


scale(
    "s_bulk",
    "bulk",
    "appendix-b-2-bulk",
    "The bulk singular value s_(d/2) of the gradient falls as d^-α.",
)
scale(
    "s_min",
    "smallest",
    "lemma-c-3",
    "The smallest singular value of the gradient falls as d^(-α-1).",
)


@states("lemma-c-3", controls=LARGER_SUM, post_hoc=BY_EXPONENT)
def inverse_sum(config: Config, data: item_counts.Data) -> lab.Relation:
    """The sum of the inverse singular values grows no faster than d^(α+1) (log d)²."""
    values = data["spectrum"]["inverse_sum"]
    bound = values.d ** (config.alpha + 1) * np.log(values.d) ** 2
    slope = fits.log_slopes(
        xr.ufuncs.log(values / bound), "d"
    )  # in every sample: the sum has no mean
    return lab.below(slope.rename("slope of the sum over the bound"), 0.0, "no growth")


EXPERIMENT = lab.Experiment(
    "memory-lambda",
    item_counts.LEDGER,
    title="The resolution λ and the spectrum of the gradient",
    summary=(
        "λ at the scale d^-α of the bulk recovers four fifths of what the polar factor does, at the"
        " same rate; no λ has a better one."
    ),
    config=Config,
    measure=run,
    statements=states,
    scales={
        "quick": {
            "seed": 2,
            "seeds": 23,
            "spectrum_seeds": 1250,
            "dims": (32, 64, 96),
            "factors": (0.0, 0.1, 1.0, 100.0),
        },
        "smoke": (
            {"seed": 1, "n": 500, "dims": (16, 24, 32), "factors": (0.0, 1.0, 100.0), "seeds": 10}
            | {"spectrum_n": 300, "spectrum_seeds": 40, "points": 100}
        ),
        "paper": (
            {"seed": 1, "n": 100_000, "dims": (64, 128, 256, 512), "seeds": 16}
            | {"spectrum_n": 10_000, "spectrum_seeds": 400}
        ),
    },
)
