"""The off-diagonal of E[G₁ G₁ᵀ] in a two-layer ReLU network is d₀ d₂/4π at every size.

The paper writes it as d₀ d₂ κ₂(d₀) + O(d₂ √d₀). Its κ₂ tends to 1/4π, and d₀ (1/4π - κ₂) to 1/8π:
so the statement with its remainder is true, the remainder is O(d₂), and it brings the sum to d₀
d₂/4π exactly. The two differ most in small input dimensions. κ₁ and κ₂ are measured on their own,
and so is what the off-diagonal comes from: an odd activation has none.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Key
from scipy.special import gammaln

from specjax import lab, sizes, spectral, sweep
from specjax.experiments.ledgers import ledger
from specjax.experiments.outer_product.statistics import gram
from specjax.models import relu_network
from specjax.theory import relu_network as theory


class Config(lab.Config):
    """Input dimensions and seeds; d₁ and Φ are small, since the expectation ignores them."""

    d0s: tuple[int, ...] = lab.config.sizes(2, 3, 4, 6, 9, least=2, help="input dimensions")
    d1: int = lab.config.integer(6, least=2, help="hidden units")
    seeds: int = lab.config.seeds(200_000)
    angle_d0s: tuple[int, ...] = lab.config.sizes(
        8, 16, 32, 64, 128, least=2, points=5, help="input dimensions of κ₁ and κ₂"
    )
    angle_seeds: int = lab.config.seeds(20_000, help="pairs of vectors at each of angle_d0s")
    activation_seeds: int = lab.config.seeds(100_000, help="initializations with other activations")
    samples: int = lab.config.integer(
        8,
        least=1,
        most=lab.config.MOST_COUNT,
        help="inputs of a half batch, with other activations",
    )


Data = dict[str, xr.Dataset]
LIMITS = {"κ₁": 1 / (4 * np.pi**2) + 1 / 16, "κ₂": 1 / (4 * np.pi)}
states = lab.Statements()


def run(config: Config, key: Key[Array, ""]) -> Data:
    """The off-diagonal mean of G₁G₁ᵀ at d₂ = 1, Φ = 0; κ₁ and κ₂; and other activations."""

    def angles(key: Key[Array, ""], d0: sizes.AnySize) -> dict[str, Array]:
        u, v = sizes.normal(key, (2, d0))
        cosine = jnp.sum(u * v) / (jnp.linalg.norm(u) * jnp.linalg.norm(v))
        sine = jnp.sqrt(1 - cosine**2)
        # Averaged over the sign of v, which maps θ to π - θ and preserves the law of the weights.
        both = jnp.stack([jnp.arccos(cosine), np.pi - jnp.arccos(cosine)])
        mixed = sine * jnp.stack([cosine, -cosine]) * (np.pi - both) / (2 * np.pi**2)
        return {
            "κ₁": jnp.mean((sine**2 + (np.pi - both) ** 2) / (4 * np.pi**2) + mixed),
            "κ₂": jnp.mean(sine * (np.pi - both)) / (2 * np.pi**2),
        }

    def activations(key: Key[Array, ""], d0: sizes.AnySize) -> dict[str, Array]:
        params = relu_network.init(sizes.stream(key, "weights"), d0, config.d1, 1)
        halves = sizes.normal(sizes.stream(key, "inputs"), (2 * config.samples, d0)).reshape(
            2, config.samples, -1
        )

        def off_diagonal(activation: Callable[[Array], Array]) -> Array:
            def loss(w1: Array, x: Array) -> Array:
                return jnp.mean((activation(x @ w1.T) @ params.w2.T) ** 2) / 2

            first, second = (jax.grad(loss)(params.w1, x) for x in halves)
            return spectral.dominance.off_diagonal_mean(first @ second.T)

        # The second is the first without its symmetry.
        return {
            "odd": off_diagonal(jnp.tanh),
            "rectified": off_diagonal(lambda z: jnp.tanh(jax.nn.relu(z))),
        }

    def measure(key: Key[Array, ""], d0: sizes.AnySize) -> dict[str, Array]:
        params = relu_network.init(key, d0, config.d1, 1)
        gradient = relu_network.gradient(params, jnp.zeros((1, sizes.padded(d0))))
        return {"off_diagonal": spectral.dominance.off_diagonal_mean(gram(gradient.w1))}

    d0s, angle_d0s = ({"d0": sweep.widths(*d0s)} for d0s in (config.d0s, config.angle_d0s))
    weights, pairs, others = (
        sizes.stream(key, name) for name in ("weights", "angles", "activations")
    )
    return {
        "relu": sweep.run(measure, d0s, num_seeds=config.seeds, key=weights),
        "angles": sweep.run(angles, angle_d0s, num_seeds=config.angle_seeds, key=pairs),
        "activations": sweep.run(activations, d0s, num_seeds=config.activation_seeds, key=others),
    }


def exact(config: Config, data: Data) -> xr.DataArray:
    """d₀/4π."""
    return lab.closed_form(theory.off_diagonal_1, data["relu"].d0, 1)


def leading(config: Config, data: Data) -> xr.DataArray:
    """d₀ κ₂(d₀)."""
    return lab.closed_form(theory.off_diagonal_1_as_printed, data["relu"].d0, 1)


@states(
    ("eq-40", "table-c7-theory"),
    corrected=True,
    rivals={
        "d₀ d₂ κ₂": leading,
        "its limit for small d₀, d₂ κ₂": (
            lambda config, data: leading(config, data) / data["relu"].d0
        ),
    },
)
def off_diagonal(config: Config, data: Data) -> lab.Relation:
    """The off-diagonal of E[G₁G₁ᵀ] is d₀ d₂/4π at every input dimension."""
    return lab.equals(data["relu"]["off_diagonal"], exact(config, data))


@states("table-c7-theory", holds=False, rivals={"d₀ d₂/4π": exact})
def leading_term_alone(config: Config, data: Data) -> lab.Relation:
    """The leading term d₀ d₂ κ₂ alone, which the table takes for theory, is the off-diagonal of
    E[G₁G₁ᵀ] at every input dimension.
    """
    return lab.equals(data["relu"]["off_diagonal"], leading(config, data))


@states(
    "eq-40",
    controls={
        "twice the off-diagonal": lab.controls.replacing(
            "off_diagonal", lambda data: 2 * data["off_diagonal"], of="relu"
        )
    },
)
def remainder(config: Config, data: Data) -> lab.Relation:
    """What is left beyond d₀ d₂ κ₂ is of lower order than d₂ √d₀: it is less than d₂/4π at every
    input dimension.
    """
    gap = data["relu"]["off_diagonal"] - leading(config, data)
    return lab.below(
        gap.rename("off-diagonal less d₀ d₂ κ₂"),
        1 / (4 * np.pi),
        "1/4π, the off-diagonal at d₀ = d₂ = 1",
    )


@states(
    "section-4-kappa-limits", rivals={"1/√d₀": -0.5, "no fall, another limit": 0.0, "1/d₀²": -2.0}
)
def kappa_limits(config: Config, data: Data) -> lab.Relation:
    """As d₀ → ∞ the constants κ₁ and κ₂ tend to 1/4π² + 1/16 and to 1/4π: what is left of either
    falls as 1/d₀.
    """
    # κ₁ tends to its limit from above, κ₂ from below.
    found = data["angles"].astype(float)
    left = xr.Dataset({"κ₁": found["κ₁"] - LIMITS["κ₁"], "κ₂": LIMITS["κ₂"] - found["κ₂"]})
    return lab.scales_as(left.to_dataarray("constant", "distance from the limit"), "d0", -1)


@states(
    "section-4-kappa-limits",
    corrected=True,
    rivals={
        "its limit 1/4π": LIMITS["κ₂"],
        "1/4π - 1/8π(d₀ - 2)": (
            lambda config, data: LIMITS["κ₂"] * (1 - 1 / (2 * (data["angles"].d0 - 2)))
        ),
        "d₀ + 1 for d₀": lambda config, data: kappa_2(data["angles"].d0 + 1),
    },
)
def kappa_2_exactly(config: Config, data: Data) -> lab.Relation:
    """At every input dimension κ₂ is Γ(d₀/2)²/(4π Γ((d₀-1)/2) Γ((d₀+1)/2))."""
    return lab.equals(data["angles"]["κ₂"], kappa_2(data["angles"].d0))


def kappa_2(d0: xr.DataArray) -> xr.DataArray:
    logarithm = 2 * gammaln(d0 / 2) - gammaln((d0 - 1) / 2) - gammaln((d0 + 1) / 2)
    return np.exp(logarithm) / (4 * np.pi)


@states(
    "appendix-c8-symmetry",
    rivals={"d₀/40π, a tenth of ReLU's": lambda config, data: exact(config, data) / 10},
    controls={
        "tanh of ReLU, which is not odd": lab.controls.replacing(
            "odd", "rectified", of="activations"
        )
    },
)
def odd_activation(config: Config, data: Data) -> lab.Relation:
    """The off-diagonal of E[G₁G₁ᵀ] comes from ReLU's lack of odd symmetry: with tanh, which is odd,
    it is zero at every input dimension.
    """
    return lab.equals(data["activations"]["odd"].rename("off-diagonal with tanh"), 0.0)


EXPERIMENT = lab.Experiment(
    "relu-off-diagonal",
    ledger("outer-product"),
    title="The off-diagonal of E[G₁G₁ᵀ] is d₀ d₂/4π, exactly",
    summary=(
        "d₀ d₂ κ₂ up to O(d₂ √d₀) is true of the off-diagonal of the first layer, and the remainder"
        " is no error term: it brings the sum to d₀ d₂/4π at every input dimension; an activation"
        " that is odd has no off-diagonal."
    ),
    config=Config,
    measure=run,
    statements=states,
    scales={
        "smoke": {"d0s": (2, 3), "seeds": 20_000, "angle_seeds": 2000, "activation_seeds": 5000},
        "paper": {
            "d0s": (2, 3, 5, 10, 25),
            "seeds": 4_000_000,
            "angle_seeds": 400_000,
            "activation_seeds": 2_000_000,
        },
    },
)
