"""Claim 11: Newton's iteration for the polar factor, in the displayed form and in one that never squares the condition number."""

import functools
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax.typing import DTypeLike
from jaxtyping import Array, Key

from specjax import lab, sizes, spectral, sweep
from specjax.experiments.claims.errors import Errors
from specjax.experiments.claims.matrices import normals, orthonormal
from specjax.experiments.ledgers import ledger
from specjax.theory.polar_newton import newton_steps

CONDITIONS = (1e1, 1e2, 1e4, 1e6)
STEPS = 40
CONVERGED = 1e-2
"""Error at which a run is counted as converged: above the rounding of every iteration compared, and within the quadratic regime."""
ROUNDING, WHOLE = 1e-8, 0.5
LOW_PRECISIONS: Mapping[str, tuple[DTypeLike, float]] = {"float16": (jnp.float16, 1e2), "float32": (jnp.float32, 1e4)}
"""Each with a condition number κ for which κ < 1/ε < κ²: a form that squares it loses all digits, and one that does not keeps some."""


CUBIC = "Newton and Schulz's cubic steps"


class Config(lab.Config):
    """On how many matrices the iteration is tried."""

    matrices: int = lab.seeds(200, least=20, help="random 5×3 matrices at each condition number")


def run(config: Config, key: Key[Array, ""]) -> xr.Dataset:
    """Errors of both forms of the iteration in float64 step by step, and final ones in lower precision, on 5×3 matrices.

    Low precision rounds the result of every product, sum and inverse, and the factor is that of the rounded matrix.
    """

    def inverse_form(x: Array, rounded: Callable[[Array], Array] = lambda y: y) -> Array:
        # X⁻ᵀ = (X⁺)ᵀ by a triangular factor, for tall X of full rank.
        q, r = (rounded(y) for y in jnp.linalg.qr(x))
        return rounded(0.5 * rounded(x + rounded(q @ rounded(jnp.linalg.inv(r)).T)))

    def gram_form(x: Array, rounded: Callable[[Array], Array] = lambda y: y) -> Array:
        inverse = rounded(jnp.linalg.inv(rounded(x.T @ x)))
        return rounded(0.5 * rounded(x + rounded(x @ inverse)))

    def cubic(x: Array) -> Array:
        """Newton and Schulz's: 3/2 of the error squared is left, and far from U it grows x by half."""
        return 1.5 * x - 0.5 * x @ (x.T @ x)

    def errors(step: Callable[[Array], Array], start: Array, factor: Array) -> Array:
        def advance(x: Array, _: None) -> tuple[Array, Array]:
            return step(x), spectral.spectral_norm(x - factor)

        return jax.lax.scan(advance, start, length=STEPS + 1)[1]

    def final(step: Callable[..., Array], scaled: Array, dtype: DTypeLike) -> Array:
        rounded = functools.partial(_rounded, dtype)
        stored = rounded(scaled)
        found = jax.lax.fori_loop(0, STEPS, lambda _, x: step(x, rounded), stored)
        distance = jnp.linalg.norm(found - spectral.polar(stored))
        # Where it overflows, no digit is right.
        return jnp.where(jnp.isfinite(distance), distance, 1.0)

    def measure(key: Key[Array, ""], condition: Array) -> dict[str, Array]:
        left, right = (orthonormal(x) for x in normals(key, (5, 3), (3, 3)))
        s = condition ** -jnp.asarray([0.0, 0.5, 1.0])
        g, factor = (left * s[None, :]) @ right.T, left @ right.T
        scaled = g / jnp.linalg.norm(g)
        low = [dtype for dtype, _ in LOW_PRECISIONS.values()]
        return {
            "inverse": errors(inverse_form, scaled, factor),
            "gram": errors(gram_form, scaled, factor),
            "cubic": errors(cubic, scaled, factor),
            "balanced": errors(inverse_form, g / jnp.sqrt(s[0] * s[-1]), factor),
            # No rank: a zero column.
            "deficient_finite": jnp.all(jnp.isfinite(gram_form(scaled * jnp.asarray([[1.0, 1.0, 0.0]])))).astype(float),
            "full_rank_finite": jnp.all(jnp.isfinite(gram_form(scaled))).astype(float),
            "low_gram": jnp.stack([final(gram_form, scaled, dtype) for dtype in low]),
            "low_inverse": jnp.stack([final(inverse_form, scaled, dtype) for dtype in low]),
        }

    with jax.enable_x64(True):
        over = {"condition": sweep.values(*CONDITIONS)}
        found = sweep.run(measure, over, seeds=config.matrices, key=sizes.stream(key, "matrices"))
    steps = {f"{name}_dim_0": "step" for name in ("inverse", "gram", "balanced", "cubic")}
    named = found.rename(steps | {"low_gram_dim_0": "precision", "low_inverse_dim_0": "precision"})
    return named.assign_coords(precision=list(LOW_PRECISIONS))


