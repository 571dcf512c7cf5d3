"""An own optax transformation beside Muon: each at its best rate, over seeds and widths."""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import optax

from specjax import fits, lab, models, optim, sweep


def normalized_rows(rate, beta=0.9):  # momentum whose rows have the length 1: put yours here
    def update(gradient, momentum, _params=None):
        momentum = beta * momentum + (1 - beta) * gradient
        return -rate * momentum / optax.safe_norm(momentum, 1e-9, axis=1, keepdims=True), momentum

    return optax.GradientTransformation(jnp.zeros_like, update)


def measure(key, width, rate, name):  # ‖U Uᵀ - M‖ after 40 steps, U of 16 × width and M of rank 8
    optimizer = {"own": normalized_rows, "Muon": lambda r: optim.muon(r, scale="none")}[name](rate)
    problem = models.conditioned.wide_factorization(key, 10.0, 16, 8, width, 0.1)
    return {"error": models.conditioned.along(problem, optimizer, 40, problem.error)[-1]}


def draw(widths, seeds):
    over = {"width": sweep.widths(*widths), "rate": sweep.values(0.01, 0.02, 0.04, 0.08, 0.16)}
    over["name"] = sweep.choices("own", "Muon")
    error = sweep.run(measure, over, num_seeds=seeds, key=jax.random.key(0))["error"]
    best = error.isel(rate=error.mean("seed").argmin("rate"))
    own, muon = (best.sel(name=name).drop_vars("rate") for name in ("own", "Muon"))
    for name, values in (("own", own), ("Muon", muon)):
        fit = fits.fit_power_law(values.rename(name), "width")
        print(f"{name}, error at its best rate: {fit.means.round(3)}; {fit}")
        fits.draw_fit(fit, plt.gca()).set_ylabel("error ‖U Uᵀ - M‖")
    print("best rates:", best.rate.to_pandas(), sep="\n")
    ahead = lab.ahead(muon.drop_vars("name"), own.drop_vars("name"), least=0.01).judge({})
    print("own is ahead by 0.01 at every width:", ahead.verdict)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    add, small = parser.add_argument, [4, 8, 16, 32]
    add("--seeds", type=int, default=100, help="trainings of each point, %(default)s")
    add("--widths", type=int, nargs="+", default=[8, 16, 32, 64, 128], help="%(default)s")
    add("--smoke", dest="widths", action="store_const", const=small, help="the widths %(const)s")
    add("--out", type=Path, default="results/own_optimizer.png", help="%(default)s")
    args = parser.parse_args(argv)
    try:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        draw(args.widths, args.seeds)
    except (OSError, ValueError) as mistake:
        parser.error(str(mistake))
    plt.savefig(args.out, bbox_inches="tight")


if __name__ == "__main__":
    main()
