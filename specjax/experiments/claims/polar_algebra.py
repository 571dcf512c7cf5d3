"""Claims 2, 3 and 11: the polar factor as a half-whitening, for vectors too, and Newton's iteration for it."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int
from matplotlib.axes import Axes

from specjax import spectral, sweep
from specjax.experiments.claims.contract import Claim, Config, corrected, printed
from specjax.experiments.claims.matrices import normals, orthonormal, relative, spectra
from specjax.experiments.contract import Check, Data
from specjax.experiments.verdicts import bound_check, difference_check, equality_check
from specjax.theory.polar_newton import newton_steps
from specjax.theory.second_moment import left_direction, symmetric_power

ROUNDING = 1e-10
"""Far above the error of float64 with the condition numbers used here (1e-13), far below that of any wrong formula (1e-2)."""

SHAPES = {"wide": (3, 5), "tall": (5, 3), "deficient": (5, 4)}
RANKS = {"wide": 3, "tall": 3, "deficient": 2}


def run_polar_relation(config: Config) -> Data:
    """Distances between U Vᵀ and the whitened forms, for matrices of three shapes."""

    def measure(key: Array, condition: Array) -> dict[str, Array | dict[str, Array]]:
        matrices = spectra(
            key, SHAPES, {name: condition ** -jnp.linspace(0.0, 1.0, rank) for name, rank in RANKS.items()}
        )
        results: dict[str, Array | dict[str, Array]] = {}
        for name, g in matrices.items():
            factor = spectral.polar(g)
            results[name] = {
                "left": relative(symmetric_power(g @ g.T, -0.5) @ g, factor),
                "right": relative(g @ symmetric_power(g.T @ g, -0.5), factor),
                # Not whitened, but of the same norm.
                "control": relative(g * (jnp.linalg.norm(factor) / jnp.linalg.norm(g)), factor),
            }
        eigenvalues = jnp.linalg.eigvalsh(matrices["tall"] @ matrices["tall"].T)
        u, _, vt = jnp.linalg.svd(matrices["deficient"], full_matrices=False)
        return {
            **results,
            "smallest": eigenvalues[0] / eigenvalues[-1],
            "thin": relative(u @ vt, spectral.polar(matrices["deficient"])),
        }

    with jax.enable_x64(True):
        over = {"condition": sweep.values(2.0, 10.0)}
        return {"forms": sweep.run(measure, over, seeds=config.matrices, key=jax.random.key(config.seed))}


def check_polar_relation(config: Config, data: Data) -> list[Check]:
    """Claim 2."""
    forms = data["forms"]
    errors = {name: np.maximum(forms[f"{name}.left"], forms[f"{name}.right"]) for name in SHAPES}
    controls = {name: forms[f"{name}.control"] for name in SHAPES}
    return [
        equality_check(
            *printed(2, "full-row-rank", "(G Gᵀ)^(-1/2) G = U Vᵀ where G has linearly independent rows."),
            error=forms["wide.left"],
            control=controls["wide"],
            tolerance=ROUNDING,
        ),
        difference_check(
            *printed(
                2,
                "inverse",
                "(G Gᵀ)^(-1/2) exists for every G: the smallest eigenvalue of G Gᵀ of a tall G is not zero.",
            ),
            difference=np.max(np.abs(forms["smallest"].values)),
            resolution=ROUNDING,
        ),
        equality_check(
            *printed(
                2, "thin", "U Vᵀ may be taken from the thin decomposition, zero singular values included (rank 2 of 4)."
            ),
            error=forms["thin"],
            control=controls["deficient"],
            tolerance=ROUNDING,
        ),
        equality_check(
            *corrected(
                2,
                "pseudo-inverse",
                "With pseudo-inverses and the compact decomposition both forms are U Vᵀ at every shape and rank.",
            ),
            error=np.stack(list(errors.values())),
            control=np.stack(list(controls.values())),
            tolerance=ROUNDING,
        ),
    ]


def draw_polar_relation(axes: Axes, config: Config, data: Data) -> None:
    """Distances of both forms, and of the thin decomposition's factor, for the three shapes."""
    forms = data["forms"]
    for index, (quantity, label) in enumerate((("left", "(G Gᵀ)^(-1/2) G"), ("right", "G (GᵀG)^(-1/2)"))):
        worst = [max(float(forms[f"{name}.{quantity}"].max()), 1e-17) for name in SHAPES]
        axes.plot(range(3), worst, "os"[index], color=f"C{index}", fillstyle="none", label=label)
    axes.plot([2], [float(forms["thin"].max())], "x", color="C3", label="thin decomposition")
    axes.set_yscale("log")
    axes.set_xlim(-0.5, 2.5)
    axes.set_xticks(range(3), [f"{name}\n{m}×{n}" for name, (m, n) in SHAPES.items()])
    axes.set_ylabel("largest distance to U Vᵀ")
    axes.legend(fontsize="x-small")


