"""The experiment `polar-rank`: what the polar factor keeps of signals of a rank that grows with the
matrix (docs/beyond/polar-rank.md); `theory.polar_signal.kept_shares` predicts it without a fit.
"""

from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Key

from specjax import lab, sizes, sweep
from specjax.experiments.beyond.polar_signal import factor
from specjax.theory import polar_signal

THETAS, SHARES = (0.5, 1.0, 2.0), (0.25, 0.5, 1.0)
"""Equal signals in units of the noise's norm, and the part of all directions that has them."""
STRONGEST, WITHIN, NOISE = 3.0, 0.015, 1.06
"""The largest signal of the power law, the error that is allowed, and the noise of a rival."""
Data = dict[str, xr.Dataset]


class Config(lab.Config):
    """Sizes and samples."""

    seed: int = lab.config.root_seed(7, help="root of all randomness")
    n: int = lab.config.integer(24, least=8, help="rows n")
    seeds: int = lab.config.seeds(6000, least=100, help="samples of the noise")


def power_law(n: int) -> np.ndarray:
    """1/k in all directions."""
    return 1 / np.arange(1.0, n + 1)


def run(config: Config, key: Key[Array, ""]) -> Data:
    """Diagonal entries of polar factors: means over equal signals, and each of a power law."""
    n = config.n

    def equal(key: Array, theta: Array, share: Array) -> dict[str, Array]:
        has = jnp.arange(n) < share * n
        kept = jnp.diagonal(factor(sizes.normal(key, (n, n)), n, *(theta * has)))
        return {"kept": jnp.sum(jnp.where(has, kept, 0)) / jnp.sum(has)}

    def power(key: Array, strongest: Array) -> dict[str, Array]:
        signals = strongest * power_law(n)
        return {"kept": jnp.diagonal(factor(sizes.normal(key, (n, 2 * n)), 2 * n, *signals))}

    over = {"theta": sweep.values(*THETAS), "share": sweep.values(*SHARES)}
    law = lab.seeded_sweep(key, "power", power, config.seeds, strongest=sweep.values(STRONGEST))
    law = law.isel(strongest=0, drop=True)
    return {
        "equal": lab.seeded_sweep(key, "equal", equal, config.seeds, **over),
        "power": sweep.labelled(law, "theta", theta=list(STRONGEST * power_law(n))),
    }


def of_equal(config: Config, data: Any, noise: float = 1.0) -> xr.DataArray:
    """f of equal signals at every strength and rank, of square matrices."""
    n, axes = config.n, data["equal"][["theta", "share"]].coords
    signals = [
        [theta * n**0.5 * (np.arange(n) < share * n) for share in SHARES] for theta in THETAS
    ]
    shares = polar_signal.kept_shares(np.asarray(signals), n, n, noise)
    return xr.DataArray(np.asarray(shares)[..., 0], axes, ("theta", "share"))


def of_law(config: Config, data: Any, columns: int = 2, noise: float = 1.0) -> xr.DataArray:
    """f of the power law; the rival has square matrices."""
    n, signals = config.n, STRONGEST * power_law(config.n) * (2 * config.n) ** 0.5
    shares = polar_signal.kept_shares(signals, n, columns * n, noise)
    return xr.DataArray(np.asarray(shares), {"theta": data["power"].theta})


def alone(config: Config, data: Any, part: str, columns: int) -> xr.DataArray:
    """f of each signal as if it were the only one."""
    like = data[part]["kept"].isel(seed=0, drop=True)
    single = partial(polar_signal.kept_share, m=1.0, n=float(columns))
    return lab.closed_form(single, like.theta * columns**0.5) + xr.zeros_like(like)


def full(config: Config, data: Any, number: float = 4.0) -> xr.DataArray:
    """1 - 1/(number θ²), at θ of 1 and more."""
    return 1 - 1 / (number * data["equal"].theta.sel(theta=[1.0, 2.0]) ** 2)


states = lab.Statements()


@states("equal", rivals={"alone": partial(alone, part="equal", columns=1)})
def equal_signals(config: Config, data: Data) -> lab.Relation:
    """Of equal signals in a quarter, half or all of the directions the polar factor keeps the
    predicted share, to 0.015.
    """
    return lab.near(data["equal"]["kept"], of_equal(config, data), WITHIN, f"{WITHIN:g}")


@states("full", rivals={f"1 - 1/({n:g} θ²)": partial(full, number=n) for n in (3.0, 8.0)})
def full_of_signals(config: Config, data: Data) -> lab.Relation:
    """Of equal signals of strength θ ≥ 1 in all directions it keeps 1 - 1/(4 θ²), to 0.015."""
    found = data["equal"]["kept"].sel(share=1.0, theta=[1.0, 2.0], drop=True)
    return lab.near(found, full(config, data), WITHIN, f"{WITHIN:g}")


MORE_NOISE = {"6 % more noise": partial(of_law, noise=NOISE), "square": partial(of_law, columns=1)}


@states("power-law", rivals=MORE_NOISE | {"alone": partial(alone, part="power", columns=2)})
def power_law_signals(config: Config, data: Data) -> lab.Relation:
    """Of signals 3/k in all directions of n × 2n matrices each keeps the predicted share, to
    0.015.
    """
    return lab.near(data["power"]["kept"], of_law(config, data), WITHIN, f"{WITHIN:g}")


EXPERIMENT = lab.Experiment(
    "polar-rank",
    lab.ledger.Ledger.from_conjectures(
        "polar-rank",
        equal="Signals of a rank that grows with n keep shares that one integral gives for all.",
        full="Of equal signals θ ≥ 1 in all directions of square matrices 1 - 1/(4 θ²) is kept.",
        power_law="So do signals 3/k of full rank in matrices that are not square.",
    ),
    title="What the polar factor keeps of signals of large rank",
    summary=(
        "Strong signals leave less room to the noise: the share of each that Muon's step keeps has"
        " one formula for any spectrum, and is larger than that of the signal alone."
    ),
    config=Config,
    measure=run,
    statements=states,
    scales={"smoke": {"n": 12, "seeds": 200}, "paper": {"seed": 6, "n": 64, "seeds": 4000}},
)