def _rounded(dtype: DTypeLike, x: Array) -> Array:
    return x.astype(dtype).astype(x.dtype)


def worst(data: xr.Dataset, ratio: Callable[[xr.DataArray, xr.DataArray], xr.DataArray]) -> xr.DataArray:
    """The largest `ratio` of the errors before and after a step in each run, over the steps after the first.

    Steps in which the error is one of rounding, or so large that its square is beyond what rounding leaves, are left out. The draw is
    the run, of which all steps follow from the first.
    """
    before = data["inverse"].isel(step=slice(1, -1))
    after = data["inverse"].isel(step=slice(2, None))
    return ratio(before, after).where((before > CONVERGED) & (before < 1e3)).max("step").rename("ratio")


def steps_off(data: xr.Dataset, form: str) -> xr.DataArray:
    """By how many steps a run misses what the recursion of the singular values predicts."""
    taken = (data[form] <= CONVERGED).argmax("step")
    predicted = []
    for condition in CONDITIONS:
        s = condition ** -np.array([0.0, 0.5, 1.0])
        scale = np.linalg.norm(s) if form == "inverse" else np.sqrt(s[0] * s[-1])
        predicted.append(int(newton_steps(s[-1] / scale, s[0] / scale, CONVERGED)))
    return abs(taken - xr.DataArray(predicted, dims="condition")).rename("steps")


def roundings(data: xr.Dataset) -> xr.DataArray:
    """16 κ roundings of float64."""
    return 16 * data.condition * np.finfo(np.float64).eps


def low(data: xr.Dataset, form: str) -> xr.DataArray:
    """Final errors in each low precision at its condition number, over the square root of its epsilon."""
    found = [
        data[form].sel(precision=name, condition=condition, drop=True) / float(jnp.finfo(dtype).eps) ** 0.5
        for name, (dtype, condition) in LOW_PRECISIONS.items()
    ]
    return xr.concat(found, xr.Variable("precision", list(LOW_PRECISIONS))).rename("error / √eps")


@lab.statement(
    "claim-11",
    "The convergence is quadratic: ‖X_{k+1} - U‖ <= ½ ‖X_k - U‖² from the second step on.",
    controls={CUBIC: lab.replacing("inverse", "cubic")},
)
def quadratic(config: Config, data: xr.Dataset) -> lab.Relation:
    """With the constant C = ½ in the place of the text's."""
    largest = worst(data, lambda before, after: after / (before**2 / 2))
    return lab.always(largest, xr.ones_like(largest), slack=0.05, rounding=ROUNDING)


@lab.statement(
    "claim-11",
    "From the second step on the error follows e ← e²/(2 (1 + e)): a halving while it is large, from any G of full rank.",
    corrected=True,
    controls={CUBIC: lab.replacing("inverse", "cubic")},
)
def recursion(config: Config, data: xr.Dataset) -> lab.Relation:
    """The same for every matrix, whatever its condition."""
    return lab.identity(
        worst(data, lambda before, after: abs(after / (before**2 / (2 * (1 + before))) - 1)), tolerance=1e-4
    )


