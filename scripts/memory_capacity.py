"""The items that an associative memory stores in one step, by dimension: gradient step and Muon."""

import argparse
from pathlib import Path

import jax
import matplotlib.pyplot as plt

from specjax import fits, lab, sweep
from specjax.models import associative_memory as memory
from specjax.theory import capacity, finite_capacity

N, ALPHA = 2000, 1.5  # items, and the power by which their frequencies fall
STEPS = {"gd": "gradient step", "muon": "Muon"}


def measure(key, d):  # items recovered by W after one step from zero on the exact gradient
    of_u, of_v = jax.random.split(key)
    u, v = memory.isotropic(of_u, N, d), memory.isotropic(of_v, N, d)
    steps = memory.one_step(u, v, memory.power_law(N, ALPHA), tuple(STEPS))
    counts = memory.count(memory.recovered(u, v, steps))
    return dict(zip(STEPS, counts.astype(float), strict=True))


def draw(widths, seeds):
    over = {"d": sweep.widths(*widths)}
    data = sweep.run(measure, over, num_seeds=seeds, key=jax.random.key(0))
    for name, label in STEPS.items():
        counts = [finite_capacity.expected_count(name, d, N, ALPHA) for d in widths]
        formula, limit = data.d.copy(data=counts), capacity.one_step_exponent(name, ALPHA)
        rival = {"the limit's power": counts[0] * (data.d / widths[0]) ** limit / formula}
        found = lab.near(data[name] / formula, 1.0, 0.2, "a fifth").judge(rival)
        fits.draw_fit(fit := fits.fit_power_law(data[name].rename(label), "d"), plt.gca())
        plt.plot(widths, counts, "k:")
        print(f"{label}: {fit.means[-1]:.1f} items at d = {widths[-1]}; {fit}")
        print(
            f"  the formula for these d, to a fifth: {found.verdict}; exponent at d = ∞ {limit:.2f}"
        )
    plt.gca().set(xlabel="dimension d", ylabel="items (dotted: closed form)")


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    add, small = parser.add_argument, [8, 16, 24, 32]
    add("--seeds", type=int, default=100, help="memories of each dimension, %(default)s")
    add("--widths", type=int, nargs="+", default=[24, 32, 48, 64, 96, 128], help="%(default)s")
    add("--smoke", dest="widths", action="store_const", const=small, help="the widths %(const)s")
    add("--out", type=Path, default="results/memory_capacity.png", help="%(default)s")
    args = parser.parse_args(argv)
    try:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        draw(args.widths, args.seeds)
    except (OSError, ValueError) as mistake:
        parser.error(str(mistake))
    plt.savefig(args.out, bbox_inches="tight")


if __name__ == "__main__":
    main()
