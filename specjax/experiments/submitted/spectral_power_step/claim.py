"""Dong and Sawin 2026, arXiv 2606.13867: which norm makes U Sᵖ Vᵀ the steepest step."""

import jax
import jax.numpy as jnp
import optax
import xarray as xr
from jaxtyping import Array, Float, Key

from specjax import lab, sizes, spectral, sweep

claim = lab.read_claim(__file__)
_ROUNDING = 1e-5


class Config(lab.Config):
    """Gaussian gradients of n × n, and ascent over all matrices."""

    n: int = lab.config.integer(8, least=2, help="rows and columns of the gradient")
    powers: tuple[float, ...] = lab.config.numbers(
        0.25, 0.5, 0.75, above=0.0, help="p, between 0 and 1"
    )
    seeds: int = lab.config.seeds(100)
    steps: int = lab.config.integer(500, least=100, help="steps of the ascent")


def gain_of_power(
    s: Float[Array, " n"], power: Float[Array, ""], order: Float[Array, ""]
) -> Float[Array, ""]:
    """⟨G, X⟩ of X = U S^power Vᵀ with Schatten norm 1, for singular values up to 1."""
    step = s**power
    return jnp.sum(s * step) / jnp.sum(step**order) ** (1 / order)


def gain_by_ascent(
    key: Key[Array, ""], gradient: Float[Array, "n n"], order: Float[Array, ""], steps: int
) -> Float[Array, ""]:
    """The largest ⟨G, X⟩ / ‖X‖ on the path of Adam from a Gaussian X."""
    adam, rates = optax.scale_by_adam(), jnp.linspace(0.1, 0.0, steps)
    start = sizes.normal(key, gradient.shape)

    def loss(x: Float[Array, "n n"]) -> Float[Array, ""]:
        return -jnp.vdot(gradient, x) / spectral.schatten_norm(x, order)

    def step(carry: tuple, rate: Float[Array, ""]) -> tuple[tuple, Float[Array, ""]]:
        x, state = carry
        value, slope = jax.value_and_grad(loss)(x)
        direction, state = adam.update(slope, state)
        return (x - rate * direction, state), -value

    return jnp.max(jax.lax.scan(step, (start, adam.init(start)), rates)[1])


def run(config: Config, key: Key[Array, ""]) -> xr.Dataset:
    """Gains as shares of the dual norm."""

    def measure(key: Key[Array, ""], p: Float[Array, ""]) -> dict[str, Float[Array, ""]]:
        gradient = sizes.normal(sizes.stream(key, "gradient"), (config.n, config.n))
        gradient = gradient / spectral.spectral_norm(gradient)
        s, order = jnp.linalg.svdvals(gradient), 1 + 1 / p
        conjugate = order / (order - 1)
        dual = jnp.sum(s**conjugate) ** (1 / conjugate)
        gains = {
            "power": gain_of_power(s, p, order),
            "smaller power": gain_of_power(s, p - 0.1, order),
            "larger power": gain_of_power(s, p + 0.1, order),
            "order 1 + p": gain_of_power(s, p, 1 + p),
            "ascent": gain_by_ascent(sizes.stream(key, "start"), gradient, order, config.steps),
        }
        return {name: gain / dual for name, gain in gains.items()}

    over = {"p": sweep.values(*config.powers)}
    return sweep.run(measure, over, num_seeds=config.seeds, key=key)


@claim.judges(
    "gains-the-dual-norm",
    controls={
        name: lab.controls.replacing("power", name)
        for name in ("smaller power", "larger power", "order 1 + p")
    },
)
def gains_the_dual_norm(_: Config, data: xr.Dataset) -> lab.Relation:
    """The share of the dual norm is 1 to rounding."""
    return lab.zero_error(abs(1 - data["power"]), tolerance=_ROUNDING)


@claim.judges(
    "ascent-gains-no-more",
    controls={
        "a power 0.1 larger": lab.controls.replacing("power", "larger power"),
        "a power 0.1 smaller": lab.controls.replacing("power", "smaller power"),
    },
)
def ascent_gains_no_more(_: Config, data: xr.Dataset) -> lab.Relation:
    """The ascent is an independent search for a better step."""
    return lab.inequality(data["ascent"], data["power"], slack=0.02, rounding=_ROUNDING)


EXPERIMENT = claim.experiment(Config, run)