def run_vectors(config: Config) -> Data:
    """A vector's normalization against the gradient of its norm and against M^(-1/2) μ under noise."""

    def measure(key: Array, noise: Array) -> dict[str, Array]:
        g, mu, root = normals(key, (4, 1), (4, 1), (4, 4))
        unit = g / jnp.linalg.norm(g)
        whitened = left_direction(mu @ mu.T + noise * root @ root.T, mu)
        return {
            "polar": relative(spectral.polar(g), unit),
            "gradient": relative(jax.grad(lambda v: jnp.sqrt(jnp.sum(v**2)))(g), unit),
            "per_sample": relative(left_direction(g @ g.T, g), unit),
            "expectation": relative(whitened, spectral.polar(mu)),
            "cosine": jnp.sum(whitened * mu) / (jnp.linalg.norm(whitened) * jnp.linalg.norm(mu)),
            "no_noise": relative(left_direction(mu @ mu.T, mu), spectral.polar(mu)),
            "control": relative(g, unit),
        }

    with jax.enable_x64(True):
        over = {"noise": sweep.values(0.01, 0.1, 1.0)}
        return {"vectors": sweep.run(measure, over, seeds=config.matrices, key=jax.random.key(config.seed))}


def check_vectors(config: Config, data: Data) -> list[Check]:
    """Claim 3."""
    vectors = data["vectors"]
    return [
        equality_check(
            *printed(3, "normalization", "For one column Ortho(g) = g/‖g‖ = ∇‖g‖."),
            error=np.maximum(vectors["polar"], vectors["gradient"]),
            control=vectors["control"],
            tolerance=ROUNDING,
        ),
        equality_check(
            *printed(
                3, "preconditioner", "Muon's preconditioner is then M^(-1/2) with M = E[g gᵀ]: M^(-1/2) μ = Ortho(μ)."
            ),
            error=vectors["expectation"],
            control=vectors["control"],
            tolerance=ROUNDING,
        ),
        equality_check(
            *corrected(
                3, "per-sample", "It is the half-whitening by the sample's own g gᵀ, singular, with the pseudo-inverse."
            ),
            error=np.maximum(vectors["per_sample"], vectors["no_noise"]),
            control=vectors["expectation"],
            tolerance=ROUNDING,
        ),
    ]


def draw_vectors(axes: Axes, config: Config, data: Data) -> None:
    """Cosine of M^(-1/2) μ and μ against the noise."""
    cosine = data["vectors"]["cosine"]
    noise = cosine["noise"].values
    for level, style in ((0.1, ":"), (0.5, "-"), (0.9, ":")):
        axes.plot(noise, cosine.quantile(level, "seed"), style, color="C0", label=f"{level:.0%} of draws below")
    axes.axhline(1, color="gray", linewidth=1)
    axes.set_xscale("log")
    axes.set_xlabel("noise in M = μ μᵀ + noise · C")
    axes.set_ylabel("cos(M^(-1/2) μ, Ortho(μ))")
    axes.legend(fontsize="x-small")


CONDITIONS = (1e1, 1e2, 1e4, 1e6)
STEPS = 40
CONVERGED = 1e-2
"""Error at which a run is counted as converged: above the rounding of every iteration compared, and within the quadratic regime."""

LOW_PRECISIONS = {"float16": jnp.float16, "float32": jnp.float32}


