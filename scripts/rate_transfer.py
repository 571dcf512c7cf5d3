"""Whether a narrow transformer's best rate of the matrices is right in wide ones: Muon, AdamW."""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import optax

from specjax import optim, scaling
from specjax.models.transformer import Architecture, Sequences, init, labels, loss

TOKENS, CONTEXT, BATCH = 32, 16, 16
LOGITS = 2 * jax.random.normal(jax.random.key(1), (TOKENS, TOKENS))  # the Markov chain to learn
OTHER = optax.adamw(0.01)  # of embeddings, positions and the last layer
FORM = {"scale": "sqrt_out_over_in", "muon_weight_dimension_numbers": optim.OUT_IN}
OPTIMIZERS = {
    "Muon": lambda rate: optim.muon(rate, labels=labels, fallback=OTHER, **FORM),
    "AdamW": lambda rate: optax.partition({"matrix": optax.adamw(rate), "other": OTHER}, labels),
}
RATES = {"Muon": [0.01 * 2.0**k for k in range(6)], "AdamW": [0.0025 * 2.0**k for k in range(6)]}


def build(key, width):
    return init(key, Architecture(TOKENS, width, CONTEXT, heads=width // 8))


def batch(key):
    noise = jax.random.gumbel(key, (CONTEXT + 1, BATCH, TOKENS))
    step = jax.vmap(lambda token, noise: 2 * (jnp.argmax(LOGITS[token] + noise),))
    return Sequences(jax.lax.scan(step, jnp.zeros(BATCH, int), noise)[1].T)


def draw(widths, seeds):
    common = {"widths": widths, "batch": batch, "steps": 25, "num_seeds": seeds, "widen": 1}
    for name, ax in zip(OPTIMIZERS, plt.subplots(1, 2, figsize=(11, 4.5))[1], strict=True):
        found = scaling.transfer(build, loss, OPTIMIZERS[name], rates=RATES[name], **common)
        found.plot(ax).set_xlabel(f"rate of the matrices, {name}")
        print(name, found, sep="\n")


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    add, small = parser.add_argument, [8, 16]
    add("--seeds", type=int, default=12, help="trainings of each point, %(default)s")
    add("--widths", type=int, nargs="+", default=[16, 32, 64], help="multiples of 8, %(default)s")
    add("--smoke", dest="widths", action="store_const", const=small, help="the widths %(const)s")
    add("--out", type=Path, default="results/rate_transfer.png", help="%(default)s")
    args = parser.parse_args(argv)
    try:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        draw(args.widths, args.seeds)
    except (OSError, ValueError) as mistake:
        parser.error(str(mistake))
    plt.savefig(args.out, bbox_inches="tight")


if __name__ == "__main__":
    main()
