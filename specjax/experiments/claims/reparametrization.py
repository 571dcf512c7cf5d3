"""Claim 12 and the preamble's natural gradient: gradients and steps in φ = M^p θ."""

import jax
import jax.numpy as jnp
import xarray as xr
from jaxtyping import Array, Key

from specjax import lab, sizes, spectral, sweep
from specjax.experiments.claims.matrices import cosine, normals, relative, symmetric_exponential
from specjax.experiments.claims.measured_claims import Measured
from specjax.experiments.ledgers import ledger
from specjax.theory.second_moment import symmetric_power

SIZE, OBSERVATIONS = 4, 16
PAST = 32
"""Number of gradients for estimating the second moment."""


class Config(lab.Config):
    """Problems on which an identity is tried, and number of whitened gradients."""

    columns: tuple[int, ...] = lab.config.sizes(
        16, 32, 64, 128, 256, least=SIZE, points=5, help="columns of a gradient"
    )
    matrices: int = lab.config.seeds(200, least=20, help="random problems")
    gradients: int = lab.config.seeds(
        2000, least=100, help="gradients that are whitened at each number of columns"
    )


def run(config: Config, key: Key[Array, ""]) -> dict[str, xr.Dataset]:
    """Errors of powers of M for gradients and steps, of Muon, and of the natural gradient."""

    def steps(key: Key[Array, ""], spread: Array) -> dict[str, Array]:
        theta, target, slopes, exponent = normals(key, (SIZE,), (SIZE,), (SIZE, SIZE), (SIZE, SIZE))
        m = symmetric_exponential(exponent, spread)

        def loss(at: Array) -> Array:
            return jnp.sum(jnp.logaddexp(slopes @ at - target, target - slopes @ at))

        def move_phi(p: float) -> tuple[Array, Array]:
            """The gradient in φ = M^p θ, and how θ moves in a step -∇_φ ℓ of φ."""
            back = symmetric_power(m, -p)
            gradient = jax.grad(lambda phi: loss(back @ phi))(symmetric_power(m, p) @ theta)
            return gradient, -back @ gradient

        gradient = jax.grad(loss)(theta)
        phi_gradient, moved = move_phi(0.5)
        _, moved_by_quarter = move_phi(0.25)
        powers = {p: symmetric_power(m, p) for p in (-1.0, -0.5, 0.5)}
        return {
            "chain_rule": relative(phi_gradient, powers[-0.5] @ gradient),
            "as_printed": relative(powers[-0.5] @ phi_gradient, gradient),
            "inverted": relative(powers[0.5] @ phi_gradient, gradient),
            "half_step": relative(moved, -powers[-0.5] @ gradient),
            "full_step": relative(moved, -powers[-1.0] @ gradient),
            "quarter_step": relative(moved_by_quarter, -powers[-0.5] @ gradient),
        }

    def whitening(key: Key[Array, ""], columns: sizes.AnySize) -> dict[str, Array]:
        keys = [sizes.stream(key, name) for name in ("covariance", "past", "gradient")]
        root = symmetric_exponential(jax.random.normal(keys[0], (SIZE, SIZE)), 0.5)
        past = root[None] @ sizes.normal(keys[1], (PAST, SIZE, columns))
        gradient = root @ sizes.normal(keys[2], (SIZE, columns))
        m = jnp.mean(past @ jnp.swapaxes(past, -1, -2), axis=0)
        whitened = symmetric_power(m, -0.5) @ gradient

        def changed(g: Array) -> Array:
            return jnp.linalg.norm(spectral.polar(g) - g) / jnp.sqrt(jnp.asarray(SIZE, g.dtype))

        return {
            "residual": changed(whitened),
            "unwhitened": changed(
                gradient * (jnp.linalg.norm(whitened) / jnp.linalg.norm(gradient))
            ),
        }

    def natural(key: Key[Array, ""], spread: Array) -> dict[str, Array]:
        theta, target, features, exponent = normals(
            key, (SIZE,), (OBSERVATIONS,), (OBSERVATIONS, SIZE), (SIZE, SIZE)
        )
        coordinates = symmetric_exponential(exponent, spread / 2)

        def directions(change: Array) -> dict[str, Array]:
            """Steps of θ = change · φ in a normal regression of unit variance, by two rules."""
            at = jnp.linalg.solve(change, theta)

            def divergence(moved: Array) -> Array:
                return 0.5 * jnp.sum((features @ change @ (moved - at)) ** 2)

            gradient = jax.grad(lambda phi: 0.5 * jnp.sum((features @ change @ phi - target) ** 2))(
                at
            )
            # The scores at unit noise, of which M is the second moment: one column for each
            # observation.
            scores = (features @ change).T
            m = scores @ scores.T
            return {
                "steepest": change @ jnp.linalg.solve(jax.hessian(divergence)(at), gradient),
                "inverse": change @ symmetric_power(m, -1.0) @ gradient,
                "root": change @ symmetric_power(m, -0.5) @ gradient,
            }

        here, there = directions(jnp.eye(SIZE)), directions(coordinates)
        return {
            **{
                f"{rule}_misaligned": jnp.abs(1 - cosine(here[rule], here["steepest"]))
                for rule in ("inverse", "root")
            },
            **{
                f"{rule}_depends": relative(there[rule], here[rule]) for rule in ("inverse", "root")
            },
        }

    spreads, columns = (
        {"spread": sweep.values(0.3, 1.0)},
        {"columns": sweep.widths(*config.columns)},
    )
    with jax.enable_x64(True):
        wide = lab.seeded_sweep(key, "whitening", whitening, config.gradients, **columns)
        return {
            "whitening": wide,
            "steps": lab.seeded_sweep(key, "steps", steps, config.matrices, **spreads),
            "natural": lab.seeded_sweep(key, "natural", natural, config.matrices, **spreads),
        }


