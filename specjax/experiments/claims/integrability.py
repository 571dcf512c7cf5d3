"""Claims 4 and 13: whether Ortho is a gradient field. It is, of the nuclear norm; Newton–Schulz steps are not.

Two tests of a field F on m×n matrices that do not share a computation: the symmetry of its Jacobian, and the integral of ⟨F, dG⟩
around closed loops.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import xarray as xr
from jaxtyping import Array, Float, Key

from specjax import lab, sizes, spectral, sweep
from specjax.experiments.claims.errors import Errors
from specjax.experiments.claims.matrices import jacobian_asymmetry, normals, orthonormal, relative
from specjax.experiments.ledgers import ledger
from specjax.spectral import NewtonSchulz

Field = Callable[[Array], Array]

SHAPES = ((3, 2), (4, 4))
LOOP_SHAPE = (3, 2)
LOOP_POINTS = 64
ROUNDING, DIFFERENCES = 1e-8, 1e-7
"""Errors are below 1e-12 for the matrices used, below 1e-9 by central differences; a field that is no gradient is off by about 0.1."""


class Config(lab.Config):
    """On how many matrices, and around how many loops, a field is tried."""

    matrices: int = lab.seeds(200, least=20, help="random matrices, and loops around them")


def _fixed_scale(scale: Array) -> Field:
    """Five Newton–Schulz steps from G / scale, the scale not depending on G."""

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


def _mixed(field: Field) -> Array:
    """⟨dG_b, dF[dG_a]⟩ and ⟨dG_a, dF[dG_b]⟩ at G = I, for dG_a = E_12 and dG_b = E_21."""
    jacobian = jax.jacfwd(field)(jnp.eye(2))
    return jnp.stack([jacobian[1, 0, 0, 1], jacobian[0, 1, 1, 0]])


def _lowest(jacobian: Float[Array, "m n m n"]) -> Float[Array, ""]:
    """The lowest eigenvalue of the symmetric part of a Jacobian."""
    size = jacobian.shape[0] * jacobian.shape[1]
    square = jacobian.reshape(size, size)
    return jnp.linalg.eigvalsh((square + square.T) / 2)[0]


def _swirl(g: Array) -> Array:
    """G times a rotation by 90°: a field that is certainly no gradient."""
    return g @ jnp.asarray([[0.0, 1.0], [-1.0, 0.0]])


def circulation(field: Field, centre: Float[Array, "m n"], plane: Float[Array, "2 m n"]) -> Float[Array, ""]:
    """∮ ⟨F, dG⟩ around centre + ½ (cos t · plane[0] + sin t · plane[1]), by the trapezoid rule, which is spectrally accurate here."""
    angles = 2 * jnp.pi * jnp.arange(LOOP_POINTS, dtype=centre.dtype) / LOOP_POINTS

    def integrand(t: Array) -> Array:
        point = centre + 0.5 * (jnp.cos(t) * plane[0] + jnp.sin(t) * plane[1])
        velocity = 0.5 * (-jnp.sin(t) * plane[0] + jnp.cos(t) * plane[1])
        return jnp.sum(field(point) * velocity)

    return 2 * jnp.pi * jnp.mean(jax.vmap(integrand)(angles))


def _well_conditioned(x: Array, spread: Array) -> Array:
    """For m >= n: orthonormal columns times a positive definite matrix, eigenvalues 1 to `spread`: derivatives are of order 1."""
    n = x.shape[1]
    eigenvalues = jnp.diag(jnp.linspace(1.0, 0.0, n)) * (spread - 1) + jnp.eye(n)
    return orthonormal(x) @ eigenvalues @ orthonormal(x[:n] + x[-n:]).T


def run(config: Config, key: Key[Array, ""]) -> dict[str, xr.Dataset]:
    """Jacobians of Ortho, at random matrices and at I, and of Newton–Schulz steps; circulations of both; gradients of the norms."""

    def jacobians(key: Key[Array, ""], spread: Array) -> dict[str, Array]:
        *starts, along = normals(key, *SHAPES, LOOP_SHAPE)
        factors = [jax.jacfwd(spectral.polar)(_well_conditioned(x, spread)) for x in starts]
        g = _well_conditioned(starts[0], spread)
        step = 1e-5
        difference = spectral.nuclear_norm(g + step * along) - spectral.nuclear_norm(g - step * along)
        slope = difference / (2 * step)
        ours, printed = -0.5, jnp.asarray([0.5, -0.5])
        newton_schulz = jax.jacfwd(_newton_schulz)(g)
        return {
            "asymmetry": jnp.stack([jacobian_asymmetry(jacobian) for jacobian in factors]),
            # The most negative curvature of the potential.
            "concavity": jnp.maximum(-jnp.stack([_lowest(jacobian) for jacobian in factors]), 0),
            "potential": jnp.abs(slope - jnp.sum(spectral.polar(g) * along)),
            "not_potential": jnp.abs(slope - jnp.sum(g * along)),
            "mixed": jnp.abs(_mixed(spectral.polar) - ours),
            "mixed_as_printed": jnp.abs(_mixed(spectral.polar) - printed),
            "reversed": jnp.abs(_mixed(_reversed) - ours),
            "reversed_as_printed": jnp.abs(_mixed(_reversed) - printed),
            "newton_schulz": jacobian_asymmetry(newton_schulz),
            "newton_schulz_concavity": jnp.maximum(-_lowest(newton_schulz), 0),
            "fixed_scale": jacobian_asymmetry(jax.jacfwd(_fixed_scale(jnp.linalg.norm(g)))(g)),
        }

    def loops(key: Key[Array, ""], radius: Array) -> dict[str, Array]:
        start, first, second, left, right = normals(key, *[LOOP_SHAPE] * 3, (4, 1), (3, 1))
        g = _well_conditioned(start, jnp.asarray(2.0))
        basis = orthonormal(jnp.stack([first.ravel(), second.ravel()], axis=1)).T.reshape(2, *LOOP_SHAPE)
        fields: dict[str, Field] = {"ortho": spectral.polar, "newton_schulz": _newton_schulz, "swirl": _swirl}
        found = {name: jnp.abs(circulation(field, g, radius * basis)) for name, field in fields.items()}
        matrices = {"rank_one": left @ right.T, "higher_rank": g}
        return found | {name: relative(spectral.polar(x), jax.grad(jnp.linalg.norm)(x)) for name, x in matrices.items()}

    with jax.enable_x64(True):
        jacobian = sweep.run(
            jacobians, {"spread": sweep.values(1.5, 4.0)}, seeds=config.matrices, key=sizes.stream(key, "matrices")
        )
        products = ("mixed", "mixed_as_printed", "reversed", "reversed_as_printed")
        named = jacobian.rename(
            {"asymmetry_dim_0": "shape", "concavity_dim_0": "shape"} | {f"{name}_dim_0": "product" for name in products}
        )
        over = {"radius": sweep.values(0.4, 0.8)}
        return {
            "jacobian": named.assign_coords(shape=[f"{m}×{n}" for m, n in SHAPES], product=["ab", "ba"]),
            "loops": sweep.run(loops, over, seeds=config.matrices, key=sizes.stream(key, "loops")),
        }


REVERSED = "½ Gᵀ diag(1, -1), which has the products as printed"
NEWTON_SCHULZ = "five Newton–Schulz steps from G/‖G‖_F"
JACOBIAN, LOOPS = Errors("jacobian", ROUNDING), Errors("loops", ROUNDING)
NUCLEAR = Errors("jacobian", DIFFERENCES)

STATEMENTS = (
    JACOBIAN.agree(
        "mixed-products-as-printed",
        "claim-4-example",
        "At G = I the mixed inner products of the derivatives along E_ab and E_ba are +1/2 and -1/2.",
        "mixed_as_printed",
        {REVERSED: "reversed_as_printed"},
        holds=False,
    ),
    JACOBIAN.agree(
        "mixed-products",
        "claim-4-example",
        "Both are -1/2.",
        "mixed",
        {REVERSED: "reversed"},
        corrected=True,
    ),
    JACOBIAN.differ(
        "skew-part",
        "claim-4",
        "For matrices with two or more columns the Jacobian J of Ortho has a skew part, ‖J - Jᵀ‖/‖J‖ > 0.",
        "asymmetry",
        {NEWTON_SCHULZ: "newton_schulz"},
        holds=False,
    ),
    JACOBIAN.agree(
        "symmetric",
        "claim-4",
        "At every G of full rank the Jacobian of Ortho is symmetric and positive semidefinite: Ortho is the gradient of a convex function.",
        ("asymmetry", "concavity"),
        {NEWTON_SCHULZ: {"asymmetry": "newton_schulz", "concavity": "newton_schulz_concavity"}},
        corrected=True,
    ),
    NUCLEAR.agree(
        "potential",
        "claim-4",
        "The function is the nuclear norm: its finite differences are ⟨Ortho(G), dG⟩.",
        "potential",
        {"⟨G, dG⟩": "not_potential"},
        corrected=True,
    ),
    JACOBIAN.differ(
        "newton-schulz",
        "claim-4",
        "Muon's five Newton–Schulz steps from G/‖G‖_F are another field, which is not conservative.",
        "newton_schulz",
        {"a scale that does not depend on G": "fixed_scale"},
        corrected=True,
    ),
    JACOBIAN.agree(
        "normalizer",
        "claim-4",
        "That is due to ‖G‖_F alone: with a scale that does not depend on G the steps are conservative.",
        "fixed_scale",
        {"with ‖G‖_F": "newton_schulz"},
        corrected=True,
    ),
    LOOPS.differ(
        "curl",
        "claim-13-curl",
        "For two or more columns the curl is not zero: Ortho has a circulation around closed loops.",
        "ortho",
        {"G times a rotation": "swirl"},
        holds=False,
    ),
    LOOPS.agree(
        "no-circulation",
        "claim-13-curl",
        "Around closed loops through matrices of full rank the circulation of Ortho is zero.",
        "ortho",
        {"G times a rotation": "swirl", NEWTON_SCHULZ: "newton_schulz"},
        corrected=True,
    ),
    LOOPS.differ(
        "newton-schulz-circulates",
        "claim-13-curl",
        "Newton–Schulz steps from G/‖G‖_F do have a circulation.",
        "newton_schulz",
        {"Ortho": "ortho"},
        corrected=True,
    ),
    LOOPS.agree(
        "rank-one",
        "claim-13-only",
        "As a statement on the Frobenius norm the title is right: at rank 1 Ortho(G) = ∇‖G‖_F.",
        "rank_one",
        {"a higher rank": "higher_rank"},
    ),
    LOOPS.differ(
        "higher-rank",
        "claim-13-only",
        "At higher rank Ortho(G) is not ∇‖G‖_F.",
        "higher_rank",
        {"rank 1": "rank_one"},
    ),
)


EXPERIMENT = lab.Experiment(
    "claims-integrability",
    ledger("claims"),
    title="Ortho is a gradient field, of the nuclear norm; what Muon computes is none",
    summary="The Jacobian of Ortho is symmetric and its circulation zero at every number of columns; the text's counterexample has a wrong "
    "sign. Five Newton–Schulz steps from G/‖G‖_F are no gradient field, on account of ‖G‖_F.",
    config=Config,
    measure=run,
    statements=STATEMENTS,
    scales={"smoke": {"matrices": 20}, "paper": {"matrices": 1000}},
)
