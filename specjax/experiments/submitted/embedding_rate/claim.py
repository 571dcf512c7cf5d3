"""Kalra and Barkeshli 2026, arXiv 2605.21486: what of μP is the rate of the embedding."""

from functools import partial

import jax
import jax.numpy as jnp
import optax
import xarray as xr
from jaxtyping import Array, Float, Key

from specjax import lab, sizes, sweep
from specjax.experiments.submitted.student_training import at_best_rate, inside

claim = lab.read_claim(__file__)
_CLASSES, _TEACHER, _BATCH, _TEST = 16, 16, 64, 1024
RULES = {"standard": (0.0, 0.0), "embedding": (1.0, 0.0), "output": (0.0, 1.0), "μP": (1.0, 1.0)}
"""Whether the embedding's rate is the same at all widths, and whether the output starts smaller by
a further width^-1/2. Both are in μP; all other rates fall as 1/width in every rule."""
EXCESSES = ("excess of embedding", "excess of output", "excess of standard")
COSTS = ("cost of embedding", "cost of standard", "cost of one rate")


class Config(lab.Config):
    """Tokens, widths, rates and lengths."""

    seed: int = lab.config.root_seed(1, help="root of all randomness; rules were set on 0")
    tokens: int = lab.config.integer(128, least=8, help="tokens, of frequencies 1/j")
    widths: tuple[int, ...] = lab.config.sizes(8, 64, help="widths of the network")
    rates: tuple[float, ...] = lab.config.grid(
        0.016, 0.032, 0.064, 0.128, 0.256, 0.512, help="rates at the least width"
    )
    lengths: tuple[int, ...] = lab.config.sizes(100, 200, help="steps of a training")
    seeds: int = lab.config.seeds(16)


def logits(weights: dict[str, Array], pairs: Float[Array, "batch t"]) -> Float[Array, "batch c"]:
    """Of a network on the sum of two tokens' embeddings, of which each place has its own."""
    hidden = jax.nn.relu(jax.nn.relu(pairs @ weights["embedding"]) @ weights["hidden"])
    return hidden @ weights["output"]


def start(key: Key[Array, ""], tokens: int, width: int) -> dict[str, Array]:
    """Weights as in the standard parametrization."""
    shapes = {"embedding": (2 * tokens, width), "hidden": (width,) * 2, "output": (width, _CLASSES)}
    normal = {name: sizes.normal(sizes.stream(key, name), shape) for name, shape in shapes.items()}
    return {name: w / (1 if name == "embedding" else width**0.5) for name, w in normal.items()}


def log_losses(
    config: Config, key: Key[Array, ""], width: int, rate: Float[Array, ""], rule: Array
) -> dict[str, Float[Array, " length"]]:
    """On fresh examples, after each length of a training."""
    tokens, least = config.tokens, config.widths[0]
    fixed, small = (jnp.array(column)[rule] for column in zip(*RULES.values(), strict=True))
    teacher = start(sizes.stream(key, "teacher"), tokens, _TEACHER)

    def loss(weights: dict[str, Array], name: str, i: Array | int, count: int) -> Float[Array, ""]:
        drawn = jax.random.fold_in(sizes.stream(key, name), i)
        pairs = jax.random.categorical(drawn, -jnp.log(jnp.arange(1, tokens + 1)), shape=(count, 2))
        inputs = jnp.sum(jax.nn.one_hot(pairs + jnp.array([0, tokens]), 2 * tokens), 1)
        labels, found = jnp.argmax(logits(teacher, inputs), 1), logits(weights, inputs)
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(found, labels))

    slow = rate * least / width
    optimizer = optax.partition(
        {"embedding": optax.adamw(slow * (width / least) ** fixed), "rest": optax.adamw(slow)},
        {"embedding": "embedding", "hidden": "rest", "output": "rest"},
    )

    def step(carry: tuple, i: Array) -> tuple[tuple, None]:
        weights, state = carry
        gradients = jax.grad(loss)(weights, "batch", i, _BATCH)
        updates, state = optimizer.update(gradients, state, weights)
        return (optax.apply_updates(weights, updates), state), None

    weights = start(sizes.stream(key, "start"), tokens, width)
    weights["output"] = weights["output"] * (least / width) ** (small / 2)
    carry, ends, last = (weights, optimizer.init(weights)), jnp.zeros(0), 0
    for length in config.lengths:
        carry = jax.lax.scan(step, carry, jnp.arange(last, length))[0]
        ends, last = jnp.append(ends, loss(carry[0], "test", 0, _TEST)), length
    return {"loss": jnp.log(ends)}


def run(config: Config, key: Key[Array, ""]) -> xr.Dataset:
    """Gains over the standard parametrization, and costs of the narrowest network's rate."""
    over = {"width": sweep.choices(*config.widths), "rate": sweep.values(*config.rates)}
    over["rule"] = sweep.values(*range(len(RULES)))
    found = sweep.run(partial(log_losses, config), over, num_seeds=config.seeds, key=key)
    losses = sweep.labelled(found, "length", length=list(config.lengths), rule=list(RULES))["loss"]
    (best, place), least = at_best_rate(losses), losses.isel(width=0).mean("seed")
    best = best.isel(width=-1, drop=True)

    def cost(rule: str, factor: float = 1.0) -> xr.DataArray:
        """Of the least width's best rate times a factor, at most the largest of the grid."""
        rate = factor * least.sel(rule=rule).idxmin("rate")
        there = losses.isel(width=-1).sel(rule=rule).sel(rate=rate, method="nearest")
        return (there - best.sel(rule=rule)).drop_vars(("rate", "width", "rule"))

    gains = (best.sel(rule="standard", drop=True) - best).to_dataset("rule")
    data = dict(gains) | {f"excess of {rule}": gains[rule] - gains["μP"] / 2 for rule in RULES}
    data |= {f"cost of {rule}": cost(rule) for rule in ("standard", "embedding")}
    data["cost of one rate"] = cost("standard", config.widths[-1] / config.widths[0])
    return xr.Dataset(data | {"place": place})


def controls(target: str, *others: str) -> dict[str, lab.Control]:
    """Other numbers in the place of one."""
    return {other: lab.controls.replacing(target, other) for other in others}


@claim.judges("mup-gains", controls=controls("μP", "standard", "output"))
def mup_gains(config: Config, data: xr.Dataset) -> lab.Relation:
    """In natural logarithms, at the largest width."""
    return inside(lab.above(data["μP"], 0.02, "2 % of the loss"), config.rates, data)


@claim.judges("embedding-suffices", controls=controls(*EXCESSES))
def embedding_suffices(config: Config, data: xr.Dataset) -> lab.Relation:
    """In natural logarithms, at the largest width."""
    return inside(lab.above(data[EXCESSES[0]], 0.0, "half of μP's gain"), config.rates, data)


@claim.judges("rate-transfers", controls=controls(*COSTS))
def rate_transfers(config: Config, data: xr.Dataset) -> lab.Relation:
    """In natural logarithms, at the largest width."""
    return inside(lab.below(data[COSTS[0]], 0.05, "5 % of the loss"), config.rates, data)


EXPERIMENT = claim.experiment(Config, run)
