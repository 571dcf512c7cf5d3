"""Whether G Gᵀ becomes diagonal as a network widens, in expectation and in the sample of a step."""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt

from specjax import fits, lab, spectral, sweep, theory
from specjax.models import matrix_factorization, relu_network, targets

PHI = targets.sign_target(jax.random.key(1), 6, 8)  # a network learns Φ, a factorization Φ Φᵀ
EXPECTED = {  # E[G Gᵀ] at a width, in closed form
    "factorization": lambda k: theory.matrix_factorization.expected_outer_product(PHI @ PHI.T, k),
    "ReLU network": lambda k: theory.relu_network.expected_outer_product_2(PHI, k),
}


def measure(key, width):  # of G Gᵀ for U, and for the last layer of the network
    weights = relu_network.init(key, 8, width, 6)
    of_u = matrix_factorization.gradient(weights.w2, PHI @ PHI.T)
    of_w2 = relu_network.gradient(weights, PHI).w2
    products = zip(EXPECTED, (of_u @ of_u.T, of_w2 @ of_w2.T), strict=True)
    return {name: spectral.dominance_ratio(p) for name, p in products}


def draw(widths, seeds):
    over = {"width": sweep.widths(*widths)}
    data = sweep.run(measure, over, num_seeds=seeds, key=jax.random.key(0))
    for name, form in EXPECTED.items():
        expected = [spectral.dominance_ratio(jnp.asarray(form(k), jnp.float32)) for k in widths]
        fit = fits.asymptotic_exponent(data[name], "width")
        found = lab.scales_as(data[name], "width", -0.5).judge({"1/width": -1.0, "no fall": 0.0})
        print(f"{name}, width {widths[-1]}: {fit.means[-1]:.3f}; expected {expected[-1]:.4f}")
        print(f"  {fit}; the exponent -1/2 is {found.verdict}")
        color = fits.draw_fit(fit, plt.gca()).lines[-1].get_color()
        plt.plot(widths, expected, "--", c=color, label=f"{name}, in expectation")
    plt.ylabel("mean |off-diagonal| / mean diagonal of G Gᵀ")
    plt.legend(bbox_to_anchor=(1, 1))


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    add, small = parser.add_argument, [4, 8, 16, 32, 64]
    add("--seeds", type=int, default=4000, help="initializations at every width, %(default)s")
    add("--widths", type=int, nargs="+", default=[16, 32, 64, 128, 256], help="%(default)s")
    add("--smoke", dest="widths", action="store_const", const=small, help="the widths %(const)s")
    add("--out", type=Path, default="results/diagonal_dominance.png", help="%(default)s")
    args = parser.parse_args(argv)
    try:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        draw(args.widths, args.seeds)
    except (OSError, ValueError) as mistake:
        parser.error(str(mistake))
    plt.savefig(args.out, bbox_inches="tight")


if __name__ == "__main__":
    main()
