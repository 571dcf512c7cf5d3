"""Claims 4 and 13: Ortho is the gradient of the nuclear norm; Newton–Schulz is not a gradient.

Two tests of a field F on m×n matrices that do not share a computation: the symmetry of its
Jacobian, and the integral of ⟨F, dG⟩ around closed loops.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import xarray as xr
from jaxtyping import Array, Float, Key

from specjax import lab, spectral, sweep
from specjax.experiments.claims.matrices import Matrices, normals, orthonormal, relative
from specjax.experiments.claims.measured_claims import Measured
from specjax.experiments.ledgers import ledger
from specjax.spectral import NewtonSchulz

Field = Callable[[Array], Array]

SHAPES = ((3, 2), (4, 4))
LOOP_SHAPE = (3, 2)
ROUNDING, DIFFERENCES = 1e-8, 1e-7
"""Errors are below 1e-12, or 1e-9 by differences; a field that is not a gradient is off by 0.1."""


def _fixed_scale(scale: Array) -> Field:
    """Five Newton–Schulz steps from G / scale with a scale independent of G."""

    def field(g: Array) -> Array:
        x = g / scale
        for p in NewtonSchulz().polynomials():
            gram = x @ x.T
            x = p.a * x + (p.b * gram + p.c * gram @ gram) @ x
        return x

    return field


def _newton_schulz(g: Array) -> Array:
    return spectral.polar(g, NewtonSchulz())


def _reversed(g: Array) -> Array:
    """½ Gᵀ diag(1, -1), for 2×2 matrices: a field whose mixed products are those of the text."""
    return 0.5 * g.T * jnp.asarray([[1.0, -1.0]])


def _mixed(name: str, field: Field) -> dict[str, Array]:
    """Errors of mixed products at G = I, dG_a = E_12, dG_b = E_21, against ours and as printed."""
    jacobian = jax.jacfwd(field)(jnp.eye(2))
    found = jnp.stack([jacobian[1, 0, 0, 1], jacobian[0, 1, 1, 0]])
    return {
        name: jnp.abs(found + 0.5),
        f"{name}_as_printed": jnp.abs(found - jnp.asarray([0.5, -0.5])),
    }


def _jacobian(field: Field, g: Array) -> Array:
    """The Jacobian as a square matrix, which is symmetric exactly for a gradient field."""
    return jax.jacfwd(field)(g).reshape(g.size, g.size)


def _asymmetry(j: Array) -> Array:
    return jnp.linalg.norm(j - j.T) / jnp.linalg.norm(j)


def _concavity(j: Array) -> Array:
    """The most negative eigenvalue of the symmetric part, as a positive number, or 0."""
    return jnp.maximum(-jnp.linalg.eigvalsh((j + j.T) / 2)[0], 0)


def _swirl(g: Array) -> Array:
    """G times a rotation by 90°, a field that is not a gradient."""
    return g @ jnp.asarray([[0.0, 1.0], [-1.0, 0.0]])


def _circulation(
    field: Field, centre: Float[Array, "m n"], plane: Float[Array, "2 m n"]
) -> Float[Array, ""]:
    """∮ ⟨F, dG⟩ around centre + ½ (cos t · plane[0] + sin t · plane[1]) by the trapezoid rule."""

    def integrand(t: Array) -> Array:
        point = centre + 0.5 * (jnp.cos(t) * plane[0] + jnp.sin(t) * plane[1])
        velocity = 0.5 * (-jnp.sin(t) * plane[0] + jnp.cos(t) * plane[1])
        return jnp.sum(field(point) * velocity)

    angles = 2 * jnp.pi * jnp.arange(64, dtype=centre.dtype) / 64
    return 2 * jnp.pi * jnp.mean(jax.vmap(integrand)(angles))


def _well_conditioned(x: Array, spread: Array) -> Array:
    """Orthonormal columns times a positive matrix with eigenvalues 1 to `spread` (m >= n)."""
    n = x.shape[1]
    eigenvalues = jnp.diag(jnp.linspace(1.0, 0.0, n)) * (spread - 1) + jnp.eye(n)
    return orthonormal(x) @ eigenvalues @ orthonormal(x[:n] + x[-n:]).T


def run_jacobians(config: Matrices, key: Key[Array, ""]) -> xr.Dataset:
    """Measure Jacobians of Ortho and of Newton–Schulz steps, in float64."""

    def jacobians(key: Key[Array, ""], spread: Array) -> dict[str, Array]:
        *starts, along = normals(key, *SHAPES, LOOP_SHAPE)
        factors = [_jacobian(spectral.polar, _well_conditioned(x, spread)) for x in starts]
        g = _well_conditioned(starts[0], spread)
        step = 1e-5
        slope = (
            spectral.nuclear_norm(g + step * along) - spectral.nuclear_norm(g - step * along)
        ) / (2 * step)
        newton_schulz = _jacobian(_newton_schulz, g)
        return {
            **_mixed("mixed", spectral.polar),
            **_mixed("reversed", _reversed),
            "asymmetry": jnp.stack([_asymmetry(j) for j in factors]),
            "concavity": jnp.stack([_concavity(j) for j in factors]),
            "potential": jnp.abs(slope - jnp.sum(spectral.polar(g) * along)),
            "not_potential": jnp.abs(slope - jnp.sum(g * along)),
            "newton_schulz": _asymmetry(newton_schulz),
            "newton_schulz_concavity": _concavity(newton_schulz),
            "fixed_scale": _asymmetry(_jacobian(_fixed_scale(jnp.linalg.norm(g)), g)),
        }

    with jax.enable_x64(True):
        spreads = sweep.values(1.5, 4.0)
        found = lab.seeded_sweep(key, "matrices", jacobians, config.matrices, spread=spreads)
    found = sweep.labelled(
        found, "shape", outputs=("asymmetry", "concavity"), shape=[f"{m}×{n}" for m, n in SHAPES]
    )
    return sweep.labelled(found, "product", product=["ab", "ba"])


def run_loops(config: Matrices, key: Key[Array, ""]) -> xr.Dataset:
    """Measure circulations around loops, and distances from gradients of norms, in float64."""

    def loops(key: Key[Array, ""], radius: Array) -> dict[str, Array]:
        start, first, second, left, right = normals(key, *[LOOP_SHAPE] * 3, (4, 1), (3, 1))
        g = _well_conditioned(start, jnp.asarray(2.0))
        basis = orthonormal(jnp.stack([first.ravel(), second.ravel()], axis=1)).T.reshape(
            2, *LOOP_SHAPE
        )
        fields: dict[str, Field] = {
            "ortho": spectral.polar,
            "newton_schulz": _newton_schulz,
            "swirl": _swirl,
        }
        found = {
            name: jnp.abs(_circulation(field, g, radius * basis)) for name, field in fields.items()
        }
        matrices = {"rank_one": left @ right.T, "higher_rank": g}
        return found | {
            name: relative(spectral.polar(x), jax.grad(jnp.linalg.norm)(x))
            for name, x in matrices.items()
        }

    with jax.enable_x64(True):
        radii = sweep.values(0.4, 0.8)
        return lab.seeded_sweep(key, "loops", loops, config.matrices, radius=radii)


states = lab.Statements()
JACOBIAN, LOOPS = Measured(states, "jacobian", ROUNDING), Measured(states, "loops", ROUNDING)
SLOPES = Measured(states, "jacobian", DIFFERENCES)
REVERSED = "½ Gᵀ diag(1, -1), which has the products as printed"
NEWTON_SCHULZ = "five Newton–Schulz steps from G/‖G‖_F"

PRINTED = {REVERSED: "reversed_as_printed"}
JACOBIAN.agree(
    "mixed-products-as-printed", "claim-4-example", "mixed_as_printed", PRINTED, holds=False
)("At G = I the mixed inner products of the derivatives along E_ab and E_ba are +1/2 and -1/2.")
JACOBIAN.agree(
    "mixed-products", "claim-4-example", "mixed", {REVERSED: "reversed"}, corrected=True
)("Both are -1/2.")
JACOBIAN.differ("skew-part", "claim-4", "asymmetry", {NEWTON_SCHULZ: "newton_schulz"}, holds=False)(
    "For matrices with two or more columns the Jacobian J of Ortho has a skew part, ‖J - Jᵀ‖/‖J‖"
    " > 0."
)

BOTH = {"asymmetry": "newton_schulz", "concavity": "newton_schulz_concavity"}
JACOBIAN.agree("symmetric", "claim-4", tuple(BOTH), {NEWTON_SCHULZ: BOTH}, corrected=True)(
    "At every G of full rank the Jacobian of Ortho is symmetric and positive semidefinite: Ortho is"
    " the gradient of a convex function."
)
SLOPES.agree("potential", "claim-4", "potential", {"⟨G, dG⟩": "not_potential"}, corrected=True)(
    "The function is the nuclear norm: its finite differences are ⟨Ortho(G), dG⟩."
)

CONSTANT = {"a scale that does not depend on G": "fixed_scale"}
JACOBIAN.differ("newton-schulz", "claim-4", "newton_schulz", CONSTANT, corrected=True)(
    "Muon's five Newton–Schulz steps from G/‖G‖_F are another field, which is not conservative."
)
JACOBIAN.agree(
    "normalizer", "claim-4", "fixed_scale", {"with ‖G‖_F": "newton_schulz"}, corrected=True
)("That is due to ‖G‖_F alone: with a scale that does not depend on G the steps are conservative.")

ROTATION = {"G times a rotation": "swirl"}
LOOPS.differ("curl", "claim-13-curl", "ortho", ROTATION, holds=False)(
    "For two or more columns the curl is not zero: Ortho has a circulation around closed loops."
)
LOOPS.agree(
    "no-circulation",
    "claim-13-curl",
    "ortho",
    ROTATION | {NEWTON_SCHULZ: "newton_schulz"},
    corrected=True,
)("Around closed loops through matrices of full rank the circulation of Ortho is zero.")
LOOPS.differ(
    "newton-schulz-circulates", "claim-13-curl", "newton_schulz", {"Ortho": "ortho"}, corrected=True
)("Newton–Schulz steps from G/‖G‖_F do have a circulation.")
LOOPS.agree("rank-one", "claim-13-only", "rank_one", {"a higher rank": "higher_rank"})(
    "As a statement on the Frobenius norm the title is right: at rank 1 Ortho(G) = ∇‖G‖_F."
)
LOOPS.differ("higher-rank", "claim-13-only", "higher_rank", {"rank 1": "rank_one"})(
    "At higher rank Ortho(G) is not ∇‖G‖_F."
)


EXPERIMENT = lab.Experiment(
    "claims-integrability",
    ledger("claims"),
    title="Ortho is a gradient field, of the nuclear norm; what Muon computes is none",
    summary=(
        "The text's counterexample has a wrong sign; five Newton–Schulz steps from G/‖G‖_F are no"
        " gradient field, due to ‖G‖_F."
    ),
    config=Matrices,
    measure={"jacobian": run_jacobians, "loops": run_loops},
    statements=states,
    headlines=("skew-part", "symmetric"),
    headlines_read=("jacobian",),
    scales={"quick": {"matrices": 70}, "smoke": {"matrices": 20}, "paper": {"matrices": 1000}},
)