states = lab.Statements()
STEPS, NATURAL = (
    Measured(states, "steps", rounding=1e-9),
    Measured(states, "natural", rounding=1e-9),
)
GRADIENT, HALF = "claim-12", "claim-12-half-whitening"

INVERSE, ROOT = (
    {"M⁻¹ ∇L": "inverse_misaligned"},
    {f"inverse_{x}": f"root_{x}" for x in ("misaligned", "depends")},
)
NATURAL.agree(
    "inverse-root-is-natural", "preamble-natural-gradient", "root_misaligned", INVERSE, holds=False
)(
    "M^(-1/2) ∇L, with M the second moment of the scores, is the direction of steepest descent in"
    " Kullback–Leibler divergence."
)
NATURAL.agree(
    "inverse-is-natural",
    "preamble-natural-gradient",
    tuple(ROOT),
    {"M^(-1/2) ∇L": ROOT},
    corrected=True,
)("M⁻¹ ∇L = F⁻¹ ∇L is that direction, and it moves the model alike in all coordinates.")
STEPS.agree("chain-rule", GRADIENT, "chain_rule", {"as printed": "as_printed"})(
    "For φ = M^(1/2) θ the chain rule gives ∇_φ ℓ = M^(-1/2) ∇_θ ℓ, as the justification begins."
)
STEPS.agree("gradient-as-printed", GRADIENT, "as_printed", {"M^(+1/2)": "inverted"}, holds=False)(
    "For φ = M^(1/2) θ, ∇_θ ℓ = M^(-1/2) ∇_φ ℓ."
)
STEPS.agree("gradient", GRADIENT, "inverted", {"M^(-1/2)": "as_printed"}, corrected=True)(
    "For φ = M^(1/2) θ, ∇_θ ℓ = M^(+1/2) ∇_φ ℓ."
)
STEPS.agree("half-whitening", HALF, "half_step", {"φ = M^(1/4) θ": "quarter_step"}, holds=False)(
    "A gradient step in φ = M^(1/2) θ moves θ by -M^(-1/2) ∇_θ ℓ."
)
STEPS.agree("full-whitening", HALF, "full_step", {"M^(-1/2)": "half_step"}, corrected=True)(
    "It moves θ by -M⁻¹ ∇_θ ℓ, the full whitening."
)
STEPS.agree("quarter-power", HALF, "quarter_step", {"φ = M^(1/2) θ": "half_step"}, corrected=True)(
    "Half-whitening is a gradient step in φ = M^(1/4) θ."
)

# Small where a gradient has many columns: the covariance is any, and estimated.
WHITENING, FALLS = Measured(states, "whitening"), {"it does not fall": 0.0, "1/n": -1.0}
CONTROL = {"without whitening": "unwhitened"}
WHITENING.power(
    "columns", -0.5, "residual", "claim-12-residual", "residual", CONTROL, rivals=FALLS
)(
    "Of a gradient of mean 0 that is whitened by the second moment of other gradients, Muon changes"
    " a share that falls as n^(-1/2) with its columns n."
)


EXPERIMENT = lab.Experiment(
    "claims-reparametrization",
    ledger("claims"),
    title="A step in the coordinates M^(1/2) θ whitens fully; the natural gradient is F⁻¹ ∇L",
    summary=(
        "∇_θ ℓ = M^(+1/2) ∇_φ ℓ for φ = M^(1/2) θ, so a step in φ is M⁻¹ ∇_θ ℓ; half-whitening is φ"
        " = M^(1/4) θ."
    ),
    config=Config,
    measure=run,
    statements=states,
    scales={
        "smoke": {"matrices": 20, "gradients": 200},
        "paper": {"matrices": 1000, "gradients": 20_000},
    },
)
