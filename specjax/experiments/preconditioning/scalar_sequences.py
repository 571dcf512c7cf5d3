"""Lemmas 1, 2, 9 and 11: Muon's scalar sequences, their bounds, and the least decay."""

from typing import Any

import jax
import jax.numpy as jnp
import xarray as xr
from jaxtyping import Array, Key

from specjax import lab, sizes, sweep
from specjax.experiments.ledgers import ledger
from specjax.theory.preconditioning import scalar

# Lemmas 2 and 9 are about decays from 1/2 on, Lemma 11 about those from 2/3 on; the smaller ones
# are controls.
DECAYS = (0.3, 0.4, 0.45, 0.49, 0.5, 0.55, 0.6, 2 / 3, 0.7, 0.8, 0.9, 0.95)
SPREADS = (1.0, 1.5, 2.0, 3.0)  # C_max/C_min, 1 in Lemma 2 and 2 in Lemma 11.
BESIDE = (
    -0.1,
    -0.01,
    -0.001,
    0.001,
    0.01,
)  # Distances from the least decay at which an overstepping sequence is followed.
# Bounds are compared while they exceed this; x of order 1 is rounded to 1e-16 in each step.
FLOOR = 1e-10
ROUNDING = 1e-6  # One part in a million of the quantities compared above the floor.


class Config(lab.Config):
    """Sequences at each decay."""

    seeds: int = lab.config.seeds(2000, least=100, help="sequences at each decay")
    steps: int = lab.config.integer(
        200, least=100, most=lab.config.MOST_COUNT, help="steps of each sequence"
    )


def run(config: Config, key: Key[Array, ""]) -> dict[str, xr.Dataset]:
    """Largest ratios of quantities to their bounds, hits of 0, and ends of overstepping."""

    def bounds(key: Key[Array, ""], rho: Array) -> dict[str, Array]:
        uniform = jax.random.uniform(sizes.stream(key, "numbers"), (5,))
        lam, c = 10 ** (4 * uniform[0] - 3), 10 ** (2 * uniform[1] - 1)
        root, times = jnp.sqrt(lam), jnp.arange(config.steps).astype(rho.dtype)
        rates = c * rho**times
        # Lemma 11 holds for any prefactors in [C_0, 2 C_0]; half of the sequences use only the two
        # ends.
        u = jax.random.uniform(sizes.stream(key, "prefactors"), (config.steps,))
        new = (1 + jnp.where(uniform[4] < 0.5, u, jnp.round(u))) * rates
        starts = (
            (2 * c, uniform[2], rates),
            (c / (1 - rho), uniform[2], rates),
            (c / (1 - rho), uniform[3], new),
        )
        path, far, drawn = (
            scalar.factorization_path(root + reach * (2 * draw - 1), lam, steps)
            for reach, draw, steps in starts
        )
        minimizer = 2 * c * uniform[3]
        context = jnp.abs(scalar.regression_path(jnp.zeros_like(c), minimizer, rates) - minimizer)
        distances = scalar.distance(drawn, lam)
        constant, random = (
            scalar.distance_bound(c, rho, times),
            scalar.random_prefactor_bound(c, rho, times),
        )
        start = root * (1 + uniform[2])
        # With this prefactor the first step ends at 0, where the sequence then stays.
        hitting = scalar.factorization_path(start, lam, start * rho**times)
        uphill = scalar.factorization_step(drawn[:-1], lam, -new)
        return {
            "distance": _ratio(scalar.distance(path[:-1], lam), constant),
            "error": _ratio(jnp.abs(path[:-1] ** 2 - lam), scalar.error_bound(c, rho, lam, times)),
            "travel": _ratio(scalar.distance(far[:-1], lam), scalar.travel_bound(c, rho, times)),
            "context": _ratio(context[:-1], constant),
            "random": _ratio(distances[:-1], random),
            "random_error": _ratio(jnp.abs(drawn[:-1] ** 2 - lam), random * (2 * root + random)),
            "tail": _ratio(distances[:-1], scalar.tail(new) + new[-1] * rho / (1 - rho)),
            "step": _step(distances[:-1], distances[1:], new),
            "step_uphill": _step(distances[:-1], scalar.distance(uphill, lam), new),
            "hits": jnp.any(path == 0),
            "hits_exactly": jnp.any(hitting == 0),
        }

    def least(key: Key[Array, ""], spread: Array, beside: Array) -> dict[str, Array]:
        """The final distance in units of C_min, from beside the root, after one step of C_max."""
        c = 10 ** (jax.random.uniform(key) - 0.5)
        rho, lam = scalar.least_decay(1.0, spread) + beside, (4 * spread * c) ** 2
        times = jnp.arange(config.steps).astype(rho.dtype)
        rates = scalar.overshooting_prefactors(c, spread * c, config.steps) * rho**times
        end = (
            scalar.distance(
                scalar.factorization_path(jnp.sqrt(lam) * (1 + 1e-12), lam, rates)[-1], lam
            )
            / c
        )
        home = rho / (1 - rho)
        return {
            "gap": jnp.abs(end - jnp.maximum(spread - home, 0)),
            "gap_from_one": jnp.abs(end - jnp.maximum(1 - home, 0)),
        }

    spreads, distances = sweep.values(*SPREADS), sweep.values(*BESIDE)
    with jax.enable_x64(True):
        return {
            "bounds": lab.seeded_sweep(
                key, "sequences", bounds, config.seeds, rho=sweep.values(*DECAYS)
            ),
            "least": lab.seeded_sweep(
                key, "overstepping", least, 10, spread=spreads, beside=distances
            ),
        }


