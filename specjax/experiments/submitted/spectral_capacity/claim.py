"""Jha and Reagen 2026, arXiv 2605.21803: width exponents of the hard rank of representations."""

import jax
import jax.numpy as jnp
import optax
import xarray as xr
from jaxtyping import Array, Float, Key
from matplotlib.figure import Figure

from specjax import fits, lab, sizes, spectral, sweep
from specjax.lab.drawing import draw_curves

claim = lab.read_claim(__file__)
_D, _CLASSES, _GAP = 16, 16, 1.02 - 0.44
METHODS = ("AdamW", "Muon")
Weights = dict[str, Float[Array, "_ _"]]


class Config(lab.Config):
    """Tokens with frequencies 1/j, widths of one hidden layer on 16 inputs, and lengths."""

    seed: int = lab.config.root_seed(1, help="root of all randomness; rules were set on 0")
    tokens: int = lab.config.integer(192, least=32, help="tokens, each with one class to predict")
    widths: tuple[int, ...] = lab.config.sizes(16, 32, 64, points=2, help="hidden units")
    lengths: tuple[int, ...] = lab.config.sizes(25, 100, 400, help="steps of a training")
    seeds: int = lab.config.seeds(48)


def hidden(weights: Weights, tokens: Float[Array, "n d"]) -> Float[Array, "n width"]:
    """What is represented of every token."""
    return jax.nn.relu(tokens @ weights["up"])


def hard_rank(rows: Float[Array, "n width"], p: Float[Array, " n"]) -> Float[Array, ""]:
    """(Σ λ)²/Σ λ² of the eigenvalues λ of the covariance of rows with frequencies p."""
    centered = rows - (p @ rows)[None]
    covariance = centered.T @ (p[:, None] * centered)
    return jnp.trace(covariance) ** 2 / jnp.sum(covariance**2)


def muon() -> optax.GradientTransformation:
    """The polar factor of the momentum, with the scale √(out/in)."""

    def scaled(updates: Weights, _: object) -> Weights:
        return jax.tree.map(lambda w: (w.shape[1] / w.shape[0]) ** 0.5 * spectral.polar(w), updates)

    return optax.chain(optax.trace(0.95), optax.stateless(scaled), optax.scale(-0.02))


def measure(config: Config, key: Key[Array, ""], width: int) -> dict[str, Array]:
    """Logarithms of the hard rank on rare tokens, and losses, by method and length."""
    n, p = config.tokens, 1 / jnp.arange(1, config.tokens + 1)
    p = p / jnp.sum(p)
    rare = jnp.where(jnp.cumsum(p) > 2 / 3, p, 0)
    tokens = sizes.normal(sizes.stream(key, "tokens"), (n, _D))
    classes = jax.random.randint(sizes.stream(key, "classes"), (n,), 0, _CLASSES)
    up = sizes.normal(sizes.stream(key, "up"), (width, _D)).T / _D**0.5
    down = sizes.normal(sizes.stream(key, "down"), (width, _CLASSES)) / width
    first = {"up": up, "down": down}

    def loss(weights: Weights) -> Float[Array, ""]:
        logits = hidden(weights, tokens) @ weights["down"]
        return p @ optax.softmax_cross_entropy_with_integer_labels(logits, classes)

    def along(method: str) -> dict[str, Float[Array, " length"]]:
        optimizer = muon() if method == "Muon" else optax.adamw(0.003, 0.9, 0.95, weight_decay=0.01)

        def step(_: Array, carry: tuple) -> tuple:
            updates, state = optimizer.update(jax.grad(loss)(carry[0]), carry[1], carry[0])
            return optax.apply_updates(carry[0], updates), state

        def until(carry: tuple, count: Array) -> tuple[tuple, dict[str, Array]]:
            carry = jax.lax.fori_loop(0, count, step, carry)
            rank = hard_rank(hidden(carry[0], tokens), rare / jnp.sum(rare))
            return carry, {"log rank": jnp.log(rank), "loss": loss(carry[0])}

        counts = jnp.diff(jnp.array((0, *config.lengths)))
        return jax.lax.scan(until, (first, optimizer.init(first)), counts)[1]

    start = jnp.log(hard_rank(hidden(first, tokens), rare / jnp.sum(rare)))
    found = jax.tree.map(lambda *of: jnp.stack(of), *map(along, METHODS))
    return {"log start": start} | found


def run(config: Config, key: Key[Array, ""]) -> xr.Dataset:
    """Exponents of the hard rank in the width, by method, length and network."""
    found = sweep.run(
        lambda key, width: measure(config, key, width),
        {"width": sweep.choices(*config.widths)},
        num_seeds=config.seeds,
        key=key,
    )
    data = sweep.labelled(
        found, "optimizer", "length", optimizer=list(METHODS), length=list(config.lengths)
    )
    slopes = {"exponent": "log rank", "start": "log start"}
    data = data.assign({name: fits.log_slopes(data[of], "width") for name, of in slopes.items()})
    adamw, of_muon = (data["exponent"].sel(optimizer=name, drop=True) for name in METHODS)
    return data.assign({"lead": of_muon - adamw, "change": adamw - data["start"]})


@claim.judges("no-lead", rivals={"the paper's lead": _GAP, "half of it": _GAP / 2})
def no_lead(_: Config, data: xr.Dataset) -> lab.Relation:
    """Of exponents of each network."""
    return lab.near(data["lead"], 0.0, _GAP / 4, f"{_GAP / 4:g}")


@claim.judges("adamw-keeps", rivals={"Muon's in the paper": _GAP, "no growth": -0.4})
def adamw_keeps(_: Config, data: xr.Dataset) -> lab.Relation:
    """Of exponents of each network."""
    return lab.near(data["change"], 0.0, 0.1, "0.1")


def figure(_: Config, data: xr.Dataset) -> Figure:
    """Exponents along trainings."""
    drawn = Figure(figsize=(6, 4), layout="constrained")
    axes = drawn.add_subplot(
        xlabel="steps", ylabel="width exponent of the hard rank", ylim=(0, 1.1)
    )
    draw_curves(axes, data["exponent"], "length", "optimizer", str)
    axes.axhline(float(data["start"].mean()), color="black", linewidth=1, label="untrained")
    for name, exponent in zip(METHODS, (0.44, 1.02), strict=True):
        axes.axhline(exponent, linestyle=":", color="gray")
        axes.annotate(f"{name} in the paper", (data.length.min(), exponent))
    axes.legend()
    return drawn


EXPERIMENT = claim.experiment(Config, run, figure=figure)