def run_newton(config: Config) -> Data:
    """Errors of both forms of the iteration in float64, and final ones of the displayed form in lower precision, on 5×3 matrices.

    Low precision rounds the result of every product, sum and inverse, and the factor is that of the rounded matrix.
    """

    def inverse_form(x: Array) -> Array:
        # X⁻ᵀ = (X⁺)ᵀ by a triangular factor, for tall X of full rank.
        q, r = jnp.linalg.qr(x)
        return 0.5 * (x + q @ jnp.linalg.inv(r).T)

    def gram_form(x: Array, rounded: Callable[[Array], Array] = lambda y: y) -> Array:
        inverse = rounded(jnp.linalg.inv(rounded(x.T @ x)))
        return rounded(0.5 * rounded(x + rounded(x @ inverse)))

    def errors(step: Callable[[Array], Array], start: Array, factor: Array) -> Array:
        def advance(x: Array, _: None) -> tuple[Array, Array]:
            error = spectral.spectral_norm(x - factor)
            return step(x), error

        return jax.lax.scan(advance, start, length=STEPS + 1)[1]

    def measure(key: Array, condition: Array) -> dict[str, Array]:
        left, right = (orthonormal(x) for x in normals(key, (5, 3), (3, 3)))
        s = condition ** -jnp.asarray([0.0, 0.5, 1.0])
        g, factor = (left * s[None, :]) @ right.T, left @ right.T
        scaled = g / jnp.linalg.norm(g)
        results = {
            "inverse": errors(inverse_form, scaled, factor),
            "gram": errors(gram_form, scaled, factor),
            "balanced": errors(inverse_form, g / jnp.sqrt(s[0] * s[-1]), factor),
            # No rank: a zero column.
            "deficient_finite": jnp.all(jnp.isfinite(gram_form(scaled * jnp.asarray([[1.0, 1.0, 0.0]])))).astype(float),
            "full_rank_finite": jnp.all(jnp.isfinite(gram_form(scaled))).astype(float),
        }
        for name, dtype in LOW_PRECISIONS.items():
            rounded = functools.partial(_rounded, dtype)
            stored = rounded(scaled)
            final = jax.lax.fori_loop(0, STEPS, lambda _, x, rounded=rounded: gram_form(x, rounded), stored)
            distance = jnp.linalg.norm(final - spectral.polar(stored))
            # Where it overflows, no digit is right.
            results[name] = jnp.where(jnp.isfinite(distance), distance, 1.0)
        return results

    with jax.enable_x64(True):
        over = {"condition": sweep.values(*CONDITIONS)}
        return {"errors": sweep.run(measure, over, seeds=config.matrices, key=jax.random.key(config.seed))}


def _rounded(dtype: DTypeLike, x: Array) -> Array:
    return x.astype(dtype).astype(x.dtype)


def singular_values(condition: float) -> Float[np.ndarray, " 3"]:
    """Those of the matrices of Claim 11, before scaling."""
    return condition ** -np.array([0.0, 0.5, 1.0])


def _steps(errors: Float[np.ndarray, "seeds steps"]) -> Int[np.ndarray, " seeds"]:
    return np.argmax(errors <= CONVERGED, axis=1)


def _predicted_steps(condition: float) -> tuple[int, int]:
    """Steps from G/‖G‖_F and from G/√(s_1 s_n), by the recursion of the singular values."""
    s = singular_values(condition)
    scales = np.array([np.linalg.norm(s), np.sqrt(s[0] * s[-1])])
    frobenius, balanced = newton_steps(s[-1] / scales, s[0] / scales, CONVERGED)
    return int(frobenius), int(balanced)


