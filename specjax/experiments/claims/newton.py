"""Claim 11: Newton's iteration for the polar factor, as displayed and in a stable form."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax.typing import DTypeLike
from jaxtyping import Array, Key

from specjax import lab, spectral, sweep
from specjax.experiments.claims.matrices import Matrices, normals, orthonormal
from specjax.experiments.claims.measured_claims import Measured
from specjax.experiments.ledgers import ledger
from specjax.theory.polar_newton import newton_steps

CONDITIONS = (1e1, 1e2, 1e4, 1e6)
STEPS = 40
CONVERGED = 1e-2
"""Error at which a run has converged: above all rounding, within the quadratic regime."""
WHOLE = 0.5
LOW_PRECISIONS: dict[str, tuple[DTypeLike, float]] = {
    "float16": (jnp.float16, 1e2),
    "float32": (jnp.float32, 1e4),
}
"""κ with κ < 1/ε < κ² by precision: a form that squares κ loses all digits, another keeps some."""


def run(config: Matrices, key: Key[Array, ""]) -> xr.Dataset:
    """Errors of both forms of the iteration, by step in float64 and final in low precision, 5×3.

    Low precision rounds every product, sum and inverse; the reference is the factor of the rounded
    matrix.
    """

    def inverse_form(x: Array, rounded: Callable[[Array], Array] = lambda y: y) -> Array:
        # X⁻ᵀ = (X⁺)ᵀ by a triangular factor, for tall X of full rank.
        q, r = (rounded(y) for y in jnp.linalg.qr(x))
        return rounded(0.5 * rounded(x + rounded(q @ rounded(jnp.linalg.inv(r)).T)))

    def gram_form(x: Array, rounded: Callable[[Array], Array] = lambda y: y) -> Array:
        inverse = rounded(jnp.linalg.inv(rounded(x.T @ x)))
        return rounded(0.5 * rounded(x + rounded(x @ inverse)))

    def cubic(x: Array) -> Array:
        """Newton–Schulz: errors become 3/2 of their square, and far from U it grows x by half."""
        return 1.5 * x - 0.5 * x @ (x.T @ x)

    def errors(step: Callable[[Array], Array], start: Array, factor: Array) -> Array:
        def advance(x: Array, _: None) -> tuple[Array, Array]:
            return step(x), spectral.spectral_norm(x - factor)

        return jax.lax.scan(advance, start, length=STEPS + 1)[1]

    def final(step: Callable[..., Array], scaled: Array) -> dict[str, Array]:
        found = {}
        for name, (dtype, _) in LOW_PRECISIONS.items():
            rounded = partial(_rounded, dtype)
            stored = rounded(scaled)
            x = jax.lax.fori_loop(0, STEPS, lambda _, x, rounded=rounded: step(x, rounded), stored)
            distance = jnp.linalg.norm(x - spectral.polar(stored))
            # After an overflow no digit is right.
            found[name] = jnp.where(jnp.isfinite(distance), distance, 1.0)
        return found

    def measure(key: Key[Array, ""], condition: Array) -> dict[str, Array | dict[str, Array]]:
        left, right = (orthonormal(x) for x in normals(key, (5, 3), (3, 3)))
        s = condition ** -jnp.asarray([0.0, 0.5, 1.0])
        g, factor = (left * s[None, :]) @ right.T, left @ right.T
        scaled = g / jnp.linalg.norm(g)
        deficient = scaled * jnp.asarray([[1.0, 1.0, 0.0]])
        return {
            "inverse": errors(inverse_form, scaled, factor),
            "gram": errors(gram_form, scaled, factor),
            "cubic": errors(cubic, scaled, factor),
            "balanced": errors(inverse_form, g / jnp.sqrt(s[0] * s[-1]), factor),
            "deficient_finite": jnp.all(jnp.isfinite(gram_form(deficient))).astype(float),
            "full_rank_finite": jnp.all(jnp.isfinite(gram_form(scaled))).astype(float),
            "low_gram": final(gram_form, scaled),
            "low_inverse": final(inverse_form, scaled),
        }

    conditions = {"condition": sweep.values(*CONDITIONS)}
    with jax.enable_x64(True):
        found = lab.seeded_sweep(key, "matrices", measure, config.matrices, **conditions)
    return sweep.labelled(
        found.assign({form: _low(found, form) for form in ("low_gram", "low_inverse")}), "step"
    )


def _rounded(dtype: DTypeLike, x: Array) -> Array:
    return x.astype(dtype).astype(x.dtype)


def _low(found: xr.Dataset, form: str) -> xr.DataArray:
    """Final errors in each low precision at its condition number, over the root of its epsilon."""
    over = [
        found[f"{form}.{name}"].sel(condition=condition, drop=True)
        / float(jnp.finfo(dtype).eps) ** 0.5
        for name, (dtype, condition) in LOW_PRECISIONS.items()
    ]
    return xr.concat(over, xr.Variable("precision", list(LOW_PRECISIONS))).rename("error / √eps")


def worst(
    data: xr.Dataset, ratio: Callable[[xr.DataArray, xr.DataArray], xr.DataArray]
) -> xr.DataArray:
    """The largest `ratio` of the errors before and after a step in each run, after the first step.

    Steps are left out if the error is rounding, or so large that its square exceeds rounding
    effects. A seed is a run, whose steps all follow from the first.
    """
    before, after = (
        data["inverse"].isel(step=slice(1, -1)),
        data["inverse"].isel(step=slice(2, None)),
    )
    return (
        ratio(before, after)
        .where((before > CONVERGED) & (before < 1e3))
        .max("step")
        .rename("ratio")
    )


def excess_steps(data: xr.Dataset, form: str) -> xr.DataArray:
    """The difference between a run's steps and the recursion's prediction."""
    taken = (data[form] <= CONVERGED).argmax("step")
    s = np.power.outer(CONDITIONS, -np.array([0.0, 0.5, 1.0]))
    scale = np.linalg.norm(s, axis=1) if form == "inverse" else np.sqrt(s[:, 0] * s[:, -1])
    predicted = newton_steps(s[:, -1] / scale, s[:, 0] / scale, CONVERGED)
    return abs(taken - xr.DataArray(predicted, dims="condition")).rename("steps").astype(float)


states = lab.Statements()
CUBIC = {"Newton and Schulz's cubic steps": lab.controls.replacing("inverse", "cubic")}


@states("claim-11", controls=CUBIC)
def quadratic(config: Matrices, data: xr.Dataset) -> lab.Relation:
    """The convergence is quadratic: ‖X_{k+1} - U‖ <= ½ ‖X_k - U‖² from the second step on."""
    largest = worst(data, lambda before, after: after / (before**2 / 2))
    return lab.inequality(largest, xr.ones_like(largest), slack=0.05, rounding=1e-8)


@states("claim-11", corrected=True, controls=CUBIC)
def recursion(config: Matrices, data: xr.Dataset) -> lab.Relation:
    """From the second step on the error follows e ← e²/(2 (1 + e)): a halving while it is large,
    from any G of full rank.
    """
    missed = worst(data, lambda before, after: abs(after / (before**2 / (2 * (1 + before))) - 1))
    return lab.zero_error(missed, tolerance=1e-4)


@states(
    "claim-11",
    corrected=True,
    controls={"division by ‖G‖_F in both": lab.controls.replacing("balanced", "inverse"), **CUBIC},
)
def steps(config: Matrices, data: xr.Dataset) -> lab.Relation:
    """The steps are those of the recursion for s_1 and s_n: log2 κ and a few after division by
    ‖G‖_F, half by √(s_1 s_n).
    """
    both = [excess_steps(data, form) for form in ("inverse", "balanced")]
    return lab.zero_error(
        xr.concat(both, xr.Variable("scaled by", ["‖G‖_F", "√(s_1 s_n)"])), tolerance=WHOLE
    )


Measured(states, rounding=WHOLE).agree(
    "full-rank",
    "claim-11",
    "deficient_finite",
    {"full column rank": "full_rank_finite"},
    corrected=True,
)("It needs linearly independent columns: with a zero column the first step is not finite.")


@states("claim-11-neighbourhood", holds=False, controls=CUBIC)
def neighbourhood(config: Matrices, data: xr.Dataset) -> lab.Relation:
    """Division by ‖G‖_F puts X_0 near U: the first step does not increase the error."""
    # In a neighbourhood with a quadratic bound no step increases it.
    return lab.inequality(data["inverse"].isel(step=1), data["inverse"].isel(step=0), slack=0.2)


def to_rounding(errors: xr.DataArray, *_: object) -> lab.Relation:
    """The final errors are what rounding in float64 at the condition κ leaves."""
    roundings = 16 * errors.condition * np.finfo(np.float64).eps
    return lab.below(errors.isel(step=-1), roundings, "16 κ roundings", by="median")


def half_right(errors: xr.DataArray, *_: object) -> lab.Relation:
    """Half of the digits are right in each precision, at its condition number."""
    return lab.below(errors, 1.0, "√eps, half of the digits", by="median")


FINAL = Measured(states)
INVERSE, DISPLAYED = "the form (X + X⁻ᵀ)/2", "the displayed form"

FINAL.on(
    to_rounding, "displayed-form", "claim-11-exact", "gram", {INVERSE: "inverse"}, holds=False
)(
    "The displayed form X (I + (XᵀX)⁻¹)/2 finds U as exactly as its condition κ allows: to 16 κ"
    " roundings."
)
FINAL.on(
    to_rounding, "inverse-form", "claim-11-exact", "inverse", {DISPLAYED: "gram"}, corrected=True
)("The form (X + X⁻ᵀ)/2, the same map, which never squares κ, does find U to 16 κ roundings.")

# At 10⁴ neither form works in float16: each precision has a condition number at which the other
# form does.
LOW = "claim-11-precision"
FINAL.on(
    half_right,
    "displayed-form-in-low-precision",
    LOW,
    "low_gram",
    {INVERSE: "low_inverse"},
    holds=False,
)(
    "The displayed form works in float16 and float32: half of the digits of U are right, at κ = 10²"
    " and 10⁴."
)
FINAL.on(
    half_right,
    "inverse-form-in-low-precision",
    LOW,
    "low_inverse",
    {DISPLAYED: "low_gram"},
    corrected=True,
)("The form (X + X⁻ᵀ)/2 does work there.")


EXPERIMENT = lab.Experiment(
    "claims-newton",
    ledger("claims"),
    title=(
        "Higham's iteration converges from everywhere; as displayed it squares the condition number"
    ),
    summary=(
        "The error is halved for about log2 κ steps, and squared at the end only; (X + X⁻ᵀ)/2 keeps"
        " the digits that XᵀX loses."
    ),
    config=Matrices,
    measure=run,
    statements=states,
    scales={"smoke": {"matrices": 40}, "paper": {"matrices": 1000}},
)
