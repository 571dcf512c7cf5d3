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
from specjax.experiments.beyond.noisy_polar import factor
from specjax.lab.drawing import draw_predicted
from specjax.theory import polar_signal

claim = lab.read_claim(__file__)
THETAS, SHARES = (0.5, 1.0, 2.0), (0.25, 0.5, 1.0)
"""Equal signals in units of the noise's norm, and the part of all directions that has them."""
STRONGEST, WITHIN, NOISE = 3.0, 0.015, 1.1
"""The largest signal of the power law, the error that is allowed, and the noise of a rival."""
COLUMNS = {"equal": 1, "power": 2}
"""Over rows."""
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
    return sweep.labelled(law.isel(strongest=0, drop=True), "theta", theta=list(power_law(n)))


def predicted(
    config: Config, data: Data, part: str, noise: float = 1.0, columns: int = 0
) -> xr.DataArray:
    """f of all signals together; `columns`, over the rows, are those of the data or of a rival."""
    n, like = config.n, data[part]["kept"].isel(seed=0, drop=True)
    equal = np.array(THETAS)[:, None, None] * (np.arange(n) < np.array(SHARES)[:, None] * n)
    signals = (equal if part == "equal" else power_law(n)) * (COLUMNS[part] * n) ** 0.5
    shares = polar_signal.kept_shares(signals, n, (columns or COLUMNS[part]) * n, noise)
    return like.copy(data=np.asarray(shares)[..., 0] if part == "equal" else np.asarray(shares))


def alone(config: Config, data: Data, part: str) -> xr.DataArray:
    """f of each signal as if it were the only one."""
    like, columns = data[part]["kept"].isel(seed=0, drop=True), float(COLUMNS[part])
    single = partial(polar_signal.kept_share, m=1.0, n=columns)
    return lab.closed_form(single, like.theta * columns**0.5) + xr.zeros_like(like)


def near_predicted(config: Config, data: Data, part: str) -> lab.Relation:
    """Of each signal, or of equal ones at each strength and rank."""
    return lab.near(data[part]["kept"], predicted(config, data, part), WITHIN, f"{WITHIN:g}")


def nearest(part: str) -> dict[str, Any]:
    """The nearest wrong numbers."""
    predicting = partial(predicted, part=part)
    square = {"square matrices": partial(predicting, columns=1)} if part == "power" else {}
    noisy = {"10 % more noise": partial(predicting, noise=NOISE)}
    return {"each alone": partial(alone, part=part)} | square | noisy


for part, name in {"equal": "equal-signals", "power": "power-law-signals"}.items():
    claim.judges(name, rivals=nearest(part))(partial(near_predicted, part=part))


def figure(config: Config, data: Data) -> Figure:
    """Plot what is kept of equal signals, by rank, and of each signal of the power law."""
    drawn = Figure(figsize=(11, 4.2), layout="constrained")
    titles = {
        "equal": "equal signals; lines through what is predicted",
        "power": "a power law in all directions",
    }
    for axes, (part, title) in zip(drawn.subplots(1, 2), titles.items(), strict=True):
        shares = [data[part]["kept"], predicted(config, data, part), alone(config, data, part)]
        if part == "power":
            shares = [each.expand_dims(share=[1.0]) for each in shares]
        found, lines, single = shares
        axes.plot(single.theta, single.isel(share=0), "k--", linewidth=1, label="each as if alone")
        draw_predicted(axes, found, lines, "theta", "share", "{:g} of all directions".format)
        axes.set(title=title, xlabel="strength of the signal, θ", ylabel="share that is kept")
    return drawn


EXPERIMENT = claim.experiment(
    Config,
    {"equal": run_equal, "power": run_power},
    figure=figure,
    headlines=("power-law-signals",),
    headlines_read=("power",),
)
