"""Beneventano et al. 2026, arXiv 2606.08388: gradient descent with the step lengths of Muon."""

import jax
import jax.numpy as jnp
import xarray as xr
from jaxtyping import Array, Float, Key

from specjax import lab, sizes, spectral, sweep

claim = lab.read_claim(__file__)
_LEAST = 0.1
RULES = ("Muon", "norm-matched")


class Config(lab.Config):
    """Matrices of n × n from Gaussian measurements, fewer than the entries."""

    n: int = lab.config.integer(16, least=4, help="rows and columns of the matrix")
    shares: tuple[float, ...] = lab.config.numbers(
        0.25, 0.5, above=0.0, help="measurements over entries, below 1"
    )
    seeds: int = lab.config.seeds(100)
    steps: int = lab.config.integer(400, least=100, help="steps, whose lengths fall to 0")


def run(config: Config, key: Key[Array, ""]) -> xr.Dataset:
    """Entropy ranks of the solutions and losses over the first loss, in logarithms."""
    n = config.n
    rates = jnp.linspace(0.05, 0.0, config.steps)

    def measure(key: Key[Array, ""], share: float) -> dict[str, Float[Array, " rule"]]:
        count = round(share * n**2)
        probes = sizes.normal(sizes.stream(key, "probes"), (count, n, n)) / n
        left = sizes.normal(sizes.stream(key, "left"), (n, n // 4))
        right = sizes.normal(sizes.stream(key, "right"), (n // 4, n))
        values = jnp.einsum("kij,ij->k", probes, left @ right / n)

        def loss(w: Float[Array, "n n"]) -> Float[Array, ""]:
            return jnp.sum((jnp.einsum("kij,ij->k", probes, w) - values) ** 2) / 2

        def end(rule: str) -> Float[Array, "n n"]:
            def step(w: Array, rate: Array) -> tuple[Array, None]:
                gradient = jax.grad(loss)(w)
                polar = spectral.polar(gradient)
                if rule == "norm-matched":
                    length = jnp.linalg.norm(polar) / jnp.linalg.norm(gradient)
                    return w - rate * length * gradient, None
                return w - rate * polar, None

            return jax.lax.scan(step, jnp.zeros((n, n)), rates)[0]

        ends = jnp.stack([end(rule) for rule in RULES])
        first = loss(jnp.zeros((n, n)))
        return {
            "log rank": jnp.log(spectral.entropy_rank(ends)),
            "log loss": jnp.log10(jax.vmap(loss)(ends) / first),
        }

    over = {"share": sweep.choices(*config.shares)}
    found = sweep.run(measure, over, num_seeds=config.seeds, key=key)
    found = sweep.labelled(found, "rule", rule=list(RULES))
    ranks = found["log rank"]
    found["difference"] = ranks.sel(rule="Muon", drop=True) - ranks.sel(
        rule="norm-matched", drop=True
    )
    found["half"], found["none"] = found["difference"] / 2, 0 * found["difference"]
    return found


@claim.judges(
    "both-fit",
    controls={
        "a tenth of the first loss left": lab.controls.replacing(
            "log loss", lambda data: data["log loss"].clip(min=-1)
        ),
        "losses to the power of a quarter": lab.controls.replacing(
            "log loss", lambda data: data["log loss"] / 4
        ),
    },
)
def both_fit(_: Config, data: xr.Dataset) -> lab.Relation:
    """In decimal logarithms."""
    return lab.below(data["log loss"], -2, "1 % of the first loss")


@claim.judges(
    "flatter-than-norm-matched",
    controls={
        "half of the difference": lab.controls.replacing("difference", "half"),
        "norm-matched descent in Muon's place": lab.controls.replacing("difference", "none"),
        "the two exchanged": lab.controls.replacing("difference", lambda data: -data["difference"]),
    },
)
def flatter(_: Config, data: xr.Dataset) -> lab.Relation:
    """In natural logarithms, at every share of measurements."""
    return lab.above(data["difference"], _LEAST, "e^0.1")


EXPERIMENT = claim.experiment(Config, run)