def _ratio(quantity: Array, bound: Array) -> Array:
    return jnp.max(jnp.where(bound > FLOOR, quantity / bound, 0))


def _step(before: Array, after: Array, rates: Array) -> Array:
    """The largest Δ_{t+1} over |Δ_t - η_t|, with η_t added to both, since they may vanish."""
    ratio = (after + rates) / (jnp.abs(before - rates) + rates)
    return jnp.max(jnp.where(rates > 1e3 * FLOOR, ratio, 0))


states = lab.Statements()
CONSTANT = {
    "C_max = C_min in the formula": lab.controls.replacing("gap", "gap_from_one", of="least")
}
# A control with the values of the fastest decay, below 1/2, at every decay.
FASTEST = lab.controls.changing(lambda found: lab.controls.at_places(found, "rho", 0), of="bounds")


def other_constants(name: str, slack: float) -> dict[str, lab.Control]:
    """Controls with a bound that is violated, and with one that no sequence comes near."""
    tight, loose = (0.95, 1.05) if slack < 0.05 else (0.9 * (1 - slack), 1.1 / (1 - slack))

    def scale_bound(factor: float) -> lab.Control:
        return lab.controls.replacing(name, lambda found: found[name] / factor, of="bounds")

    return {f"{factor:.3g} times the bound": scale_bound(factor) for factor in (tight, loose)}


HALF, TWO_THIRDS = 0.5 - 1e-9, 2 / 3 - 1e-9


def _bounded(
    name: str,
    cites: str,
    says: str,
    least: float,
    *,
    slack: float = 0.02,
    factor: float = 1.0,
    corrected: bool = False,
) -> None:
    """Judge that a quantity is at most `factor` times its bound, and near it up to `slack`."""
    called = name.replace("_", "-") + ("-sharper" if factor != 1 else "")

    @states(
        cites,
        says,
        name=called,
        controls={f"the decay {DECAYS[0]}": FASTEST} | other_constants(name, slack),
        corrected=corrected,
    )
    def bounded(config: Config, data: Any) -> lab.Relation:
        found = data["bounds"][name]
        return lab.inequality(
            found.sel(rho=found.rho >= least), xr.DataArray(factor), slack=slack, rounding=ROUNDING
        )


_bounded("distance", "lemma-2", "Δ_t ≤ 2 C ρ^t for ρ in [1/2, 1) and Δ_0 ≤ 2 C.", HALF)
_bounded(
    "error", "lemma-2-error", "|x_t² - λ| ≤ 4 C ρ^t (√λ + C ρ^t) under the same conditions.", HALF
)
FARTHER = "A start as far as C/(1 - ρ) will do: Δ_t ≤ C ρ^t/(1 - ρ)."
_bounded("travel", "lemma-2", FARTHER, HALF, corrected=True)
_bounded(
    "context", "lemma-9", "|q_t - c| ≤ 2 C ρ^t for q_0 = 0, 0 ≤ c ≤ 2 C and ρ in [1/2, 1).", HALF
)
# These bounds are about twice the attained values, hence their slack.
RANDOM = "Δ_t ≤ 2 C_0 ρ^t/(1 - ρ) for prefactors in [C_0, 2 C_0], ρ ≥ 2/3 and Δ_0 ≤ C_0/(1 - ρ)."
_bounded("random", "lemma-11", RANDOM, TWO_THIRDS, slack=0.55)
SHARPER = "Half of that will do: Δ_t ≤ C_0 ρ^t/(1 - ρ)."
_bounded("random", "lemma-11", SHARPER, TWO_THIRDS, factor=0.5, corrected=True)
RANDOM_ERROR = "|x_t² - λ| ≤ δ (2√λ + δ) with that bound δ on the distance."
_bounded("random_error", "lemma-11-error", RANDOM_ERROR, TWO_THIRDS, slack=0.55)
_bounded("tail", "eq-126", "Δ_t is at most the sum of the steps to come.", TWO_THIRDS, slack=0.2)


@states(
    "lemma-1",
    controls={
        "the one prefactor |x_0|": lab.controls.replacing("hits", "hits_exactly", of="bounds")
    },
)
def never_hits(config: Config, data: Any) -> lab.Relation:
    """With a prefactor drawn from a density no sequence comes to x = 0."""
    # Thousands of samples do not tell a share of 0 from one that is much smaller than this.
    return lab.fraction(data["bounds"]["hits"], less_than=0.01)


@states(("lemma-2", "lemma-11"), controls=CONSTANT, corrected=True)
def least_decay(config: Config, data: Any) -> lab.Relation:
    """The condition on ρ is one and sharp: a sequence that oversteps once ends max(C_max - C_min
    ρ/(1 - ρ), 0) away from its root.
    """
    return lab.zero_error(data["least"]["gap"], tolerance=1e-9)


@states(
    "eq-35", controls={"steps uphill": lab.controls.replacing("step", "step_uphill", of="bounds")}
)
def one_step(config: Config, data: Any) -> lab.Relation:
    """Where x_t is not 0 a step moves Δ_t to at most |Δ_t - η_t|, which some step of every sequence
    attains.
    """
    return lab.zero_error(abs(data["bounds"]["step"] - 1), tolerance=ROUNDING)


EXPERIMENT = lab.Experiment(
    "scalar-sequences",
    ledger("preconditioning"),
    title="The scalar sequences of Muon: bounds, and the least decay of the steps",
    summary=(
        "All bounds of the scalar lemmas hold, that of Lemma 11 with half its constant; the least"
        " decay is C_max/(C_max + C_min)."
    ),
    config=Config,
    measure=run,
    statements=states,
    scales={"smoke": {"seeds": 200}, "paper": {"seeds": 20_000, "steps": 400}},
)
