"""The error of methods for the polar factor, by width and condition number of the matrix."""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt

from specjax import fits, lab, sizes, spectral, sweep
from specjax.spectral.polar_error import factor_error

METHODS = {
    "Muon, 5 steps": spectral.NewtonSchulz(5),
    "Polar Express, 8 steps": spectral.PolarExpress(8),
    "QDWH": spectral.QDWH(),
}


def measure(key, width, kappa):  # ‖O - U Vᵀ‖ / √width, for singular values from 1 down to 1/κ
    keys, values = jax.random.split(key), kappa ** -jnp.linspace(0, 1, width)
    u, v = (jnp.linalg.qr(sizes.normal(key, (width, width)))[0] for key in keys)
    x = (u * values[None, :]) @ v.T
    return {n: factor_error(spectral.polar(x, m), u @ v.T).distance for n, m in METHODS.items()}


def draw(widths, seeds):
    over = {"width": sweep.widths(*widths), "kappa": sweep.values(10.0, 100.0, 1000.0, 10_000.0)}
    data = sweep.run(measure, over, num_seeds=seeds, key=jax.random.key(0))
    _, axes = plt.subplots(1, 2, sharey=True, figsize=(10, 4), layout="constrained")
    for name in METHODS:
        found = lab.below(data[name], 0.01, "one per cent").judge({})
        fit = fits.fit_power_law(data[name].sel(kappa=1000), "width")
        print(f"{name}: below 1 % at every width and κ is {found.verdict}; at κ = 1000 {fit}")
        data[name].mean("seed").isel(width=-1).plot(ax=axes[0], marker="o", label=name)
        data[name].mean("seed").sel(kappa=1000).plot(ax=axes[1], marker="o", label=name)
    axes[0].set(xscale="log", yscale="log", ylabel="distance", title=f"width {widths[-1]}")
    axes[1].set_xscale("log", base=2)
    axes[1].set(title="κ = 1000", ylabel="")
    axes[1].legend(loc="center left")


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    add, small = parser.add_argument, [8, 16, 24, 32]
    add("--seeds", type=int, default=10, help="matrices of each width and κ, %(default)s")
    add("--widths", type=int, nargs="+", default=[16, 32, 64, 128, 256], help="%(default)s")
    add("--smoke", dest="widths", action="store_const", const=small, help="the widths %(const)s")
    add("--out", type=Path, default="results/polar_error.png", help="%(default)s")
    args = parser.parse_args(argv)
    try:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        draw(args.widths, args.seeds)
    except (OSError, ValueError) as mistake:
        parser.error(str(mistake))
    plt.savefig(args.out, bbox_inches="tight")


if __name__ == "__main__":
    main()
