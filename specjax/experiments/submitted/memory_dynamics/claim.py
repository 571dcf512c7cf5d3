"""Li et al. 2026, arXiv 2602.05725: Muon and gradient descent on a memory with softmax."""

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float, Key

from specjax import lab, sizes, spectral, sweep

claim = lab.read_claim(__file__)
_DISTANCE, _START, _RATE = 12.0, 0.1, 2.0
"""The sum of Muon's step lengths, the spread of logits at the start, the rate of descent."""
_POWER = float(np.log(3 / 2) / np.log(2))
"""The fall of a power of the time in the third quarter over that in the second, in logarithms."""


class Config(lab.Config):
    """Items, frequencies, lengths of training and label noise."""

    items: int = lab.config.integer(32, least=8, help="items of Muon's memory")
    descent_items: int = lab.config.integer(256, least=32, help="items of gradient descent's")
    exponents: tuple[float, ...] = lab.config.numbers(2.0, 3.0, above=1, help="β of j^-β")
    lengths: tuple[int, ...] = lab.config.sizes(16, 32, 64, 128, 256, help="steps of a training")
    noise: float = lab.config.number(0.2, above=0, help="share of labels that are random")
    seeds: int = lab.config.seeds(16)


def excess_loss(w: Float[Array, "k k"], beta: Float[Array, ""], noise: float) -> Float[Array, ""]:
    """The loss of logits (answer, question) above its infimum."""
    p = jnp.arange(1.0, len(w) + 1) ** -beta
    target = (1 - noise) * jnp.eye(len(w)) + noise / len(w)
    cross = jax.scipy.special.xlogy(target, target) - target * jax.nn.log_softmax(w, 0)
    return jnp.vdot(p, jnp.sum(cross, 0)) / jnp.sum(p)


def margins(w: Float[Array, "k k"]) -> Float[Array, "2"]:
    """Of the most frequent item and of the rarest."""
    others = jnp.where(jnp.eye(len(w), dtype=bool), -jnp.inf, w)
    return (jnp.diag(w) - jax.nn.logsumexp(others, 0))[jnp.array([0, -1])]


def run(config: Config, key: Key[Array, ""]) -> xr.Dataset:
    """Excess losses and what they say: exponents, evenness of the fall, gains in margin."""
    last = config.lengths[-1]

    def train(start: Array, beta: Array, noise: float, steps: int, polar: bool) -> dict[str, Array]:
        def step(w: Array, _: None) -> tuple[Array, tuple[Array, Array]]:
            gradient = jax.grad(excess_loss)(w, beta, noise)
            update = _DISTANCE / steps * spectral.polar(gradient) if polar else _RATE * gradient
            return w - update, (excess_loss(w - update, beta, noise), margins(w - update))

        _, (losses, ends) = jax.lax.scan(step, start, None, length=steps)
        logs = jnp.log(losses[jnp.array([1, 2, 3]) * steps // 4 - 1])
        gains = ends[steps // 4 - 1] - margins(start)
        return {
            "losses": losses,
            "fall": (logs[1] - logs[2]) / (logs[0] - logs[1]),
            "gains": gains[1] / gains[0],
        }

    def measure(key: Key[Array, ""], beta: float | Array) -> dict[str, dict[str, Array]]:
        def start(name: str, count: int) -> Float[Array, "k k"]:
            return _START * sizes.normal(sizes.stream(key, name), (count, count))

        beta = jnp.asarray(beta)
        small, large = start("muon", config.items), start("descent", config.descent_items)
        muon = train(small, beta, 0.0, last, polar=True)
        descent = train(large, beta, 0.0, last, polar=False)
        noisy = train(large, beta, config.noise, last, polar=False)["losses"]
        muon["losses"] = jnp.stack(
            [train(small, beta, config.noise, n, polar=True)["losses"][-1] for n in config.lengths]
        )
        descent["losses"] = noisy[jnp.array(config.lengths) - 1]
        for rule in (muon, descent):
            rule["exponent"] = jnp.log(rule["losses"][-1] / rule["losses"][-3]) / jnp.log(
                config.lengths[-1] / config.lengths[-3]
            )
        return {"muon": muon, "descent": descent}

    over = {"beta": sweep.choices(*config.exponents)}
    data = sweep.run(measure, over, num_seeds=config.seeds, key=key)
    return sweep.labelled(data, "length", length=list(config.lengths))


def half(name: str) -> lab.Control:
    """Muon's number over 2."""
    return lab.controls.replacing(f"muon.{name}", lambda data: data[f"muon.{name}"] / 2)


def exchanged(name: str) -> dict[str, lab.Control]:
    """Gradient descent in Muon's place."""
    return {"gradient descent": lab.controls.replacing(f"muon.{name}", f"descent.{name}")}


@claim.judges(
    "muon-is-balanced", rivals={"half": 0.5, "not at all": 0.0}, controls=exchanged("gains")
)
def is_balanced(_: Config, data: xr.Dataset) -> lab.Relation:
    """The rarest item's gain over the most frequent one's."""
    return lab.near(data["muon.gains"], 1.0, 0.2, "a fifth")


@claim.judges("muon-exponential", controls={"half": half("fall")} | exchanged("fall"))
def is_exponential(_: Config, data: xr.Dataset) -> lab.Relation:
    """An exponential falls by the same factor in both quarters, a power of the time by less."""
    return lab.above(data["muon.fall"], 0.9, "as far, less a tenth")


@claim.judges("descent-power", rivals={"exponential": 1.0, "a logarithm": 0.4})
def is_power(_: Config, data: xr.Dataset) -> lab.Relation:
    """A power of the time falls by log 3/2 in the third quarter where the second has log 2."""
    return lab.near(data["descent.fall"], _POWER, 0.1, "0.1")


@claim.judges(
    "noisy-descent", rivals={"half": lambda _, data: (1 / data.beta - 1) / 2, "T^-1": -1.0}
)
def noisy_descent(_: Config, data: xr.Dataset) -> lab.Relation:
    """The local exponent over the last two octaves."""
    return lab.near(data["descent.exponent"], 1 / data.beta - 1, 0.1, "0.1")


@claim.judges("noisy-muon", controls={"half": half("exponent")} | exchanged("exponent"))
def noisy_muon(_: Config, data: xr.Dataset) -> lab.Relation:
    """The local exponent over the last two octaves."""
    return lab.below(data["muon.exponent"], -1.0, "T^-1")


EXPERIMENT = claim.experiment(Config, run)
