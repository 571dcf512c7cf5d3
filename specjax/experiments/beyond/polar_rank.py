"""The experiment `polar-rank`: what the polar factor keeps of signals of a rank that grows with the
matrix (docs/beyond/polar-rank.md); `theory.polar_signal.kept_shares` predicts it without a fit.
"""

from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Key
from matplotlib.figure import Figure

from specjax import lab, sizes, sweep
from specjax.experiments.beyond.polar_signal import draw_points, factor
from specjax.lab.drawing import COLORS
from specjax.theory import polar_signal

THETAS, SHARES = (0.5, 1.0, 2.0), (0.25, 0.5, 1.0)
"""Equal signals in units of the noise's norm, and the part of all directions that has them."""
STRONGEST, WITHIN, NOISE = 3.0, 0.015, 1.1
"""The largest signal of the power law, the error that is allowed, and the noise of a rival."""
Data = dict[str, xr.Dataset]


class Config(lab.Config):
    """Sizes and samples."""

    seed: int = lab.config.root_seed(8, help="root of all randomness")
    n: int = lab.config.integer(24, least=8, help="rows n")
    seeds: int = lab.config.seeds(6000, least=100, help="samples of the noise")


def power_law(n: int, strongest: Any = STRONGEST) -> Any:
    """Signals 3/k^(1/4) in all directions."""
    return strongest * np.arange(1.0, n + 1) ** -0.25


def run_equal(config: Config, key: Key[Array, ""]) -> xr.Dataset:
    """Means of diagonal entries of polar factors over equal signals."""
    n = config.n

    def equal(key: Array, theta: Array, share: Array) -> dict[str, Array]:
        has = jnp.arange(float(n)) < share * n
        kept = jnp.diagonal(factor(sizes.normal(key, (n, n)), n, *jnp.where(has, theta, 0)))
        return {"kept": jnp.mean(kept, where=has)}

    over = {"theta": sweep.values(*THETAS), "share": sweep.values(*SHARES)}
    return lab.seeded_sweep(key, "equal", equal, config.seeds, **over)


def run_power(config: Config, key: Key[Array, ""]) -> xr.Dataset:
    """Diagonal entries of polar factors of a power law."""
    n = config.n

    def power(key: Array, strongest: Array) -> dict[str, Array]:
        noise = sizes.normal(key, (n, 2 * n))
        return {"kept": jnp.diagonal(factor(noise, 2 * n, *power_law(n, strongest)))}

    law = lab.seeded_sweep(key, "power", power, config.seeds, strongest=sweep.values(STRONGEST))
    law = law.isel(strongest=0, drop=True)
    return sweep.labelled(law, "theta", theta=list(power_law(n)))


def equal_share(config: Config, data: Any, noise: float = 1.0) -> xr.DataArray:
    """f of equal signals at every strength and rank, of square matrices."""
    n, axes = config.n, data["equal"][["theta", "share"]].coords
    signals = [
        [theta * n**0.5 * (np.arange(n) < share * n) for share in SHARES] for theta in THETAS
    ]
    shares = polar_signal.kept_shares(np.asarray(signals), n, n, noise)
    return xr.DataArray(np.asarray(shares)[..., 0], axes, ("theta", "share"))


def power_law_share(
    config: Config, data: Any, columns: int = 2, noise: float = 1.0
) -> xr.DataArray:
    """f of the power law; the rival has square matrices."""
    n, signals = config.n, power_law(config.n) * (2 * config.n) ** 0.5
    shares = polar_signal.kept_shares(signals, n, columns * n, noise)
    return xr.DataArray(np.asarray(shares), {"theta": data["power"].theta})


def alone(config: Config, data: Any, part: str, columns: int) -> xr.DataArray:
    """f of each signal as if it were the only one."""
    like = data[part]["kept"].isel(seed=0, drop=True)
    single = partial(polar_signal.kept_share, m=1.0, n=float(columns))
    return lab.closed_form(single, like.theta * columns**0.5) + xr.zeros_like(like)


states = lab.Statements()
ALONE = {"each alone": partial(alone, part="equal", columns=1)}
OF_LAW = {
    "each alone": partial(alone, part="power", columns=2),
    "square matrices": partial(power_law_share, columns=1),
    "10 % more noise": partial(power_law_share, noise=NOISE),
}
OTHER_LAW = (
    "The signals were 3/k, of which no share differs from that of the signal alone by more than"
    " 0.006; judged with 3/k^(1/4) on a fresh seed."
)


@states("equal", rivals=ALONE | {"10 % more noise": partial(equal_share, noise=NOISE)})
def equal_signals(config: Config, data: Data) -> lab.Relation:
    """Of equal signals in a quarter, half or all of the directions the polar factor keeps the
    predicted share, to 0.015.
    """
    return lab.near(data["equal"]["kept"], equal_share(config, data), WITHIN, f"{WITHIN:g}")


@states("power-law", rivals=OF_LAW, post_hoc=OTHER_LAW)
def power_law_signals(config: Config, data: Data) -> lab.Relation:
    """Of signals 3/k^(1/4) in all directions of n × 2n matrices each keeps the predicted share, to
    0.015.
    """
    return lab.near(data["power"]["kept"], power_law_share(config, data), WITHIN, f"{WITHIN:g}")


def figure(config: Config, data: Data) -> Figure:
    """Plot what is kept of equal signals, by rank, and of each signal of the power law."""
    drawn = Figure(figsize=(11, 4.2), layout="constrained")
    left, right = drawn.subplots(1, 2)
    for share, color in zip(SHARES, COLORS, strict=False):
        found = data["equal"]["kept"].sel(share=share, drop=True)
        draw_points(left, found, color, f"{share:g} of all directions")
        left.plot(found.theta, equal_share(config, data).sel(share=share), color=color)
    law = data["power"]["kept"]
    draw_points(right, law, COLORS[0], f"3/k^(1/4), {config.n} × {2 * config.n}")
    right.plot(law.theta, power_law_share(config, data), color=COLORS[0])
    for axes, part, columns in ((left, "equal", 1), (right, "power", 2)):
        single = alone(config, data, part, columns)
        single = single.isel(share=0) if part == "equal" else single
        axes.plot(single.theta, single, "k--", linewidth=1, label="each as if alone")
        axes.set(xlabel="strength of the signal, θ", ylabel="share that is kept")
        axes.legend(fontsize="small")
    left.set_title("equal signals; lines through what is predicted")
    right.set_title("a power law in all directions")
    return drawn


EXPERIMENT = lab.Experiment(
    "polar-rank",
    lab.ledger.Ledger.from_conjectures(
        "polar-rank",
        equal="Signals of a rank that grows with n keep shares that one integral gives for all.",
        power_law="So do signals of full rank and a power law, in matrices that are not square.",
    ),
    title="What the polar factor keeps of signals of large rank",
    summary=(
        "Strong signals leave less room to the noise: the share of each that Muon's step keeps has"
        " one formula for any spectrum, and is larger than that of the signal alone."
    ),
    config=Config,
    measure={"equal": run_equal, "power": run_power},
    statements=states,
    headlines=("power-law-signals",),
    headlines_read=("power",),
    figure=figure,
    scales={"smoke": {"n": 12, "seeds": 200}, "paper": {"seed": 9, "n": 64, "seeds": 4000}},
)
