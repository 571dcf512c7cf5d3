"""Claim 12: gradients and steps in whitened coordinates φ = M^p θ."""

import jax
import jax.numpy as jnp
from jaxtyping import Array
from matplotlib.axes import Axes

from specjax import spectral, sweep
from specjax.experiments.claims.contract import Claim, Config, corrected, printed
from specjax.experiments.claims.matrices import normals, relative, symmetric_exponential
from specjax.experiments.contract import Check, Data
from specjax.experiments.plots import draw_sweep, slope_label
from specjax.experiments.verdicts import equality_check, exponent_check
from specjax.sizes import AnySize, active, normal
from specjax.theory.second_moment import symmetric_power

SIZE = 4
COLUMNS = (16, 32, 64, 128, 256)
ROUNDING = 1e-9


def run_whitening(config: Config) -> Data:
    """Errors of the possible powers of M for gradients and steps, and what is left of Muon after whitening by E[G Gᵀ]."""

    def steps(key: Array, spread: Array) -> dict[str, Array]:
        theta, target, slopes, exponent = normals(key, (SIZE,), (SIZE,), (SIZE, SIZE), (SIZE, SIZE))
        m = symmetric_exponential(exponent, spread)

        def loss(at: Array) -> Array:
            return jnp.sum(jnp.logaddexp(slopes @ at - target, target - slopes @ at))

        def in_phi(p: float) -> tuple[Array, Array]:
            """The gradient in φ = M^p θ, and how θ moves in a step -∇_φ l of φ."""
            back = symmetric_power(m, -p)
            gradient = jax.grad(lambda phi: loss(back @ phi))(symmetric_power(m, p) @ theta)
            return gradient, -back @ gradient

        gradient = jax.grad(loss)(theta)
        phi_gradient, moved = in_phi(0.5)
        _, moved_by_quarter = in_phi(0.25)
        powers = {p: symmetric_power(m, p) for p in (-1.0, -0.5, 0.5)}
        return {
            "chain_rule": relative(phi_gradient, powers[-0.5] @ gradient),
            "as_printed": relative(powers[-0.5] @ phi_gradient, gradient),
            "inverted": relative(powers[0.5] @ phi_gradient, gradient),
            "half_step": relative(moved, -powers[-0.5] @ gradient),
            "full_step": relative(moved, -powers[-1.0] @ gradient),
            "quarter_step": relative(moved_by_quarter, -powers[-0.5] @ gradient),
        }

    def residual(key: Array, columns: AnySize) -> dict[str, Array]:
        # Whitened by its M^(-1/2), noise with independent columns of any covariance is white, of variance 1/n.
        n = jnp.asarray(active(columns), jnp.result_type(float))
        whitened = normal(key, (SIZE, columns)) / jnp.sqrt(n)
        return {"distance": jnp.linalg.norm(spectral.polar(whitened) - whitened) / jnp.sqrt(float(SIZE))}

    key = jax.random.key(config.seed)
    with jax.enable_x64(True):
        steps_data = sweep.run(steps, {"spread": sweep.values(0.3, 1.0)}, seeds=config.matrices, key=key)
    over = {"columns": sweep.widths(*COLUMNS)}
    return {
        "steps": steps_data,
        "residual": sweep.run(residual, over, seeds=config.gradients // 5, key=key, plan="padded"),
    }


def check_whitening(config: Config, data: Data) -> list[Check]:
    """Claim 12."""
    steps = data["steps"]
    return [
        equality_check(
            *corrected(
                12,
                "chain-rule",
                "For φ = M^(1/2) θ the chain rule gives ∇_φ l = M^(-1/2) ∇_θ l, as the justification begins.",
            ),
            error=steps["chain_rule"],
            control=steps["as_printed"],
            tolerance=ROUNDING,
        ),
        equality_check(
            *printed(12, "gradient", "For φ = M^(1/2) θ, ∇_θ l = M^(-1/2) ∇_φ l."),
            error=steps["as_printed"],
            control=steps["half_step"],
            tolerance=ROUNDING,
        ),
        equality_check(
            *printed(12, "half-whitening", "A gradient step in φ moves θ by -M^(-1/2) ∇_θ l."),
            error=steps["half_step"],
            control=steps["as_printed"],
            tolerance=ROUNDING,
        ),
        equality_check(
            *corrected(12, "gradient", "For φ = M^(1/2) θ, ∇_θ l = M^(+1/2) ∇_φ l."),
            error=steps["inverted"],
            control=steps["as_printed"],
            tolerance=ROUNDING,
        ),
        equality_check(
            *corrected(12, "full-whitening", "A gradient step in φ moves θ by -M⁻¹ ∇_θ l, the full whitening."),
            error=steps["full_step"],
            control=steps["half_step"],
            tolerance=ROUNDING,
        ),
        equality_check(
            *corrected(12, "quarter-power", "Half-whitening is a gradient step in φ = M^(1/4) θ."),
            error=steps["quarter_step"],
            control=steps["half_step"],
            tolerance=ROUNDING,
        ),
        exponent_check(
            *corrected(
                12,
                "residual",
                "What Muon changes of a gradient of mean 0 whitened by E[G Gᵀ] falls as n^(-1/2) with its columns n: small if n is large.",
            ),
            predicted=-0.5,
            resolution=0.25,
            fit=sweep.asymptotic_exponent(data["residual"]["distance"], "columns"),
        ),
    ]


def draw_whitening(axes: Axes, config: Config, data: Data) -> None:
    """The residual of Muon after whitening, against the number of columns."""
    distance = data["residual"]["distance"]
    fit = sweep.asymptotic_exponent(distance, "columns")
    label = slope_label("‖Ortho(G) - G‖ / √m", fit.exponent, fit.interval[1] - fit.exponent)
    draw_sweep(axes, distance, "columns", label=label, color="C0", line=True)
    axes.set_xlabel(f"columns of a whitened G with {SIZE} rows")
    axes.legend(fontsize="x-small")


CLAIMS = (
    Claim(
        12,
        "Whitened coordinates",
        "For φ = M^(1/2) θ, ∇_θ l = M^(-1/2) ∇_φ l, so a gradient step in φ is half-whitening.",
        "False: ∇_θ l = M^(+1/2) ∇_φ l, and the step whitens fully. Half-whitening is φ = M^(1/4) θ.",
        "claim-12-printed-half-whitening",
        frozenset({"claim-12-printed-gradient", "claim-12-printed-half-whitening"}),
        run_whitening,
        check_whitening,
        draw_whitening,
    ),
)