@lab.statement(
    "claim-11",
    "The steps are those of the recursion for s_1 and s_n: log2 κ and a few after division by ‖G‖_F, half by √(s_1 s_n).",
    corrected=True,
    controls={
        "division by ‖G‖_F in both": lab.replacing("balanced", "inverse"),
        CUBIC: lab.replacing("inverse", "cubic"),
    },
)
def steps(config: Config, data: xr.Dataset) -> lab.Relation:
    """At four condition numbers."""
    both = [steps_off(data, form).astype(float) for form in ("inverse", "balanced")]
    return lab.identity(xr.concat(both, xr.Variable("scaled by", ["‖G‖_F", "√(s_1 s_n)"])), tolerance=WHOLE)


@lab.statement(
    "claim-11-neighbourhood",
    "Division by ‖G‖_F puts X_0 near U: the first step does not increase the error.",
    holds=False,
    controls={CUBIC: lab.replacing("inverse", "cubic")},
)
def neighbourhood(config: Config, data: xr.Dataset) -> lab.Relation:
    """In a neighbourhood with a quadratic bound no step increases it."""
    return lab.always(data["inverse"].isel(step=1), data["inverse"].isel(step=0), slack=0.2)


def exact(name: str, cites: str, says: str, form: str) -> lab.Statement:
    """The final errors of a form are what rounding at the condition κ leaves of them; those of the other form are the control."""
    low_precision, displayed = form.startswith("low_"), form.endswith("gram")
    other = form.replace("gram", "inverse") if displayed else form.replace("inverse", "gram")
    controls = {"the form (X + X⁻ᵀ)/2" if displayed else "the displayed form": lab.replacing(form, other)}

    def relation(config: Config, data: xr.Dataset) -> lab.Relation:
        if low_precision:
            return lab.below(low(data, form), 1.0, "√eps, half of the digits,", by="median")
        return lab.below(data[form].isel(step=-1), roundings(data), "16 κ roundings", by="median")

    return lab.statement(cites, says, name=name, controls=controls, holds=not displayed, corrected=not displayed)(
        relation
    )


STATEMENTS = (
    quadratic,
    recursion,
    steps,
    Errors(None, WHOLE).agree(
        "full-rank",
        "claim-11",
        "It needs linearly independent columns: with a zero column the first step is not finite.",
        "deficient_finite",
        {"full column rank": "full_rank_finite"},
        corrected=True,
    ),
    neighbourhood,
    exact(
        "displayed-form",
        "claim-11-exact",
        "The displayed form X (I + (XᵀX)⁻¹)/2 finds U as exactly as its condition κ allows: to 16 κ roundings.",
        "gram",
    ),
    exact(
        "inverse-form",
        "claim-11-exact",
        "The form (X + X⁻ᵀ)/2, the same map, which never squares κ, does find U to 16 κ roundings.",
        "inverse",
    ),
    # At 10⁴ neither form works in float16: each precision has a condition number at which the other form does.
    exact(
        "displayed-form-in-low-precision",
        "claim-11-precision",
        "The displayed form works in float16 and float32: half of the digits of U are right, at κ = 10² and 10⁴.",
        "low_gram",
    ),
    exact(
        "inverse-form-in-low-precision",
        "claim-11-precision",
        "The form (X + X⁻ᵀ)/2 does work there.",
        "low_inverse",
    ),
)


EXPERIMENT = lab.Experiment(
    "claims-newton",
    ledger("claims"),
    title="Higham's iteration converges from everywhere; as displayed it squares the condition number",
    summary="On singular values it is s ← (s + 1/s)/2: the error is halved for about log2 κ steps, and squared at the end only. The "
    "displayed form inverts XᵀX and so loses as many digits again; (X + X⁻ᵀ)/2 does not, in float16 either.",
    config=Config,
    measure=run,
    statements=STATEMENTS,
    scales={"smoke": {"matrices": 40}, "paper": {"matrices": 1000}},
)