def check_newton(config: Config, data: Data) -> list[Check]:
    """Claim 11."""
    measured = data["errors"]
    inverse = measured["inverse"].values
    before, after = inverse[..., 1:-1].ravel(), inverse[..., 2:].ravel()
    # Where the error is not yet one of rounding.
    seen = (before > 1e-2) & (before < 1e3)
    before, after = before[seen], after[seen]
    recursion = before**2 / (2 * (1 + before))
    predicted = {condition: _predicted_steps(condition) for condition in CONDITIONS}
    at = {condition: measured.sel(condition=condition) for condition in CONDITIONS}
    misses = [
        np.abs(_steps(at[c][form].values) - predicted[c][place])
        for c in CONDITIONS
        for place, form in enumerate(("inverse", "balanced"))
    ]
    # From e_0 < 1 a quadratic convergence with the constant 1/2 would take three steps.
    local = [np.abs(_steps(at[c]["inverse"].values) - 3) for c in CONDITIONS]
    accuracy = 16 * measured["condition"] * np.finfo(np.float64).eps
    ill = at[1e4]
    return [
        bound_check(
            *printed(
                11,
                "quadratic",
                "The convergence is quadratic: ‖X_{k+1} - U‖ <= ½ ‖X_k - U‖² from the first step on, up to rounding.",
            ),
            smallest_margin=float(np.min(before**2 / 2 - after)) + ROUNDING,
        ),
        bound_check(
            *printed(
                11, "neighbourhood", "Division by ‖G‖_F puts X_0 near U: the first step does not increase the error."
            ),
            smallest_margin=float(np.min(inverse[..., 0] - inverse[..., 1])),
        ),
        bound_check(
            *printed(
                11,
                "accuracy",
                "The displayed form X (I + (XᵀX)⁻¹)/2 finds U as exactly as its condition κ allows: to 16 κ roundings.",
            ),
            smallest_margin=float((accuracy - measured["gram"][..., -1]).min()),
        ),
        *(
            bound_check(
                *printed(11, name, f"It works in {name} at κ = 10⁴: half of the digits of U are right."),
                smallest_margin=float(np.sqrt(float(jnp.finfo(dtype).eps)) - ill[name].max()),
            )
            for name, dtype in LOW_PRECISIONS.items()
        ),
        equality_check(
            *corrected(
                11,
                "recursion",
                "From the first step on the error follows e ← e² / (2 (1 + e)): a halving while it is large, from any G of full rank.",
            ),
            error=np.abs(after / recursion - 1),
            control=np.abs(before**2 / 2 / recursion - 1),
            tolerance=1e-4,
        ),
        equality_check(
            *corrected(
                11,
                "steps",
                "The steps are those of the recursion for s_1 and s_n: log2 κ and a few after division by ‖G‖_F, half by √(s_1 s_n).",
            ),
            error=np.stack(misses),
            control=np.stack(local),
            tolerance=0,
        ),
        bound_check(
            *corrected(11, "accuracy", "The form (X + X⁻ᵀ)/2, which never squares κ, does find U to 16 κ roundings."),
            smallest_margin=float((accuracy - measured["inverse"][..., -1]).min()),
        ),
        equality_check(
            *corrected(
                11,
                "full-rank",
                "It needs linearly independent columns: with a zero column the first step is not finite.",
            ),
            error=measured["deficient_finite"],
            control=measured["full_rank_finite"],
            tolerance=0,
        ),
    ]


def draw_newton(axes: Axes, config: Config, data: Data) -> None:
    """Errors against the number of steps, for both forms at each condition number."""
    for index, condition in enumerate(CONDITIONS):
        at = data["errors"].sel(condition=condition)
        for form, style in (("inverse", "-"), ("gram", "--")):
            label = f"κ = {condition:g}" if form == "inverse" else None
            axes.plot(np.maximum(at[form].values.max(axis=0), 1e-16), style, color=f"C{index}", label=label)
    axes.set_yscale("log")
    axes.set_xlim(0, 30)
    axes.set_xlabel("step (dashed: displayed form)")
    axes.set_ylabel("‖X_k - U‖, largest")
    axes.legend(fontsize="x-small")


CLAIMS = (
    Claim(
        2,
        "Ortho(G) = (G Gᵀ)^(-1/2) G",
        "With the thin decomposition G = U S Vᵀ, Ortho(G) = U Vᵀ = (G Gᵀ)^(-1/2) G.",
        "True with pseudo-inverses and the compact decomposition; G Gᵀ is singular for a tall or rank-deficient G.",
        "claim-2-printed-thin",
        frozenset({"claim-2-printed-inverse", "claim-2-printed-thin"}),
        run_polar_relation,
        check_polar_relation,
        draw_polar_relation,
    ),
    Claim(
        3,
        "For vectors Muon is M^(-1/2)",
        "For one column Ortho(g) = g/‖g‖ = ∇‖g‖, so Muon's preconditioner is M^(-1/2), M = E[g gᵀ].",
        "g/‖g‖ = ∇‖g‖ is true. It is M^(-1/2) only for the sample's own g gᵀ, not for an expectation.",
        "claim-3-printed-preconditioner",
        frozenset({"claim-3-printed-preconditioner"}),
        run_vectors,
        check_vectors,
        draw_vectors,
    ),
    Claim(
        11,
        "Higham's iteration",
        "From G/‖G‖_F, X ← X (I + (XᵀX)⁻¹)/2 converges quadratically to U, the scaling putting it near U in fp16 to fp32.",
        "It converges from everywhere, in about log2 κ steps more; the displayed form squares κ, so low precision fails.",
        "claim-11-printed-neighbourhood",
        frozenset({f"claim-11-printed-{name}" for name in ("neighbourhood", "accuracy", "float16", "float32")}),
        run_newton,
        check_newton,
        draw_newton,
    ),
)
